"""The audit from rows in a real Postgres: exactly the verdicts that were judged twice, of one campaign."""

import json

import pytest
from sqlalchemy import update

from cuda_agent.judge.doubts import facts, settled
from cuda_agent.judge.verdict import Verdict as Judged
from cuda_agent.report.audit import campaign_audit
from cuda_agent.report.cli import print_audit
from cuda_agent.store.tables import Rollout, Verdict


@pytest.fixture
def audited(store, begin):
    """A campaign with three rollouts, two of which were judged twice; the second one did not hold."""
    rows = begin()
    batch = rows.batch(rows.stage("rollouts"), None, 3)
    ids = [rows.rollout(batch, place, rows.train[place], "correct", (0.1, 2.0, 1.5), 3.0) for place in range(3)]
    fast, faster = (Judged("correct", None, "", 3.0, "s", ms, 2.0, 1.5, environment={"seed": 1}) for ms in (0.1, 0.05))
    hack = Judged("hack", "clock", "", -1.0, "s", environment={"seed": 2})
    for rollout, pair in zip(ids, ((fast, fast), (faster, hack)), strict=False):
        counted = settled(*pair)
        values = {"environment": dict(counted.environment), "status": counted.status, "reward": counted.reward}
        with store.session() as session:
            verdict = session.get_one(Rollout, rollout).verdict_id
            session.execute(update(Verdict).where(Verdict.id == verdict).values(values))
    return [str(rollout) for rollout in ids]


def test_only_verdicts_judged_twice_are_listed_the_highest_first(store, audited):
    found = campaign_audit(store)
    assert [entry["rollout"] for entry in found] == [audited[1], audited[0]]
    assert [(entry["status"], entry["reward"]) for entry in found] == [("hack", -1.0), ("correct", 3.0)]
    assert [one["speedup_vs_eager"] for one in found[0]["judgements"]] == [40.0, None]
    assert found[0]["judgements"][0].items() >= facts(Judged("correct", None, "", 3.0, "s", 0.05, 2.0, 1.5)).items() - {
        ("seed", None)
    }


def test_another_campaign_is_not_listed(store, audited, begin):
    begin("later", minutes_later=60)
    assert campaign_audit(store) == []


def test_json_and_table(store, audited, capsys):
    print_audit(store, None, True)
    assert len(json.loads(capsys.readouterr().out)["audit"]) == 2
    print_audit(store, None, False)
    table = capsys.readouterr().out
    assert "hack, −1" in table and "40.00×" in table and "relu softmax" in table


def test_nothing_to_audit_is_said(store, begin, capsys):
    begin()
    print_audit(store, None, False)
    assert "judged twice" in capsys.readouterr().out
