"""The two ways of talking to an engine behind one face: in token ids, recorded for training, or in messages."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cuda_agent.agent.chat import ChatRenderer, ParsedTurn
from cuda_agent.config import SamplingConfig
from cuda_agent.engines.base import Sampling, TextEngine, TokenEngine
from cuda_agent.engines.messages import Message, ToolSpec
from cuda_agent.store.arrays import TokenArrays

SHORTEST_ANSWER = 8  # tokens; with less room than this the context counts as full


@dataclass(frozen=True)
class Answer:
    """What the engine said. `raw` tells identical answers apart from others; `cut` means that its token limit ended it."""

    turn: ParsedTurn
    raw: str
    cut: bool = False


class Conversation(Protocol):
    """One episode's talk with an engine."""

    async def answer(self) -> Answer:
        """Ask for the next assistant message. Raises EngineError."""
        ...

    def add(self, results: Sequence[Message]) -> None:
        """Append what answers the assistant's message."""
        ...

    @property
    def full(self) -> bool:
        """Whether there is no room for another answer."""
        ...

    def arrays(self) -> TokenArrays | None:
        """What was said, in ids; None for text engines."""
        ...


def turn_seed(seed: int, turn: int) -> int:
    """A 62-bit seed for one assistant message of an episode."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{turn}".encode()).digest()[:8], "little") >> 2


class TokenConversation:
    """Talk in ids: the context only ever grows at its end, by what was sampled and by what the tools said."""

    def __init__(
        self,
        engine: TokenEngine,
        renderer: ChatRenderer,
        prompt: Sequence[int],
        *,
        sampling: SamplingConfig,
        context_tokens: int,
        turn_tokens: int,
        seed: int,
    ) -> None:
        self._engine, self._renderer = engine, renderer
        self._sampling, self._seed = sampling, seed
        own_limit = getattr(engine, "context_tokens", None)
        self._context = min(context_tokens, own_limit) if own_limit else context_tokens
        self._turn_tokens = turn_tokens
        self._ids: list[int] = []
        self._logprobs: list[float] = []
        self._mask: list[int] = []
        self._turns: list[int] = []
        self._message = -1
        self._answers = 0
        self._append(prompt)

    @property
    def full(self) -> bool:
        """Whether fewer than SHORTEST_ANSWER tokens are left."""
        return len(self._ids) + SHORTEST_ANSWER > self._context

    async def answer(self) -> Answer:
        """Sample one message."""
        room = min(self._turn_tokens, self._context - len(self._ids))
        sampling = Sampling.of(self._sampling, max_new_tokens=room, seed=turn_seed(self._seed, self._answers))
        generation = await self._engine.generate(self._ids, sampling)
        self._answers += 1
        count = len(generation.token_ids)
        self._ids += generation.token_ids
        self._logprobs += generation.logprobs
        self._mask += [1] * count
        self._turns += [self._message] * count
        turn = self._renderer.parse(generation.token_ids)
        return Answer(turn, self._renderer.decode(generation.token_ids), cut=generation.finish == "length")

    def add(self, results: Sequence[Message]) -> None:
        """Append the tool messages and the header of the next answer."""
        self._append(self._renderer.extend(self._ids, results)[len(self._ids) :])

    def arrays(self) -> TokenArrays:
        """The context so far; a header that no answer followed is left out."""
        last = len(self._mask) - self._mask[::-1].index(1) if 1 in self._mask else len(self._mask)
        return TokenArrays(
            np.array(self._ids[:last], np.int32),
            np.array(self._logprobs[:last], np.float32),
            np.array(self._mask[:last], np.uint8),
            np.array(self._turns[:last], np.int16),
        )

    def _append(self, ids: Sequence[int]) -> None:
        """Take in ids that the policy did not sample; each start-of-turn token begins the next message."""
        for token in ids:
            self._message += token == self._renderer.start_of_turn
            self._turns.append(max(0, self._message))
        self._ids += ids
        self._logprobs += [0.0] * len(ids)
        self._mask += [0] * len(ids)


class TextConversation:
    """Talk in messages, with an engine that keeps its tokens to itself."""

    def __init__(self, engine: TextEngine, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int) -> None:
        self._engine, self._tools, self._seed = engine, tools, seed
        self._messages = list(messages)

    @property
    def full(self) -> bool:
        """Never known here."""
        return False

    async def answer(self) -> Answer:
        """Ask for one message."""
        message = await self._engine.chat(self._messages, self._tools, turn_seed(self._seed, len(self._messages)))
        self._messages.append(message)
        return Answer(ParsedTurn(message.text, message.tool_calls), repr(message))

    def add(self, results: Sequence[Message]) -> None:
        """Append the tool messages."""
        self._messages += results

    def arrays(self) -> None:
        """Nothing to train on token by token."""
        return None
