"""The file tools on a real folder; Bash and Grep in the real sandbox."""

import os
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath
from typing import Any, get_args

import pytest
import pytest_asyncio
import yaml

from cuda_agent.config import EpisodeConfig, ToolName
from cuda_agent.engines.messages import ToolCall
from cuda_agent.sandbox.shell import Shell
from cuda_agent.workspace.template import PROTECTED, create_workspace
from cuda_agent.workspace.tools import TOOLS, ToolBox
from cuda_agent.workspace.tools.schema import offered
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
        ("Grep", {"pattern": "a", "-C": -1}, "at least 0"),
        ("Bash", {"command": "ls", "run_in_background": "yes"}, "must be of type boolean"),
        ("BashOutput", {}, "lacks bash_id"),
        ("KillBash", {"shell_id": 3}, "must be of type string"),
        ("NotebookEdit", {"notebook_path": "a.ipynb"}, "lacks new_source"),
        ("NotebookEdit", {"notebook_path": "a.ipynb", "new_source": "", "edit_mode": "append"}, "must be one of"),
        ("TodoWrite", {"todos": [{"content": "x", "status": "done"}]}, "todos[0]: status must be one of"),
        ("TodoWrite", {"todos": [{"content": "x", "status": "pending", "id": 1.5}]}, "string or integer"),
        ("TodoWrite", {"todos": [{"content": "x", "status": "pending"}] * 51}, "at most 50"),
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


async def test_glob_and_grep(box: ToolBox, workspace: Path):
    await use(box, "Write", file_path="kernels/a/k.cpp", content="int x;\nint y;\n")
    await use(box, "Write", file_path="kernels/b.cpp", content="long x;\n")
    os.utime(workspace / "kernels/b.cpp", (1, 1))
    assert await use(box, "Glob", pattern="kernels/**/*.cpp") == "kernels/a/k.cpp\nkernels/b.cpp"
    os.utime(workspace / "kernels/a/k.cpp", (0, 0))
    assert await use(box, "Glob", pattern=f"{workspace}/kernels/**/*.{{cpp,h}}") == "kernels/b.cpp\nkernels/a/k.cpp"
    assert await use(box, "Grep", pattern=r"int|long", path="kernels") == "kernels/b.cpp\nkernels/a/k.cpp"
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


async def test_grep_takes_ripgreps_arguments(box: ToolBox):
    await use(box, "Write", file_path="kernels/k.cpp", content="int x;\nvoid f() {\n  x = 1;\n}\n")
    await use(box, "Write", file_path="kernels/k.py", content="x = 1\n" + "y" * 3_000 + " = x\n")
    assert await use(box, "Grep", pattern=r"x = 1", path="kernels", type="py") == "kernels/k.py"
    assert await use(box, "Grep", pattern=r"x = 1", glob="*.cpp,*.h") == "kernels/k.cpp"
    assert await use(box, "Grep", pattern=r"x = 1", glob="*.{cpp,h}") == "kernels/k.cpp"
    content = {"output_mode": "content", "path": "kernels/k.cpp"}
    assert (
        await use(box, "Grep", pattern="void", **content, **{"-A": 1}) == "kernels/k.cpp:2:void f() {\nkernels/k.cpp-3-  x = 1;"
    )
    assert await use(box, "Grep", pattern="void", **content, **{"-B": 1, "-n": False}) == (
        "kernels/k.cpp-int x;\nkernels/k.cpp:void f() {"
    )
    assert len((await use(box, "Grep", pattern="void", **content, **{"-C": 1})).splitlines()) == 3
    assert await use(box, "Grep", pattern=r"\{.*\}", **content) == "[no match]"
    assert (await use(box, "Grep", pattern=r"\{.*\}", multiline=True, **content)).startswith("kernels/k.cpp:2:")
    assert await use(box, "Grep", pattern="x", path="kernels", output_mode="count", type="cpp") == "kernels/k.cpp:2"
    assert await use(box, "Grep", pattern=r"x(?= = 1;)", path="kernels") == "kernels/k.cpp"
    assert await use(box, "Grep", pattern="x|=", head_limit=1, **content) == (
        "kernels/k.cpp:1:int x;\n[1 more lines; head_limit is 1]"
    )
    assert "more lines" not in await use(box, "Grep", pattern="x|=", head_limit=0, **content)
    assert len(await use(box, "Grep", pattern="y = x", path="kernels", output_mode="content")) < 1_200
    assert "unclosed" in await use(box, "Grep", pattern="(")
    assert "klingon" in await use(box, "Grep", pattern="x", type="klingon")
    assert "No such file" in await use(box, "Grep", pattern="x", path="absent")


async def test_glob_stays_inside_and_says_what_it_left_out(box: ToolBox, workspace: Path, tmp_path: Path):
    (workspace / "link").symlink_to(tmp_path)
    assert (await use(box, "Glob", pattern="*", path="link")).startswith("error:")
    assert "does not exist" in await use(box, "Glob", pattern="*", path="absent")
    assert "outside" in await use(box, "Glob", pattern="/etc/*")
    assert "64 alternatives" in await use(box, "Glob", pattern="{a,b,c}" * 8)
    assert await use(box, "Glob", pattern="*", path="SKILL.md") == "[no file matches]"
    (workspace / "many").mkdir()
    for number in range(203):
        (workspace / "many" / f"{number}.txt").touch()
    answer = await use(box, "Glob", pattern="many/*.txt")
    assert answer.endswith("[3 more; narrow the pattern]") and "characters left out" in answer


