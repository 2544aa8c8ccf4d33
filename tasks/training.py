"""Training stages: stored trajectories become an episodes file, a training process works on it, weights become rows.

A PPO session survives its process: after a failure the next step starts another one from the last stored step, with
optimisers and random state, so that a retried update is the update that was lost.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, cast
from uuid import UUID

import numpy as np
from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from cuda_agent.agent.chat import ChatRenderer
from cuda_agent.config import CriticConfig, PpoConfig, RftConfig, RftScience
from cuda_agent.engines.messages import Message, Role, ToolCall
from cuda_agent.errors import LearningError
from cuda_agent.learning.episodes import EpisodeTensors, write_episodes
from cuda_agent.learning.job import CriticJob, PpoJob, PretrainJob, RftJob
from cuda_agent.learning.launch import Finished, Trainer, run_job
from cuda_agent.learning.rft import Selection, Trajectory, calls_of, select
from cuda_agent.store.queries import (
    Episode,
    RolloutView,
    batch_episodes,
    finished_rollouts,
    latest_trainer_state,
    rollout_turns,
    stage_critics,
    stage_policies,
)
from cuda_agent.store.session import Store, home_folder
from cuda_agent.store.tables import TrainerState, Turn, Update
from cuda_agent.store.versions import critic_folder, policy_folder, publish_critic, publish_policy
from tasks.retrying import worth_retrying
from tasks.services import current
from tasks.stages import StageRun


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one training job's files, removed at the end."""
    root = home_folder() / "scratch"
    root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=root))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def run_logged(job: PretrainJob | RftJob | CriticJob) -> Finished:
    """Run a batch job under the device lease's shared side, its output and progress in this run's log."""
    logger = get_run_logger()

    def progress(event: Mapping[str, Any]) -> None:
        if event["event"] == "progress":
            logger.info(", ".join(f"{name} {_short(value)}" for name, value in event.items() if name != "event"))

    async with current().lease.shared():
        return await run_job(job, on_line=logger.info, on_event=progress)


def record_update(
    store: Store, stage_run_id: UUID, stage: str, step: int, metrics: Mapping[str, Any], **ids: UUID | None
) -> None:
    """Store the metrics of one step, once: a retry that did the same step again keeps the first row."""
    with store.session() as session:
        row = session.query(Update).filter_by(stage_run_id=stage_run_id, step=step).first()
        if row is None:
            session.add(Update(stage_run_id=stage_run_id, stage=stage, step=step, metrics=dict(metrics), **ids))
        else:
            row.metrics = dict(metrics)
            for name, value in ids.items():
                setattr(row, name, value)


def tensors(episodes: Sequence[Episode]) -> list[EpisodeTensors]:
    """Stored episodes in the trainer's form; those in which the policy wrote nothing are left out."""
    made = [_tensors(episode) for episode in episodes]
    return [episode for episode in made if episode.policy_tokens]


def _tensors(episode: Episode) -> EpisodeTensors:
    arrays, rollout = episode.arrays, episode.rollout
    reward = float("nan") if rollout.reward is None else rollout.reward
    return EpisodeTensors(arrays.token_id, arrays.logprob, arrays.mask, reward, str(rollout.id))


@asynccontextmanager
async def _trained(
    kind: type[RftJob] | type[CriticJob], config: RftConfig | CriticConfig, policy_id: UUID, episodes: Sequence[EpisodeTensors]
) -> AsyncIterator[Finished]:
    """Run a batch job from a policy on these episodes; what it wrote lasts as long as the block."""
    with scratch() as folder:
        write_episodes(folder / "episodes.npz", episodes)
        actor = await asyncio.to_thread(policy_folder, current().store, policy_id)
        files = {"actor": actor, "episodes": folder / "episodes.npz", "output": folder / "out"}
        yield await run_logged(kind.model_validate({"execution": config.execution, "science": config.science, **files}))


# --- RFT and critic --------------------------------------------------------------------------------------------------


@task(name="train rft", retries=1, retry_condition_fn=worth_retrying, cache_policy=NO_CACHE)
async def train_rft(stage_run_id: UUID, policy_id: UUID, batch_ids: list[UUID], config: RftConfig) -> UUID:
    """Filter, train, publish. Returns the new policy version.

    Raises:
        LearningError: no trajectory passes the filter, or training failed.
    """
    store = current().store
    renderer = await asyncio.to_thread(current().renderer, policy_id)
    selection, episodes = await asyncio.to_thread(rft_episodes, store, batch_ids, config.science, renderer)
    _log_selection(selection)
    async with _trained(RftJob, config, policy_id, episodes) as done:
        version = await asyncio.to_thread(
            publish_policy,
            store,
            done.saved.folder / "actor",
            stage="rft",
            stage_run_id=stage_run_id,
            parent_id=policy_id,
            dtype=config.execution.dtype,
        )
    by_engine = Counter(trajectory.engine for trajectory in selection.kept)
    counts = {"kept": len(selection.kept), "dropped": len(selection.dropped), "episodes_by_engine": dict(by_engine)}
    for step, metrics in done.metrics.items():
        record_update(store, stage_run_id, "rft", step, {**metrics, **counts}, policy_version_id=version)
    return version


