"""Playing the episodes of a batch: engine, judge and problems brought together once, for many rollout tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from prefect.runtime import flow_run, task_run

from cuda_agent.agent.chat import ChatRenderer
from cuda_agent.agent.episode import EpisodeResult, run_episode
from cuda_agent.agent.planning import EpisodePlan, plan_evaluation, plan_training_batch
from cuda_agent.config import JudgeConfig, RolloutScience
from cuda_agent.engines.base import TextEngine, TokenEngine
from cuda_agent.errors import ConfigError, CudaAgentError
from cuda_agent.judge.pool import JudgePool
from cuda_agent.store.queries import BatchView, ProblemView, dataset_problems, get_batch
from cuda_agent.store.trajectories import RolloutRecord, save_rollout
from tasks.services import Services, current


@dataclass(frozen=True)
class EpisodeSource:
    """What all episodes of a batch share. Open it while no episode is in flight: it may switch the engine's policy."""

    services: Services
    batch: BatchView
    science: RolloutScience
    plans: list[EpisodePlan]
    problems: dict[UUID, ProblemView]
    engine: TokenEngine | TextEngine
    judge: JudgePool
    renderer: ChatRenderer | None

    _open: ClassVar[dict[UUID, EpisodeSource]] = {}

    @classmethod
    async def open(cls, batch_id: UUID, judge: JudgeConfig) -> EpisodeSource:
        """Load problems, plan and policy.

        Raises:
            StoreError: the batch, its dataset or its policy is not in the store.
            EngineError: the engine did not start or could not load the policy.
        """
        services = current()
        batch = await asyncio.to_thread(get_batch, services.store, batch_id)
        science = RolloutScience.model_validate(batch.science)
        problems = await asyncio.to_thread(dataset_problems, services.store, batch.dataset_id, science.split)
        if not problems:
            raise ConfigError(f"dataset {batch.dataset_id} has no {science.split} problem; generate one with held_out above 0")
        plans = _plans(batch, science, [problem.id for problem in problems])
        engine = await services.engine(batch.engine, batch.policy_version_id)
        pool = await services.judge(judge)
        by_id = {problem.id: problem for problem in problems}
        renderer = await asyncio.to_thread(services.renderer, batch.policy_version_id) if batch.policy_version_id else None
        return cls(services, batch, science, plans, by_id, engine, pool, renderer)

    @contextmanager
    def registered(self) -> Iterator[None]:
        """Let rollout tasks, which are given ids only, find this source."""
        self._open[self.batch.id] = self
        try:
            yield
        finally:
            del self._open[self.batch.id]

    @classmethod
    def of(cls, batch_id: UUID) -> EpisodeSource:
        """The registered source of a batch.

        Raises:
            ConfigError: a rollout task runs outside its shard.
        """
        if batch_id not in cls._open:
            raise ConfigError(f"batch {batch_id} is not open in this process; run the stage or the shard, not the task alone")
        return cls._open[batch_id]

    def label(self, position: int) -> str:
        """What the dashboard calls an episode: position and operators, such as `012 relu+softmax`."""
        problem = self.problems[self.plans[position].problem_id]
        return f"{position:03d} {'+'.join(problem.ops)}"

    async def play(self, position: int) -> UUID:
        """Play one episode and store it, or store the infrastructure error and raise it. Returns the rollout's id.

        Raises:
            CudaAgentError: the infrastructure failed.
        """
        plan = self.plans[position]
        try:
            result = await run_episode(
                self.engine,
                self.problems[plan.problem_id].code,
                judge=self.judge,
                config=self.science.episode,
                sampling=self.science.sampling,
                single_turn=self.science.single_turn,
                seed=plan.seed,
                backend=self.judge.config.backend,
                renderer=self.renderer,
            )
        except CudaAgentError as error:
            await asyncio.to_thread(save_rollout, self.services.store, self.batch.id, self._failure(plan, error))
            raise
        return await asyncio.to_thread(save_rollout, self.services.store, self.batch.id, self._record(plan, result))

    def _record(self, plan: EpisodePlan, result: EpisodeResult) -> RolloutRecord:
        return RolloutRecord(
            position=plan.position,
            problem_id=plan.problem_id,
            engine=self.batch.engine,
            seed=plan.seed,
            outcome=result.outcome,
            stop_reason=result.stop_reason,
            reward=result.reward,
            verdict=result.verdict,
            turns=result.turns,
            arrays=result.arrays,
            submission=result.submission.files if result.submission else None,
            invalid_tool_calls=result.invalid_tool_calls,
            seconds=result.seconds,
            template_sha256=result.template_sha256,
            flow_run_id=_id(flow_run.id),
            task_run_id=_id(task_run.id),
        )

    def _failure(self, plan: EpisodePlan, error: CudaAgentError) -> RolloutRecord:
        return RolloutRecord(
            position=plan.position,
            problem_id=plan.problem_id,
            engine=self.batch.engine,
            seed=plan.seed,
            outcome=None,
            stop_reason=None,
            reward=None,
            error=f"{type(error).__name__}: {error}",
            flow_run_id=_id(flow_run.id),
            task_run_id=_id(task_run.id),
        )


def _id(text: str | None) -> UUID | None:
    return UUID(text) if text else None


def _plans(batch: BatchView, science: RolloutScience, problem_ids: list[UUID]) -> list[EpisodePlan]:
    """The batch's episodes: every problem alike in an evaluation, drawn by seed and step in training."""
    if batch.purpose == "evaluation":
        return plan_evaluation(problem_ids, science.samples_per_problem, science.seed)
    return plan_training_batch(problem_ids, science.episodes, science.samples_per_problem, science.seed, batch.step)
