"""A campaign runs every stage for real, can be looked at, retried, resumed after a kill, and found again."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import TaskRunFilter, TaskRunFilterFlowRunId
from prefect.client.schemas.objects import FlowRun, TaskRun
from prefect.deployments.flow_runs import arun_deployment
from sqlalchemy import func, select

from cuda_agent.report.summary import campaign_summary
from cuda_agent.store.queries import batch_episodes, finished_rollouts
from cuda_agent.store.tables import PolicyVersion, Rollout, RolloutBatch, StageRun, TrainerState
from infra.deployments import deploy_all
from infra.stack import Stack
from tests.flows.conftest import MINIATURE, ROOT, Finished, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]
STAGES = ["dataset", "base_policy", "evaluation", "warmup", "evaluation", "rollouts", "rollouts", "rft", "evaluation", "critic"]


def test_every_stage_completes_in_order_and_the_report_has_the_contracts_keys(finished: Finished) -> None:
    summary = campaign_summary(finished.store, finished.campaign_id)
    assert [stage["name"] for stage in summary["stages"]] == [*STAGES, "ppo", "evaluation"]
    assert all(stage["status"] == "completed" and stage["attempts"] == 1 for stage in summary["stages"])
    assert summary["problems"]["accepted"] == 6
    assert summary["rollouts"]["total"] == sum(summary["rollouts"]["by_outcome"].values()) == 4 * 2 + 5 * 4
    assert [row["stage"] for row in summary["evaluations"]] == ["base", "warmup", "rft", "ppo"]
    assert all(row["episodes"] == 2 for row in summary["evaluations"])
    assert [(row["stage"], row["step"]) for row in summary["updates"] if row["stage"] == "ppo"] == [("ppo", 0), ("ppo", 1)]


def test_the_trainer_agrees_with_the_engine_on_the_log_probs_of_what_was_sampled(finished: Finished) -> None:
    updates = campaign_summary(finished.store, finished.campaign_id)["updates"]
    gaps = [update["metrics"]["logprob_gap"] for update in updates if update["stage"] in ("warmup", "ppo")]
    assert len(gaps) == 3
    assert max(gaps) < 1e-3


def test_the_teacher_solves_its_problems_through_the_agents_tools(finished: Finished) -> None:
    rollouts = finished_rollouts(finished.store, _teachers_batch(finished))
    assert [rollout.outcome for rollout in rollouts] == ["correct"] * 4
    assert all(rollout.tokens is None and rollout.reward is not None and rollout.reward >= 1 for rollout in rollouts)


def _teachers_batch(finished: Finished) -> UUID:
    """The campaign's own batch by the teacher; other tests add more."""
    first = select(RolloutBatch.id).where(RolloutBatch.engine == "teacher").order_by(RolloutBatch.created_at).limit(1)
    with finished.store.session() as session:
        return session.scalars(first).one()


def test_stored_arrays_have_one_length_and_log_probs_only_where_the_policy_wrote(finished: Finished) -> None:
    with finished.store.session() as session:
        batches = session.scalars(select(RolloutBatch.id).where(RolloutBatch.engine == "transformers")).all()
    episodes = batch_episodes(finished.store, batches)
    assert episodes
    for episode in episodes:
        arrays = episode.arrays
        assert len(arrays.token_id) == len(arrays.logprob) == len(arrays.mask) == len(arrays.turn) == episode.rollout.tokens
        assert (arrays.logprob[arrays.mask == 0] == 0).all()
        assert (arrays.logprob[arrays.mask == 1] < 0).any()


def test_policies_form_one_chain_from_the_base_to_the_last_step(finished: Finished) -> None:
    with finished.store.session() as session:
        versions = {version.id: version for version in session.scalars(select(PolicyVersion))}
    last = max((v for v in versions.values() if v.stage == "ppo"), key=lambda version: version.step)
    chain = []
    version: PolicyVersion | None = last
    while version is not None:
        assert version.complete
        chain.append((version.stage, version.step))
        version = versions.get(version.parent_id) if version.parent_id else None
    assert chain == [("ppo", 1), ("ppo", 0), ("rft", 0), ("warmup", 0), ("base", 0)]


def test_a_rollout_is_a_task_run_whose_state_names_its_outcome(finished: Finished) -> None:
    expected: dict[str, int] = {}
    with finished.store.session() as session:
        for outcome, reward in session.execute(select(Rollout.outcome, Rollout.reward)):
            name = "Completed" if reward is not None and reward > 0 else str(outcome)
            expected[name] = expected.get(name, 0) + 1
    deadline = time.monotonic() + 30.0  # states reach the server as events, some time after the task has ended
    while (found := _states_of_rollouts(finished)) != expected and time.monotonic() < deadline:
        time.sleep(0.5)
    assert found == expected


def _states_of_rollouts(finished: Finished) -> dict[str, int]:
    found: dict[str, int] = {}
    for task_run in asyncio.run(_task_runs(finished.campaign_id, finished)):
        if task_run.name[:3].isdigit():
            assert task_run.state is not None
            found[task_run.state.name] = found.get(task_run.state.name, 0) + 1
    return found


async def _task_runs(campaign_id: UUID, finished: Finished) -> list[TaskRun]:
    with finished.store.session() as session:
        flow_runs = [UUID(str(run_id)) for run_id in session.scalars(select(StageRun.flow_run_id)) if run_id]
    async with get_client() as client:
        filters = TaskRunFilter(flow_run_id=TaskRunFilterFlowRunId(any_=flow_runs))
        return list(await client.read_task_runs(task_run_filter=filters))


