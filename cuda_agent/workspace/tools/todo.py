"""The agent's list of what it means to do: shown back to it, kept for its episode, and read by nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any

MOST = 50
_CHARS = 500
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


def checked(todos: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """The list as it is kept.

    Raises:
        ValueError: an entry is empty or too long.
    """
    for index, todo in enumerate(todos):
        if not todo["content"].strip() or len(todo["content"]) > _CHARS:
            raise ValueError(f"todos[{index}]: content must have 1 to {_CHARS} characters")
    return tuple(dict(todo) for todo in todos)


def listed(todos: Sequence[Mapping[str, Any]]) -> str:
    """The list as the model sees it, a line for each entry."""
    lines = [f"{_MARKS[todo['status']]} {' '.join(todo['content'].split())}{_priority(todo)}" for todo in todos]
    done = sum(todo["status"] == "completed" for todo in todos)
    return "\n".join([*lines, f"[{done} of {len(todos)} done]"]) if todos else "[the list is empty]"


def _priority(todo: Mapping[str, Any]) -> str:
    return f" ({todo['priority']})" if "priority" in todo else ""
