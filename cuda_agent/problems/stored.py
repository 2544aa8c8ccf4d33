"""Problem sets in the store, as vetted problems: what was vetted before is read back here."""

from typing import Literal, cast
from uuid import UUID

from sqlalchemy import func, select

from cuda_agent.errors import ConfigError
from cuda_agent.problems.problem import VettedProblem
from cuda_agent.store.session import Store
from cuda_agent.store.tables import Dataset, Problem


def stored_problems(store: Store, dataset_id: UUID) -> list[VettedProblem]:
    """Every candidate of a set, accepted or not, in order of position; the set may be incomplete."""
    with store.session() as session:
        rows = session.scalars(select(Problem).where(Problem.dataset_id == dataset_id).order_by(Problem.position)).all()
    return [_vetted(row) for row in rows]


def find_dataset(store: Store, dataset_id: UUID | None = None) -> Dataset:
    """A set's row; without an id the newest set that holds problems.

    Raises:
        ConfigError: there is none.
        StoreError: the database is gone.
    """
    with store.session() as session:
        if dataset_id is not None:
            row = session.get(Dataset, dataset_id)
        else:
            filled = select(Problem.dataset_id).where(Problem.dataset_id == Dataset.id).exists()
            row = session.scalars(select(Dataset).where(filled).order_by(Dataset.created_at.desc()).limit(1)).first()
    if row is not None:
        return row
    if dataset_id is None:
        raise ConfigError("the store holds no dataset; make one with: cuda-agent problems generate")
    raise ConfigError(f"dataset {dataset_id} is not in this store; cuda-agent problems show lists what is")


def list_datasets(store: Store, most: int = 20) -> list[tuple[Dataset, int, int]]:
    """The newest sets with the numbers of their accepted problems and of all candidates."""
    accepted, candidates = func.count(Problem.id).filter(Problem.rule.is_(None)), func.count(Problem.id)
    query = (
        select(Dataset, accepted, candidates)
        .outerjoin(Problem, Problem.dataset_id == Dataset.id)
        .group_by(Dataset.id)
        .order_by(Dataset.created_at.desc())
        .limit(most)
    )
    with store.session() as session:
        return [(row[0], row[1], row[2]) for row in session.execute(query)]


def _vetted(row: Problem) -> VettedProblem:
    return VettedProblem(
        position=row.position,
        ops=tuple(row.ops),
        data_source=row.data_source,
        code=row.code,
        code_sha256=row.code_sha256,
        split=cast(Literal["train", "held_out"] | None, row.split),
        rule=row.rule,
        reason=row.reason,
        eager_ms=row.eager_ms,
        compile_ms=row.compile_ms,
        facts=row.facts,
    )
