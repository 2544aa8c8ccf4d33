"""How many candidates an hour vetting takes: `python -m tests.bench.vetting_speed [--count N]`.

The first N candidates of the catalogue's composer, with the quickstart's time window, go through every rule, torch.compile
included. Rows: candidates and accepted per hour, the largest memory of all processes together (proportional set size),
the rules that refused, and where the time of the workers goes. The inductor's precompiled header, made once per machine,
and the start of the fork server are not counted.
"""

import argparse
import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from cuda_agent.config import DatasetExecution, DatasetScience
from cuda_agent.judge.inductor import warm_server
from cuda_agent.problems.compose import compose
from cuda_agent.problems.problem import VettedProblem
from cuda_agent.problems.similarity import Twins
from cuda_agent.problems.vet import Vetter
from cuda_agent.sandbox.lease import Lease, device_lease_path
from cuda_agent.store.session import cache_folder

MIX = {1: 0.15, 2: 0.35, 3: 0.25, 4: 0.15, 5: 0.1}


async def vet_all(science: DatasetScience, workers: int, leased: bool) -> tuple[list[VettedProblem], float, int]:
    """Results, seconds and the largest memory in bytes."""
    cache, twins, peak = cache_folder(), Twins(), [0]
    lease = Lease(device_lease_path(cache)) if leased else None
    server = await warm_server(cache)
    watching = asyncio.create_task(watch_memory(peak))
    started = time.monotonic()
    try:
        execution = DatasetExecution(workers=workers)
        async with Vetter(science, execution, cache_dir=cache, lease=lease, server=server) as vetter:

            async def one(position: int) -> VettedProblem:
                result = await vetter.vet(position, problems[position], twins)
                if result.accepted:
                    twins.add(result.code, result.facts, str(position))
                return result

            problems = list(islice(compose(science), science.count))
            results = await asyncio.gather(*map(one, range(len(problems))))
        return results, time.monotonic() - started, peak[0]
    finally:
        watching.cancel()
        await server.close()


async def watch_memory(peak: list[int]) -> None:
    """Keep the largest sum over this process and all below it."""
    while True:
        peak[0] = max(peak[0], await asyncio.to_thread(lambda: sum(map(proportional_bytes, family(os.getpid())))))
        await asyncio.sleep(1.0)


def family(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from family(int(child))


def proportional_bytes(pid: int) -> int:
    """Memory of a process, shared pages counted by share; 0 where it has ended."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return 0


def table(results: list[VettedProblem], seconds: float, peak: int, workers: int) -> str:
    """All rows."""
    accepted = sum(result.accepted for result in results)
    rules = Counter(result.rule for result in results if result.rule)
    stages: Counter[str] = Counter()
    for result in results:
        stages.update(result.facts.get("stage_seconds", {}))
    stages["start, waiting"] = workers * seconds - stages.total()
    return "\n".join(
        (
            f"{len(results)} candidates in {seconds:.1f} s by {workers} workers: {3600 * len(results) / seconds:,.0f} an hour",
            f"{accepted} accepted: {3600 * accepted / seconds:,.0f} an hour",
            f"memory {peak / 2**30:.2f} GB",
            f"refused: {', '.join(f'{rule} {count}' for rule, count in rules.most_common()) or 'none'}",
            *(f"{name:16} {value / seconds / workers:6.1%}" for name, value in stages.most_common()),
        )
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="candidates")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lease", action="store_true", help="take turns with others on this machine, as the flow does")
    told = parser.parse_args()
    settings = {"composer": "catalogue", "operator_mix": MIX, "eager_ms_min": 0.05, "eager_ms_max": 5.0, "seed": told.seed}
    science = DatasetScience.model_validate({"count": told.count, **settings})
    results, seconds, peak = asyncio.run(vet_all(science, told.workers, told.lease))
    print(table(results, seconds, peak, told.workers))


if __name__ == "__main__":
    main()
