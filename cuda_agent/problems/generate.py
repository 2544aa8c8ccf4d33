"""Generation of a problem set: compose, vet, split; resumable, and the same set whatever the number of workers.

Invariants: candidates come in one order fixed by the science settings (or by the caller, who brings them); results are
reported and counted in that order, so the set is the first `count` accepted candidates that resemble none before them and
allow the held-out split. What was vetted before is passed in as `done` and is not vetted again.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from cuda_agent.config import DatasetExecution, DatasetScience, JudgeConfig
from cuda_agent.errors import ProblemError
from cuda_agent.problems.compose import compose
from cuda_agent.problems.ordered import Ordered
from cuda_agent.problems.problem import Problem, VettedProblem
from cuda_agent.problems.split import can_split, split
from cuda_agent.problems.vet import Vetter
from cuda_agent.sandbox.forkserver import ForkServer
from cuda_agent.sandbox.lease import Lease

Ahead = Callable[[int], Awaitable[None]]
PATIENCE = 20  # candidates per wanted problem, beyond a first hundred, before the settings count as impossible


async def generate(
    science: DatasetScience,
    execution: DatasetExecution,
    *,
    cache_dir: Path,
    on_result: Callable[[VettedProblem], None],
    done: Sequence[VettedProblem] = (),
    evaluation: Mapping[str, str] | None = None,
    lease: Lease | None = None,
    judge: JudgeConfig | None = None,
    server: ForkServer | None = None,
    candidates: Iterator[Problem] | None = None,
    fresh: bool = False,
    ahead: Ahead | None = None,
) -> list[VettedProblem]:
    """All vetted candidates in order of position, accepted ones with their side of the split.

    `candidates` is the stream for `science.composer`, the same at every call; without it the composer must be `catalogue`.
    `lease`, `judge`, `server` and `fresh` are those of `Vetter`: `fresh` is for texts that others wrote. `on_result` sees
    each newly vetted candidate once, in order of position, before sides are known (`split` None). `ahead` is awaited before
    so many candidates are taken, for a stream that must wait for them.

    Raises:
        ProblemError: the settings yield too few problems (the message counts the rules that refused), or name a composer
            whose candidates are not given.
        SandboxError, DeviceError: the host cannot run candidates.
    """
    by_position = {problem.position: problem for problem in done}
    run = _Run(science, by_position, on_result)
    unvetted = _unvetted(_composed(science) if candidates is None else candidates, by_position, science)
    if not run.finished():
        async with Vetter(
            science,
            execution,
            cache_dir=cache_dir,
            evaluation=evaluation,
            lease=lease,
            judge=judge,
            server=server,
            fresh=fresh,
        ) as vetter:
            await _vet_until_finished(run, vetter, unvetted, execution.workers, ahead)
    return run.with_sides()


def _composed(science: DatasetScience) -> Iterator[Problem]:
    if science.composer != "catalogue":
        raise ProblemError(f"composer {science.composer}: its candidates must be passed in; or set composer to catalogue")
    return compose(science)


async def _vet_until_finished(
    run: "_Run", vetter: Vetter, candidates: Iterator[tuple[int, Problem]], workers: int, ahead: Ahead | None
) -> None:
    pending: set[asyncio.Task[VettedProblem]] = set()
    try:
        while not run.finished():
            wanted = max(0, run.wanted_at_once(workers) - len(pending))
            if ahead is not None:
                await ahead(wanted)
            for position, problem in islice(candidates, wanted):
                pending.add(asyncio.create_task(vetter.vet(position, problem, run.twins)))
            if not pending:
                raise ProblemError(run.shortage())
            completed, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in completed:
                run.add(task.result())
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


class _Run(Ordered):
    """The state of one generation, which ends with the last problem wanted."""

    def finished(self) -> bool:
        """Whether enough are accepted."""
        return self.missing() <= 0

    def missing(self) -> int:
        """Accepted problems still wanted."""
        return self.science.count - len(self.accepted)

    def wanted_at_once(self, workers: int) -> int:
        """Candidates that may be under way: no more than can still be needed, at least one."""
        return max(1, min(workers, self.missing() - self.accepted_ahead))

    def shortage(self) -> str:
        """What to say when the candidates have run out."""
        rules = Counter(problem.rule for problem in self.settled if problem.rule)
        tally = ", ".join(f"{rule} {count}" for rule, count in rules.most_common()) or "none"
        return (
            f"only {len(self.accepted)} of {self.science.count} problems were accepted; refused by rule: {tally}; "
            "widen families, operator_mix or the eager time window"
        )

    def with_sides(self) -> list[VettedProblem]:
        """Everything settled, accepted problems with their side."""
        sides = split([problem.ops for problem in self.accepted], self.science.held_out, self.science.seed)
        by_position = dict(zip((problem.position for problem in self.accepted), sides, strict=True))
        return [problem.on_side(by_position.get(problem.position)) for problem in self.settled]

    def final(self, result: VettedProblem) -> VettedProblem:
        """Refuse a last problem with which no exact split exists (groups of equal operators stay together)."""
        if not result.accepted or self.missing() > 1:
            return result
        sequences = [problem.ops for problem in self.accepted]
        if can_split([*sequences, result.ops], self.science.held_out):
            return result
        return replace(result, rule="split", reason="with it no exact held-out split exists", split=None)


def _unvetted(
    composed: Iterator[Problem], done: Mapping[int, VettedProblem], science: DatasetScience
) -> Iterator[tuple[int, Problem]]:
    """The candidates that were not vetted before, as far as patience reaches.

    Raises:
        ProblemError: at once, where a stored candidate has another text than the settings give.
    """
    candidates = enumerate(islice(composed, 100 + PATIENCE * science.count))
    known = list(islice(candidates, max(done, default=-1) + 1))
    for position, problem in known:
        if position in done and done[position].code != problem.code:
            raise ProblemError(f"stored candidate {position} has another text; start a new dataset for changed settings")
    return chain((pair for pair in known if pair[0] not in done), candidates)
