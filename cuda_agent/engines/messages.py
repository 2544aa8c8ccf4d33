"""The messages of an episode, independent of any engine's wire format.

Invariants: a tool message answers one tool call; the tool messages after an assistant message stand in the order of
its calls, so calls need no ids. All types are immutable and made of JSON values only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True)
class ToolCall:
    """One call that an assistant message asks for."""

    name: str
    arguments: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The call as a JSON value, keys in the order that policies write them."""
        return {"name": self.name, "arguments": dict(self.arguments)}


@dataclass(frozen=True)
class Message:
    """One message: text, and for an assistant the tool calls that follow the text."""

    role: Role
    text: str
    tool_calls: tuple[ToolCall, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The message as a JSON value."""
        return {"role": self.role, "text": self.text, "tool_calls": [call.to_json() for call in self.tool_calls]}


@dataclass(frozen=True)
class ToolSpec:
    """What a model is told about a tool; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]
