"""Building a submission against the prepared glue (`judge/glue.py`), in about 0.3 s.

The same code serves the judge (in a sandboxed child, from a clean tree) and utils/compile.py in the agent's workspace; it
needs nothing but the standard library and the manifest that lies beside the glue. A build that fails is a result, not an
error. Every episode starts this module in a fresh interpreter, so what is slow to import stays out of it.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

MANIFEST_VARIABLE = "CUDA_AGENT_GLUE"
MODULES = {"cpu": "cpu_extension", "cuda": "cuda_extension"}
SOURCES = {"cpu": (".cpp", ".cc"), "cuda": (".cpp", ".cc", ".cu")}
# What the compiler's own start-up code in any library takes.
STARTUP = {"_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__cxa_finalize", "__gmon_start__"}
GLUE_IMPORTS = "glue_imports"  # beside the glue: the symbols that it takes itself
TORCH_STANDARD = "-std=c++20"
TORCH_HEADERS = re.compile(r'^\s*#\s*include\s*[<"](torch|ATen|c10|pybind11)/', re.MULTILINE)


class Manifest(NamedTuple):
    """Where the prepared glue lies and how to compile and link against it; all paths absolute."""

    backend: str
    folder: str
    compile: tuple[str, ...]
    torch_includes: tuple[str, ...]
    link: tuple[str, ...]
    cuda: tuple[str, ...] = ()
    precompiled: tuple[str, ...] = ()  # options for sources that include torch's headers
    environment: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what `prepare` wrote."""
        data = json.loads(path.read_text())
        lists = {name: tuple(data[name]) for name in ("compile", "torch_includes", "link", "cuda", "precompiled")}
        return cls(data["backend"], data["folder"], **lists, environment=tuple((k, v) for k, v in data["environment"]))

    @property
    def path(self) -> Path:
        """The manifest's own place."""
        return Path(self.folder) / "manifest.json"


class BuildResult(NamedTuple):
    """`output` is the module's path, or None; then `message` has the first error with its file and line.

    `imports` are the symbols that the compiled sources, without the glue, take from elsewhere; `headers` tells whether
    any includes torch's or pybind11's.
    """

    output: Path | None
    message: str
    seconds: float
    imports: tuple[str, ...] = ()
    headers: bool = False


def build(folder: Path, output: Path, manifest: Manifest, timeout: float = 120.0, *, fast_math: bool = False) -> BuildResult:
    """Compile `folder`/kernels/** and link it with the glue into `output`; paths in messages are relative to `folder`."""
    started = time.monotonic()
    kernels = folder / "kernels"
    sources = sorted(path for path in kernels.rglob("*") if path.suffix in SOURCES[manifest.backend] and path.is_file())
    if not sources:
        return BuildResult(None, f"kernels/ holds no source ({', '.join(SOURCES[manifest.backend])})", 0.0)
    deadline = started + timeout
    with tempfile.TemporaryDirectory(dir="/tmp") as objects:
        compiled = [f"{objects}/{number}.o" for number in range(len(sources))]
        commands = [_command(manifest, folder, *pair, fast_math=fast_math) for pair in zip(sources, compiled, strict=True)]
        faults = _run_all(commands, folder, deadline)
        imports: tuple[str, ...] = ()
        if not faults:
            imports = _imports(compiled)
            draft = f"{objects}/module.so"
            link = [
                manifest.compile[0],
                "-shared",
                "-fopenmp",
                *compiled,
                f"{manifest.folder}/glue.o",
                *manifest.link,
                "-o",
                draft,
            ]
            fault = _run(link, folder, deadline)
            faults = [fault] if fault else []
        seconds = time.monotonic() - started
        if faults:
            return BuildResult(None, faults[0], seconds)
        imports = tuple(sorted({*imports, *_taken(draft, Path(manifest.folder) / GLUE_IMPORTS)}))
        shutil.copyfile(draft, output)
    return BuildResult(output, "", seconds, imports, any(map(_includes_torch, kernels.rglob("*"))))


def _taken(module: str, glue: Path) -> set[str]:
    """The symbols that a linked module takes from elsewhere and the glue by itself does not, whatever the sources' names say."""
    return symbols([module], "--dynamic", "--undefined-only") - set(glue.read_text().splitlines()) - STARTUP


