"""Stage runs: which work is the same work, who is doing it, and what came of it.

Invariants: (key, generation) is one row; while a claim is open a Postgres advisory lock on the key is held by a connection
of its own, so a second start of the same key waits, and a crash releases it because the connection dies with the process.
The attempt number fences: a claim that lost its lock to another attempt cannot finish the row.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy import Connection, func, select, text, update
from sqlalchemy.orm import Session

from cuda_agent.errors import CudaAgentError, StoreError
from cuda_agent.store.canonical import digest, jsonable
from cuda_agent.store.session import Store
from cuda_agent.store.tables import Campaign, CampaignStage, StageRun, now

Ids = Mapping[str, UUID | str | Sequence[UUID | str] | None]


def stage_key(
    stage: str,
    version: int,
    inputs: Ids,
    science: BaseModel | Mapping[str, Any],
    backend: str | None = None,
    device: str | None = None,
) -> str:
    """The digest that two starts of the same work share.

    Args:
        stage: name of the stage.
        version: the stage's own integer, raised when its code changes results.
        inputs: ids by role; the order of ids within a role does not matter, and absent roles (None) are left out.
        science: the settings that change results.
        backend: `cpu` or `cuda` where times matter, else None.
        device: model of the measuring device where times matter, else None.
    """
    roles = {role: sorted(_ids(value)) for role, value in inputs.items() if value is not None}
    return digest(
        {"stage": stage, "version": version, "inputs": roles, "science": jsonable(science), "backend": backend, "device": device}
    )


def _ids(value: UUID | str | Sequence[UUID | str]) -> list[str]:
    return [str(value)] if isinstance(value, str | UUID) else [str(one) for one in value]


@dataclass(frozen=True)
class StageRequest:
    """One start of a stage, as a flow states it."""

    stage: str
    version: int
    inputs: Ids
    science: BaseModel | Mapping[str, Any]
    execution: BaseModel | Mapping[str, Any] = field(default_factory=dict)
    backend: str | None = None
    device: str | None = None
    label: str = ""
    refresh: bool = False  # add a generation although the work is done
    campaign_id: UUID | None = None
    flow_run_id: UUID | None = None
    ui_url: str | None = None

    @property
    def key(self) -> str:
        """See stage_key."""
        return stage_key(self.stage, self.version, self.inputs, self.science, self.backend, self.device)


class StageClaim:
    """The right to do one stage run, as a context manager: the lock is given back at the end, whatever happens.

    Leaving the block by an exception marks the row failed with the exception's sentence; leaving it without `finish` too.
    """

    def __init__(self, store: Store, row: StageRun, resources: ExitStack) -> None:
        """Made by claim_stage only."""
        self._store = store
        self._resources = resources
        self._ended = row.status == "completed"
        self._since = time.monotonic()
        self.row_id: UUID = row.id
        self.key = row.key
        self.generation = row.generation
        self.attempt = row.attempt
        self.finished: dict[str, Any] | None = row.outputs if self._ended else None

    @property
    def resumed(self) -> bool:
        """Whether an earlier attempt of the same row may have left results to go on from."""
        return self.attempt > 1

    def finish(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Record the outputs (ids and numbers) and mark the row completed; returns them in JSON types.

        Raises:
            StoreError: the claim was lost to a newer attempt, or the database is gone.
        """
        values = jsonable(outputs)
        self._end("completed", outputs=values, message="")
        self.finished = values
        return dict(values)

    def fail(self, message: str) -> None:
        """Mark the row failed with one sentence; the next start of the key goes on from what is stored.

        Raises:
            StoreError: the claim was lost to a newer attempt, or the database is gone.
        """
        self._end("failed", message=message[:2_000])

    def touch(self) -> None:
        """Add the seconds worked since the last touch, so that a later crash does not lose them.

        Raises:
            StoreError: the claim was lost to a newer attempt, or the database is gone.
        """
        self._update()

    def close(self) -> None:
        """Give the lock back. Idempotent."""
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if not self._ended:
                self._fail_quietly(_sentence(error) if error else "ended without a result")
        finally:
            self.close()

    def _fail_quietly(self, message: str) -> None:
        """Boundary: when the store itself is the trouble, the original error is the one worth showing."""
        try:
            self.fail(message)
        except StoreError:
            return

    def _end(self, status: str, **values: Any) -> None:
        if self._ended:
            raise StoreError(f"stage run {self.row_id} has already ended; start the stage again for a new result")
        self._update(status=status, ended_at=now(), **values)
        self._ended = True

    def _update(self, **values: Any) -> None:
        worked = time.monotonic() - self._since
        statement = (
            update(StageRun)
            .where(StageRun.id == self.row_id, StageRun.attempt == self.attempt, StageRun.status == "running")
            .values(seconds=StageRun.seconds + worked, **values)
        )
        with self._store.session() as session:
            if session.connection().execute(statement).rowcount != 1:
                raise StoreError(f"stage run {self.row_id} was taken over by another attempt; look at the newer flow run")
        self._since = time.monotonic()


