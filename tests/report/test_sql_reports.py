"""Every query of sql/reports runs on real tables, and agrees with the report where both answer the same question."""

from pathlib import Path

import pytest
from sqlalchemy import text

from cuda_agent.report.summary import campaign_summary

FOLDER = Path(__file__).parents[2] / "sql" / "reports"
QUERIES = sorted(path.stem for path in FOLDER.glob("*.sql"))


def run(store, name, campaign=None):
    with store.session() as session:
        if campaign:
            session.execute(text("select set_config('cuda_agent.campaign', :id, true)"), {"id": str(campaign)})
        return session.connection().exec_driver_sql((FOLDER / f"{name}.sql").read_text()).mappings().all()


def test_every_query_answers_about_the_last_campaign(store, quickstart):
    listed = (FOLDER / "README.md").read_text()
    for name in QUERIES:
        assert run(store, name), name
        assert f"| {name}.sql |" in listed


def test_evaluations_agree_with_the_report(store, quickstart):
    rows, reported = run(store, "evaluations"), campaign_summary(store)["evaluations"]
    assert [row["policy"] for row in rows] == [found["stage"] for found in reported]
    for row, found in zip(rows, reported, strict=True):
        for name in set(row) - {"policy", "step"}:
            assert float(row[name]) == pytest.approx(found[name], abs=1e-4), name


def test_training_agrees_with_the_report(store, quickstart):
    rows, reported = run(store, "training"), campaign_summary(store)["training_rewards"]
    assert [float(row["mean_reward"]) for row in rows] == pytest.approx([point["mean_reward"] for point in reported], abs=1e-3)


def test_another_campaign_is_chosen_by_setting(store, quickstart, begin):
    newest = begin("newest", minutes_later=60)
    assert [row["stage"] for row in run(store, "stages")] == ["dataset"]
    assert len(run(store, "stages", quickstart.campaign)) == 12
    assert len(run(store, "stages", newest.campaign)) == 1


def test_failures_name_a_rollout_to_look_at(store, quickstart):
    row = run(store, "failures")[0]
    assert row["message"].endswith("found") and len(row["example"]) == 36
