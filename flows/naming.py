"""Readable run names: stage, campaign and what it works on, from the flow's own parameters."""

from collections.abc import Callable
from datetime import UTC, datetime

from prefect.runtime import flow_run


def run_name(stage: str) -> Callable[[], str]:
    """A name such as `ppo 3f2a91 2026-11-30 12:03`: the stage, the input it builds on (last digits), the start."""

    def name() -> str:
        parameters = flow_run.parameters or {}
        label = str(parameters.get("label") or "")
        source = parameters.get("policy_version_id") or parameters.get("dataset_id")
        parts = [stage, label, str(source)[-6:] if source else "", datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")]
        return " ".join(part for part in parts if part)

    return name


def campaign_name() -> str:
    """The campaign's own name and its start."""
    config = (flow_run.parameters or {}).get("config")
    name = config.get("name") if isinstance(config, dict) else getattr(config, "name", None)
    return f"{name or 'campaign'} {datetime.now(UTC).strftime('%Y-%m-%d %H:%M:%S')}"
