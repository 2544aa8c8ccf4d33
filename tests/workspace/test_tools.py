"""The file tools on a real folder; Bash and Grep in the real sandbox."""

import os
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import pytest_asyncio

from cuda_agent.engines.messages import ToolCall
from cuda_agent.sandbox.shell import Shell
from cuda_agent.workspace.template import PROTECTED, create_workspace
from cuda_agent.workspace.tools import ToolBox
from cuda_agent.workspace.tools.text import cut, matches


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    create_workspace(tmp_path / "w", "class Model: ...\n", "cpu")
    (tmp_path / "secret").write_text("secret")
    return tmp_path / "w"


@pytest_asyncio.fixture
async def box(workspace: Path) -> AsyncIterator[ToolBox]:
    async with Shell(workspace, read_only=[Path(name) for name in PROTECTED]) as shell:
        yield ToolBox(workspace, shell, seconds=10, output_chars=2_000)


async def use(box: ToolBox, name: str, **arguments: Any) -> str:
    result = await box.run(ToolCall(name, arguments))
    assert not result.invalid, result.text
    return result.text


async def test_write_read_edit(box: ToolBox, workspace: Path):
    assert await use(box, "Write", file_path="kernels/a/k.cpp", content="one\ntwo\n") == "wrote kernels/a/k.cpp"
    assert await use(box, "Read", file_path=f"{workspace}/kernels/a/k.cpp") == "     1\tone\n     2\ttwo"
    assert "[lines 2 to 2 of 2]" in await use(box, "Read", file_path="kernels/a/k.cpp", offset=2, limit=1)
    await use(box, "Edit", file_path="kernels/a/k.cpp", old_string="one", new_string="1")
    edits = [{"old_string": "1", "new_string": "x"}, {"old_string": "two", "new_string": "x"}]
    await use(box, "MultiEdit", file_path="kernels/a/k.cpp", edits=edits)
    assert "occurs 2 times" in await use(box, "Edit", file_path="kernels/a/k.cpp", old_string="x", new_string="y")
    await use(box, "Edit", file_path="kernels/a/k.cpp", old_string="x", new_string="y", replace_all=True)
    assert (workspace / "kernels/a/k.cpp").read_text() == "y\ny\n"


async def test_a_failing_multi_edit_changes_nothing(box: ToolBox, workspace: Path):
    await use(box, "Write", file_path="a.txt", content="one")
    edits = [{"old_string": "one", "new_string": "1"}, {"old_string": "absent", "new_string": "x"}]
    assert "not in the file" in await use(box, "MultiEdit", file_path="a.txt", edits=edits)
    assert (workspace / "a.txt").read_text() == "one"


@pytest.mark.parametrize("path", ["SKILL.md", "model.py", "utils/new.py", "./utils/compile.sh", "binding_registry.h"])
async def test_protected_files_are_refused(box: ToolBox, path: str):
    assert "protected" in await use(box, "Write", file_path=path, content="x")
    await use(box, "Read", file_path="SKILL.md")
    assert "protected" in await use(box, "Edit", file_path=path, old_string="a", new_string="b")


async def test_unread_files_are_not_overwritten(box: ToolBox, workspace: Path):
    (workspace / "model_new.py").write_text("old")
    assert "has not been read" in await use(box, "Write", file_path="model_new.py", content="new")
    assert "has not been read" in await use(box, "Edit", file_path="model_new.py", old_string="old", new_string="new")
    await use(box, "Read", file_path="model_new.py")
    await use(box, "Write", file_path="model_new.py", content="new")
    await use(box, "Write", file_path="model_new.py", content="newer")
    assert (workspace / "model_new.py").read_text() == "newer"


async def test_nothing_leads_out_of_the_workspace(box: ToolBox, workspace: Path, tmp_path: Path):
    (workspace / "link").symlink_to(tmp_path)
    (workspace / "kernels" / "k.cpp").symlink_to(tmp_path / "secret")
    os.mkfifo(workspace / "pipe")
    for path in ("../secret", f"{tmp_path}/secret", "link/secret", "kernels/k.cpp", "pipe", "", "kernels"):
        assert (await use(box, "Read", file_path=path)).startswith("error:"), path
        assert (await use(box, "Write", file_path=path, content="x")).startswith("error:"), path
    assert (tmp_path / "secret").read_text() == "secret"
    assert "secret" not in await use(box, "Glob", pattern="**")


