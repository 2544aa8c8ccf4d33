"""Tables as a person sees them, from a stored campaign."""

import io

from rich.console import Console
from sqlalchemy import update

from cuda_agent.report.grids import difference, report_grids, signed, speedup, with_interval
from cuda_agent.report.summary import campaign_summary
from cuda_agent.report.table import print_tables
from cuda_agent.store.tables import Campaign, StageRun


def printed(summary, width=160) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_tables(summary, console)
    return console.file.getvalue()


def test_terminal_shows_policies_stages_and_outcomes(store, quickstart):
    text = printed(campaign_summary(store))
    for expected in (
        "Evaluation on held-out problems",
        "warmup",
        "Stages",
        "budget",
        "wrong_output",
        "rejected, too_fast",
        "teacher",
    ):
        assert expected in text
    stages = next(line for line in text.splitlines() if line.strip().startswith("evaluations"))
    assert stages.split() == ["evaluations", "completed", "4", "4", "1.5", "1.5"]


def test_every_row_has_a_cell_for_each_heading(store, quickstart):
    for grid in report_grids(campaign_summary(store)):
        assert all(len(row) == len(grid.headings) for row in grid.rows), grid.title


def test_a_campaign_that_just_began_prints_one_sentence(store):
    with store.session() as session:
        session.add(Campaign(name="new", config={}))
    assert "No policy has been evaluated yet." in printed(campaign_summary(store))


def test_a_failed_stage_says_why_without_reading_markup(store, begin):
    rows = begin()
    rows.stage("rft", status="failed", message="[red]no episode left after the filter")
    assert "rft failed: [red]no episode left after the filter" in printed(campaign_summary(store))


def test_a_stage_whose_every_run_came_from_before_is_reused(store, begin):
    first, second = begin("first"), begin("second", minutes_later=5)
    with store.session() as session:
        session.execute(update(StageRun).where(StageRun.campaign_id == second.campaign).values(campaign_id=first.campaign))
    assert "reused" in printed(campaign_summary(store))


def test_unknown_figures_are_dashes():
    assert with_interval(speedup, None, None) == "–"
    assert difference(signed, None) == "–"
    assert difference(signed, {"value": -0.5, "interval": [-1.0, 0.0]}) == "−0.50 [−1.00, +0.00]"
