"""A KernelBench checkout as problems: `KernelBench/level1/19_ReLU.py` and so on, in order of level and number.

The texts stay as they are and are only parsed. Their operators are read from the tree; `data_source` is `kernelbench#1` for
level 1. KernelBench is MIT-licensed; nothing of it is part of this project.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cuda_agent.errors import ProblemError
from cuda_agent.problems.operators import operators_of
from cuda_agent.problems.problem import MAX_CHARS, Problem, read_contract

LEVELS = (1, 2, 3)  # level 4 wraps hub models, which need a network
LICENSE = "mit"
_FILE = re.compile(r"(\d+)_\w.*\.py")
_LEVEL = re.compile(r"level(\d+)")
_MEND = "name the folder of a KernelBench checkout, which holds KernelBench/level1/1_….py"


@dataclass(frozen=True)
class Entry:
    """One file: its name in the checkout without suffix (`level1/19_ReLU`) and the problem in it."""

    name: str
    problem: Problem


def import_kernelbench(folder: Path, levels: Sequence[int] | None = None) -> list[Problem]:
    """The problems of some levels, in order; by default of those of levels 1 to 3 that are there.

    Raises:
        ProblemError: the folder is missing or laid out otherwise, a level is not in it, or a file is no problem.
    """
    return [entry.problem for entry in read_checkout(folder, levels)]


def is_checkout(folder: Path) -> bool:
    """Whether a folder looks like a checkout or its inner folder."""
    return bool(_levels(folder / "KernelBench") or _levels(folder))


def read_checkout(folder: Path, levels: Sequence[int] | None = None) -> list[Entry]:
    """As `import_kernelbench`, with the files' names."""
    if not folder.is_dir():
        raise ProblemError(f"{folder} is no folder; {_MEND}")
    found = _levels(folder / "KernelBench") or _levels(folder)
    if not found:
        raise ProblemError(f"{folder} has no folders level1, level2, …: no KernelBench, or another version; {_MEND}")
    if levels is None:
        levels = [level for level in LEVELS if level in found]
    if not levels:
        raise ProblemError(f"no level of {folder} is asked for; name one of {_list(found)}")
    missing = sorted(set(levels) - set(found))
    if missing:
        raise ProblemError(f"{folder} has no level{missing[0]}; name one of {_list(found)}")
    return [entry for level in sorted(set(levels)) for entry in _read_level(found[level], level)]


def _levels(folder: Path) -> dict[int, Path]:
    if not folder.is_dir():
        return {}
    matches = ((_LEVEL.fullmatch(path.name), path) for path in folder.iterdir() if path.is_dir())
    return {int(match[1]): path for match, path in matches if match}


def _list(levels: dict[int, Path]) -> str:
    return ", ".join(str(level) for level in sorted(levels))


def _read_level(folder: Path, level: int) -> list[Entry]:
    numbered = sorted((int(match[1]), path) for path in folder.iterdir() if (match := _FILE.fullmatch(path.name)))
    if not numbered:
        raise ProblemError(f"{folder} holds no files such as 1_Name.py: another version of KernelBench; {_MEND}")
    return [Entry(f"level{level}/{path.stem}", _read(path, level)) for _, path in numbered]


def _read(path: Path, level: int) -> Problem:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            code = file.read(MAX_CHARS + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ProblemError(f"cannot read {path}: {reason}; {_MEND}") from error
    try:
        read_contract(code)
        operators = operators_of(code) or operators_of(code, every=True)
    except ProblemError as error:
        raise ProblemError(f"{path}: {error}; it is of another version of KernelBench, or leave its level out") from error
    return Problem(operators, f"kernelbench#{level}", code)
