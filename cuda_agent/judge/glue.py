"""The glue between submissions, Python and torch: compiled once per machine (30-60 s), then linked with every build.

`BuildEnvironmentError` is raised where the compiler, torch or the CUDA toolkit are missing or do not fit.
"""

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
import sysconfig
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

from cuda_agent.errors import BuildEnvironmentError
from cuda_agent.judge.build import GLUE_IMPORTS, MODULES, TORCH_STANDARD, Manifest, first_error, symbols
from cuda_agent.judge.proof import ALLOWED_OPERATORS

TEMPLATE = Path(__file__).resolve().parents[1] / "workspace" / "template" / "common"
ARENA, REFRESH, SEAL = (Path(__file__).with_name("native") / name for name in ("arena.cpp", "refresh.cpp", "seal.cpp"))
DEVICE_CODE = tuple(REFRESH.with_name(f"{name}.cu") for name in ("refresh", "compare"))
TORCH_LIBRARIES = ("c10", "torch_cpu", "torch", "torch_python")
SYSTEM_LIBRARIES = (
    "libc.so.6",
    "libm.so.6",
    "libmvec.so.1",
    "libstdc++.so.6",
    "libgcc_s.so.1",
    "libgomp.so.1",
    "libpthread.so.0",
    "libc_nonshared.a",
    "libgcc.a",
)
CUDA_LIBRARIES = ("libcudart.so", "libcublas.so", "libcudnn.so")
SYSTEM_SYMBOLS = "system_symbols"
SEAL_MODULE = "judge_seal.so"
GLUE_VERSION = 11  # raise when the way the glue is made changes
# What bindings in the published style include: precompiled for a GPU, 0.5 GB and half a minute for three fifths of each build.
PRECOMPILED = ("torch/types.h", "torch/csrc/utils/pybind.h", "ATen/cuda/CUDAContext.h")
KERNEL_FLAGS = ("-O3", "-march=native", "-fopenmp", "-fPIC")


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
    sources = (TEMPLATE / "binding.cpp", TEMPLATE / "binding_registry.h", ARENA, REFRESH, SEAL, *DEVICE_CODE)
    parts += [_allowed(), *(path.read_text() for path in sources)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _allowed() -> str:
    return " ".join(sorted(ALLOWED_OPERATORS))


def _torch_version() -> str:
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
    is_gpu = backend == "cuda"
    torch = _torch_folder()
    includes = [torch / "include", torch / "include/torch/csrc/api/include", Path(sysconfig.get_paths()["include"])]
    system = tuple(f"-isystem{path}" for path in (*includes, *((_cuda_home() / "include",) if is_gpu else ())))
    shutil.copy(TEMPLATE / "binding_registry.h", folder / "binding_registry.h")
    module = f"-DTORCH_EXTENSION_NAME={MODULES[backend]}"
    vector, mvec = _vector_library(compiler, folder)
    options = (compiler, *KERNEL_FLAGS, "-fdiagnostics-color=never", "-fmax-errors=3", *vector, module, f"-I{folder}")
    stubs = _stubs(compiler, folder, (*TORCH_LIBRARIES, *(("c10_cuda", "torch_cuda") if is_gpu else ())))
    headers = folder / "torch_headers.h"
    glue = [compiler, "-O2", "-fPIC", "-std=c++20", *(("-DWITH_CUDA",) if is_gpu else ()), module, *system, f"-I{folder}"]
    seal = ["-shared", f'-DALLOWED_OPERATORS="{_allowed()}"', str(SEAL), "-o", str(folder / SEAL_MODULE), *stubs]
    commands: list[Sequence[str]] = [
        [*glue, "-c", str(TEMPLATE / "binding.cpp"), "-o", str(folder / "glue.o")],
        [*glue, *seal],
        [compiler, *KERNEL_FLAGS, "-std=c++17", "-shared", str(REFRESH), "-o", str(folder / "refresh.so")],
    ]
    if is_gpu:
        headers.write_text("".join(f"#include <{name}>\n" for name in PRECOMPILED))
        commands.append([*options, TORCH_STANDARD, *system, "-x", "c++-header", str(headers), "-o", f"{headers}.gch"])
        commands.append([compiler, "-O2", "-std=c++17", "-shared", "-fPIC", str(ARENA), "-o", str(folder / "arena.so")])
        commands += [[*_cuda_flags(arch), "-cubin", str(path), "-o", str(folder / f"{path.stem}.cubin")] for path in DEVICE_CODE]
    with ThreadPoolExecutor(4 if is_gpu else 2) as workers:
        list(workers.map(_must, commands))
    _must(["strip", "-g", str(folder / "glue.o"), str(folder / SEAL_MODULE)])
    gold = ("-fuse-ld=gold",) if _works([compiler, "-fuse-ld=gold", "-shared", "-x", "c++", os.devnull, "-o", os.devnull]) else ()
    libraries = (f"-L{_cuda_home()}/lib64", "-lcudart", "-lcublas", "-lcudnn") if is_gpu else ()
    manifest = Manifest(
        backend=backend,
        folder=str(folder),
        compile=options,
        torch_includes=system,
        link=(*gold, *stubs, *libraries, *mvec, "-lm"),
        cuda=_cuda_flags(arch) if is_gpu else (),
        precompiled=("-include", str(headers)) if is_gpu else (),
    )
    (folder / SYSTEM_SYMBOLS).write_text("\n".join(sorted(_system_symbols(compiler, folder, backend))))
    (folder / GLUE_IMPORTS).write_text("\n".join(sorted(symbols([str(folder / "glue.o")], "--undefined-only"))))
    draft = folder / "manifest.draft"
    draft.write_text(json.dumps(manifest._asdict(), indent=1))
    draft.replace(manifest.path)


def _vector_library(compiler: str, folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """How kernels are compiled and linked with glibc's vector functions, as far as this glibc has them."""
    if not _links(compiler, folder, "_ZGVdN8v_expf"):
        return ("-DLIGHT_NO_VECTOR",), ()
    return (("-DLIGHT_VECTOR_TANH",) if _links(compiler, folder, "_ZGVdN8v_tanhf") else ()), ("-lmvec",)


def _system_symbols(compiler: str, folder: Path, backend: str) -> set[str]:
    """What kernels may use of the C, C++, OpenMP and CUDA libraries, and of the glue."""
    names = (*SYSTEM_LIBRARIES, *(CUDA_LIBRARIES if backend == "cuda" else ()))
    places = [
        subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip() for name in names
    ]
    if backend == "cuda":
        places += [str(path) for name in CUDA_LIBRARIES for path in (_cuda_home() / "lib64").glob(name)]
    found = [str(Path(place).resolve()) for place in places if os.path.isabs(place)]
    shared, linked = [name for name in found if not name.endswith(".a")], [name for name in found if name.endswith(".a")]
    defined = symbols(shared, "--dynamic", "--defined-only")
    defined |= symbols([*linked, str(folder / "glue.o")], "--defined-only", "--extern-only")
    return defined | {"_GLOBAL_OFFSET_TABLE_", "__dso_handle", "__tls_get_addr", "_DYNAMIC"}


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
    number = (arch or "sm_90a").removeprefix("sm_")
    # For this device alone: `-arch` would also make code for its like, in half as much time again.
    target = ("-gencode", f"arch=compute_{number},code=sm_{number}")
    flags = ("-O3", "-std=c++17", *target, "-Xcompiler", "-fPIC", "-Xcompiler", "-fopenmp")
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