def test_starting_the_same_campaign_again_returns_every_stored_stage(finished: Finished) -> None:
    before = _counts(finished)
    from flows.campaign import campaign

    outcome = asyncio.run(campaign(MINIATURE))
    assert _counts(finished) == before
    summary = campaign_summary(finished.store, UUID(outcome["campaign_id"]))
    assert len(summary["stages"]) == 12
    assert all(stage["reused"] for stage in summary["stages"])


def test_a_stage_started_from_the_dashboard_and_retried_makes_no_new_rollout_rows(finished: Finished, stack: Stack) -> None:
    with finished.store.session() as session:
        dataset = session.scalars(select(RolloutBatch.dataset_id).limit(1)).one()
    science = {"engine": "teacher", "episodes": 3, "seed": 9, "episode": {"skill": "short"}}
    parameters = {"dataset_id": str(dataset), "config": {"science": science}, "judge": MINIATURE.judge.model_dump(mode="json")}
    with stack.running({"worker"}) as variables:
        deploy_all(stack.settings.run / "deployed", variables)
        flow_run = asyncio.run(arun_deployment("rollouts/rollouts", parameters=parameters, timeout=200, poll_interval=1))
        assert flow_run.state is not None and flow_run.state.is_completed(), flow_run.state
        before = _counts(finished)
        retried = run(["-m", "prefect", "--no-prompt", "flow-run", "retry", str(flow_run.id)], finished.environment)
        assert retried.returncode == 0, retried.stdout + retried.stderr
        again = asyncio.run(_ended_again(flow_run.id))
    assert again.run_count == 2
    assert again.state is not None and again.state.is_completed(), again.state
    assert _counts(finished) == before


async def _ended_again(flow_run_id: UUID) -> FlowRun:
    """The flow run once its second run has ended."""
    deadline = time.monotonic() + 120
    async with get_client() as client:
        while True:
            flow_run = await client.read_flow_run(flow_run_id)
            if flow_run.run_count == 2 and flow_run.state is not None and flow_run.state.is_final():
                return flow_run
            assert time.monotonic() < deadline, flow_run.state
            await asyncio.sleep(0.5)


def test_a_stage_runs_alone_with_ids_of_earlier_results_and_other_settings(finished: Finished) -> None:
    from flows.rft import rft

    with finished.store.session() as session:
        policy = session.scalars(select(PolicyVersion.id).where(PolicyVersion.stage == "warmup")).one()
    config = MINIATURE.rft.model_copy(update={"science": MINIATURE.rft.science.model_copy(update={"rate": 2e-4})})
    outputs = asyncio.run(rft(policy, [_teachers_batch(finished)], config))
    with finished.store.session() as session:
        made = session.get_one(PolicyVersion, outputs["policy_version_id"])
        assert made.complete and made.parent_id == policy and made.stage == "rft"


def test_a_killed_stage_goes_on_without_playing_finished_episodes_again(finished: Finished) -> None:
    with finished.store.session() as session:
        dataset = session.scalars(select(RolloutBatch.dataset_id).limit(1)).one()
    script = (
        "import asyncio, sys; from uuid import UUID; from cuda_agent.config import RolloutConfig, JudgeConfig; "
        "from flows.rollouts import rollouts; "
        "config = RolloutConfig.model_validate({'science': {'engine': 'teacher', 'episodes': 12, 'seed': 5, "
        "'episode': {'skill': 'short'}}, 'execution': {'concurrency': 2}}); "
        f"asyncio.run(rollouts(UUID('{dataset}'), None, config, JudgeConfig(timing_seconds=0.3, run_seconds=60)))"
    )
    command = [sys.executable, "-c", script]
    first = subprocess.Popen(command, cwd=ROOT, env=finished.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    early = _wait_for_rollouts(finished, 2, first)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    second = run(["-c", script], finished.environment)
    assert second.returncode == 0, second.stderr[-2000:]
    with finished.store.session() as session:
        batch = session.scalars(select(RolloutBatch).where(RolloutBatch.episodes == 12)).one()
        rows = session.scalars(select(Rollout).where(Rollout.batch_id == batch.id)).all()
        attempts = session.scalars(select(StageRun.attempt).where(StageRun.id == batch.stage_run_id)).one()
    assert attempts == 2
    assert sorted(row.position for row in rows) == list(range(12))
    assert early <= {row.id for row in rows}


def _wait_for_rollouts(finished: Finished, count: int, process: subprocess.Popen[bytes]) -> set[UUID]:
    deadline = time.monotonic() + 120
    query = select(Rollout.id).join(RolloutBatch).where(RolloutBatch.episodes == 12)
    while time.monotonic() < deadline and process.poll() is None:
        with finished.store.session() as session:
            found = set(session.scalars(query))
        if len(found) >= count:
            return found
        time.sleep(0.1)
    raise AssertionError("the stage ended or was too slow before it could be killed")


def _counts(finished: Finished) -> dict[str, int]:
    with finished.store.session() as session:
        return {
            table.__tablename__: session.scalar(select(func.count()).select_from(table)) or 0
            for table in (Rollout, RolloutBatch, PolicyVersion, StageRun, TrainerState)
        }
