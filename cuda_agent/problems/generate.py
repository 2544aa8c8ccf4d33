"""Generation of a problem set: compose, vet, split; resumable, and the same set whatever the number of workers.

Invariants: candidates come in one order fixed by the science settings (or by the caller, who brings them); results are
reported and counted in that order, so the set is the first `count` accepted candidates that resemble none before them and
allow the held-out split. What was vetted before is passed in as `done` and is not vetted again.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from cuda_agent.config import DatasetExecution, DatasetScience
from cuda_agent.errors import ProblemError
from cuda_agent.problems.compose import compose
from cuda_agent.problems.problem import Problem, VettedProblem
from cuda_agent.problems.rules import unlike
from cuda_agent.problems.similarity import Twins
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
    evaluation: Sequence[str] = (),
    lease: Lease | None = None,
    threads: int = 0,
    server: ForkServer | None = None,
    candidates: Iterator[Problem] | None = None,
    fresh: bool = False,
    ahead: Ahead | None = None,
) -> list[VettedProblem]:
    """All vetted candidates in order of position, accepted ones with their side of the split.

    `candidates` is the stream for `science.composer`, the same at every call; without it the composer must be `catalogue`.
    `lease`, `threads`, `server` and `fresh` are those of `Vetter`: `fresh` is for texts that others wrote. `on_result` sees
    each newly vetted candidate once, in order of position, before sides are known (`split` None). `ahead` is awaited before
    so many candidates are taken, for a stream that must wait for them.

    Raises:
        ProblemError: the settings yield too few problems (the message counts the rules that refused), or name a composer
            whose candidates are not given.
        SandboxError: the host cannot run candidates.
    """
    run = _Run(science, on_result, {problem.position: problem for problem in done})
    unvetted = run.unvetted(_composed(science) if candidates is None else candidates)
    if not run.finished():
        async with Vetter(
            science,
            execution,
            cache_dir=cache_dir,
            evaluation=evaluation,
            lease=lease,
            threads=threads,
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


class _Run:
    """The state of one generation: counted results, and results that wait for an earlier position."""

    def __init__(
        self, science: DatasetScience, on_result: Callable[[VettedProblem], None], done: dict[int, VettedProblem]
    ) -> None:
        self._science, self._on_result = science, on_result
        self._done, self._waiting = done, dict[int, VettedProblem]()
        self._counted: list[VettedProblem] = []
        self._accepted = 0
        self.twins = Twins()  # the accepted ones
        self._advance()

    def finished(self) -> bool:
        """Whether enough are accepted."""
        return self._accepted >= self._science.count

    def missing(self) -> int:
        """Accepted problems still wanted."""
        return self._science.count - self._accepted

    def wanted_at_once(self, workers: int) -> int:
        """Candidates that may be under way: no more than can still be needed, at least one."""
        ahead = sum(problem.accepted for problem in self._waiting.values())
        return max(1, min(workers, self.missing() - ahead))

    def unvetted(self, composed: Iterator[Problem]) -> Iterator[tuple[int, Problem]]:
        """The candidates that were not vetted before, as far as patience reaches.

        Raises:
            ProblemError: at once, where a stored candidate has another text than the settings give.
        """
        bound = 100 + PATIENCE * self._science.count
        known = max(self._done, default=-1) + 1
        candidates = enumerate(islice(composed, bound))
        first = [(position, problem) for position, problem in islice(candidates, known) if not self._is_done(position, problem)]
        return chain(first, candidates)

    def _is_done(self, position: int, problem: Problem) -> bool:
        stored = self._done.get(position)
        if stored is not None and stored.code != problem.code:
            raise ProblemError(f"stored candidate {position} has another text; start a new dataset for changed settings")
        return stored is not None

    def shortage(self) -> str:
        """What to say when the candidates have run out."""
        return (
            f"only {self._accepted} of {self._science.count} problems were accepted; refused by rule: {self._tally()}; "
            "widen families, operator_mix or the eager time window"
        )

    def add(self, result: VettedProblem) -> None:
        """Take in a result; it counts once all earlier positions have."""
        self._waiting[result.position] = result
        self._advance()

    def with_sides(self) -> list[VettedProblem]:
        """Everything counted, accepted problems with their side."""
        accepted = [problem for problem in self._counted if problem.accepted]
        sides = split([problem.ops for problem in accepted], self._science.held_out, self._science.seed)
        by_position = dict(zip((problem.position for problem in accepted), sides, strict=True))
        return [problem.on_side(by_position.get(problem.position)) for problem in self._counted]

    def _advance(self) -> None:
        """Count what is next in order; stop at the last problem wanted."""
        while not self.finished():
            position = len(self._counted)
            if position in self._waiting:
                result = self._last_allows_split(unlike(self._waiting.pop(position), self._science, self.twins))
                self._on_result(result)
            elif position in self._done:
                result = self._last_allows_split(unlike(self._done[position].on_side(None), self._science, self.twins))
            else:
                return
            self._counted.append(result)
            self._accepted += result.accepted
            if result.accepted:
                self.twins.add(result.code, result.facts, str(position))

    def _last_allows_split(self, result: VettedProblem) -> VettedProblem:
        """Refuse a last problem with which no exact split exists (groups of equal operators stay together)."""
        if not result.accepted or self.missing() > 1:
            return result
        sequences = [problem.ops for problem in self._counted if problem.accepted]
        if can_split([*sequences, result.ops], self._science.held_out):
            return result
        return replace(result, rule="split", reason="with it no exact held-out split exists", split=None)

    def _tally(self) -> str:
        rules = Counter(problem.rule for problem in self._counted if problem.rule)
        return ", ".join(f"{rule} {count}" for rule, count in rules.most_common()) or "none"
