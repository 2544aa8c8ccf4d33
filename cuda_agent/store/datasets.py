"""Writing problem sets: opened, filled candidate by candidate, closed. A closed set is immutable."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy import select

from cuda_agent.errors import StoreError
from cuda_agent.store.canonical import clean, clean_json, jsonable
from cuda_agent.store.session import Store
from cuda_agent.store.tables import Dataset, Problem


class ProblemLike(Protocol):
    """What a vetted problem has; the store sits below the problems and knows them by shape only."""

    @property
    def position(self) -> int: ...
    @property
    def ops(self) -> Sequence[str]: ...
    @property
    def data_source(self) -> str: ...
    @property
    def code(self) -> str: ...
    @property
    def code_sha256(self) -> str: ...
    @property
    def rule(self) -> str | None: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def eager_ms(self) -> float | None: ...
    @property
    def compile_ms(self) -> float | None: ...
    @property
    def facts(self) -> Mapping[str, Any]: ...


def open_dataset(store: Store, name: str, provenance: Mapping[str, Any], stage_run_id: UUID | None = None) -> UUID:
    """A new, incomplete set; with a stage run, that run's set from an earlier attempt if there is one.

    Raises:
        StoreError: the database is gone.
    """
    with store.session() as session:
        row = None
        if stage_run_id is not None:
            row = session.scalars(select(Dataset).where(Dataset.stage_run_id == stage_run_id)).first()
        if row is None:
            row = Dataset(name=name, stage_run_id=stage_run_id, provenance=clean_json(jsonable(provenance)))
            session.add(row)
            session.flush()
        return row.id


def add_problem(store: Store, dataset_id: UUID, problem: ProblemLike) -> UUID:
    """Store one candidate, accepted or rejected; its split comes when the set is closed.

    Raises:
        StoreError: the set is closed, or the database is gone.
    """
    with store.session() as session:
        dataset = session.get(Dataset, dataset_id)
        if dataset is None or dataset.complete:
            raise StoreError(f"dataset {dataset_id} takes no more problems; generate or import a new one")
        row = Problem(
            dataset_id=dataset_id,
            position=problem.position,
            ops=[clean(name) for name in problem.ops],
            data_source=clean(problem.data_source),
            code=clean(problem.code),
            code_sha256=problem.code_sha256,
            rule=problem.rule,
            reason=None if problem.reason is None else clean(problem.reason),
            eager_ms=problem.eager_ms,
            compile_ms=problem.compile_ms,
            facts=clean_json(jsonable(problem.facts)),
        )
        session.add(row)
        session.flush()
        return row.id


def close_dataset(
    store: Store, dataset_id: UUID, splits: Mapping[int, str | None], provenance: Mapping[str, Any] | None = None
) -> int:
    """Set each problem's split by position and mark the set complete; returns the number of accepted problems.

    `provenance` adds to what was given at the start: what is known only in the end, such as counts.

    Raises:
        StoreError: no problem is left for training, or the database is gone.
    """
    if "train" not in splits.values():
        raise StoreError(f"dataset {dataset_id} has no problem for training; raise its count or lower held_out")
    with store.session() as session:
        for row in session.scalars(select(Problem).where(Problem.dataset_id == dataset_id)):
            row.split = splits.get(row.position) if row.rule is None else None
        dataset = session.get_one(Dataset, dataset_id)
        dataset.provenance = dataset.provenance | clean_json(jsonable(provenance or {}))
        dataset.complete = True
    return sum(side is not None for side in splits.values())
