"""Stage `base_policy`: pretrain the small model on the teacher's texts, or adopt a checkpoint as it is."""

import asyncio
from uuid import UUID

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from cuda_agent.config import BasePolicyConfig
from cuda_agent.learning.base_model import make_policy_folder, write_pretraining
from cuda_agent.learning.job import PretrainJob
from cuda_agent.learning.named_checkpoint import named_checkpoint
from cuda_agent.store.queries import dataset_problems
from cuda_agent.store.versions import publish_policy
from tasks.retrying import worth_retrying
from tasks.services import current
from tasks.training import record_update, run_logged, scratch


@task(name="pretrain small model", retries=1, retry_condition_fn=worth_retrying, cache_policy=NO_CACHE)
async def pretrain_small_model(stage_run_id: UUID, dataset_id: UUID, config: BasePolicyConfig) -> UUID:
    """Tokenizer, texts without any held-out operator sequence, pretraining. Returns the policy version.

    Raises:
        LearningError: training failed.
    """
    store, science = current().store, config.science
    held_out = await asyncio.to_thread(dataset_problems, store, dataset_id, "held_out")
    excluded = {tuple(sorted(problem.ops)) for problem in held_out}
    with scratch() as folder:
        start = folder / "untrained"
        start.mkdir()
        await asyncio.to_thread(make_policy_folder, start, science)
        tokens = await asyncio.to_thread(write_pretraining, folder / "episodes.npz", start, science, excluded)
        get_run_logger().info("pretraining on %d demonstrations, %d tokens", science.demonstrations, tokens)
        job = PretrainJob(
            execution=config.execution, actor=start, episodes=folder / "episodes.npz", output=folder / "out", science=science
        )
        done = await run_logged(job)
        version = await asyncio.to_thread(
            publish_policy, store, done.saved.folder / "actor", stage="base", stage_run_id=stage_run_id, parent_id=None
        )
    for step, metrics in done.metrics.items():
        record_update(store, stage_run_id, "base_policy", step, metrics, policy_version_id=version)
    return version


@task(name="adopt checkpoint", retries=1, retry_condition_fn=worth_retrying, cache_policy=NO_CACHE)
async def adopt_checkpoint(stage_run_id: UUID, dataset_id: UUID, config: BasePolicyConfig) -> UUID:
    """Store a Hugging Face checkpoint as the base policy. Returns the policy version.

    Raises:
        ConfigError: the name is neither a folder nor a model in the local hub cache that can be fetched.
    """
    assert config.science.checkpoint is not None
    folder = await asyncio.to_thread(named_checkpoint, config.science.checkpoint)
    return await asyncio.to_thread(
        publish_policy,
        current().store,
        folder,
        stage="base",
        stage_run_id=stage_run_id,
        parent_id=None,
        dtype=config.execution.dtype,
        follow_links=True,
    )
