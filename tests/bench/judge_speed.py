"""How many submissions an hour the judge takes: `make bench`. Distinct submissions over a few problems, empty caches.

Rows: the published style (bindings with torch's headers), the light style, the light style with warm baselines, the same
submissions once more (known verdicts), and a single warm build in both styles. Start-up of children and compilation of
baselines are included; the glue to torch, made once per machine, is not.
"""

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from cuda_agent.config import Backend, JudgeConfig
from cuda_agent.judge import glue, machine
from cuda_agent.judge.pool import JudgePool
from cuda_agent.judge.verdict import PHASES, Submission, Verdict

CHAINS = (
    ("torch.tanh(x * 0.5 + 0.1)", "tanhf(v * 0.5f + 0.1f)"),
    ("torch.relu(x) * 1.5 - 0.2", "(v > 0.0f ? v : 0.0f) * 1.5f - 0.2f"),
    ("torch.sigmoid(x) * x", "v / (1.0f + expf(-v))"),
    ("torch.exp(-x * x) + 0.3", "expf(-v * v) + 0.3f"),
    (
        "torch.clamp(x * 2.0 + 0.5, -1.0, 1.0)",
        "(v * 2.0f + 0.5f > 1.0f ? 1.0f : v * 2.0f + 0.5f < -1.0f ? -1.0f : v * 2.0f + 0.5f)",
    ),
    ("torch.nn.functional.leaky_relu(x, 0.1) + x", "(v > 0.0f ? v : 0.1f * v) + v"),
    ("torch.sin(x) * 0.7 + x * 0.1", "sinf(v) * 0.7f + v * 0.1f"),
    ("x * torch.tanh(x) - 0.25", "v * tanhf(v) - 0.25f"),
)
SHAPES: dict[Backend, str] = {"cpu": "1024, 512", "cuda": "4096, 4096"}
PROBLEM = """import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return {chain}

def get_inputs():
    return [torch.randn({shape})]

def get_init_inputs():
    return []
"""
MODEL = """import torch
import torch.nn as nn
import {module}

class ModelNew(nn.Module):
    def forward(self, x):
        {body}
"""
LIGHT, HEADERS = "y = torch.empty_like(x)\n        {module}.run(x, y)\n        return y", "return {module}.run(x)"
LOOP: dict[Backend, str] = {
    "cpu": """static void work(const float* in, float* out, long n) {{
    #pragma omp parallel for simd
    for (long i = 0; i < n; ++i) {{ const float v = in[i]; out[i] = {formula}; }}  // variant {variant}
}}
""",
    "cuda": """__global__ void kernel(const float* in, float* out, long n) {{
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x) {{
        const float v = in[i]; out[i] = {formula};
    }}
}}
extern "C" void work(const float* in, float* out, long n, void* stream) {{
    kernel<<<{blocks}, 256, 0, static_cast<cudaStream_t>(stream)>>>(in, out, n);
}}
""",
}
LIGHT_BINDING: dict[Backend, str] = {
    "cpu": "static void run(TensorView x, TensorView y) { work(x.f32(), y.f32(), x.numel()); }\nREGISTER_LIGHT(run)\n",
    "cuda": "static void run(TensorView x, TensorView y) { work(x.f32(), y.f32(), x.numel(), x.stream); }\nREGISTER_LIGHT(run)\n",
}
HEADER_BINDING: dict[Backend, str] = {
    "cpu": """static torch::Tensor run(torch::Tensor x) {
    TORCH_CHECK(x.is_contiguous()); auto y = torch::empty_like(x);
    work(x.data_ptr<float>(), y.data_ptr<float>(), x.numel()); return y;
}
""",
    "cuda": """extern "C" void work(const float*, float*, long, void*);
static torch::Tensor run(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous()); auto y = torch::empty_like(x);
    work(x.data_ptr<float>(), y.data_ptr<float>(), x.numel(), at::cuda::getCurrentCUDAStream().stream()); return y;
}
""",
}
INCLUDES = "#include <torch/types.h>\n#include <torch/csrc/utils/pybind.h>\n"
CUDA_INCLUDE = "#include <ATen/cuda/CUDAContext.h>\n"
REGISTER = 'static void bind(pybind11::module& m) { m.def("run", &run); }\nREGISTER_BINDING(run, bind)\n'


class Entry(NamedTuple):
    """A submission on a problem."""

    problem: str
    submission: Submission


