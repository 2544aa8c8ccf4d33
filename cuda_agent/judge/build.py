"""Building a submission: glue to Python compiled once per machine, then only the kernels, in about 0.3 s.

The same code serves the judge (in a sandboxed child, from a clean tree) and utils/compile.py in the agent's workspace; it
needs nothing but the standard library and the manifest that lies beside the glue. A build that fails is a result, not an
error; `BuildEnvironmentError` is raised only while preparing the glue.
"""

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from cuda_agent.errors import BuildEnvironmentError

TEMPLATE = Path(__file__).resolve().parents[1] / "workspace" / "template" / "common"
MANIFEST_VARIABLE = "CUDA_AGENT_GLUE"
MODULES = {"cpu": "cpu_extension", "cuda": "cuda_extension"}
SOURCES = {"cpu": (".cpp", ".cc"), "cuda": (".cpp", ".cc", ".cu")}
TORCH_LIBRARIES = ("c10", "torch_cpu", "torch", "torch_python")
GLUE_VERSION = 1  # raise when the way the glue is made changes
TORCH_HEADERS = re.compile(r'^\s*#\s*include\s*[<"](torch|ATen|c10|pybind11)/', re.MULTILINE)
KERNEL_FLAGS = ("-O3", "-march=native", "-fopenmp", "-fPIC")


@dataclass(frozen=True)
class Manifest:
    """Where the prepared glue lies and how to compile and link against it; all paths absolute."""

    backend: str
    folder: str
    compile: tuple[str, ...]
    torch_includes: tuple[str, ...]
    link: tuple[str, ...]
    cuda: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what `prepare` wrote."""
        data = json.loads(path.read_text())
        lists = {name: tuple(data[name]) for name in ("compile", "torch_includes", "link", "cuda")}
        return cls(data["backend"], data["folder"], **lists, environment=tuple((k, v) for k, v in data["environment"]))

    @property
    def path(self) -> Path:
        """The manifest's own place."""
        return Path(self.folder) / "manifest.json"


@dataclass(frozen=True)
class BuildResult:
    """`output` is the module's path, or None; then `message` has the first error with its file and line."""

    output: Path | None
    message: str
    seconds: float


# --- the glue, once per machine -------------------------------------------------------------------------------------------


def prepare(cache_dir: Path, backend: str = "cpu", arch: str = "") -> Manifest:
    """Return the manifest of this machine's glue, compiling it first if needed (30-60 s, once).

    `arch` is the device's architecture for backend cuda, such as "sm_90".

    Raises:
        BuildEnvironmentError: no compiler, no torch, or torch's headers do not compile.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        raise BuildEnvironmentError("g++ is missing; install it (Debian: apt-get install g++)")
    folder = cache_dir.resolve() / "glue" / f"{backend}-{_key(compiler, backend, arch)}"
    path = folder / "manifest.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / "lock"):
            if not path.exists():
                _compile_glue(compiler, folder, backend, arch)
    return Manifest.read(path)


def _key(compiler: str, backend: str, arch: str) -> str:
    version = subprocess.run([compiler, "-dumpfullversion", "-dumpmachine"], capture_output=True, text=True).stdout
    cpu = re.findall(r"^(?:model name|flags)\s*:.*$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[:2]
    parts = [version, *cpu, _torch_version(), sys.version, backend, arch, str(GLUE_VERSION)]
    parts += [(TEMPLATE / name).read_text() for name in ("binding.cpp", "binding_registry.h")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _torch_version() -> str:
    from importlib import metadata  # slow to import, and the workspace's compile.py never comes here

    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError as error:
        raise BuildEnvironmentError("torch is not installed; run `make setup`") from error


def _torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise BuildEnvironmentError("torch is not installed; run `make setup`")
    return Path(next(iter(spec.submodule_search_locations)))


def _compile_glue(compiler: str, folder: Path, backend: str, arch: str) -> None:
    import sysconfig

    torch = _torch_folder()
    includes = (torch / "include", torch / "include/torch/csrc/api/include", Path(sysconfig.get_paths()["include"]))
    system = tuple(f"-isystem{path}" for path in includes)
    shutil.copy(TEMPLATE / "binding_registry.h", folder / "binding_registry.h")
    cuda = _cuda_flags(arch) if backend == "cuda" else ()
    defines = ("-DWITH_CUDA", f"-isystem{_cuda_home()}/include") if backend == "cuda" else ()
    module = (f"-DTORCH_EXTENSION_NAME={MODULES[backend]}",)
    glue = [compiler, "-O2", "-fPIC", "-std=c++20", *defines, *module, *system, f"-I{folder}"]
    _must([*glue, "-c", str(TEMPLATE / "binding.cpp"), "-o", str(folder / "glue.o")])
    _must(["strip", "-g", str(folder / "glue.o")])
    stubs = _stubs(compiler, folder, (*TORCH_LIBRARIES, *(("c10_cuda", "torch_cuda") if backend == "cuda" else ())))
    vector = ("-DLIGHT_VECTOR_TANH",) if _links(compiler, folder, "_ZGVdN8v_tanhf") else ()
    mvec = ("-lmvec",) if _links(compiler, folder, "_ZGVdN8v_expf") else ()
    if not mvec:
        vector = ("-DLIGHT_NO_VECTOR",)
    gold = ("-fuse-ld=gold",) if _works([compiler, "-fuse-ld=gold", "-shared", "-x", "c++", os.devnull, "-o", os.devnull]) else ()
    libraries = (f"-L{_cuda_home()}/lib64", "-lcudart", "-lcublas", "-lcudnn") if backend == "cuda" else ()
    manifest = Manifest(
        backend=backend,
        folder=str(folder),
        compile=(compiler, *KERNEL_FLAGS, "-fdiagnostics-color=never", "-fmax-errors=3", *vector, *module, f"-I{folder}"),
        torch_includes=system,
        link=(*gold, *stubs, *libraries, *mvec, "-lm"),
        cuda=cuda,
    )
    draft = folder / "manifest.draft"
    draft.write_text(json.dumps(asdict(manifest), indent=1))
    draft.replace(manifest.path)


def _stubs(compiler: str, folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Empty libraries under the names of torch's: linking with them is quick, and the loader finds the real ones."""
    for name in names:
        _must([compiler, "-shared", f"-Wl,-soname,lib{name}.so", "-x", "c++", os.devnull, "-o", str(folder / f"lib{name}.so")])
    return ("-Wl,--no-as-needed", f"-L{folder}", *(f"-l{name}" for name in names), "-Wl,--as-needed")


