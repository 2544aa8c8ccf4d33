import json
from dataclasses import dataclass, field, replace
from uuid import uuid4

import numpy as np
import pytest

from cuda_agent.errors import StoreError
from cuda_agent.store import queries
from cuda_agent.store.arrays import TokenArrays
from cuda_agent.store.tables import Dataset, Problem, Rollout, Verdict
from cuda_agent.store.trajectories import (
    RolloutRecord,
    TurnRecord,
    find_verdict,
    open_batch,
    record_verdict,
    save_rollout,
)


@dataclass(frozen=True)
class Judged:
    status: str = "correct"
    kind: str | None = None
    message: str = ""
    reward: float | None = 3.0
    candidate_ms: float | None = 0.5
    eager_ms: float | None = 2.0
    compile_ms: float | None = 1.0
    phases: dict = field(default_factory=lambda: {"total": 1.5})
    environment: dict = field(default_factory=lambda: {"backend": "cpu"})
    submission_sha256: str = "a" * 64


@pytest.fixture
def dataset(store):
    """A complete dataset with two train problems, one held out and one rejected."""
    with store.session() as session:
        row = Dataset(name="tiny", provenance={}, complete=True)
        session.add(row)
        session.flush()
        for position, split in enumerate(["train", "held_out", None, "train"]):
            code, sha256 = f"# {position}", str(position) * 64
            values = {"ops": ["relu"], "data_source": "torch#1", "code": code, "code_sha256": sha256, "facts": {}, "split": split}
            session.add(Problem(dataset_id=row.id, position=position, rule=None if split else "constant", **values))
        return row.id


@pytest.fixture
def batch(store, dataset):
    return open_batch(
        store, dataset_id=dataset, policy_version_id=None, engine="transformers", purpose="train", science={}, episodes=4
    )


