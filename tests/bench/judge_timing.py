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
from collections.abc import AsyncIterator

from cuda_agent.config import JudgeConfig
from cuda_agent.judge.evaluation import Evaluation
from cuda_agent.judge.examination import Examination
from cuda_agent.judge.pool import JudgePool
from cuda_agent.judge.problem_host import ProblemHost
from cuda_agent.judge.reward import faster
from cuda_agent.judge.timing import Runner, Times, measure
from cuda_agent.judge.verdict import Submission
from cuda_agent.store.session import cache_folder

PROBLEM = """import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x * 0.5 + 0.1)

def get_inputs():
    return [torch.randn(1000, 512)]

def get_init_inputs():
    return []
"""
MODEL = """import torch
import torch.nn as nn
import cpu_extension

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        cpu_extension.run(x, y)
        return y
"""
KERNEL = """#include "binding_registry.h"
// Rows beyond the last are computed anew: WORK per mille of what the answer needs. BUILD {build}
static void run(TensorView x, TensorView y) {{
    const float* in = x.f32(); float* out = y.f32();
    const long rows = x.rows(), columns = x.cols();
    #pragma omp parallel for
    for (long row = 0; row < rows * {work} / 1000; ++row) {{
        const float* a = in + row % rows * columns; float* b = out + row % rows * columns;
        #pragma omp simd
        for (long i = 0; i < columns; ++i) b[i] = tanhf(a[i] * 0.5f + 0.1f);
    }}
}}
REGISTER_LIGHT(run)
"""


def submission(work: int, build: int) -> Submission:
    """The kernel with so many thousandths of the needed work."""
    return Submission({"model_new.py": MODEL, "kernels/kernel.cpp": KERNEL.format(work=work, build=build)})


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

    async def run(self, candidate: Submission, baseline: Submission, seed: int) -> Times:
        """One evaluation's times, with the second submission in the baseline's place."""
        async with contextlib.AsyncExitStack() as stack:
            mine = await stack.enter_async_context(self._ready(candidate, seed))
            other = await stack.enter_async_context(self._ready(baseline, seed))
            await stack.enter_async_context(self.pool.lease.exclusive())
            return await asyncio.to_thread(measure, mine, other, compiles=False, config=self.pool.config)


async def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200, help="evaluations in the last two rows; the first two have a quarter")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    config = JudgeConfig(threads=arguments.threads)
    async with JudgePool(config, cache_dir=cache_folder()) as pool:
        host = pool._host("bench", PROBLEM)
        race = Race(pool, host)
        for title, work, base, count, hits in rows(arguments.runs):
            started, found = time.monotonic(), []
            for seed in range(count):
                found.append(await race.run(submission(work, 1), submission(base, 2), seed))
            ratios = [times.eager_ms / times.candidate_ms for times in found]
            steps = sum(faster(interval, config.milestone) for times in found if (interval := times.interval("eager")))
            inside = sum(abs(ratio - base / work) <= 0.02 for ratio in ratios)
            spread = f"{min(ratios):.3f} {statistics.median(ratios):.3f} {max(ratios):.3f}"
            rounds = statistics.median(times.rounds for times in found)
            seconds = (time.monotonic() - started) / count
            print(f"{title:28} {count:4} runs  ratio min/median/max {spread}  within 0.02 of {base / work:.3f}: {inside}", end="")
            print(f"  reward steps: {steps}{hits}  rounds {rounds:.0f}  {seconds:.2f} s each", flush=True)


def rows(runs: int) -> list[tuple[str, int, int, int, str]]:
    """Title, candidate's work, baseline's work, runs, what the reward steps should be."""
    few = max(1, runs // 4)
    return [
        ("A/A", 1000, 1000, few, ""),
        ("10 % slower", 1100, 1000, few, ""),
        ("A/A, reward", 1000, 1000, runs, " (target: at most 1 %)"),
        ("10 % faster, reward", 1000, 1111, runs, " (target: at least 99 %)"),
    ]


if __name__ == "__main__":
    asyncio.run(main())
