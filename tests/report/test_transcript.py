"""A rollout as text, from stored rows."""

from uuid import uuid4

import pytest
from sqlalchemy import update

from cuda_agent.errors import ConfigError
from cuda_agent.report.transcript import call_text, read_rollout, rollout_text, shorten
from cuda_agent.store.tables import Rollout

WRITE = {"name": "Write", "arguments": {"file_path": "kernels/kernel.cpp", "content": "int a;\nint b;"}}


@pytest.fixture
def rollout(begin, store):
    """A rollout of three turns, judged once, with a submission."""
    rows = begin()
    policy = rows.policy("rft", step=0)
    batch = rows.batch(rows.stage("ppo", flow_run_id=uuid4()), policy, 1)
    rollout = rows.rollout(batch, 0, rows.train[0], "wrong_output", reward=-1.0, task_run_id=uuid4(), seconds=12.0)
    with store.session() as session:
        verdict = session.get_one(Rollout, rollout).verdict_id
        session.execute(update(Rollout).where(Rollout.id == rollout).values(submission={"kernels/kernel.cpp": "int a;"}))
    raw = 'I write it.\n<tool_call>\n{"name": "Write"}\n</tool_call>'
    rows.transcript(
        rollout,
        [
            {"role": "system", "text": "You write kernels."},
            {"role": "assistant", "text": raw, "tool_calls": [WRITE], "generate_seconds": 1.5},
            {"role": "tool", "text": "written", "verdict_id": verdict, "tool_seconds": 0.5},
        ],
    )
    return rollout


def test_text_shows_facts_turns_and_submission(store, rollout):
    text = rollout_text(read_rollout(store, rollout))
    for expected in (
        "outcome      wrong_output", "relu → softmax", "policy       rft step 0", "verdict      wrong_output", "judge s",
        "1 assistant · calls Write · 1.5 s", "2 tool · 0.5 s · judged wrong_output, reward -1", "submission: kernels/kernel.cpp",
    ):  # fmt: skip
        assert expected in text


def test_calls_that_were_understood_are_shown_once_and_with_line_ends(store, rollout):
    text = rollout_text(read_rollout(store, rollout))
    assert "<tool_call>" not in text
    assert "▶ Write file_path=kernels/kernel.cpp\ncontent:\nint a;\nint b;" in text


def test_a_malformed_call_is_shown_as_the_policy_wrote_it(store, begin):
    rows = begin()
    rollout = rows.rollout(rows.batch(rows.stage("ppo"), None, 1), 0, rows.train[0], "no_submission", reward=-1.0)
    rows.transcript(rollout, [{"role": "assistant", "text": "<tool_call>{broken"}])
    text = rollout_text(read_rollout(store, rollout))
    assert "<tool_call>{broken" in text
    assert "verdict" not in text


def test_an_infrastructure_error_says_what_it_was(store, begin):
    rows = begin()
    rollout = rows.rollout(
        rows.batch(rows.stage("ppo"), None, 1), 0, rows.train[0], None, error="the engine is gone", stop_reason=None
    )
    text = rollout_text(read_rollout(store, rollout))
    assert "infrastructure error" in text and "the engine is gone" in text


def test_an_unknown_rollout_is_one_sentence(store):
    with pytest.raises(ConfigError, match="is not in the store"):
        read_rollout(store, uuid4())


def test_arguments_that_are_no_object_are_shown_as_json():
    assert call_text({"name": "Bash", "arguments": ["ls"]}) == '▶ Bash ["ls"]'


def test_shortening_keeps_both_ends():
    short = shorten("a" * 500 + "z" * 500, 90)
    assert short.startswith("a" * 60 + "\n") and short.endswith("z" * 30)
    assert "910 characters left out" in short
    assert shorten("abc", 3) == "abc"
