"""Running one tool call. Never raises for what a call asks: the answer is text that the model can act on.

SandboxError alone passes through: the host could not run the sandbox, and the episode is no one's fault.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from cuda_agent.engines.messages import ToolCall, ToolSpec
from cuda_agent.sandbox.jobs import JobFault, JobReport
from cuda_agent.sandbox.shell import ShellResult
from cuda_agent.workspace.template import is_protected
from cuda_agent.workspace.tools import notebook, search, todo
from cuda_agent.workspace.tools import text as texts
from cuda_agent.workspace.tools.folder import FileFault, Folder
from cuda_agent.workspace.tools.schema import TOOLS, fault, offered, with_aliases

_READ_LINES = 2_000
_SEARCH_SECONDS = 20.0
_NEED_SHELL = {"Bash", "BashOutput", "KillBash", "Grep"}


class Runner(Protocol):
    """What Bash, its background jobs and Grep need: sandbox/shell.py's Shell, or a wrapper of it."""

    async def run(self, command: str, timeout: float | None = None) -> ShellResult:
        """Run a command for at most `timeout` seconds."""
        ...

    async def start(self, command: str) -> str:
        """Start a background job and return its id. Raises JobFault."""
        ...

    async def look(self, job_id: str) -> JobReport:
        """What a job printed since the last look. Raises JobFault."""
        ...

    async def kill(self, job_id: str) -> JobReport:
        """End a job and what it started. Raises JobFault."""
        ...


@dataclass(frozen=True)
class ToolResult:
    """What the model is told. `invalid` marks calls that no tool could run: an unknown name, or arguments that don't fit."""

    text: str
    invalid: bool = False


