"""Pure text work of the tools: cutting, numbering, replacing, and matching paths. Linear in its input, whatever the pattern."""

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

_SURROGATE = re.compile("[\ud800-\udfff]")
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")  # innermost alternatives


def cut(text: str, limit: int) -> str:
    """At most about `limit` characters: head and tail, with a note of what is missing between them."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]}\n[... {len(text) - head - tail} characters left out ...]\n{text[len(text) - tail :]}"


def printable(text: str) -> str:
    """The text with a mark for each byte that was no UTF-8."""
    return _SURROGATE.sub("\ufffd", text)


def numbered(text: str, offset: int, limit: int) -> str:
    """Lines `offset`.. (from 1) with their numbers, and a note when some are left out."""
    return _part(text.splitlines(), offset, limit, lambda number, line: f"{number:6d}\t{line}")


def part(text: str, offset: int, limit: int) -> str:
    """Lines `offset`.. (from 1) as they are, and a note when some are left out."""
    return _part(text.splitlines(), offset, limit, lambda _, line: line)


def _part(lines: list[str], offset: int, limit: int, show: Callable[[int, str], str]) -> str:
    shown = [show(number, line) for number, line in enumerate(lines[offset - 1 : offset - 1 + limit], offset)]
    if not shown:
        return f"[the file has {len(lines)} lines]"
    note = [] if len(shown) == len(lines) else [f"[lines {offset} to {offset + len(shown) - 1} of {len(lines)}]"]
    return "\n".join([*shown, *note])


def replaced(text: str, old: str, new: str, everywhere: bool) -> str:
    """The text with `old` replaced.

    Raises:
        ValueError: `old` is empty, is `new`, is not there, or occurs more than once without `everywhere`.
    """
    if not old or old == new:
        raise ValueError("old_string must be some text, and differ from new_string")
    count = text.count(old)
    if count == 0:
        raise ValueError("old_string is not in the file; read it again and copy the text exactly")
    if count > 1 and not everywhere:
        raise ValueError(f"old_string occurs {count} times; add lines around it, or set replace_all")
    return text.replace(old, new)


def expanded(pattern: str) -> list[str]:
    """The patterns that one with alternatives in braces, such as *.{cpp,h}, stands for.

    Raises:
        ValueError: they are more than 64.
    """
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        one = waiting.pop()
        braces = _BRACES.search(one)
        if braces is None:
            done.append(one)
        else:
            before, after = one[: braces.start()], one[braces.end() :]
            waiting += [before + choice + after for choice in braces[1].split(",")]
        if len(done) + len(waiting) > 64:
            raise ValueError("the pattern has more than 64 alternatives; write fewer braces")
    return list(dict.fromkeys(done))


def matches(path: PurePosixPath, pattern: str) -> bool:
    """Whether a relative path matches a glob pattern in which ** stands for any number of folders."""
    segments = [segment for segment in pattern.split("/") if segment not in ("", ".")]
    reached = {0}  # positions in the pattern that the path so far can stand at
    for part in path.parts:
        reached = _stars(segments, reached)
        following = {at for at in reached if at < len(segments) and segments[at] == "**"}
        following |= {at + 1 for at in reached if at < len(segments) and segments[at] != "**" and fnmatchcase(part, segments[at])}
        reached = following
    return len(segments) in _stars(segments, reached)


def _stars(segments: list[str], reached: set[int]) -> set[int]:
    """Positions reachable by letting ** stand for no folder at all."""
    closed = set(reached)
    for at in range(len(segments)):
        if at in closed and segments[at] == "**":
            closed.add(at + 1)
    return closed
