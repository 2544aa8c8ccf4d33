"""Builds with the real compiler: messages, styles, and the workspace's own command inside the sandbox."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from cuda_agent.judge.build import MANIFEST_VARIABLE, Manifest, build, first_error
from cuda_agent.judge.glue import TEMPLATE, prepare
from cuda_agent.sandbox.shell import Shell
from cuda_agent.store.session import cache_folder
from tests.judge.texts import KERNEL


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return prepare(cache_folder())


def _workspace(folder: Path, kernel: str) -> Path:
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "kernel.cpp").write_text(kernel)
    return folder


def test_light_build_is_quick_and_needs_no_header(manifest: Manifest, tmp_path: Path) -> None:
    started = time.monotonic()
    result = build(_workspace(tmp_path, KERNEL), tmp_path / "m.so", manifest)
    assert result.output is not None and result.output.stat().st_size > 10_000, result
    assert time.monotonic() - started < 10.0  # 0.3 s on an idle machine


def test_exponential_vectorises_without_fast_math(manifest: Manifest, tmp_path: Path) -> None:
    build(_workspace(tmp_path, KERNEL), tmp_path / "m.so", manifest)
    symbols = subprocess.run(["nm", "-D", tmp_path / "m.so"], capture_output=True, text=True).stdout
    assert "_expf" in symbols and "_ZGV" in symbols


def test_mathematics_agrees_with_standard_headers(manifest: Manifest, tmp_path: Path) -> None:
    kernel = "#include <cmath>\n#include <vector>\n" + KERNEL + "#include <algorithm>\n"
    assert build(_workspace(tmp_path, kernel), tmp_path / "m.so", manifest).message == ""


def test_several_files_and_headers_in_folders(manifest: Manifest, tmp_path: Path) -> None:
    _workspace(tmp_path, '#include "deep/scale.h"\n' + KERNEL.replace("*= q", "*= q * scale()"))
    (tmp_path / "kernels" / "deep").mkdir()
    (tmp_path / "kernels" / "deep" / "scale.h").write_text("float scale();\n")
    (tmp_path / "kernels" / "deep" / "scale.cpp").write_text("float scale() { return 1.0f; }\n")
    assert build(tmp_path, tmp_path / "m.so", manifest).message == ""


def test_first_error_has_its_line(manifest: Manifest, tmp_path: Path) -> None:
    kernel = KERNEL.replace("float m = 0.0f;", "flot m = 0.0f;")
    message = build(_workspace(tmp_path, kernel), tmp_path / "m.so", manifest).message
    assert message.startswith("kernels/kernel.cpp:8:") and "flot" in message and str(tmp_path) not in message


def test_no_source_and_undefined_symbols(manifest: Manifest, tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    assert "no source" in build(tmp_path, tmp_path / "m.so", manifest).message
    assert first_error("noise\nx.cpp:3:1: error: bad\n  3 | bad\n    | ^\n") == "x.cpp:3:1: error: bad\n  3 | bad\n    | ^"


async def test_compile_command_works_in_the_sandbox(manifest: Manifest, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    shutil.copytree(TEMPLATE, workspace)
    _workspace(workspace, KERNEL)
    environment = {MANIFEST_VARIABLE: str(manifest.path)}
    protected = [Path("utils"), Path("binding.cpp"), Path("binding_registry.h")]
    async with Shell(workspace, read_only=protected, readable=[manifest.path.parent], environment=environment) as shell:
        result = await shell.run("bash utils/compile.sh && ls *.so")
        assert result.output == "[PASS] compile success\ncpu_extension.so\n", result
        result = await shell.run("echo 'int x = y;' > kernels/kernel.cpp; sudo bash utils/compile.sh; ls *.so")
        assert result.output.startswith("[FAIL] build_error: kernels/kernel.cpp:1:9: error:"), result
        assert "No such file" in result.output
        result = await shell.run("python3 -m utils.verification")
        assert result.exit_code == 2 and result.output.startswith("[FAIL] the judge does not answer")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_cuda_sources_compile_without_a_gpu(tmp_path: Path) -> None:
    """The light header under nvcc; the glue of backend cuda needs torch's CUDA build and is not made here."""
    (tmp_path / "k.cu").write_text(
        '#include "binding_registry.h"\n'
        "__global__ void relu(const float* x, float* y, long n) {\n"
        "  const long i = blockIdx.x * 256l + threadIdx.x;\n  if (i < n) y[i] = fmaxf(x[i], 0.0f);\n}\n"
        "static void run(TensorView x, TensorView y) {\n"
        "  relu<<<(x.numel() + 255) / 256, 256, 0, static_cast<cudaStream_t>(x.stream)>>>(x.f32(), y.f32(), x.numel());\n}\n"
        "REGISTER_LIGHT(run)\n"
    )
    command = ["nvcc", "-O3", "-std=c++17", "-arch=sm_90", "-Xcompiler", "-fPIC", f"-I{TEMPLATE}", "-c", "k.cu", "-o", "k.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
