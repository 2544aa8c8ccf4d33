"""Pure text work of the tools: cutting, numbering, replacing, and matching paths. Linear in its input, whatever the pattern."""

from fnmatch import fnmatchcase
from pathlib import PurePosixPath


def cut(text: str, limit: int) -> str:
    """At most about `limit` characters: head and tail, with a note of what is missing between them."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]}\n[... {len(text) - head - tail} characters left out ...]\n{text[-tail:]}"


def numbered(text: str, offset: int, limit: int) -> str:
    """Lines `offset`.. (from 1) with their numbers, and a note when some are left out."""
    lines = text.splitlines()
    shown = lines[offset - 1 : offset - 1 + limit]
    body = "\n".join(f"{number:6d}\t{line}" for number, line in enumerate(shown, offset))
    if not shown:
        return f"[the file has {len(lines)} lines]"
    return body if len(shown) == len(lines) else f"{body}\n[lines {offset} to {offset + len(shown) - 1} of {len(lines)}]"


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
