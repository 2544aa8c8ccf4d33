"""Batches: bounded concurrency, faults that stay where they happen, and nothing left behind."""

import asyncio
from pathlib import Path

import pytest

from cuda_agent.agent.batch import run_batch
from cuda_agent.agent.chat import ChatRenderer
from cuda_agent.agent.episode import EpisodeResult, run_episode
from cuda_agent.config import EpisodeConfig, SamplingConfig
from cuda_agent.engines.messages import Message
from cuda_agent.engines.transformers import TransformersEngine
from cuda_agent.errors import CudaAgentError, EngineError, StoreError
from cuda_agent.judge.pool import JudgePool
from tests.agent.script import PROBLEM, Script, bash

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_failing_episode_hurts_no_other(pool: JudgePool, tmp_path: Path):
    ended: dict[int, str] = {}
    under_way = most = 0

    async def play(job: int) -> EpisodeResult:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            if job == 1:
                raise EngineError("the engine failed")
            engine = Script(Message("assistant", "", (bash("echo hi"),)))
            config, sampling = EpisodeConfig(skill="short"), SamplingConfig()
            return await run_episode(engine, PROBLEM, judge=pool, config=config, sampling=sampling, workspace_root=tmp_path)
        finally:
            under_way -= 1

    async def on_result(job: int, outcome: EpisodeResult | CudaAgentError) -> None:
        ended[job] = str(outcome) if isinstance(outcome, CudaAgentError) else outcome.outcome

    await run_batch(range(5), play, concurrency=2, on_result=on_result)
    assert ended == {1: "the engine failed", **dict.fromkeys((0, 2, 3, 4), "no_submission")}
    assert most == 2
    assert list(tmp_path.iterdir()) == []


async def test_cancelling_a_batch_leaves_no_sandbox_and_no_workspace(pool: JudgePool, tmp_path: Path):
    started = asyncio.Event()

    async def play(job: int) -> EpisodeResult:
        engine = Script(Message("assistant", "", (bash("echo on > on; sleep 60"),)))
        config, sampling = EpisodeConfig(skill="short"), SamplingConfig()
        return await run_episode(engine, PROBLEM, judge=pool, config=config, sampling=sampling, workspace_root=tmp_path)

    async def on_result(job: int, outcome: EpisodeResult | CudaAgentError) -> None:
        started.set()

    batch = asyncio.create_task(run_batch(range(3), play, concurrency=3, on_result=on_result))
    async with asyncio.timeout(20):
        while len(list(tmp_path.glob("*/workspace/on"))) < 3:
            await asyncio.sleep(0.05)
    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch
    assert list(tmp_path.iterdir()) == []
    assert not started.is_set()


@pytest.mark.slow
async def test_a_random_policy_on_the_real_engine_ends_in_outcomes(pool: JudgePool, tmp_path: Path, tokenizer_folder: Path):
    from transformers import LlamaConfig, LlamaForCausalLM

    renderer = ChatRenderer(tokenizer_folder)
    shape = LlamaConfig(
        vocab_size=400,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=512,
        eos_token_id=renderer.end_of_turn,
    )
    LlamaForCausalLM(shape).save_pretrained(tmp_path / "policy")
    (tmp_path / "work").mkdir()
    ended: list[EpisodeResult] = []
    async with TransformersEngine(tmp_path / "policy", rows=4, lease_path=tmp_path / "lease") as engine:

        async def play(job: int) -> EpisodeResult:
            config, sampling = EpisodeConfig(skill="short", turn_tokens=64, max_turns=3), SamplingConfig()
            return await run_episode(
                engine,
                PROBLEM,
                judge=pool,
                config=config,
                sampling=sampling,
                seed=job,
                renderer=renderer,
                workspace_root=tmp_path / "work",
            )

        async def on_result(job: int, outcome: EpisodeResult | CudaAgentError) -> None:
            assert isinstance(outcome, EpisodeResult), outcome
            ended.append(outcome)

        await run_batch(range(8), play, concurrency=8, on_result=on_result)
        assert engine.context_tokens == 512
    for result in ended:
        arrays = result.arrays
        assert arrays is not None and len(arrays) <= 512
        assert (arrays.logprob[arrays.mask == 1] < 0).all() and (arrays.logprob[arrays.mask == 0] == 0).all()
        assert result.outcome == "no_submission"
    assert len({tuple(result.arrays.token_id.tolist()) for result in ended if result.arrays}) == 8
    assert list((tmp_path / "work").iterdir()) == []


async def test_a_fault_in_storing_ends_the_batch_as_itself():
    async def play(job: int) -> int:
        await asyncio.sleep(0 if job == 0 else 30)
        return job

    async def on_result(job: int, outcome: int | CudaAgentError) -> None:
        raise StoreError("the database is gone")

    async with asyncio.timeout(5):
        with pytest.raises(StoreError, match="gone"):
            await run_batch(range(3), play, concurrency=3, on_result=on_result)
