"""A batch of rollouts as one piece of work in this process, without an orchestrator: claimed, played, stored, summed up.

The stage's key is that of the flow `rollouts`, so a batch that a campaign has sampled is found and not sampled again, and
an interrupted one goes on with what is missing.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from pydantic import ValidationError

from cuda_agent.agent.batch import require_complete, run_batch
from cuda_agent.agent.player import BatchPlayer
from cuda_agent.agent.services import Services
from cuda_agent.config import Backend, CampaignConfig, JudgeConfig, RolloutConfig, RolloutExecution, RolloutScience, first_fault
from cuda_agent.engines.openai import Endpoint
from cuda_agent.errors import ConfigError, CudaAgentError, transient
from cuda_agent.judge.machine import device_model
from cuda_agent.store.queries import (
    finished_positions,
    finished_rollout,
    finished_rollouts,
    get_batch,
    latest_policy,
    load_arrays,
    sampling_seconds,
)
from cuda_agent.store.session import Store
from cuda_agent.store.stages import StageRequest, claim_stage
from cuda_agent.store.trajectories import open_batch

VERSION = 1  # of the stage `rollouts`
SAMPLED = ("transformers", "vllm")  # engines that need a policy version

Tell = Callable[[str], None]


@dataclass(frozen=True)
class RolloutOrder:
    """What is to be sampled, on what, and how it is judged."""

    dataset_id: UUID
    policy_version_id: UUID | None
    config: RolloutConfig
    judge: JudgeConfig
    endpoint: Endpoint | None = None

    @classmethod
    def of(
        cls,
        store: Store,
        dataset_id: UUID,
        policy_version_id: UUID | None,
        config: RolloutConfig,
        judge: JudgeConfig,
        endpoint: Endpoint | None,
    ) -> Self:
        """The order with the newest policy where one is needed and none is named.

        Raises:
            ConfigError: the store holds none.
        """
        if config.science.engine not in SAMPLED:
            return cls(dataset_id, None, config, judge, endpoint)
        policy = policy_version_id or latest_policy(store)
        if policy is None:
            raise ConfigError(
                f"engine {config.science.engine} needs a policy, and the store holds none; name a checkpoint with --checkpoint, "
                "or make one with: make quickstart"
            )
        return cls(dataset_id, policy, config, judge)


def plan(
    campaign: CampaignConfig, changes: Mapping[str, Any], backend: Backend | None, address: str | None, model: str | None
) -> tuple[RolloutConfig, JudgeConfig, Endpoint | None]:
    """Settings of a campaign with changes to `rollouts.science` (None changes nothing), and where engine `openai` asks.

    Raises:
        ConfigError: a setting is not usable, or the engine's endpoint is named nowhere.
    """
    science = campaign.rollouts.science.model_dump() | {name: value for name, value in changes.items() if value is not None}
    try:
        config = RolloutConfig.model_validate({"science": science, "execution": campaign.rollouts.execution})
    except ValidationError as error:
        raise ConfigError(first_fault(error)) from error
    judge = campaign.judge if backend is None else campaign.judge.model_copy(update={"backend": backend})
    return config, judge, Endpoint.of(address, model) if config.science.engine == "openai" else None


def rollout_inputs(
    dataset_id: UUID, policy_version_id: UUID | None, science: RolloutScience, endpoint: Endpoint | None = None
) -> dict[str, Any]:
    """What a batch depends on beside its settings, for the stage's key.

    Raises:
        ConfigError: engine `openai`, and no endpoint is named anywhere.
    """
    inputs: dict[str, Any] = {"dataset_id": dataset_id, "policy_version_id": policy_version_id}
    return inputs | ((endpoint or Endpoint.of()).provenance() if science.engine == "openai" else {})


async def run_rollouts(
    store: Store, order: RolloutOrder, *, cache_dir: Path, tell: Tell, refresh: bool = False
) -> dict[str, Any]:
    """Sample the batch, or find the stored one; returns its `summary`.

    Raises:
        ConfigError: the engine or the dataset cannot be used.
        EngineError: too many episodes ended in infrastructure errors; finished ones are kept.
        CudaAgentError: store, judge or sandbox cannot be used.
    """
    science, judge = order.config.science, order.judge
    request = StageRequest(
        "rollouts",
        VERSION,
        rollout_inputs(order.dataset_id, order.policy_version_id, science, order.endpoint),
        {"stage": science, "judge": judge},
        order.config.execution,
        backend=judge.backend,
        device=device_model(judge.backend),
        refresh=refresh,
    )
    with claim_stage(store, request, on_wait=tell) as claim:
        if claim.finished is None:
            batch_id = open_rollouts(store, claim.row_id, 0, order.dataset_id, order.policy_version_id, science, "train")
            await _play(store, order, batch_id, cache_dir, tell)
            require_complete(store, batch_id)
            claim.finish({"batch_id": batch_id})
        assert claim.finished is not None
        return summary(store, UUID(claim.finished["batch_id"]))


def open_rollouts(
    store: Store,
    stage_run_id: UUID,
    step: int,
    dataset_id: UUID,
    policy_version_id: UUID | None,
    science: RolloutScience,
    purpose: str,
) -> UUID:
    """The batch row of a stage run's step: new, or the one an earlier attempt opened; with a policy where the engine has one."""
    return open_batch(
        store,
        dataset_id=dataset_id,
        policy_version_id=policy_version_id if science.engine in SAMPLED else None,
        engine=science.engine,
        purpose=purpose,
        science=science,
        episodes=science.episodes,
        stage_run_id=stage_run_id,
        step=step,
    )


