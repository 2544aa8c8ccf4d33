"""Chat rendering in token ids, and reading what a policy wrote.

Invariants: the prompt of turn n+1 is turn n's prompt, the ids that were sampled, and the ids of the tool messages, exactly:
what was sampled is never decoded and encoded again. Text of users and tools cannot forge the template's control tokens.
Works from a policy folder's tokenizer.json and chat template, without torch or transformers.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Template
from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from cuda_agent.engines.messages import Message, ToolCall, ToolSpec
from cuda_agent.errors import ConfigError

TEMPLATE_PATH = Path(__file__).with_name("chat_template.jinja")
START_OF_TURN = "<|im_start|>"
END_OF_TURN = "<|im_end|>"
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_MARK = "\u2402"  # stands for an answer where only what follows it is wanted


# --- templates -------------------------------------------------------------------------------------------------------


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise(message: str) -> None:
    raise TemplateError(message)


@lru_cache(maxsize=8)
def _compiled(source: str) -> Template:
    """A chat template under the rules that transformers applies."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    return environment.from_string(source)


@lru_cache(maxsize=1)
def default_template() -> str:
    """The template of policies made here; a tokenizer carries it as its chat_template."""
    return TEMPLATE_PATH.read_text(encoding="utf-8")


def template_sha256(template: str) -> str:
    """Digest that policy versions and rollouts store."""
    return sha256(template.encode()).hexdigest()


def wire_message(message: Message) -> dict[str, Any]:
    """A message in the form that chat templates and OpenAI-like endpoints know."""
    wire: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.tool_calls:
        wire["tool_calls"] = [{"type": "function", "function": call.to_json()} for call in message.tool_calls]
    return wire


def wire_tool(tool: ToolSpec) -> dict[str, Any]:
    """A tool in the form that chat templates and OpenAI-like endpoints know."""
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def render(
    messages: Iterable[Message], *, tools: Sequence[ToolSpec] = (), generation: bool = False, template: str | None = None
) -> str:
    """The text of a conversation; with `generation` it ends where the assistant's next message begins."""
    return _compiled(template or default_template()).render(
        messages=[wire_message(message) for message in messages],
        tools=[wire_tool(tool) for tool in tools] or None,
        add_generation_prompt=generation,
        bos_token="",
        eos_token=END_OF_TURN,
    )


# --- what a policy wrote ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CallError:
    """A tool call that cannot be read; `message` tells the model what to change."""

    message: str


@dataclass(frozen=True)
class ParsedTurn:
    """An assistant message taken apart: free text, and its calls in order, each readable or not."""

    text: str
    calls: tuple[ToolCall | CallError, ...]

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The readable calls."""
        return tuple(call for call in self.calls if isinstance(call, ToolCall))

    @property
    def error(self) -> str | None:
        """The first fault, or None."""
        return next((call.message for call in self.calls if isinstance(call, CallError)), None)


def parse(text: str) -> ParsedTurn:
    """Take an assistant's text (without its end-of-turn token) apart; never raises."""
    calls = [_call(match.group(1)) for match in _CALL.finditer(text)]
    rest = _CALL.sub("", text)
    if "<tool_call>" in rest:
        rest, _, _ = rest.partition("<tool_call>")
        calls.append(CallError("a <tool_call> is not closed: end it with </tool_call> on a line of its own"))
    return ParsedTurn(rest.strip(), tuple(calls))


def _call(block: str) -> ToolCall | CallError:
    try:
        value = json.loads(block, strict=False)
    except (json.JSONDecodeError, RecursionError) as error:
        return CallError(f"the tool call is not valid JSON ({error}); write one object with name and arguments")
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return CallError('the tool call must be an object such as {"name": "Bash", "arguments": {"command": "ls"}}')
    arguments = value.get("arguments", {})
    if not isinstance(arguments, dict):
        return CallError(f"the arguments of {value['name']} must be an object of named values")
    return ToolCall(value["name"], arguments)


# --- token ids -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rendered:
    """A conversation as ids; `mask[i]` is 1 where the assistant wrote `ids[i]`, its end-of-turn included."""

    ids: list[int]
    mask: list[int]