class ToolBox:
    """The tools of one episode on one workspace."""

    def __init__(
        self, workspace: Path, shell: Runner | None, *, seconds: float, output_chars: int, allowed: Collection[str] | None = None
    ) -> None:
        """Set up.

        Args:
            workspace: the folder that the tools act on.
            shell: where commands and searches run; None leaves their tools out.
            seconds: longest that one command may take.
            output_chars: longest answer; more is cut, with a note.
            allowed: names of the tools on offer; all by default.
        """
        self._folder = Folder(workspace)
        self._shell = shell
        self._seconds = seconds
        self._chars = output_chars
        self._read: set[PurePosixPath] = set()  # what the agent has seen or written itself
        self._todos: tuple[Mapping[str, Any], ...] = ()
        names = {tool.name for tool in TOOLS} if allowed is None else set(allowed)
        self.specs: tuple[ToolSpec, ...] = offered(names - (_NEED_SHELL if shell is None else set()))

    async def run(self, call: ToolCall) -> ToolResult:
        """Run a call and return what to tell the model. Raises SandboxError."""
        spec = next((tool for tool in self.specs if tool.name == call.name), None)
        if spec is None:
            return ToolResult(f"there is no tool {call.name!r}; use {', '.join(tool.name for tool in self.specs)}", invalid=True)
        arguments = with_aliases(call.name, call.arguments)
        wrong = fault(arguments, spec.parameters, call.name)
        if wrong:
            return ToolResult(wrong, invalid=True)
        try:
            answer = await self._actions()[call.name](arguments)
        except (FileFault, JobFault, ValueError) as error:
            answer = f"error: {error}"
        return ToolResult(texts.cut(texts.printable(answer), self._chars))

    def _actions(self) -> Mapping[str, Callable[[dict[str, Any]], Awaitable[str]]]:
        return {
            "Bash": self._bash,
            "BashOutput": self._bash_output,
            "KillBash": self._kill_bash,
            "Read": self._read_file,
            "Write": self._write,
            "Edit": self._edit,
            "MultiEdit": self._multi_edit,
            "NotebookEdit": self._notebook_edit,
            "Glob": self._glob,
            "Grep": self._grep,
            "TodoWrite": self._todo_write,
        }

    @property
    def todos(self) -> tuple[Mapping[str, Any], ...]:
        """The agent's list as it last wrote it."""
        return self._todos

    async def _bash(self, arguments: dict[str, Any]) -> str:
        assert self._shell is not None
        if arguments.get("run_in_background"):
            job_id = await self._shell.start(arguments["command"])
            return f"started as {job_id}; read its output with BashOutput, end it with KillBash"
        seconds = min(self._seconds, max(1.0, arguments.get("timeout", self._seconds * 1_000) / 1_000))
        result = await self._shell.run(arguments["command"], seconds)
        code = f"[exit code {result.exit_code}]" if result.exit_code else ""
        return "\n".join(filter(None, (result.output.rstrip("\n"), code))) or "[no output]"

    async def _bash_output(self, arguments: dict[str, Any]) -> str:
        assert self._shell is not None
        pattern = arguments.get("filter", "")
        if pattern:  # tried first: a pattern that is wrong must not cost the output
            tried = await self._shell.run(search.filter_check(pattern), _SEARCH_SECONDS)
            if tried.exit_code != 0:
                raise ValueError(f"filter is not a regular expression: {tried.output.strip()}")
        report = await self._shell.look(arguments["bash_id"])
        output = report.output
        if pattern and output:
            output = (await self._shell.run(search.filter_command(pattern, output), _SEARCH_SECONDS)).output
            output = output or "[no new line matches the filter]"
        return _job_text(report, output)

    async def _kill_bash(self, arguments: dict[str, Any]) -> str:
        assert self._shell is not None
        report = await self._shell.kill(arguments["shell_id"])
        return _job_text(report, report.output)

    async def _read_file(self, arguments: dict[str, Any]) -> str:
        path = self._folder.relative(arguments["file_path"])
        content = self._folder.read(path)
        self._read.add(path)
        offset, limit = max(1, arguments.get("offset", 1)), max(1, arguments.get("limit", _READ_LINES))
        if not content:
            return "[the file is empty]"
        if path.suffix != ".ipynb":
            return texts.numbered(content, offset, limit)
        try:
            return texts.part(await asyncio.to_thread(notebook.shown, content), offset, limit)
        except ValueError as error:
            return f"{texts.numbered(content, offset, limit)}\n[shown as text: {error}]"

    async def _write(self, arguments: dict[str, Any]) -> str:
        path = self._changeable(arguments["file_path"])
        if self._folder.exists(path) and path not in self._read:
            raise FileFault(f"{path} exists and has not been read; read it first")
        self._folder.write(path, arguments["content"])
        self._read.add(path)
        return f"wrote {path}"

    async def _edit(self, arguments: dict[str, Any]) -> str:
        return self._apply(arguments["file_path"], [arguments])

    async def _multi_edit(self, arguments: dict[str, Any]) -> str:
        if not arguments["edits"]:
            raise ValueError("edits is empty")
        return self._apply(arguments["file_path"], arguments["edits"])

    def _apply(self, file_path: str, edits: list[dict[str, Any]]) -> str:
        path, content = self._known(file_path)
        for edit in edits:
            content = texts.replaced(content, edit["old_string"], edit["new_string"], edit.get("replace_all", False))
        self._folder.write(path, content)
        return f"edited {path}"

    async def _notebook_edit(self, arguments: dict[str, Any]) -> str:
        path, content = self._known(arguments["notebook_path"])
        if path.suffix != ".ipynb":
            raise FileFault(f"{path} is not a notebook (.ipynb); use Edit")
        edit = notebook.CellEdit(
            arguments.get("edit_mode", "replace"), arguments["new_source"], arguments.get("cell_id"), arguments.get("cell_type")
        )
        changed, done = await asyncio.to_thread(notebook.edited, content, edit)
        self._folder.write(path, changed)
        return f"{done} of {path}"

    async def _todo_write(self, arguments: dict[str, Any]) -> str:
        self._todos = todo.checked(arguments["todos"])
        return todo.listed(self._todos)

    async def _glob(self, arguments: dict[str, Any]) -> str:
        return search.globbed(self._folder, arguments["pattern"], self._folder.relative(arguments.get("path", ".")))

    async def _grep(self, arguments: dict[str, Any]) -> str:
        assert self._shell is not None
        below = self._folder.relative(arguments.get("path", "."))
        command = search.grep_command(arguments, self._folder.root, below)
        result = await self._shell.run(command, min(self._seconds, _SEARCH_SECONDS))
        return search.grep_answer(result, arguments.get("head_limit", search.LISTED))

    def _known(self, file_path: str) -> tuple[PurePosixPath, str]:
        """A file that may be changed, with its content. Raises FileFault."""
        path = self._changeable(file_path)
        content = self._folder.read(path)
        if path not in self._read:
            raise FileFault(f"{path} has not been read; read it first")
        return path, content

    def _changeable(self, file_path: str) -> PurePosixPath:
        path = self._folder.relative(file_path)
        if is_protected(path):
            raise FileFault(f"{path} is protected; write model_new.py and files in kernels/")
        return path


def _job_text(report: JobReport, output: str) -> str:
    """What a job printed, and a line on how it stands."""
    dropped = f"[{report.dropped} bytes before this were dropped; send long output to a file]" if report.dropped else ""
    code = f" with exit code {report.exit_code}" if report.exit_code is not None else ""
    state = {"running": "runs for", "ended": f"ended{code} after", "killed": "was killed after", "lost": "was lost after"}
    left = f"; {report.killed} processes were ended" if report.killed else ""
    line = f"[{report.id} {state[report.state]} {report.seconds:.1f} s{left}]"
    return "\n".join(filter(None, (dropped, output.rstrip("\n") or "[no new output]", line)))
