"""The workspace folder of the contract, and the prompt that an episode opens with.

What `create_workspace` writes is the published layout: protected files of the template, the problem as model.py, and an empty
kernels/. Of what an agent leaves there, only model_new.py and kernels/** are its submission.
"""

import shutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Literal

from cuda_agent.config import Backend

TEMPLATE = Path(__file__).with_name("template")
_SINGLE_TURN = (
    "## This time\n\nThere is one message only: hand everything in with Write calls in your first answer. Nothing else runs, "
    "and the judge takes what you wrote."
)
PROTECTED = ("SKILL.md", "model.py", "binding.cpp", "binding_registry.h", "utils")


@dataclass(frozen=True)
class EpisodePrompt:
    """The two messages that stand before the policy's first one."""

    system: str
    user: str


def is_protected(path: PurePosixPath) -> bool:
    """Whether a path relative to the workspace is, or lies in, what the agent must not change."""
    return bool(path.parts) and path.parts[0] in PROTECTED


def create_workspace(folder: Path, problem_code: str, backend: Backend) -> None:
    """Make a workspace for a problem in a new folder.

    Raises:
        FileExistsError: the folder exists; a workspace is never reused by accident.
    """
    folder.mkdir(parents=True)
    for part in ("common", backend):
        shutil.copytree(
            TEMPLATE / part,
            folder,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__", "SKILL.short.md", "SKILL.single.md"),
            copy_function=shutil.copyfile,
        )
    (folder / "model.py").write_text(problem_code, encoding="utf-8")
    (folder / "kernels").mkdir(exist_ok=True)


@lru_cache(maxsize=8)
def skill_text(backend: Backend, skill: Literal["full", "short"], single_turn: bool = False) -> str:
    """The instructions of a backend: SKILL.md, or a few lines for small models; in a single turn, what that means."""
    name = "SKILL.md" if skill == "full" else "SKILL.single.md" if single_turn else "SKILL.short.md"
    text = (TEMPLATE / backend / name).read_text(encoding="utf-8").strip()
    return f"{text}\n\n{_SINGLE_TURN}" if single_turn and skill == "full" else text


def episode_prompt(
    problem_code: str, backend: Backend, skill: Literal["full", "short"], *, single_turn: bool = False
) -> EpisodePrompt:
    """System and user message of an episode; the user's is the problem, with a sentence before it when `skill` is full."""
    system = skill_text(backend, skill, single_turn)
    if skill == "short":
        return EpisodePrompt(system, problem_code)
    return EpisodePrompt(system, f"Optimize the PyTorch model in model.py. It reads:\n\n```python\n{problem_code.strip()}\n```")