def entries(backend: Backend, count: int, problems: int, *, headers: bool) -> list[Entry]:
    """`count` distinct right submissions."""
    made = []
    for number in range(count):
        chain, formula = CHAINS[number % problems]
        module = f"{backend}_extension"
        body = (HEADERS if headers else LIGHT).format(module=module)
        files = {"model_new.py": MODEL.format(module=module, body=body)}
        loop = LOOP[backend].format(formula=formula, variant=number, blocks=1_024 + number)
        registry = '#include "binding_registry.h"\n'
        if not headers:
            files[f"kernels/kernel.{'cu' if backend == 'cuda' else 'cpp'}"] = registry + loop + LIGHT_BINDING[backend]
        elif backend == "cuda":
            files["kernels/kernel.cu"] = loop
            source = INCLUDES + CUDA_INCLUDE + registry.replace('"b', '"../b') + HEADER_BINDING[backend] + REGISTER
            files["kernels/kernel_binding.cpp"] = source + f"// variant {number}\n"
        else:
            files["kernels/kernel_binding.cpp"] = INCLUDES + registry + loop + HEADER_BINDING[backend] + REGISTER
        made.append(Entry(PROBLEM.format(chain=chain, shape=SHAPES[backend]), Submission(files)))
    return made


async def judge_all(pool: JudgePool, todo: list[Entry]) -> tuple[float, list[Verdict]]:
    """Seconds for all, and the verdicts."""
    started = time.monotonic()
    verdicts = await asyncio.gather(*(pool.judge(entry.problem, entry.submission) for entry in todo))
    return time.monotonic() - started, list(verdicts)


def show(title: str, seconds: float, verdicts: list[Verdict]) -> None:
    """A row."""
    right = sum(verdict.status == "correct" for verdict in verdicts)
    leases = [verdict.phases.get("time", 0.0) for verdict in verdicts]
    hourly = 3_600 * len(verdicts) / seconds
    print(f"{title:44} {seconds:8.1f} s  {hourly:8.0f}/h  {right}/{len(verdicts)} correct", end="")
    print(f"  alone on the device: median {statistics.median(leases):.2f} s", flush=True)
    phases = {name: statistics.median(verdict.phases.get(name, 0.0) for verdict in verdicts) for name in PHASES}
    print("    median seconds by phase: " + ", ".join(f"{name} {value:.2f}" for name, value in phases.items()))
    for verdict in verdicts:
        if verdict.status != "correct":
            print(f"    {verdict.status} {verdict.kind}: {verdict.message[:200]}")


async def show_builds(config: JudgeConfig, cache: Path) -> None:
    """A single build of one kernel on an otherwise idle machine, in both styles: median of three, each of other sources."""
    medians = {}
    async with JudgePool(config, cache_dir=cache) as pool:
        for headers in (False, True):
            seconds = []
            for entry in entries(config.backend, 3, 1, headers=headers):
                started = time.monotonic()
                await pool._running().builds.get(entry.submission.files)
                seconds.append(time.monotonic() - started)
            medians[headers] = statistics.median(seconds)
    ratio = medians[True] / medians[False]
    print(
        f"a single build: light {medians[False]:.2f} s, with torch's headers {medians[True]:.2f} s, {ratio:.1f} times", flush=True
    )


async def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--count", type=int, default=32)
    parser.add_argument("--problems", type=int, default=8)
    parser.add_argument("--at-once", type=int, default=0)
    parser.add_argument("--cache", type=Path, help="take the glue from here; builds and compiled baselines in it are removed")
    parser.add_argument("--rows", default="build,headers,light,warm,known")
    arguments = parser.parse_args()
    config = JudgeConfig(backend=arguments.backend, run_seconds=60)
    with contextlib.ExitStack() as stack:
        cache = arguments.cache or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        started = time.monotonic()
        await asyncio.to_thread(glue.prepare, cache, config.backend, machine.gpu().arch if config.backend == "cuda" else "")
        print(f"glue, once per machine: {time.monotonic() - started:.1f} s", flush=True)
        shape = (config.backend, arguments.count, arguments.problems)
        if "build" in arguments.rows:
            await show_builds(config, cache)
        for row in ("headers", "light"):
            if row not in arguments.rows:
                continue
            todo = entries(*shape, headers=row == "headers")
            began = time.monotonic()
            for path in ("builds", "inductor"):
                await asyncio.to_thread(_empty, cache / path)
            async with JudgePool(config, cache_dir=cache, at_once=arguments.at_once) as pool:
                started = time.monotonic() - began
                seconds, verdicts = await judge_all(pool, todo)
                show(f"{row}, start of the server included", seconds + started, verdicts)
                if row == "light" and "warm" in arguments.rows:
                    fresh = entries(config.backend, 2 * arguments.count, arguments.problems, headers=False)[arguments.count :]
                    show("light, baselines warm", *await judge_all(pool, fresh))
                if row == "light" and "known" in arguments.rows:
                    seconds, verdicts = await judge_all(pool, todo)
                    print(f"the same again: {1e3 * seconds / len(todo):.2f} ms each")


def _empty(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    asyncio.run(main())