def rft_episodes(
    store: Store, batch_ids: Sequence[UUID], science: RftScience, renderer: ChatRenderer
) -> tuple[Selection, list[EpisodeTensors]]:
    """Filter the batches' rollouts and bring what stays into the trainer's form.

    Token engines' rollouts are taken as sampled. Text engines' messages are rendered here, once, with the template of the
    policy that learns from them.

    Raises:
        LearningError: nothing passes the filter.
    """
    rollouts = finished_rollouts(store, batch_ids)
    turns = rollout_turns(store, [rollout.id for rollout in rollouts])
    selection = select([_trajectory(rollout, turns[rollout.id]) for rollout in rollouts], science)
    kept = {trajectory.rollout_id for trajectory in selection.kept}
    if not kept:
        raise LearningError("no trajectory passes the RFT filter; sample more rollouts or look at why they fail in the dashboard")
    sampled = [episode for episode in batch_episodes(store, batch_ids) if str(episode.rollout.id) in kept]
    written = [rollout for rollout in rollouts if rollout.tokens is None and str(rollout.id) in kept]
    return selection, [*tensors(sampled), *(_rendered(rollout, turns[rollout.id], renderer) for rollout in written)]


def _trajectory(rollout: RolloutView, turns: Sequence[Turn]) -> Trajectory:
    calls = calls_of(turn.tool_calls for turn in turns if turn.role == "assistant")
    return Trajectory(str(rollout.id), rollout.engine, rollout.reward, rollout.invalid_tool_calls, calls)


def _rendered(rollout: RolloutView, turns: Sequence[Turn], renderer: ChatRenderer) -> EpisodeTensors:
    messages = [
        Message(cast(Role, turn.role), turn.text, tuple(ToolCall(call["name"], call["arguments"]) for call in turn.tool_calls))
        for turn in turns
    ]
    text = renderer.conversation(messages)
    ids, mask = np.array(text.ids, np.int32), np.array(text.mask, np.uint8)
    return EpisodeTensors(ids, np.zeros(len(ids), np.float32), mask, float(rollout.reward or 0), str(rollout.id))


def _log_selection(selection: Selection) -> None:
    reasons: dict[str, int] = {}
    for dropped in selection.dropped:
        reasons[dropped.rule] = reasons.get(dropped.rule, 0) + 1
    get_run_logger().info("RFT keeps %d trajectories, drops %d: %s", len(selection.kept), len(selection.dropped), reasons)


@task(name="train critic", retries=1, retry_condition_fn=worth_retrying, cache_policy=NO_CACHE)
async def train_critic(stage_run_id: UUID, policy_id: UUID, batch_ids: list[UUID], config: CriticConfig) -> UUID:
    """Pretrain a critic on every judged trajectory. Returns the new critic version.

    Raises:
        LearningError: there is no trajectory, or training failed.
    """
    store = current().store
    episodes = tensors(await asyncio.to_thread(batch_episodes, store, batch_ids))
    async with _trained(CriticJob, config, policy_id, episodes) as done:
        version = await asyncio.to_thread(
            publish_critic, store, done.saved.folder / "critic", stage_run_id=stage_run_id, policy_version_id=policy_id
        )
    for step, metrics in done.metrics.items():
        record_update(store, stage_run_id, "critic", step, metrics, critic_version_id=version)
    return version


# --- PPO -------------------------------------------------------------------------------------------------------------


