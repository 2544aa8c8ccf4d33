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
            ignore=shutil.ignore_patterns("__pycache__", "SKILL.short.md"),
            copy_function=shutil.copyfile,
        )
    (folder / "model.py").write_text(problem_code, encoding="utf-8")
    (folder / "kernels").mkdir(exist_ok=True)


@lru_cache(maxsize=8)
def skill_text(backend: Backend, skill: Literal["full", "short"]) -> str:
    """The instructions of a backend: SKILL.md, or a few lines for small models."""
    name = "SKILL.md" if skill == "full" else "SKILL.short.md"
    return (TEMPLATE / backend / name).read_text(encoding="utf-8").strip()


def episode_prompt(problem_code: str, backend: Backend, skill: Literal["full", "short"]) -> EpisodePrompt:
    """System and user message of an episode; the user's is the problem, with a sentence before it when `skill` is full."""
    system = skill_text(backend, skill)
    if skill == "short":
        return EpisodePrompt(system, problem_code)
    return EpisodePrompt(system, f"Optimize the PyTorch model in model.py. It reads:\n\n```python\n{problem_code.strip()}\n```")