def arrays(tokens):
    mask = (np.arange(tokens) % 3 > 0).astype(np.uint8)
    logprob = (-np.random.default_rng(0).random(tokens) * mask).astype(np.float32)
    return TokenArrays(np.arange(tokens, dtype=np.int32), logprob, mask, (np.arange(tokens) // 100 % 150).astype(np.int16))


def record(store, dataset, position=0, **changes):
    problem = queries.dataset_problems(store, dataset, "train")[0]
    values = {"engine": "transformers", "seed": 5, "outcome": "correct", "stop_reason": "declared_done", "reward": 3.0}
    return RolloutRecord(position=position, problem_id=problem.id, **(values | changes))


def same(left, right):
    return all(
        np.array_equal(getattr(left, name), getattr(right, name)) and getattr(left, name).dtype == getattr(right, name).dtype
        for name in ("token_id", "logprob", "mask", "turn")
    )


def test_problems_come_by_split_in_order_and_without_rejected_ones(store, dataset):
    assert [problem.position for problem in queries.dataset_problems(store, dataset, "train")] == [0, 3]
    assert [problem.position for problem in queries.dataset_problems(store, dataset)] == [0, 1, 3]
    with pytest.raises(StoreError, match="not in this store"):
        queries.dataset_problems(store, uuid4())


@pytest.mark.parametrize("tokens", [1, 122, 120_000])
def test_arrays_come_back_exactly_inline_and_from_a_blob(store, dataset, batch, tokens):
    rollout_id = save_rollout(store, batch, record(store, dataset, arrays=arrays(tokens)))
    with store.session() as session:
        row = session.get(Rollout, rollout_id)
        assert (row.blob_uri is not None, row.token_id is None) == ((True, True) if tokens == 120_000 else (False, False))
        assert row.tokens == tokens
    assert same(queries.load_arrays(store, [rollout_id])[rollout_id], arrays(tokens))
    episode = queries.batch_episodes(store, batch)[0]
    assert episode.rollout.reward == 3.0 and len(episode.arrays) == tokens


def test_turns_and_verdicts_come_back_and_a_shared_verdict_is_one_row(store, dataset, batch):
    seen, final = Judged(reward=2.0), Judged()
    calls = [{"name": "Write", "arguments": {"file_path": "kernels/a.cpp", "content": "int x;", "b": 1, "a": 2}}]
    turns = [
        TurnRecord("user", "write a kernel"),
        TurnRecord("assistant", "yes", calls, generate_seconds=1.5),
        TurnRecord("tool", "ok\x00 \ud800 done", verdict=seen, tool_seconds=0.5),
        TurnRecord("tool", "again", verdict=seen),
    ]
    rollout_id = save_rollout(store, batch, record(store, dataset, turns=turns, verdict=final, submission={"model_new.py": "x"}))
    stored = queries.rollout_turns(store, [rollout_id])[rollout_id]
    assert [turn.role for turn in stored] == ["user", "assistant", "tool", "tool"]
    assert json.dumps(stored[1].tool_calls) == json.dumps(calls), "in the order in which they were written"
    assert stored[2].text == "ok\ufffd ? done"
    assert stored[2].verdict_id == stored[3].verdict_id is not None
    counted = queries.finished_rollouts(store, batch)[0]
    assert queries.verdicts(store, [counted.verdict_id])[counted.verdict_id].reward == 3.0
    with store.session() as session:
        assert session.query(Verdict).count() == 2


def test_a_finished_position_is_never_sampled_into_a_second_row(store, dataset, batch):
    first = save_rollout(store, batch, record(store, dataset, outcome="wrong_output", reward=-1.0))
    assert save_rollout(store, batch, record(store, dataset)) == first
    assert queries.finished_positions(store, batch)[0].outcome == "wrong_output"
    assert queries.finished_rollout(store, batch, 0).id == first
    assert queries.finished_rollout(store, batch, 1) is None


def test_infrastructure_errors_are_attempts_that_train_nothing(store, dataset, batch):
    broken = {"outcome": None, "stop_reason": None, "reward": None, "error": "the engine died"}
    save_rollout(store, batch, record(store, dataset, **broken))
    save_rollout(store, batch, record(store, dataset, **broken))
    assert queries.finished_positions(store, batch) == {} and queries.failed_attempts(store, batch) == {0: 2}
    save_rollout(store, batch, record(store, dataset, arrays=arrays(10)))
    assert queries.finished_positions(store, batch)[0].attempt == 3
    assert len(queries.batch_episodes(store, batch)) == 1


def test_rewardless_and_text_rollouts_are_no_training_episodes(store, dataset, batch):
    save_rollout(store, batch, record(store, dataset, 0, arrays=arrays(10), outcome="problem_invalid", reward=None))
    save_rollout(store, batch, record(store, dataset, 1, engine="teacher"))
    assert queries.batch_episodes(store, batch) == []
    assert len(queries.finished_rollouts(store, [batch])) == 2


def test_contradicting_records_and_unknown_problems_are_refused(store, dataset, batch):
    good = record(store, dataset)
    for bad in (replace(good, error="x"), replace(good, outcome=None), replace(good, problem_id=uuid4())):
        with pytest.raises(StoreError):
            save_rollout(store, batch, bad)
    with pytest.raises(StoreError, match="one length"):
        TokenArrays(np.zeros(2, np.int32), np.zeros(1, np.float32), np.zeros(2, np.uint8), np.zeros(2, np.int16))


def test_a_batch_is_found_again_by_stage_run_and_step(store, dataset):
    from cuda_agent.store.stages import StageRequest, claim_stage

    with claim_stage(store, StageRequest("rollouts", 1, {}, {})) as claim:
        values = {"dataset_id": dataset, "policy_version_id": None, "engine": "teacher", "purpose": "train", "science": {}}
        made = [open_batch(store, **values, episodes=2, stage_run_id=claim.row_id, step=step) for step in (0, 0, 1)]
        claim.finish({})
    assert made[0] == made[1] != made[2]
    assert queries.get_batch(store, made[0]).stage_run_id == claim.row_id


def test_verdicts_are_found_by_the_judges_key_and_infrastructure_errors_and_feedback_are_not(store):
    keyed = {"backend": "cpu", "cache_key": "k" * 64}
    with store.session() as session:
        record_verdict(session, "p", Judged())
        record_verdict(session, "p", Judged(status="infra_error", reward=None, environment=keyed))
        assert find_verdict(session, keyed["cache_key"]) is None
        made = record_verdict(session, "p", Judged(environment=keyed))
        assert find_verdict(session, keyed["cache_key"]).id == made