class PpoSession:
    """One PPO stage's place: the versions after the last stored step, and a training process when one is running."""

    _open: ClassVar[dict[UUID, PpoSession]] = {}

    def __init__(self, run: StageRun, config: PpoConfig, policy_id: UUID, critic_id: UUID | None) -> None:
        self.run = run
        self.stage = run.name
        self.config = config
        self.step = 0
        self.policy_version_id = self._origin = policy_id
        self.critic_version_id = critic_id
        self._trainer: Trainer | None = None

    def catch_up(self, store: Store) -> None:
        """Move to the last step whose policy, critic and trainer state are all stored."""
        state = latest_trainer_state(store, self.run.id)
        if state is None:
            return
        self.step = state.step + 1
        self.policy_version_id = next(p.id for p in stage_policies(store, self.run.id) if p.step == state.step)
        self.critic_version_id = next(c.id for c in stage_critics(store, self.run.id) if c.step == state.step)

    @property
    def versions(self) -> dict[str, UUID]:
        """The stage's outputs: what the last step made."""
        assert self.critic_version_id is not None
        return {"policy_version_id": self.policy_version_id, "critic_version_id": self.critic_version_id}

    async def trainer(self) -> Trainer:
        """The running training process, or a new one at this session's step. Returns before it is ready."""
        if self._trainer is None:
            store, log = current().store, get_run_logger()
            resume = await asyncio.to_thread(self._state_folder, store)
            job = PpoJob(
                execution=self.config.execution,
                actor=await asyncio.to_thread(policy_folder, store, self.policy_version_id),
                critic=await asyncio.to_thread(critic_folder, store, self.critic_version_id) if self.critic_version_id else None,
                science=self.config.science,
                resume=resume,
            )
            trainer = Trainer(on_line=log.info)
            await trainer.start(job)
            self._trainer = trainer
        return self._trainer

    def _state_folder(self, store: Store) -> Path | None:
        state = latest_trainer_state(store, self.run.id)
        if state is None:
            return None
        return store.blobs.get_folder(state.uri, home_folder() / "cache" / "trainer" / state.sha256, state.sha256)

    async def close(self) -> None:
        """End the training process."""
        if self._trainer is not None:
            trainer, self._trainer = self._trainer, None
            await trainer.close()

    @classmethod
    def of(cls, stage_run_id: UUID) -> PpoSession:
        """The open session of a stage run.

        Raises:
            LearningError: an update runs outside its stage.
        """
        if stage_run_id not in cls._open:
            raise LearningError(f"stage run {stage_run_id} is not open in this process; retry the stage, not the task alone")
        return cls._open[stage_run_id]


@asynccontextmanager
async def ppo_session(run: StageRun, config: PpoConfig, policy_id: UUID, critic_id: UUID | None) -> AsyncIterator[PpoSession]:
    """Open the session at its last stored step and start its training process, which loads while rollouts are sampled."""
    session = PpoSession(run, config, policy_id, critic_id)
    await asyncio.to_thread(session.catch_up, current().store)
    PpoSession._open[run.id] = session
    loading = asyncio.create_task(_load(session))
    try:
        yield session
    finally:
        del PpoSession._open[run.id]
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        await session.close()


async def _load(session: PpoSession) -> None:
    """Start the training process while the first rollouts are sampled; nothing is timed until it has loaded.

    What goes wrong here is raised by the update that needs the process.
    """
    async with current().lease.shared():
        await (await session.trainer()).ready()


@task(name="update", task_run_name="update step {step}", retries=1, retry_condition_fn=worth_retrying, cache_policy=NO_CACHE)
async def update(stage_run_id: UUID, step: int, batch_id: UUID) -> UUID:
    """One PPO update on a rollout batch: new policy, critic and trainer state. Returns the policy version.

    Raises:
        LearningError: there is nothing to learn from, training failed, or trainer and engine disagree on log-probs.
    """
    session, store = PpoSession.of(stage_run_id), current().store
    episodes = tensors(await asyncio.to_thread(batch_episodes, store, batch_id))
    with scratch() as folder:
        write_episodes(folder / "episodes.npz", episodes)
        try:
            async with current().lease.shared():
                trainer = await session.trainer()
                metrics = await trainer.step(folder / "episodes.npz", step)
                saved = await trainer.save(folder / "out")
        except LearningError:
            await session.close()
            raise
        await asyncio.to_thread(_publish_step, store, session, step, batch_id, saved.folder, metrics)
    get_run_logger().info("step %d: %s", step, ", ".join(f"{name} {_short(value)}" for name, value in metrics.items()))
    return session.policy_version_id


def _publish_step(store: Store, session: PpoSession, step: int, batch_id: UUID, folder: Path, metrics: Mapping[str, Any]) -> None:
    """Store a step; the trainer state comes last, because it is what marks the step as done."""
    run_id, parent = session.run.id, session.policy_version_id
    policy = publish_policy(
        store,
        folder / "actor",
        stage=session.stage,
        stage_run_id=run_id,
        parent_id=parent,
        step=step,
        dtype=session.config.execution.dtype,
    )
    critic = publish_critic(
        store,
        folder / "critic",
        stage_run_id=run_id,
        policy_version_id=session._origin,
        parent_id=session.critic_version_id,
        step=step,
    )
    state = store.blobs.put_folder(folder)
    record_update(
        store, run_id, session.stage, step, metrics, batch_id=batch_id, policy_version_id=policy, critic_version_id=critic
    )
    with store.session() as database:
        database.add(TrainerState(stage_run_id=run_id, step=step, uri=state.uri, sha256=state.sha256))
    session.policy_version_id, session.critic_version_id, session.step = policy, critic, step + 1


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