async def test_a_write_replaces_the_file_in_one_step_and_keeps_its_mode(box: ToolBox, workspace: Path):
    await use(box, "Bash", command="echo 'echo old' > run.sh; chmod 755 run.sh; exec 7< run.sh")
    await use(box, "Read", file_path="run.sh")
    await use(box, "Write", file_path="run.sh", content="echo new\n")
    assert await use(box, "Bash", command="cat <&7; ./run.sh; echo more >> run.sh; ls -A . kernels | grep -c new$") == (
        "echo old\nnew\n0\n[exit code 1]"
    )
    assert "surrogate" in await use(box, "Write", file_path="bad.txt", content="\ud800")
    assert not (workspace / "bad.txt").exists()


async def test_bytes_that_are_no_text_can_be_shown(box: ToolBox, workspace: Path):
    (workspace / "blob").write_bytes(b"a\xff\0b")
    answer = await use(box, "Read", file_path="blob")
    assert "a\ufffd\0b" in answer and answer.encode()


async def test_background_commands(box: ToolBox):
    answer = await use(box, "Bash", command="cd kernels; for i in 1 2 3; do echo line $i; done; sleep 60", run_in_background=True)
    assert answer.startswith("started as bash_1;")
    for _ in range(100):
        answer = await use(box, "BashOutput", bash_id="bash_1")
        if "line 3" in answer:
            break
    assert answer.startswith("line 1\nline 2\nline 3\n[bash_1 runs for ")
    assert (await use(box, "BashOutput", bash_id="bash_1")).startswith("[no new output]\n[bash_1 runs")
    assert "was killed after" in await use(box, "KillBash", shell_id="bash_1")
    assert "was killed after" in await use(box, "BashOutput", shell_id="bash_1")  # a frequent slip
    assert "no background job 'bash_9'; there are bash_1" in await use(box, "KillBash", bash_id="bash_9")
    for _ in range(8):
        await use(box, "Bash", command="sleep 60", run_in_background=True)
    assert "8 background jobs run already" in await use(box, "Bash", command="true", run_in_background=True)


async def test_a_filter_shows_matching_lines_and_a_wrong_one_costs_nothing(box: ToolBox):
    await use(box, "Bash", command="printf 'a 1\\0\\nb 2\\na 3\\n'", run_in_background=True)
    await use(box, "Bash", command="sleep 0.1")
    for _ in range(2):
        wrong = await use(box, "BashOutput", bash_id="bash_1", filter="(")
        assert "not a regular expression" in wrong and "unclosed" in wrong
    assert (await use(box, "BashOutput", bash_id="bash_1", filter="^a")).startswith("a 1\na 3\n[bash_1 ended with exit code 0")
    await use(box, "Bash", command="echo b > done; echo b", run_in_background=True)
    await use(box, "Bash", command="while [ ! -s done ]; do sleep 0.01; done; sleep 0.1")
    assert (await use(box, "BashOutput", bash_id="bash_2", filter="^a")).startswith("[no new line matches the filter]\n[bash_2 ")


async def test_the_list_of_what_to_do(box: ToolBox):
    todos = [
        {"content": "read", "status": "completed", "activeForm": "Reading", "id": "1", "priority": "high"},
        {"content": "write\nit", "status": "in_progress", "id": 2},
        {"content": "measure", "status": "pending"},
    ]
    answer = await use(box, "TodoWrite", todos=todos)
    assert answer == "[x] read (high)\n[>] write it\n[ ] measure\n[1 of 3 done]"
    assert "todos[0]" in await use(box, "TodoWrite", todos=[{"content": " ", "status": "pending"}])
    assert [todo["content"] for todo in box.todos] == ["read", "write\nit", "measure"]
    assert await use(box, "TodoWrite", todos=[]) == "[the list is empty]" and box.todos == ()


def test_the_setting_names_every_tool():
    assert set(get_args(ToolName)) == {tool.name for tool in TOOLS} == set(EpisodeConfig().tools)


def test_the_quickstarts_policy_is_offered_what_it_was_trained_with(workspace: Path):
    quickstart = yaml.safe_load((Path(__file__).parents[2] / "infra/campaigns/quickstart.yaml").read_text())
    episodes = [quickstart["warmup"]["science"]["rollouts"]["episode"], quickstart["rollouts"]["science"]["episode"]]
    for episode in map(EpisodeConfig.model_validate, episodes):
        assert episode.tools == ("Bash", "Read", "Write", "Edit", "MultiEdit", "Glob", "Grep")
        assert "run_in_background" not in offered(episode.tools)[0].parameters["properties"]


async def test_tools_on_offer_can_be_limited(workspace: Path):
    box = ToolBox(workspace, None, seconds=1, output_chars=1_000, allowed=["Write"])
    assert [tool.name for tool in box.specs] == ["Write"]
    assert (await box.run(ToolCall("Bash", {"command": "ls"}))).invalid
    without_shell = {tool.name for tool in ToolBox(workspace, None, seconds=1, output_chars=1_000).specs}
    assert without_shell == {"Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "Glob", "TodoWrite"}
