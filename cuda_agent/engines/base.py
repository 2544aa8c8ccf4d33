"""The two interfaces behind which every model stands.

A token engine maps prompt ids to sampled ids with their log-probs: what it returns can be trained on. A text engine maps
messages to a message. Both raise EngineError for any fault of their own, and never for what the model wrote.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from cuda_agent.config import SamplingConfig
from cuda_agent.engines.messages import Message, ToolSpec


@dataclass(frozen=True)
class Sampling:
    """How one answer is drawn; the defaults are those of training (the full vocabulary at temperature 1)."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 8_192
    seed: int = 0

    @classmethod
    def of(cls, config: SamplingConfig, *, max_new_tokens: int, seed: int) -> "Sampling":
        """Sampling by a config's rules for one answer."""
        return cls(config.temperature, config.top_p, config.top_k, max_new_tokens, seed)


@dataclass(frozen=True)
class Generation:
    """One sampled answer.

    `logprobs[i]` is that of `token_ids[i]` in the full vocabulary at the sampling temperature (1 for greedy answers), before
    top_p and top_k cut anything. `finish` is "stop" when the last id is the end-of-turn token, "length" when max_new_tokens or
    the model's context ended the answer.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Literal["stop", "length"]
    seconds: float


@runtime_checkable
class TokenEngine(Protocol):
    """Token ids in, token ids out, under one policy at a time."""

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Generation:
        """Sample one answer. Raises EngineError."""
        ...

    async def load_policy(self, weights: Path) -> None:
        """Serve the weights in this folder from now on; waits until no request is in flight. Raises EngineError."""
        ...

    async def close(self) -> None:
        """Stop serving and free what the engine holds."""
        ...


@runtime_checkable
class TextEngine(Protocol):
    """Messages in, one assistant message out."""

    async def chat(self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int) -> Message:
        """Answer the conversation so far. Raises EngineError."""
        ...

    async def close(self) -> None:
        """Free what the engine holds."""
        ...