async def test_invalid_calls_say_what_to_change(box: ToolBox):
    for name, arguments, expected in (
        ("Fly", {}, "no tool 'Fly'"),
        ("Write", {"file_path": "a"}, "lacks content"),
        ("Write", {"file_path": 1, "content": ""}, "must be of type string"),
        ("Bash", {"command": "ls", "color": "red"}, "no argument 'color'"),
        ("MultiEdit", {"file_path": "a", "edits": [{"old_string": "x"}]}, "lacks new_string"),
        ("Read", {"file_path": "a", "limit": True}, "must be of type integer"),
        ("Grep", {"pattern": "a", "output_mode": "x"}, "must be one of"),
    ):
        result = await box.run(ToolCall(name, arguments))
        assert result.invalid and expected in result.text


async def test_path_is_taken_for_file_path(box: ToolBox, workspace: Path):
    await use(box, "Write", path="a.txt", content="x")
    assert (workspace / "a.txt").exists()


async def test_bash_reports_output_codes_and_time_outs(box: ToolBox):
    assert await use(box, "Bash", command="cd kernels; echo hi") == "hi"
    assert (await use(box, "Bash", command="pwd; false")).endswith("/kernels\n[exit code 1]")
    assert await use(box, "Bash", command="true") == "[no output]"
    assert "stopped after 1 s" in await use(box, "Bash", command="sleep 9", timeout=1_000)


async def test_long_output_is_cut_with_a_note(box: ToolBox):
    answer = await use(box, "Bash", command="seq 1 5000")
    assert len(answer) < 2_200 and "characters left out" in answer and answer.startswith("1\n") and answer.endswith("5000")
    assert cut("x" * 10, 10) == "x" * 10


async def test_the_sandbox_may_change_what_the_tools_wrote(box: ToolBox):
    await use(box, "Write", file_path="kernels/deep/k.cpp", content="a\n")
    assert await use(box, "Bash", command="echo b >> kernels/deep/k.cpp && rm -r kernels/deep && echo gone") == "gone"


async def test_glob_and_grep(box: ToolBox):
    await use(box, "Write", file_path="kernels/a/k.cpp", content="int x;\nint y;\n")
    await use(box, "Write", file_path="kernels/b.cpp", content="long x;\n")
    assert await use(box, "Glob", pattern="kernels/**/*.cpp") == "kernels/a/k.cpp\nkernels/b.cpp"
    assert await use(box, "Glob", pattern="*.cpp", path="kernels") == "kernels/b.cpp"
    assert await use(box, "Grep", pattern=r"\bint\s+x", path="kernels") == "kernels/a/k.cpp"
    answer = await use(box, "Grep", pattern="INT", path="kernels", output_mode="content", **{"-i": True, "-n": True})
    assert answer == "kernels/a/k.cpp:1:int x;\nkernels/a/k.cpp:2:int y;"


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("a/b/c.py", "**/*.py", True),
        ("c.py", "**/*.py", True),
        ("a/c.py", "*.py", False),
        ("a/b/c.py", "a/**", True),
        ("a/b/c.py", "a/*/c.p?", True),
        ("a/b", "a/b/c", False),
        ("a" * 200, "*a" * 100 + "b", False),
    ],
)
def test_glob_patterns(path: str, pattern: str, expected: bool):
    assert matches(PurePosixPath(path), pattern) is expected


async def test_tools_on_offer_can_be_limited(workspace: Path):
    box = ToolBox(workspace, None, seconds=1, output_chars=1_000, allowed=["Write"])
    assert [tool.name for tool in box.specs] == ["Write"]
    assert (await box.run(ToolCall("Bash", {"command": "ls"}))).invalid
