"""A text engine for any endpoint that speaks OpenAI's chat completions with tool calls.

Transient faults (429, 5xx, a lost connection) are tried again with growing pauses; what remains is an EngineError. The
engine's tokens are not known, so its episodes train nothing but RFT, and only where the config says so.
"""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import httpx

from cuda_agent.config import SamplingConfig
from cuda_agent.engines.messages import Message, ToolCall, ToolSpec
from cuda_agent.errors import ConfigError, EngineError

MOST_TOKENS = 8_192  # of one answer, unless told otherwise
_TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


@dataclass(frozen=True)
class Endpoint:
    """Where an OpenAI-compatible model answers; the key is a secret and never stored."""

    base_url: str
    model: str
    api_key: str = field(default="", repr=False)

    @classmethod
    def of(cls, base_url: str | None = None, model: str | None = None, environment: Mapping[str, str] | None = None) -> Self:
        """What is given, else OPENAI_BASE_URL and OPENAI_MODEL; the key is OPENAI_API_KEY.

        Raises:
            ConfigError: address or model is named nowhere.
        """
        known = os.environ if environment is None else environment
        url, name = base_url or known.get("OPENAI_BASE_URL"), model or known.get("OPENAI_MODEL")
        if not url or not name:
            raise ConfigError(
                "a model behind an endpoint needs address and name: set OPENAI_BASE_URL (such as http://127.0.0.1:8000/v1) and "
                "OPENAI_MODEL, or name them with --endpoint and --model"
            )
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"the endpoint {url!r} is no http address; use one such as http://127.0.0.1:8000/v1")
        return cls(url, name, known.get("OPENAI_API_KEY", ""))

    def engine(self, sampling: SamplingConfig | None = None, max_tokens: int = MOST_TOKENS) -> "OpenAIEngine":
        """A client of it."""
        return OpenAIEngine(self.base_url, self.model, api_key=self.api_key, sampling=sampling, max_tokens=max_tokens)

    def provenance(self) -> dict[str, str]:
        """What may be stored of it."""
        return {"endpoint": self.base_url, "model": self.model}


class OpenAIEngine:
    """Client of one model at one endpoint."""

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str = "",
        sampling: SamplingConfig | None = None,
        max_tokens: int = MOST_TOKENS,
        timeout_seconds: float = 600.0,
        attempts: int = 5,
        pause_seconds: float = 1.0,
    ) -> None:
        """Describe the endpoint.

        Args:
            base_url: up to and without `/chat/completions`, such as http://127.0.0.1:8000/v1.
            model: the model's name there.
            api_key: sent as a bearer token when not empty.
            sampling: temperature and top_p (endpoints know no top_k).
            max_tokens: longest answer.
            timeout_seconds: limit of one request.
            attempts: tries of one request.
            pause_seconds: pause after the first failure; it doubles from try to try.
        """
        self._model, self._sampling, self._max_tokens = model, sampling or SamplingConfig(), max_tokens
        self._attempts, self._pause = attempts, pause_seconds
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.AsyncClient(base_url=base_url.rstrip("/"), headers=headers, timeout=timeout_seconds)

    async def __aenter__(self) -> Self:
        """Nothing to start."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self.close()

    async def chat(self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int) -> Message:
        """Answer the conversation so far. Raises EngineError."""
        body: dict[str, Any] = {
            "model": self._model,
            "messages": wire_messages(messages),
            "temperature": self._sampling.temperature,
            "top_p": self._sampling.top_p,
            "max_tokens": self._max_tokens,
            "seed": seed % 2**31,
        }
        if tools:
            body["tools"] = [
                {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": dict(t.parameters)}}
                for t in tools
            ]
        answer = await self._post(body)
        try:
            return read_message(answer["choices"][0]["message"])
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise EngineError(f"{self._client.base_url} answered without a message; check that it is a chat endpoint") from error

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _post(self, body: dict[str, Any]) -> Any:
        fault = ""
        for attempt in range(self._attempts):
            if attempt:
                await asyncio.sleep(self._pause * 2 ** (attempt - 1))
            try:
                response = await self._client.post("/chat/completions", json=body)
            except httpx.TransportError as error:
                fault = f"{type(error).__name__} {error}".strip()
                continue
            if response.status_code == 200:
                return _json(response)
            fault = f"status {response.status_code}: {response.text[:300]}"
            if response.status_code not in _TRANSIENT:
                break
        raise EngineError(f"model {self._model} at {self._client.base_url} does not answer: {fault}")


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError as error:
        raise EngineError(f"{response.url} answered no JSON; check base_url, which ends in /v1 as a rule") from error


def wire_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages in the endpoint's form; calls get ids by their place, and tool messages refer to them in order."""
    wire: list[dict[str, Any]] = []
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        entry: dict[str, Any] = {"role": message.role, "content": message.text}
        if message.tool_calls:
            open_calls = [f"call_{index}_{number}" for number in range(len(message.tool_calls))]
            entry["tool_calls"] = [
                {"id": name, "type": "function", "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments))}}
                for name, call in zip(open_calls, message.tool_calls, strict=True)
            ]
        elif message.role == "tool" and open_calls:
            entry["tool_call_id"] = open_calls.pop(0)
        elif message.role == "tool":
            entry["role"] = "user"  # an answer to no call, which endpoints refuse
        wire.append(entry)
    return wire


def read_message(wire: dict[str, Any]) -> Message:
    """An assistant message from the endpoint's form. Arguments that are no JSON object become one that no tool takes."""
    calls = [call["function"] for call in wire.get("tool_calls") or []]
    return Message(
        "assistant", wire.get("content") or "", tuple(ToolCall(f["name"], _arguments(f.get("arguments"))) for f in calls)
    )


def _arguments(text: Any) -> dict[str, Any]:
    try:
        value = json.loads(text) if isinstance(text, str) and text else text or {}
    except json.JSONDecodeError:
        value = None
    return value if isinstance(value, dict) else {"not_a_json_object": text}