async def _play(store: Store, order: RolloutOrder, batch_id: UUID, cache_dir: Path, tell: Tell) -> None:
    services = Services(store, cache_dir, order.endpoint)
    try:
        execution = order.config.execution
        await play_missing(await BatchPlayer.open(services, batch_id, order.judge, execution.vllm), execution, tell)
    finally:
        await services.close()


async def play_missing(player: BatchPlayer, execution: RolloutExecution, tell: Tell) -> None:
    """Play the episodes of a batch that have no result, `concurrency` at once; infrastructure errors get further attempts.

    Raises:
        CudaAgentError: a fault that no attempt can mend.
    """
    store, batch = player.store, player.batch
    finished = await asyncio.to_thread(finished_positions, store, batch.id)

    async def play(position: int) -> UUID:
        for attempt in range(1, execution.attempts + 1):
            try:
                return await player.play(position)
            except CudaAgentError as error:
                if attempt == execution.attempts or not transient(error):
                    raise
        raise AssertionError("unreachable")

    async def on_result(position: int, result: UUID | CudaAgentError) -> None:
        if isinstance(result, CudaAgentError):
            if not transient(result):
                raise result
            tell(f"{player.label(position)}: infra_error: {result}")
            return
        rollout = await asyncio.to_thread(finished_rollout, store, batch.id, position)
        assert rollout is not None
        reward = "" if rollout.reward is None else f", reward {rollout.reward:g}"
        tell(f"{player.label(position)}: {rollout.outcome}{reward}, {rollout.turns} turns, rollout {rollout.id}")

    missing = [position for position in range(batch.episodes) if position not in finished]
    await run_batch(missing, play, concurrency=execution.concurrency, on_result=on_result)


def told(found: Mapping[str, Any]) -> str:
    """A summary for a terminal."""
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in found["outcomes"].items())
    lines = [f"batch {found['batch_id']}: {found['episodes']} episodes", f"outcomes: {outcomes}"]
    lines.append("rewards: " + (", ".join(f"{count} x {reward}" for reward, count in found["rewards"].items()) or "none"))
    if found["seconds"] is not None:
        pace = f", {found['tokens_per_second']} tokens/s" if found["tokens_per_second"] is not None else ""
        lines.append(f"sampled in {found['seconds']} s{pace}")
    return "\n".join(lines)


def summary(store: Store, batch_id: UUID) -> dict[str, Any]:
    """What came of a batch.

    Returns:
        `batch_id`, `episodes`, `outcomes` (count by outcome; `infra_error` for those without one), `rewards` (count by
        reward), `seconds` from the first episode's start to the last one's end (an interruption between included), and
        `tokens_per_second`: sampled tokens over these, null for text engines.
    """
    batch, rollouts, seconds = get_batch(store, batch_id), finished_rollouts(store, batch_id), sampling_seconds(store, batch_id)
    outcomes = Counter(rollout.outcome for rollout in rollouts)
    if len(rollouts) < batch.episodes:
        outcomes["infra_error"] = batch.episodes - len(rollouts)
    rewards = Counter(f"{rollout.reward:g}" for rollout in rollouts if rollout.reward is not None)
    sampled = [rollout.id for rollout in rollouts if rollout.tokens is not None]
    tokens = sum(int(arrays.mask.sum()) for arrays in load_arrays(store, sampled).values()) if sampled else None
    return {
        "batch_id": str(batch_id),
        "episodes": batch.episodes,
        "outcomes": dict(outcomes.most_common()),
        "rewards": {reward: rewards[reward] for reward in sorted(rewards, key=float)},
        "seconds": None if seconds is None else round(seconds, 3),
        "tokens_per_second": round(tokens / seconds, 1) if tokens is not None and seconds else None,
    }
