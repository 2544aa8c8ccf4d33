"""Making and vetting stored sets: the one route of the command line and of the flow `dataset`.

Both work on behalf of a claimed stage run, which is what makes them resumable: what a stage run stored before is read back and
not vetted again. Rows appear as candidates are vetted; sides and counts when the set is closed.
"""

import asyncio
import platform
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from uuid import UUID

from cuda_agent.config import DatasetExecution, DatasetScience, JudgeConfig
from cuda_agent.engines.openai import Endpoint
from cuda_agent.judge.machine import device_model
from cuda_agent.problems.composers import candidates
from cuda_agent.problems.generate import generate
from cuda_agent.problems.ordered import Ordered
from cuda_agent.problems.problem import VettedProblem
from cuda_agent.problems.sources import Item, Source, texts_digest
from cuda_agent.problems.stored import stored_problems
from cuda_agent.problems.vet import Vetter
from cuda_agent.sandbox.forkserver import ForkServer
from cuda_agent.sandbox.lease import Lease
from cuda_agent.store.datasets import add_problem, close_dataset, open_dataset
from cuda_agent.store.session import Store

VERSION = 6  # of the stages `dataset` and `vetting`
LICENSE = "apache-2.0"  # of what is composed here
PACKAGES = ("cuda-agent", "torch", "transformers")

OnResult = Callable[[VettedProblem], None]


@dataclass(frozen=True)
class Order:
    """What is wanted: settings, the texts that nothing may resemble, and the model for composer llm."""

    science: DatasetScience
    execution: DatasetExecution
    judge: JudgeConfig
    evaluation: Mapping[str, str] = field(default_factory=dict)  # name -> text
    endpoint: Endpoint | None = None

    def inputs(self) -> dict[str, str]:
        """What the result depends on beside the settings, for the stage's key."""
        inputs = {"evaluation": self._evaluation_digest()} if self.evaluation else {}
        return inputs | (self.endpoint.provenance() if self.endpoint else {})

    def provenance(self) -> dict[str, Any]:
        """How a set by this order is made, for its row and its card."""
        return {
            "science": self.science,
            "seed": self.science.seed,
            "machine": platform.machine(),
            "backend": self.judge.backend,
            "device": device_model(self.judge.backend),
            "threads": self.judge.threads,
            "versions": versions(),
            "evaluation": {"problems": len(self.evaluation), "sha256": self._evaluation_digest()},
        }

    def _evaluation_digest(self) -> str:
        return texts_digest(list(self.evaluation.values()))


@dataclass(frozen=True)
class Shared:
    """What a process keeps open and lends: all optional."""

    server: ForkServer | None = None
    lease: Lease | None = None


async def make_set(
    store: Store,
    stage_run_id: UUID,
    order: Order,
    *,
    cache_dir: Path,
    on_result: OnResult,
    tell: Callable[[str], None] = lambda _: None,
    shared: Shared = Shared(),
) -> UUID:
    """Compose and vet until the set is full; returns the dataset's id.

    `on_result` sees each candidate once it is stored, `tell` what else is going on.

    Raises:
        ConfigError: composer llm has no endpoint, or a family is unknown.
        EngineError: the endpoint does not answer.
        ProblemError: operators and window do not give enough problems.
        SandboxError, DeviceError: candidates cannot be executed on this host.
    """
    science = order.science
    made_by = {"composer": science.composer, "license": LICENSE} | (order.endpoint.provenance() if order.endpoint else {})
    name = f"{science.composer}-{science.seed}"
    dataset_id = await asyncio.to_thread(open_dataset, store, name, order.provenance() | made_by, stage_run_id)
    done = await asyncio.to_thread(stored_problems, store, dataset_id)

    async with AsyncExitStack() as opened:
        stream = await candidates(
            science,
            opened,
            backend=order.judge.backend,
            cache_dir=cache_dir,
            workers=order.execution.workers,
            done=done,
            endpoint=order.endpoint,
            tell=tell,
        )
        problems = await generate(
            science,
            order.execution,
            cache_dir=cache_dir,
            on_result=_keeper(store, dataset_id, on_result),
            done=done,
            evaluation=order.evaluation,
            lease=shared.lease,
            judge=order.judge,
            server=shared.server,
            candidates=stream.problems,
            fresh=stream.foreign,
            ahead=stream.ahead,
        )
    splits = {problem.position: problem.split for problem in problems if problem.accepted}
    counts = _counts(problems) | stream.report() | {"operators": list(stream.operators)}
    await asyncio.to_thread(close_dataset, store, dataset_id, splits, counts)
    return dataset_id


