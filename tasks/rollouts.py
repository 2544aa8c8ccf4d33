"""Rollouts: one task run for each episode, whose final state names its outcome.

A rollout task first looks up what is stored for its place in the batch and returns that state again, so a retried stage
makes no new rows for honest failures. Only infrastructure errors get a new attempt, and every attempt is a row.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from uuid import UUID

from prefect import State, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.deployments.flow_runs import arun_deployment
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from cuda_agent.agent.batch import require_complete as _require_complete
from cuda_agent.agent.player import BatchPlayer
from cuda_agent.agent.rollouts import open_rollouts
from cuda_agent.config import EvaluationScience, JudgeConfig, RolloutExecution, RolloutScience
from cuda_agent.store.queries import RolloutView, dataset_problems, finished_positions, finished_rollout, get_batch
from tasks.artifacts import publish_rollout
from tasks.episodes import origin, player_of, registered
from tasks.retrying import worth_retrying
from tasks.services import current


async def open_batch(
    stage_run_id: UUID, step: int, dataset_id: UUID, policy_version_id: UUID | None, science: RolloutScience, purpose: str
) -> UUID:
    """The batch row of a stage run's step: new, or the one an earlier attempt opened."""
    return await asyncio.to_thread(
        open_rollouts, current().store, stage_run_id, step, dataset_id, policy_version_id, science, purpose
    )


async def open_evaluation(
    stage_run_id: UUID, dataset_id: UUID, policy_version_id: UUID | None, science: EvaluationScience
) -> UUID:
    """The batch row of an evaluation: the same number of episodes on every held-out problem."""
    held_out = await asyncio.to_thread(dataset_problems, current().store, dataset_id, "held_out")
    rollouts = RolloutScience(
        engine=science.engine,
        episodes=max(1, len(held_out) * science.samples_per_problem),
        samples_per_problem=science.samples_per_problem,
        split="held_out",
        sampling=science.sampling,
        episode=science.episode,
        seed=science.seed,
    )
    return await open_batch(stage_run_id, 0, dataset_id, policy_version_id, rollouts, "evaluation")


async def shard_ranges(batch_id: UUID, execution: RolloutExecution) -> list[range]:
    """The batch's positions, cut into shards."""
    batch = await asyncio.to_thread(get_batch, current().store, batch_id)
    return [range(i, min(i + execution.shard, batch.episodes)) for i in range(0, batch.episodes, execution.shard)]


async def require_complete(batch_id: UUID) -> None:
    """Check that a batch can be used. Raises EngineError as `agent.batch.require_complete` does."""
    await asyncio.to_thread(_require_complete, current().store, batch_id)


async def deploy_shard(batch_id: UUID, shard: range, judge: JudgeConfig, execution: RolloutExecution) -> None:
    """Run a shard as a deployment in the work pool and wait for it."""
    parameters = {
        "batch_id": str(batch_id),
        "first": shard[0],
        "last": shard[-1],
        "judge": judge.model_dump(mode="json"),
        "execution": execution.model_dump(mode="json"),
    }
    # A parent that crashed and is retried finds its child by this key instead of starting a second one.
    key = f"{flow_run.id}:{batch_id}:{shard[0]}:{flow_run.run_count}"
    await arun_deployment("rollout_shard/rollout_shard", parameters=parameters, idempotency_key=key, work_queue_name=None)


async def run_shard(batch_id: UUID, positions: Iterable[int], judge: JudgeConfig, execution: RolloutExecution) -> dict[str, int]:
    """Run some episodes of a batch, many at once. Returns counts by outcome, `infra_error` for those without one."""
    places = list(positions)
    player = await BatchPlayer.open(current(), batch_id, judge, execution.vllm)
    gate = asyncio.Semaphore(execution.concurrency)
    attempt = rollout.with_options(retries=execution.attempts - 1)

    async def one(position: int) -> None:
        async with gate:
            await attempt(batch_id, position, player.label(position), return_state=True)  # type: ignore[misc]

    with registered(player):
        await asyncio.gather(*(one(position) for position in places))
    finished = await asyncio.to_thread(finished_positions, current().store, batch_id)
    outcomes = Counter(finished[place].outcome if place in finished else "infra_error" for place in places)
    get_run_logger().info("batch %s: %s", batch_id, ", ".join(f"{count} {name}" for name, count in outcomes.most_common()))
    return dict(outcomes)


@task(name="rollout", task_run_name="{label}", retries=2, retry_condition_fn=worth_retrying, cache_policy=NO_CACHE)
async def rollout(batch_id: UUID, position: int, label: str) -> State[UUID]:
    """One episode: look it up, else play and store it. The state is its outcome.

    Raises:
        CudaAgentError: the infrastructure failed; the attempt is stored as such and a retry makes a new one.
    """
    store = current().store
    finished = await asyncio.to_thread(finished_rollout, store, batch_id, position)
    if finished is None:
        rollout_id = await player_of(batch_id).play(position, origin())
        await publish_rollout(store, rollout_id)
        finished = await asyncio.to_thread(finished_rollout, store, batch_id, position)
        assert finished is not None
    return _state(finished)


def _state(rollout: RolloutView) -> State[UUID]:
    """Completed when the reward is positive, else Failed under the name of the outcome."""
    message = (
        f"{rollout.outcome}: reward {rollout.reward:g}, {rollout.turns} turns" if rollout.reward is not None else rollout.outcome
    )
    if rollout.reward is not None and rollout.reward > 0:
        return Completed(message=message, data=rollout.id)
    return Failed(name=rollout.outcome, message=message)