def _links(compiler: str, folder: Path, symbol: str) -> bool:
    source = folder / "try.cpp"
    source.write_text(f'extern "C" void {symbol}();\nint main() {{ {symbol}(); }}\n')
    return _works([compiler, str(source), "-lmvec", "-lm", "-o", str(folder / "try")])


def _cuda_home() -> Path:
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.access(nvcc, os.X_OK):
        raise BuildEnvironmentError("nvcc is missing; install the CUDA toolkit or use --backend cpu")
    return Path(nvcc).resolve().parents[1]


def _cuda_flags(arch: str) -> tuple[str, ...]:
    flags = ("-O3", "-std=c++17", f"-arch={arch or 'sm_90'}", "-Xcompiler", "-fPIC", "-Xcompiler", "-fopenmp")
    return (str(_cuda_home() / "bin" / "nvcc"), *flags)


def _works(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True).returncode == 0


def _must(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildEnvironmentError(
            f"the glue to torch does not compile: {first_error(done.stderr)}; check that g++ and torch fit"
        )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# --- a submission -----------------------------------------------------------------------------------------------------------


def build(folder: Path, output: Path, manifest: Manifest, timeout: float = 120.0, *, fast_math: bool = False) -> BuildResult:
    """Compile `folder`/kernels/** and link it with the glue into `output`; paths in messages are relative to `folder`."""
    started = time.monotonic()
    kernels = folder / "kernels"
    sources = sorted(path for path in kernels.rglob("*") if path.suffix in SOURCES[manifest.backend] and path.is_file())
    if not sources:
        return BuildResult(None, f"kernels/ holds no source ({', '.join(SOURCES[manifest.backend])})", 0.0)
    deadline = started + timeout
    with tempfile.TemporaryDirectory(dir="/tmp") as objects, ThreadPoolExecutor(os.cpu_count() or 1) as workers:
        compiled = [f"{objects}/{number}.o" for number in range(len(sources))]
        commands = [_command(manifest, folder, *pair, fast_math=fast_math) for pair in zip(sources, compiled, strict=True)]
        faults = [fault for fault in workers.map(lambda command: _run(command, folder, deadline), commands) if fault]
        if not faults:
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
        shutil.copyfile(draft, output)
    return BuildResult(output, "", seconds)


def _command(manifest: Manifest, folder: Path, source: Path, output: str, *, fast_math: bool) -> list[str]:
    name = str(source.relative_to(folder))
    if source.suffix == ".cu":
        extra = ("--use_fast_math",) if fast_math else ()
        return [*manifest.cuda, *extra, f"-I{manifest.folder}", *manifest.torch_includes, "-c", name, "-o", output]
    # Torch's headers (from 2.13 on) need C++20; everything else is C++17.
    standard = "c++20" if TORCH_HEADERS.search(source.read_text(errors="replace")) else "c++17"
    return [*manifest.compile, f"-std={standard}", *manifest.torch_includes, "-c", name, "-o", output]


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


def main(arguments: Sequence[str] | None = None) -> int:
    """What utils/compile.py runs in the workspace: build for feedback and print one stable line."""
    parser = argparse.ArgumentParser(prog="compile", description="Build kernels/ into the extension module.")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="the workspace (default: here)")
    options: Any = parser.parse_args(arguments)
    manifest = Manifest.read(Path(os.environ[MANIFEST_VARIABLE]))
    output = options.folder / f"{MODULES[manifest.backend]}.so"
    output.unlink(missing_ok=True)
    result = build(options.folder, output, manifest)
    if result.output is None:
        print(f"[FAIL] build_error: {result.message}")
        return 1
    print("[PASS] compile success")
    return 0
