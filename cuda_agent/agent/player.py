"""Playing the episodes of a stored batch: engine, judge and problems brought together once, for many episodes.

Invariant: every attempt becomes a row, an honest failure as much as an infrastructure error; what is stored for a position
is for the caller to look up first (`store.queries.finished_rollout`).
"""

import asyncio
from dataclasses import dataclass
from typing import Self
from uuid import UUID

from cuda_agent.agent.chat import ChatRenderer
from cuda_agent.agent.episode import EpisodeResult, run_episode
from cuda_agent.agent.planning import EpisodePlan, plan_evaluation, plan_training_batch
from cuda_agent.agent.services import Services
from cuda_agent.config import JudgeConfig, RolloutScience, VllmExecution
from cuda_agent.engines.base import TextEngine, TokenEngine
from cuda_agent.errors import ConfigError, CudaAgentError
from cuda_agent.judge.pool import JudgePool
from cuda_agent.store.queries import BatchView, ProblemView, dataset_problems, get_batch
from cuda_agent.store.session import Store
from cuda_agent.store.trajectories import RolloutRecord, save_rollout


@dataclass(frozen=True)
class Origin:
    """The orchestrator's runs that an episode belongs to, if any; stored with it."""

    flow_run_id: UUID | None = None
    task_run_id: UUID | None = None


@dataclass(frozen=True)
class BatchPlayer:
    """What all episodes of a batch share. Open it while no episode is in flight: it may switch the engine's policy."""

    store: Store
    batch: BatchView
    science: RolloutScience
    plans: list[EpisodePlan]
    problems: dict[UUID, ProblemView]
    engine: TokenEngine | TextEngine
    judge: JudgePool
    renderer: ChatRenderer | None

    @classmethod
    async def open(cls, services: Services, batch_id: UUID, judge: JudgeConfig, vllm: VllmExecution) -> Self:
        """Load problems, plan and policy; `vllm` is how that engine serves, if it is the batch's.

        Raises:
            ConfigError: the dataset has no problem on that side, or the engine cannot be had.
            StoreError: the batch, its dataset or its policy is not in the store.
            EngineError: the engine did not start or could not load the policy.
        """
        store = services.store
        batch = await asyncio.to_thread(get_batch, store, batch_id)
        science = RolloutScience.model_validate(batch.science)
        problems = await asyncio.to_thread(dataset_problems, store, batch.dataset_id, science.split)
        if not problems:
            raise ConfigError(f"dataset {batch.dataset_id} has no {science.split} problem; generate one with held_out above 0")
        plans = _plans(batch, science, [problem.id for problem in problems])
        engine = await services.engine(science, batch.policy_version_id, vllm)
        pool = await services.judge(judge)
        by_id = {problem.id: problem for problem in problems}
        renderer = await asyncio.to_thread(services.renderer, batch.policy_version_id) if batch.policy_version_id else None
        return cls(store, batch, science, plans, by_id, engine, pool, renderer)

    def label(self, position: int) -> str:
        """What people call an episode: position and operators, such as `012 relu+softmax`."""
        problem = self.problems[self.plans[position].problem_id]
        return f"{position:03d} {'+'.join(problem.ops)}"

    async def play(self, position: int, origin: Origin = Origin()) -> UUID:
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
            await asyncio.to_thread(save_rollout, self.store, self.batch.id, self._failure(plan, origin, error))
            raise
        return await asyncio.to_thread(save_rollout, self.store, self.batch.id, self._record(plan, origin, result))

    def _record(self, plan: EpisodePlan, origin: Origin, result: EpisodeResult) -> RolloutRecord:
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
            flow_run_id=origin.flow_run_id,
            task_run_id=origin.task_run_id,
        )

    def _failure(self, plan: EpisodePlan, origin: Origin, error: CudaAgentError) -> RolloutRecord:
        return RolloutRecord(
            position=plan.position,
            problem_id=plan.problem_id,
            engine=self.batch.engine,
            seed=plan.seed,
            outcome=None,
            stop_reason=None,
            reward=None,
            error=f"{type(error).__name__}: {error}",
            flow_run_id=origin.flow_run_id,
            task_run_id=origin.task_run_id,
        )


def _plans(batch: BatchView, science: RolloutScience, problem_ids: list[UUID]) -> list[EpisodePlan]:
    """The batch's episodes: every problem alike in an evaluation, drawn by seed and step in training."""
    if batch.purpose == "evaluation":
        return plan_evaluation(problem_ids, science.samples_per_problem, science.seed)
    return plan_training_batch(problem_ids, science.episodes, science.samples_per_problem, science.seed, batch.step)