def claim_stage(
    store: Store, request: StageRequest, *, on_wait: Callable[[str], None] | None = None, wait_seconds: float | None = None
) -> StageClaim:
    """Claim the work of `request`, waiting while another process does it.

    The newest completed generation is returned as finished, unless `refresh` asks for another; otherwise an unfinished row
    is taken up again as its next attempt, and only then a new row begun. A retry of the flow run that began a refresh goes
    on with that generation.

    Args:
        store: where stage runs live.
        request: what to do.
        on_wait: called once with a sentence when the key is busy.
        wait_seconds: give up after this long; None waits for ever.

    Raises:
        StoreError: the database is gone, or the key was still busy after `wait_seconds`.
    """
    with ExitStack() as resources:
        connection = resources.enter_context(store.connection())
        _lock(connection, request, on_wait, wait_seconds)
        with store.session() as session:
            row = _open_row(session, request)
            if request.campaign_id is not None:
                _link_campaign(session, request.campaign_id, row.id)
        return StageClaim(store, row, resources.pop_all())
    raise AssertionError("unreachable")


def _lock(connection: Connection, request: StageRequest, on_wait: Callable[[str], None] | None, seconds: float | None) -> None:
    """Take the advisory lock of the key on `connection`."""
    number = int.from_bytes(bytes.fromhex(request.key[:16]), "big", signed=True)
    connection.execute(text("set idle_session_timeout = 0"))
    if connection.scalar(text("select pg_try_advisory_lock(:number)"), {"number": number}):
        return
    if on_wait is not None:
        on_wait(f"stage {request.stage} with the same inputs and settings is already running; waiting for its result")
    deadline = None if seconds is None else time.monotonic() + seconds
    while not connection.scalar(text("select pg_try_advisory_lock(:number)"), {"number": number}):
        if deadline is not None and time.monotonic() > deadline:
            raise StoreError(f"stage {request.stage} was still running elsewhere after {seconds:.0f} s; cancel that run or wait")
        time.sleep(0.25)


def _open_row(session: Session, request: StageRequest) -> StageRun:
    """The row this start works on, or the completed one it need not work on. The key's lock is held."""
    rows = session.scalars(select(StageRun).where(StageRun.key == request.key).order_by(StageRun.generation.desc())).all()
    row = _reusable(rows, request)
    if row is None:
        row = StageRun(
            key=request.key,
            generation=rows[0].generation + 1 if rows else 0,
            stage=request.stage,
            label=request.label,
            campaign_id=request.campaign_id,
            config={
                "science": jsonable(request.science),
                "execution": jsonable(request.execution),
                "version": request.version,
                "backend": request.backend,
                "device": request.device,
            },
            inputs=jsonable(request.inputs),
            flow_run_id=request.flow_run_id,
            ui_url=request.ui_url,
        )
        session.add(row)
    elif row.status != "completed":
        row.attempt += 1
        row.status, row.message, row.ended_at = "running", "", None
        row.flow_run_id, row.ui_url = request.flow_run_id, request.ui_url
    session.flush()
    return row


def _reusable(rows: Sequence[StageRun], request: StageRequest) -> StageRun | None:
    """Of the key's rows, newest first, the one to return or resume; None asks for a new generation."""
    if not rows:
        return None
    if request.refresh:
        own = request.flow_run_id is not None and rows[0].flow_run_id == request.flow_run_id
        return rows[0] if own else None
    return next((row for row in rows if row.status == "completed"), rows[0])


def _link_campaign(session: Session, campaign_id: UUID, stage_run_id: UUID) -> None:
    """Append the stage run to the campaign's list, once."""
    session.execute(select(Campaign.id).where(Campaign.id == campaign_id).with_for_update())
    mine = CampaignStage.campaign_id == campaign_id
    if session.scalar(select(CampaignStage).where(mine, CampaignStage.stage_run_id == stage_run_id).limit(1)) is None:
        last = session.scalar(select(func.max(CampaignStage.position)).where(mine))
        session.add(CampaignStage(campaign_id=campaign_id, position=0 if last is None else last + 1, stage_run_id=stage_run_id))
        session.flush()


def _sentence(error: BaseException) -> str:
    if isinstance(error, CudaAgentError):
        return str(error)
    return f"{type(error).__name__}: {error}".strip().rstrip(":")
