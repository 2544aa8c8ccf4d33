"""Campaign rows: begun, ended, found again."""

from typing import Any
from uuid import UUID

from sqlalchemy import update

from cuda_agent.config import CampaignConfig
from cuda_agent.store.session import Store
from cuda_agent.store.tables import Campaign, now


def begin_campaign(store: Store, config: CampaignConfig, flow_run_id: UUID | None = None, start_seconds: float = 0.0) -> UUID:
    """A new campaign row, or the one that an earlier attempt of the same flow run began.

    `start_seconds` is what went by before: services and imports. A row taken up again keeps its own.

    Raises:
        StoreError: the database is gone.
    """
    with store.session() as session:
        row = None
        if flow_run_id is not None:
            row = session.query(Campaign).filter(Campaign.flow_run_id == flow_run_id).first()
        if row is None:
            settings = config.model_dump(mode="json")
            row = Campaign(name=config.name, config=settings, flow_run_id=flow_run_id, start_seconds=start_seconds)
            session.add(row)
        row.status, row.ended_at = "running", None
        session.flush()
        return row.id


def end_campaign(store: Store, campaign_id: UUID, status: str) -> None:
    """Mark it `completed` or `failed`.

    Raises:
        StoreError: the database is gone.
    """
    values: dict[str, Any] = {"status": status, "ended_at": now()}
    with store.session() as session:
        session.execute(update(Campaign).where(Campaign.id == campaign_id).values(**values))
