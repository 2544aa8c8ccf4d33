"""The report's JSON from rows in a real Postgres."""

import json
from uuid import uuid4

import pytest
from sqlalchemy import update

from cuda_agent.errors import ConfigError, StoreError
from cuda_agent.report.summary import campaign_summary, finite
from cuda_agent.store.tables import Campaign, Rollout, StageRun

EVALUATION_KEYS = {
    "policy_version", "stage", "episodes", "pass_rate", "mean_reward", "faster_than_eager", "faster_than_compile",
    "geomean_vs_eager", "geomean_vs_compile",
}  # fmt: skip


def test_a_whole_campaign_has_the_contract_keys(store, quickstart):
    found = campaign_summary(store)
    assert {"stages", "problems", "rollouts", "updates", "evaluations"} <= found.keys()
    assert [stage["name"] for stage in found["stages"]] == [
        "dataset", "base_policy", "evaluation", "warmup", "evaluation", "rollouts", "rollouts", "rft", "evaluation", "critic",
        "ppo", "evaluation",
    ]  # fmt: skip
    assert all({"name", "status", "seconds", "attempts"} <= stage.keys() for stage in found["stages"])
    assert [evaluation["stage"] for evaluation in found["evaluations"]] == ["base", "warmup", "rft", "ppo"]
    assert all(evaluation.keys() >= EVALUATION_KEYS for evaluation in found["evaluations"])
    assert all({"stage", "step", "policy_version", "metrics"} <= step.keys() for step in found["updates"])
    assert [(step["stage"], step["step"]) for step in found["updates"]] == [
        ("warmup", 0), ("warmup", 1), ("rft", 0), ("ppo", 0), ("ppo", 1), ("ppo", 2), ("ppo", 3),
    ]  # fmt: skip
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_problems_are_counted_by_rule(store, quickstart):
    problems = campaign_summary(store)["problems"]
    assert problems["accepted"] == 48
    assert problems["rejected"] == {"too_fast": 3, "constant_output": 1, "duplicate": 1}
    assert problems["accepted_by_split"] == {"held_out": 16, "train": 32}


def test_rollouts_add_up(store, quickstart):
    rollouts = campaign_summary(store)["rollouts"]
    assert rollouts["total"] == 4 * 64 + 6 * 32 + 32 + 8 == sum(rollouts["by_outcome"].values())
    assert rollouts["by_engine"] == {"transformers": 480, "teacher": 8}
    assert sum(rollouts["by_purpose"]["evaluation"].values()) == 4 * 64


def test_training_episodes_are_counted_by_engine(store, quickstart):
    assert campaign_summary(store)["training_episodes"] == {
        "warmup": {"transformers": 64},
        "rollouts": {"transformers": 32, "teacher": 8},
        "rft": {"transformers": 17},  # what the stage says that it kept
        "critic": {"transformers": 32, "teacher": 8},
        "ppo": {"transformers": 128},
    }


def test_training_rewards_follow_training(store, quickstart):
    found = campaign_summary(store)["training_rewards"]
    assert [(point["stage"], point["step"]) for point in found] == [
        ("warmup", 0), ("warmup", 1), ("rollouts", 0), ("rollouts", 0), ("ppo", 0), ("ppo", 1), ("ppo", 2), ("ppo", 3),
    ]  # fmt: skip
    assert all(-1 <= point["mean_reward"] <= 3 for point in found)


def test_budget_compares_minutes_with_the_plan(store, quickstart):
    budget = {entry["name"]: entry for entry in campaign_summary(store)["budget"]}
    assert budget["start"] == {"name": "start", "planned_minutes": 1.0, "actual_minutes": 0.3}
    assert budget["evaluations"]["actual_minutes"] == pytest.approx(4 * 22 / 60)
    assert budget["ppo"]["planned_minutes"] is None
    assert budget["dataset"] == {"name": "dataset", "planned_minutes": 2.5, "actual_minutes": 2.0}


def test_the_denominator_leaves_out_infrastructure_errors_only(store, begin):
    rows = begin()
    policy = rows.policy("base")
    batch = rows.evaluated("base", policy, 0.0, 0.0, samples=0)
    a, b = rows.held_out[:2]
    rows.rollout(batch, 0, a, None, error="the judge lost its device")
    rows.rollout(batch, 0, a, "correct", (1.0, 2.0, 1.0), 2.0, attempt=2)
    rows.rollout(batch, 1, b, None, error="no answer")  # never finished
    rows.rollout(batch, 2, b, "problem_invalid")
    rows.rollout(batch, 3, b, "no_submission", reward=-1.0)
    rows.rollout(batch, 4, b, "infra_error", error="the judge failed")
    found = campaign_summary(store)
    evaluation = found["evaluations"][0]
    assert evaluation["episodes"] == 3
    assert evaluation["pass_rate"] == pytest.approx(1 / 3)
    assert evaluation["mean_reward"] == pytest.approx(0.5)
    assert evaluation["faster_than_eager"] == pytest.approx(1 / 3)
    assert evaluation["faster_than_compile"] == 0.0
    assert (evaluation["geomean_vs_eager"], evaluation["geomean_vs_compile"]) == (pytest.approx(2.0), pytest.approx(1.0))
    assert found["rollouts"]["by_outcome"]["infra_error"] == 3
    assert found["rollouts"]["total"] == 6