class ChatRenderer:
    """Renders with one policy's tokenizer and template."""

    def __init__(self, tokenizer_path: Path, template: str | None = None) -> None:
        """Open a tokenizer.

        Args:
            tokenizer_path: a policy folder or its tokenizer.json.
            template: chat template; by default the policy folder's own, else the one of this project.

        Raises:
            ConfigError: no tokenizer is there, or it lacks the end-of-turn token.
        """
        file = tokenizer_path / "tokenizer.json" if tokenizer_path.is_dir() else tokenizer_path
        if not file.is_file():
            raise ConfigError(f"no tokenizer at {file}; name a policy folder that holds tokenizer.json")
        self.tokenizer: Tokenizer = Tokenizer.from_file(str(file))
        self.template = template or _stored_template(file.parent) or default_template()
        end = self.tokenizer.token_to_id(END_OF_TURN)
        if end is None:
            raise ConfigError(f"the tokenizer at {file} has no token {END_OF_TURN}; policies here speak ChatML")
        self.end_of_turn: int = end
        self.start_of_turn: int | None = self.tokenizer.token_to_id(START_OF_TURN)

    @property
    def template_sha256(self) -> str:
        """Digest of the template in use."""
        return template_sha256(self.template)

    def start(self, system: str, user: str, tools: Sequence[ToolSpec] = ()) -> list[int]:
        """The prompt of the first turn."""
        messages = [Message("system", self.inert(system)), Message("user", self.inert(user))]
        return self.encode(render(messages, tools=tools, generation=True, template=self.template))

    def follow_up(self, results: Sequence[Message]) -> list[int]:
        """The ids between an assistant's end-of-turn token and its next message: the given messages, and its header."""
        opening = [Message("user", "-"), Message("assistant", _MARK)]
        after = [Message(message.role, self.inert(message.text)) for message in results]
        text = render([*opening, *after], generation=True, template=self.template)
        return self.encode(text.partition(_MARK)[2].removeprefix(END_OF_TURN))

    def extend(self, ids: Sequence[int], results: Sequence[Message]) -> list[int]:
        """The next prompt: `ids` (prompt and sampled ids of the last turn) and the messages that answer it.

        A turn that was cut before its end-of-turn token is closed with one.
        """
        closed = [] if ids and ids[-1] == self.end_of_turn else [self.end_of_turn]
        return [*ids, *closed, *self.follow_up(results)]

    def conversation(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Rendered:
        """A whole conversation as training data: the same ids that an episode with these answers would have had.

        `messages` begin with system and user; whatever is not the assistant's stands between its messages. What follows the
        last assistant message is left out.
        """
        system, user, *rest = messages
        ids = self.start(system.text, user.text, tools)
        mask = [0] * len(ids)
        between: list[Message] = []
        answered = False
        for message in rest:
            if message.role != "assistant":
                between.append(message)
                continue
            if answered:
                extended = self.extend(ids, between)
                mask += [0] * (len(extended) - len(ids))
                ids, between = extended, []
            answer = [*self.encode(self.answer_text(message)), self.end_of_turn]
            ids += answer
            mask += [1] * len(answer)
            answered = True
        return Rendered(ids, mask)

    def answer_text(self, message: Message) -> str:
        """An assistant message as the policy would have written it, without its end-of-turn token."""
        opening = [Message("user", "-")]
        before = render(opening, generation=True, template=self.template)
        whole = render([*opening, message], template=self.template)
        return whole[len(before) : whole.rindex(END_OF_TURN)]

    def parse(self, ids: Sequence[int]) -> ParsedTurn:
        """Take sampled ids apart."""
        return parse(self.decode(ids))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of sampled ids, without a last end-of-turn token."""
        ended = bool(ids) and ids[-1] == self.end_of_turn
        text: str = self.tokenizer.decode(list(ids[:-1] if ended else ids), skip_special_tokens=False)
        return text

    def encode(self, text: str) -> list[int]:
        """Ids of rendered text; nothing is added around it."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def inert(self, text: str) -> str:
        """Text that holds no control token: a space breaks each one that it quotes."""
        for token in self._control_tokens:
            text = text.replace(token, f"{token[:1]} {token[1:]}")
        return text

    @cached_property
    def _control_tokens(self) -> tuple[str, ...]:
        added: Mapping[int, Any] = self.tokenizer.get_added_tokens_decoder()
        return tuple(token.content for token in added.values() if token.special and len(token.content) > 1)


def _stored_template(folder: Path) -> str | None:
    """The chat template that a policy folder carries, in either of the places that transformers writes it to."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    config = folder / "tokenizer_config.json"
    stored = json.loads(config.read_text(encoding="utf-8")).get("chat_template") if config.is_file() else None
    return stored if isinstance(stored, str) else None
