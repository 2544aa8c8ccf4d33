"""The workspace folder and the prompt of an episode."""

from pathlib import Path, PurePosixPath

import pytest

from cuda_agent.workspace.template import PROTECTED, create_workspace, episode_prompt, is_protected, skill_text

PROBLEM = "class Model: ...\n"


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_a_workspace_has_the_published_layout(tmp_path: Path, backend):
    folder = tmp_path / "w"
    create_workspace(folder, PROBLEM, backend)
    for name in (*PROTECTED, "kernels", "utils/compile.sh", "utils/verification.py", "utils/profiling.py", "utils/run.py"):
        assert (folder / name).exists(), name
    assert (folder / "model.py").read_text() == PROBLEM
    assert not (folder / "SKILL.short.md").exists()
    assert f"{backend}_extension" in (folder / "SKILL.md").read_text()
    with pytest.raises(FileExistsError):
        create_workspace(folder, PROBLEM, backend)


def test_what_is_protected():
    for path in ("model.py", "utils", "utils/compile.sh", "SKILL.md", "binding.cpp"):
        assert is_protected(PurePosixPath(path))
    for path in ("model_new.py", "kernels/model.py", "bench.py"):
        assert not is_protected(PurePosixPath(path))


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_the_short_prompt_is_a_few_lines_and_the_problem_itself(backend):
    prompt = episode_prompt(PROBLEM, backend, "short")
    assert prompt.user == PROBLEM
    assert len(prompt.system.splitlines()) <= 3
    full = episode_prompt(PROBLEM, backend, "full")
    assert full.system == skill_text(backend, "full")
    assert PROBLEM.strip() in full.user
