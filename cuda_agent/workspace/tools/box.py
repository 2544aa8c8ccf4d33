"""Running one tool call. Never raises for what a call asks: the answer is text that the model can act on.

SandboxError alone passes through: the host could not run the sandbox, and the episode is no one's fault.
"""

import shlex
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from cuda_agent.engines.messages import ToolCall, ToolSpec
from cuda_agent.sandbox.shell import ShellResult
from cuda_agent.workspace.template import is_protected
from cuda_agent.workspace.tools import text as texts
from cuda_agent.workspace.tools.folder import FileFault, Folder
from cuda_agent.workspace.tools.schema import TOOLS, fault, with_aliases

_READ_LINES = 2_000
_LISTED = 200
_ENTRIES = 4_000


class Runner(Protocol):
    """What Bash and Grep need: sandbox/shell.py's Shell, or a wrapper of it."""

    async def run(self, command: str, timeout: float | None = None) -> ShellResult:
        """Run a command for at most `timeout` seconds."""
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
            shell: where Bash and Grep run; None leaves them out.
            seconds: longest that one command may take.
            output_chars: longest answer; more is cut, with a note.
            allowed: names of the tools on offer; all by default.
        """
        self._folder = Folder(workspace)
        self._shell = shell
        self._seconds = seconds
        self._chars = output_chars
        self._read: set[PurePosixPath] = set()  # what the agent has seen or written itself
        names = {"Bash", "Grep"} if shell is None else set()
        self.specs: tuple[ToolSpec, ...] = tuple(
            tool for tool in TOOLS if tool.name not in names and (allowed is None or tool.name in allowed)
        )

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
        except (FileFault, ValueError) as error:
            answer = f"error: {error}"
        return ToolResult(texts.cut(answer, self._chars))

    def _actions(self) -> Mapping[str, Callable[[dict[str, Any]], Awaitable[str]]]:
        return {
            "Bash": self._bash,
            "Read": self._read_file,
            "Write": self._write,
            "Edit": self._edit,
            "MultiEdit": self._multi_edit,
            "Glob": self._glob,
            "Grep": self._grep,
        }

    async def _bash(self, arguments: dict[str, Any]) -> str:
        seconds = min(self._seconds, max(1.0, arguments.get("timeout", self._seconds * 1_000) / 1_000))
        return await self._command(arguments["command"], seconds)

    async def _command(self, command: str, seconds: float) -> str:
        assert self._shell is not None
        result = await self._shell.run(command, seconds)
        output = result.output.rstrip("\n")
        code = f"[exit code {result.exit_code}]" if result.exit_code else ""
        return "\n".join(filter(None, (output, code))) or "[no output]"

    async def _read_file(self, arguments: dict[str, Any]) -> str:
        path = self._folder.relative(arguments["file_path"])
        content = self._folder.read(path)
        self._read.add(path)
        offset, limit = max(1, arguments.get("offset", 1)), max(1, arguments.get("limit", _READ_LINES))
        return texts.numbered(content, offset, limit) if content else "[the file is empty]"

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
        path = self._changeable(file_path)
        content = self._folder.read(path)
        if path not in self._read:
            raise FileFault(f"{path} has not been read; read it first")
        for edit in edits:
            content = texts.replaced(content, edit["old_string"], edit["new_string"], edit.get("replace_all", False))
        self._folder.write(path, content)
        return f"edited {path}"

    async def _glob(self, arguments: dict[str, Any]) -> str:
        below = self._folder.relative(arguments.get("path", "."))
        found = [
            path
            for path in self._folder.files(below)[:_ENTRIES]
            if texts.matches(path.relative_to(below), arguments["pattern"][:500])
        ]
        more = [f"[{len(found) - _LISTED} more]"] if len(found) > _LISTED else []
        return "\n".join([*map(str, found[:_LISTED]), *more]) or "[no file matches]"

    async def _grep(self, arguments: dict[str, Any]) -> str:
        """Search inside the sandbox: a hostile pattern costs the agent's own time, not the host's."""
        flags = {"content": "", "count": "c"}.get(arguments.get("output_mode", "files_with_matches"), "l")
        flags += "i" * arguments.get("-i", False) + "n" * arguments.get("-n", False)
        options = [f"-{flags}"] if flags else []
        options += [f"{name}{int(arguments[name])}" for name in ("-A", "-B", "-C") if name in arguments]
        options += [f"--include={arguments['glob']}"] if "glob" in arguments else []
        below = self._folder.relative(arguments.get("path", "."))
        command = ["command", "grep", "-rIP", *options, "--exclude-dir=__pycache__", "-e", arguments["pattern"], "--", str(below)]
        head = max(1, arguments.get("head_limit", _LISTED))
        line = f"(cd {shlex.quote(str(self._folder.root))} && {shlex.join(command)} | head -n {head})"
        return await self._command(line, min(self._seconds, 20.0))

    def _changeable(self, file_path: str) -> PurePosixPath:
        path = self._folder.relative(file_path)
        if is_protected(path):
            raise FileFault(f"{path} is protected; write model_new.py and files in kernels/")
        return path
