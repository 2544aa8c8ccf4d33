"""How exact the judge's times are: `make bench-timing`. Kernels of known relative cost race each other as in any verdict.

Four rows, with the targets that they are held to when run by hand: A/A (two builds of one kernel) measures 1 +- 0.02 in
95 % of the runs; a kernel with 10 % more work measures 0.91 +- 0.02; of 200 A/A evaluations at most 2 earn a reward step;
of 200 with 10 % less work at most 2 miss it. One thread unless --threads says otherwise; --runs scales all rows.
"""

import argparse
import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from cuda_agent.config import Backend, JudgeConfig
from cuda_agent.judge.build import MODULES
from cuda_agent.judge.evaluation import Evaluation
from cuda_agent.judge.examination import Examination
from cuda_agent.judge.pool import JudgePool
from cuda_agent.judge.problem_host import ProblemHost
from cuda_agent.judge.reward import faster
from cuda_agent.judge.timing import Runner, Times, measure
from cuda_agent.judge.verdict import Submission
from cuda_agent.store.session import cache_folder

STEPS = 8  # of a chain that keeps arithmetic busy, not memory: so many per cent more work take so many per cent more time
SHAPES: dict[Backend, str] = {"cpu": "1000, 256", "cuda": "4096, 4096"}
PROBLEM = f"""import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        for _ in range({STEPS}):
            x = torch.tanh(x * 1.1 + 0.1)
        return x

def get_inputs():
    return [torch.randn({{shape}})]

def get_init_inputs():
    return []
"""
MODEL = """import torch
import torch.nn as nn
import {module}

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        {module}.run(x, y)
        return y
"""
# What lies beyond the last element is computed anew: {work} per mille of what the answer needs.
KERNELS: dict[Backend, str] = {
    "cpu": f"""#include "binding_registry.h"
static void run(TensorView x, TensorView y) {{{{  // build {{build}}
    const float* in = x.f32(); float* out = y.f32();
    const long rows = x.rows(), columns = x.cols();
    #pragma omp parallel for
    for (long row = 0; row < rows * {{work}} / 1000; ++row) {{{{
        const float* a = in + row % rows * columns; float* b = out + row % rows * columns;
        for (int step = 0; step < {STEPS}; ++step) {{{{
            const float* from = step ? b : a;
            #pragma omp simd
            for (long i = 0; i < columns; ++i) b[i] = tanhf(from[i] * 1.1f + 0.1f);
        }}}}
    }}}}
}}}}
REGISTER_LIGHT(run)
""",
    "cuda": f"""#include "binding_registry.h"
__global__ void kernel(const float* in, float* out, long n, long total) {{{{  // build {{build}}
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < total; i += (long)gridDim.x * blockDim.x) {{{{
        const long place = i < n ? i : i - n;
        float v = in[place];
        for (int step = 0; step < {STEPS}; ++step) v = tanhf(v * 1.1f + 0.1f);
        out[place] = v;
    }}}}
}}}}
static void run(TensorView x, TensorView y) {{{{
    kernel<<<1056, 256, 0, static_cast<cudaStream_t>(x.stream)>>>(x.f32(), y.f32(), x.numel(), x.numel() * {{work}} / 1000);
}}}}
REGISTER_LIGHT(run)
""",
}
SUFFIX: dict[Backend, str] = {"cpu": "cpp", "cuda": "cu"}


def submission(backend: Backend, work: int, build: int) -> Submission:
    """The kernel with so many thousandths of the needed work."""
    kernel = KERNELS[backend].format(work=work, build=build)
    return Submission({"model_new.py": MODEL.format(module=MODULES[backend]), f"kernels/kernel.{SUFFIX[backend]}": kernel})


