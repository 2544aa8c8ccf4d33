"""Pages for the dashboard: a campaign's report and a stage's result as markdown below 100 KB, and a rollout's page.

The tables are those of the terminal. Links are relative to the dashboard, so a page holds wherever it is served.
"""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

import yaml
from sqlalchemy import select
from sqlalchemy.orm import Session

from cuda_agent.errors import ConfigError
from cuda_agent.report import reading
from cuda_agent.report.grids import (
    Grid,
    decimal,
    evaluation_grid,
    outcome_grid,
    problem_grid,
    report_grids,
    update_grid,
)
from cuda_agent.report.markup import cell, details, fence, grid_markdown, run_link, size
from cuda_agent.report.rollout_page import rollout_markdown
from cuda_agent.report.summary import campaign_summary, evaluation_facts, problem_facts, rollout_facts, update_facts
from cuda_agent.report.transcript import shorten
from cuda_agent.store.tables import Problem, Rollout, StageRun

if TYPE_CHECKING:
    from cuda_agent.store.session import Store

__all__ = ["campaign_markdown", "rollout_markdown", "stage_markdown", "summary_markdown"]

MOST_BYTES = 100_000
UPDATES_SHOWN = (200, 50, 10, 0)
FAILURES_SHOWN = 40


def campaign_markdown(store: "Store", campaign_id: UUID | None = None) -> str:
    """The report of a stored campaign (None: the last) as a page.

    Raises:
        ConfigError: no campaign has this id.
        StoreError: the store is not reachable, or holds no campaign.
    """
    return summary_markdown(campaign_summary(store, campaign_id))


def summary_markdown(summary: dict[str, Any]) -> str:
    """A campaign's summary as a page with the curve in it; older updates are left out until it is small enough."""
    from cuda_agent.report.curve import curve_data_uri  # matplotlib takes a second to import

    curve = f"![Mean reward and shares of each policy, and training reward]({curve_data_uri(summary)})"
    markdown = ""
    for updates in UPDATES_SHOWN:
        markdown = _campaign_page(summary, curve, updates)
        if size(markdown) < MOST_BYTES:
            break
    return markdown


def _campaign_page(summary: dict[str, Any], curve: str, updates: int) -> str:
    campaign = summary["campaign"]
    links = stage_links(summary["stages"])
    failed = [
        f"**{cell(stage['name'])} failed:** {cell(stage['message'])}"
        for stage in summary["stages"]
        if stage["status"] == "failed"
    ]
    blocks = [
        f"# Campaign {cell(campaign['name'])}: {cell(campaign['status'])}",
        *failed,
        curve,
        *(grid_markdown(grid, linked=links if grid.title == "Stages" else None) for grid in report_grids(summary)),
        *([grid_markdown(update_grid(summary["updates"], updates))] if updates and summary["updates"] else []),
        f"As JSON: `cuda-agent report --json`; campaign `{campaign['id']}`",
    ]
    return "\n\n".join(blocks) + "\n"


def stage_links(stages: list[dict[str, Any]]) -> dict[str, str]:
    """Address of the flow run of each stage by name; of several runs the last."""
    return {stage["name"]: run_link("flow", stage["flow_run"]) for stage in stages if stage["flow_run"]}


def stage_markdown(store: "Store", stage_run_id: UUID) -> str:
    """What one stage run made: its figures, its rollouts by outcome with links to failed ones, its updates, its settings.

    Raises:
        ConfigError: no stage run has this id.
        StoreError: the store is not reachable.
    """
    with store.session() as session:
        run = session.get(StageRun, stage_run_id)
        if run is None:
            raise ConfigError(f"stage run {stage_run_id} is not in the store; cuda-agent report --json lists those of a campaign")
        blocks = [_stage_head(run), *_stage_grids(session, run), _settings(run)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _stage_head(run: StageRun) -> str:
    facts = {
        "status": run.status,
        "message": run.message,
        "minutes of work": decimal(run.seconds / 60, 1),
        "attempt": str(run.attempt),
        "generation": str(run.generation),
        **{f"in: {name}": _ids(value) for name, value in run.inputs.items()},
        **{f"out: {name}": _ids(value) for name, value in (run.outputs or {}).items()},
    }
    rows = tuple((name, shorten(value, 1_000)) for name, value in facts.items() if value)
    return f"# {cell(f'{run.stage} {run.label}'.strip())}\n\n" + grid_markdown(Grid("Facts", ("", "value"), rows, figures=False))


def _stage_grids(session: Session, run: StageRun) -> list[str]:
    """The tables that this stage has rows for."""
    batches = reading.batches(session, [run.id])
    batch_ids = [batch.id for batch in batches]
    evaluations = reading.evaluations(session, [run.id])
    records = reading.episode_records(session, [row.evaluation.batch_id for row in evaluations])
    asked = {batch.id: batch.episodes for batch in batches}
    grids = [
        evaluation_grid(evaluation_facts(evaluations, records, asked)),
        outcome_grid(rollout_facts(reading.outcomes(session, batch_ids))),
        update_grid(update_facts(reading.updates(session, [run.id]))),
    ]
    if run.stage == "dataset":
        grids.append(problem_grid(problem_facts(reading.problem_counts(session, [run.id], []))))
    return [*(grid_markdown(grid) for grid in grids if grid.rows), failed_rollouts(session, batch_ids)]


def failed_rollouts(session: Session, batch_ids: list[UUID]) -> str:
    """A table of the rollouts without reward, each with a link to its task run; the first ones of each outcome."""
    failed = session.execute(
        select(Rollout.id, Rollout.outcome, Rollout.stop_reason, Rollout.task_run_id, Problem.ops)
        .join(Problem, Problem.id == Rollout.problem_id)
        .where(Rollout.batch_id.in_(batch_ids), Rollout.outcome != "correct")
        .order_by(Rollout.outcome, Rollout.batch_id, Rollout.position)
    ).all()
    if not failed:
        return ""
    outcomes = Counter(row.outcome for row in failed)
    share = max(FAILURES_SHOWN // len(outcomes), 1)
    seen: Counter[str | None] = Counter()
    shown = []
    for row in failed:
        seen[row.outcome] += 1
        if seen[row.outcome] <= share:
            shown.append(row)
    links = {str(row.id): run_link("task", row.task_run_id) for row in shown if row.task_run_id}
    cells = tuple((str(row.id), str(row.outcome), row.stop_reason or "", " → ".join(row.ops)) for row in shown)
    note = f"{len(shown)} of {len(failed)}" if len(shown) < len(failed) else ""
    headings = ("rollout", "outcome", "stopped by", "problem")
    return grid_markdown(Grid("Failed rollouts", headings, cells, note, figures=False), linked=links)


def _settings(run: StageRun) -> str:
    return details("Settings", fence(shorten(yaml.safe_dump(run.config, sort_keys=True), 8_000), "yaml"))


def _ids(value: object) -> str:
    """Ids and numbers of a stage's inputs and outputs on one line."""
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    return "" if value is None else str(value)
