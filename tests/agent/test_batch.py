"""Batches: bounded concurrency, faults that stay where they happen, and nothing left behind."""

import asyncio
from pathlib import Path

import pytest

from cuda_agent.agent.batch import run_batch
from cuda_agent.agent.episode import EpisodeResult, run_episode
from cuda_agent.config import EpisodeConfig, SamplingConfig
from cuda_agent.engines.messages import Message
from cuda_agent.errors import CudaAgentError, EngineError
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