def test_episodes_that_never_finished_are_named(store, begin):
    rows = begin()
    batch = rows.evaluated("base", rows.policy("base"), 0.5, 0.5, samples=1)
    assert campaign_summary(store)["evaluations"][0]["infra_errors"] == 0
    with store.session() as session:
        session.execute(update(Rollout).where(Rollout.batch_id == batch).values(outcome=None, error="lost"))
    assert campaign_summary(store)["evaluations"][0]["infra_errors"] == 16


def test_nothing_correct_gives_null_geometric_means(store, begin):
    rows = begin()
    rows.evaluated("base", rows.policy("base"), 0.0, 0.0)
    evaluation = campaign_summary(store)["evaluations"][0]
    assert (evaluation["pass_rate"], evaluation["geomean_vs_eager"], evaluation["geomean_vs_compile"]) == (0.0, None, None)


def test_the_base_policy_comes_first_whenever_it_was_evaluated(store, begin):
    rows = begin()
    base, late, early = rows.policy("base"), rows.policy("ppo", step=9), rows.policy("ppo", step=3)
    for label, policy in (("ppo", late), ("teacher", None), ("ppo", early), ("base", base)):
        rows.evaluated(label, policy, 0.5, 0.5, samples=1)
    found = campaign_summary(store)["evaluations"]
    assert [(evaluation["stage"], evaluation["step"]) for evaluation in found] == [
        ("base", 0), ("ppo", 3), ("ppo", 9), ("teacher", None),
    ]  # fmt: skip
    assert found[0]["difference_to_base"] is None
    assert found[1]["difference_to_base"] == found[1]["difference_to_previous"]
    assert found[3]["policy_version"] is None


def test_a_better_policy_shows_in_the_paired_difference(store, quickstart):
    last = campaign_summary(store)["evaluations"][-1]
    difference = last["difference_to_base"]["mean_reward"]
    assert difference["problems"] == 16
    assert 0 < difference["interval"][0] < difference["value"] < difference["interval"][1]
    low, high = last["pass_rate_interval"]
    assert low < last["pass_rate"] < high


def test_the_last_campaign_is_the_default_and_an_id_picks_another(store, begin):
    first, last = begin("first"), begin("second", minutes_later=5)
    assert campaign_summary(store)["campaign"]["name"] == "second"
    assert campaign_summary(store, first.campaign)["campaign"]["name"] == "first"
    assert campaign_summary(store, last.campaign)["stages"][0]["reused"] is False


def test_a_stage_made_by_an_earlier_campaign_is_marked_as_reused(store, begin):
    first, second = begin("first"), begin("second", minutes_later=5)
    second.stage("base_policy", campaign_id=first.campaign)
    assert [stage["reused"] for stage in campaign_summary(store)["stages"]] == [False, True]


def test_a_stage_under_way_is_shown_before_it_has_a_place(store, begin):
    rows = begin()
    rows.insert(StageRun(key="k", stage="ppo", campaign_id=rows.campaign, config={}, inputs={}, status="running"))
    assert [(stage["name"], stage["status"]) for stage in campaign_summary(store)["stages"]] == [
        ("dataset", "completed"), ("ppo", "running"),
    ]  # fmt: skip


def test_a_campaign_that_just_began_has_an_empty_report(store):
    with store.session() as session:
        session.add(Campaign(name="new", config={}))
    found = campaign_summary(store)
    assert (found["stages"], found["updates"], found["evaluations"]) == ([], [], [])
    assert found["problems"]["accepted"] == 0
    assert found["rollouts"]["total"] == 0


def test_missing_campaigns_are_one_sentence(store):
    with pytest.raises(StoreError, match="no campaign yet; run make quickstart"):
        campaign_summary(store)
    with pytest.raises(ConfigError, match="is not in the store"):
        campaign_summary(store, uuid4())


def test_numbers_that_json_cannot_hold_become_null():
    assert finite({"loss": float("nan"), "list": [1, float("inf"), "x"]}) == {"loss": None, "list": [1, None, "x"]}