class Race:
    """Opens candidates of one problem and lets pairs of them race."""

    def __init__(self, pool: JudgePool, host: ProblemHost) -> None:
        """`pool` is running."""
        self.pool, self.host = pool, host

    @contextlib.asynccontextmanager
    async def _ready(self, entry: Submission, seed: int) -> AsyncIterator[Runner]:
        """A verified candidate."""
        bench = self.pool._running()
        evaluation = Evaluation(bench, self.host, entry, seed, timed=True)
        exam, built = await evaluation._prepare()
        ring = await evaluation._ring(exam)
        child = await evaluation._open(built, ring)
        try:
            examination = Examination(child, ring, self.host, bench.config)
            await evaluation._verify(examination, exam)
            yield Runner(child, ring, examination.form, exam.spare.output)
        finally:
            await child.close()
            ring.close()

    async def run(self, candidate: Submission, baseline: Submission, seeds: Sequence[int], precision: float) -> list[Times]:
        """The times of an evaluation for each seed, with the second submission in the baseline's place.

        All of them are made ready at once, and then measured one after another.
        """
        config = self.pool.config.model_copy(update={"precision": precision})
        found = []
        async with contextlib.AsyncExitStack() as stack:
            opening = [stack.enter_async_context(self._ready(entry, seed)) for seed in seeds for entry in (candidate, baseline)]
            ready = await asyncio.gather(*opening)
            await stack.enter_async_context(self.pool.lease.exclusive())
            for mine, other in zip(ready[::2], ready[1::2], strict=True):
                times = await asyncio.to_thread(measure, mine, other, compiles=False, config=config)
                found.append(replace(times, samples=()))
        return found


async def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--runs", type=int, default=200, help="evaluations in the last two rows; the first two have a quarter")
    parser.add_argument("--rows", default=",".join(ROWS), help="which, by name: on a machine with little time one after another")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=1, help="evaluations that are made ready together; measured alone")
    arguments = parser.parse_args()
    config = JudgeConfig(backend=arguments.backend, threads=arguments.threads, timing_seconds=10.0)
    async with JudgePool(config, cache_dir=cache_folder()) as pool:
        race = Race(pool, pool._host("bench", PROBLEM.format(shape=SHAPES[config.backend])))
        for name in arguments.rows.split(","):
            await show(race, ROWS[name], arguments.runs, arguments.at_once)


class Row(NamedTuple):
    """Work of candidate and baseline in thousandths, the share of the runs, `JudgeConfig.precision`, what the steps should be."""

    title: str
    work: int
    base: int
    share: float
    precision: float
    target: str


EXACT = 0.012
ROWS = {
    "same": Row("A/A", 1000, 1000, 0.25, EXACT, ""),
    "slower": Row("10 % slower", 1100, 1000, 0.25, EXACT, ""),
    "same_reward": Row("A/A, reward", 1000, 1000, 1.0, 1.0, " (target: at most 1 %)"),
    "faster_reward": Row("10 % faster, reward", 1000, 1111, 1.0, 1.0, " (target: at least 99 %)"),
}


async def show(race: Race, row: Row, runs: int, at_once: int) -> None:
    """Run and print a row."""
    backend, milestone = race.pool.config.backend, race.pool.config.milestone
    count, started = max(1, round(row.share * runs)), time.monotonic()
    pair = submission(backend, row.work, 1), submission(backend, row.base, 2)
    groups = [range(first, min(count, first + at_once)) for first in range(0, count, at_once)]
    found = [times for seeds in groups for times in await race.run(*pair, seeds, row.precision)]
    ratios = [times.eager_ms / times.candidate_ms for times in found]
    steps = sum(faster(interval, milestone) for times in found if (interval := times.interval("eager")))
    right = row.base / row.work
    inside = sum(abs(ratio - right) <= 0.02 for ratio in ratios)
    spread = f"{min(ratios):.3f} {statistics.median(ratios):.3f} {max(ratios):.3f}"
    rounds = statistics.median(times.rounds for times in found)
    seconds = (time.monotonic() - started) / count
    print(f"{row.title:20} {count:4} runs  ratio min/median/max {spread}  within 0.02 of {right:.3f}: {inside}", end="")
    print(f"  reward steps: {steps}{row.target}  rounds {rounds:.0f}  {seconds:.2f} s each", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