def _includes_torch(path: Path) -> bool:
    return path.is_file() and bool(TORCH_HEADERS.search(path.read_text(errors="replace")))


def _imports(objects: Sequence[str]) -> tuple[str, ...]:
    """The symbols that object files take from elsewhere, not from each other."""
    listed = _nm(objects, "--extern-only")
    undefined = {name for kind, name in listed if kind in "Uwv"}
    return tuple(sorted(undefined - {name for kind, name in listed if kind not in "Uwv"}))


def symbols(files: Sequence[str], *options: str) -> set[str]:
    """Names that nm lists for object files or libraries, without versions."""
    return {name for _, name in _nm(files, *options)}


def _nm(files: Sequence[str], *options: str) -> list[tuple[str, str]]:
    """The letter of its kind and the name of each symbol."""
    listed = subprocess.run(["nm", *options, *files], capture_output=True, text=True, errors="replace").stdout
    rows = [line.split() for line in listed.splitlines() if not line.endswith(":")]
    found = [(row[-2], row[-1].partition("@")[0]) for row in rows if len(row) in (2, 3)]
    # A name with blanks could stand for another symbol's line: it counts as one that is taken from elsewhere.
    return found + [("U", " ".join(row)) for row in rows if len(row) > 3]


def _command(manifest: Manifest, folder: Path, source: Path, output: str, *, fast_math: bool) -> list[str]:
    name = str(source.relative_to(folder))
    if source.suffix == ".cu":
        extra = ["--use_fast_math"] if fast_math else []
        if _includes_torch(source):
            extra += [word for flag in manifest.torch_includes for word in ("-isystem", flag.removeprefix("-isystem"))]
        return [*manifest.cuda, *extra, f"-I{manifest.folder}", "-c", name, "-o", output]
    # Torch's headers (from 2.13 on) need C++20; everything else is C++17.
    standard = (TORCH_STANDARD, *manifest.precompiled) if _includes_torch(source) else ("-std=c++17",)
    return [*manifest.compile, *standard, *manifest.torch_includes, "-c", name, "-o", output]


def _run_all(commands: Sequence[Sequence[str]], folder: Path, deadline: float) -> list[str]:
    """What went wrong with any of the commands, in their order."""
    if len(commands) == 1:
        found = [_run(commands[0], folder, deadline)]
    else:
        from concurrent.futures import ThreadPoolExecutor  # slow to import, and most submissions have one source

        with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
            found = list(workers.map(lambda command: _run(command, folder, deadline), commands))
    return [fault for fault in found if fault]


def _run(command: Sequence[str], folder: Path, deadline: float) -> str:
    """Run a compiler; an empty string, or what went wrong."""
    try:
        left = max(0.1, deadline - time.monotonic())
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=left)
    except subprocess.TimeoutExpired:
        return "the build took too long"
    if done.returncode == 0:
        return ""
    return first_error(done.stderr) or f"the compiler ended with status {done.returncode}"


def first_error(text: str, lines: int = 6) -> str:
    """The first error of a compiler's output with the source line it points at."""
    rows = text.splitlines()
    for number, row in enumerate(rows):
        if re.search(r"\b(error|fatal error|undefined reference|ld:|ld\.gold:)\b", row) and "returned 1 exit status" not in row:
            kept = [row]
            for following in rows[number + 1 : number + lines]:
                if re.search(r": (error|warning|note):|^In file|^compilation", following):
                    break
                kept.append(following)
            return "\n".join(kept)[:1_500]
    return text.strip()[:1_500]


def main() -> int:
    """What utils/compile.py runs in the workspace, the current folder: build for feedback and print one stable line."""
    folder, manifest = Path.cwd(), Manifest.read(Path(os.environ[MANIFEST_VARIABLE]))
    output = folder / f"{MODULES[manifest.backend]}.so"
    output.unlink(missing_ok=True)
    result = build(folder, output, manifest)
    if result.output is None:
        print(f"[FAIL] build_error: {result.message}")
        return 1
    print("[PASS] compile success")
    return 0