async def vet_set(
    store: Store,
    stage_run_id: UUID,
    source: Source,
    order: Order,
    *,
    cache_dir: Path,
    on_result: OnResult,
    shared: Shared = Shared(),
) -> UUID:
    """Put every problem of a source through every rule, each in a child of its own; returns the id of the set with the results.

    Accepted problems keep the side that the source gives them, `train` without one. A set without any stays incomplete, for
    nothing can be trained on it.

    Raises:
        SandboxError, DeviceError: candidates cannot be executed on this host.
    """
    parent = {"name": source.name, "kind": source.kind, "sha256": source.digest}
    provenance = order.provenance() | {"composer": "vetting", "parent": parent, "license": source.license}
    dataset_id = await asyncio.to_thread(open_dataset, store, f"vetted-{source.name}", provenance, stage_run_id)
    done = {problem.position: problem for problem in await asyncio.to_thread(stored_problems, store, dataset_id)}
    left = [(place, item) for place, item in enumerate(source.items) if place not in done]

    results = Ordered(order.science, done, _keeper(store, dataset_id, on_result))
    if left:
        await _vet(left, order, cache_dir, results, shared)
    sides = {found.position: source.items[found.position].vetted.split or "train" for found in results.accepted}
    if "train" in sides.values():
        await asyncio.to_thread(close_dataset, store, dataset_id, sides, _counts(results.settled))
    return dataset_id


def store_set(store: Store, source: Source, sides: Sequence[str | None], provenance: Mapping[str, Any]) -> UUID:
    """Store a source's problems as they are; times and facts stay where the source has them.

    Raises:
        StoreError: no problem is for training, or the database is gone.
    """
    parent = {"name": source.name, "kind": source.kind, "sha256": source.digest}
    told = {"composer": "import", "license": source.license, "versions": versions(), "parent": parent} | dict(provenance)
    dataset_id = open_dataset(store, source.name, told)
    for place, item in enumerate(source.items):
        add_problem(store, dataset_id, replace(item.vetted, position=place, facts=dict(item.vetted.facts) | {"name": item.name}))
    close_dataset(store, dataset_id, dict(enumerate(sides)))
    return dataset_id


def versions() -> dict[str, str]:
    """Of Python and of what problems are made from."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # a checkout on the path without an install
            continue
    return found


def _keeper(store: Store, dataset_id: UUID, on_result: OnResult) -> OnResult:
    """Stores a result, then tells of it."""

    def keep(problem: VettedProblem) -> None:
        add_problem(store, dataset_id, problem)
        on_result(problem)

    return keep


async def _vet(work: Sequence[tuple[int, Item]], order: Order, cache_dir: Path, results: Ordered, shared: Shared) -> None:
    """Vet all, at most `workers` at once."""
    queue, storing = iter(work), asyncio.Lock()

    async def work_off(vetter: Vetter) -> None:
        for place, item in queue:
            result = await vetter.vet(place, item.problem, results.twins)
            async with storing:
                await asyncio.to_thread(results.add, replace(result, facts=dict(result.facts) | {"name": item.name}))

    async with Vetter(
        order.science,
        order.execution,
        cache_dir=cache_dir,
        evaluation=order.evaluation,
        lease=shared.lease,
        judge=order.judge,
        server=shared.server,
        fresh=True,
    ) as vetter:
        tasks = [asyncio.create_task(work_off(vetter)) for _ in range(order.execution.workers)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _counts(problems: Sequence[VettedProblem]) -> dict[str, Any]:
    """Candidates by rule, for provenance."""
    rules = Counter(problem.rule or "accepted" for problem in problems)
    return {"candidates": len(problems), "by_rule": dict(rules.most_common())}
