"""A real vLLM server (`-m vllm`, with CUDA_AGENT_VLLM_PYTHON), and what its engine does where there is none."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from cuda_agent.config import VLLM_PYTHON_VARIABLE, BasePolicyScience, VllmExecution
from cuda_agent.engines.base import Generation, Sampling
from cuda_agent.engines.vllm import VllmEngine, read_generation, vllm_python
from cuda_agent.errors import ConfigError, EngineError
from cuda_agent.sandbox.lease import Lease
from tests.engines.test_transformers import forward_logprobs

PROMPTS = [[5, 9, 20 + i, *range(30, 30 + 3 * i)] for i in range(9)]
SETTINGS = VllmExecution(dtype="float32", sequences=8, enforce_eager=True)


def served(test: Callable[..., Any]) -> Callable[..., Any]:
    """A test of the server that all of them share."""
    return pytest.mark.vllm(pytest.mark.asyncio(loop_scope="module")(test))


def make_policy(folder: Path, seed: int, width: int = 256) -> Path:
    from cuda_agent.learning.base_model import make_policy_folder

    folder.mkdir()
    make_policy_folder(folder, BasePolicyScience(width=width, heads=4, layers=2, vocabulary=512, context_tokens=256, seed=seed))
    return folder


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("policies")
    return [make_policy(folder / f"{seed}", seed) for seed in range(2)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(policies: list[Path], lease_path: Path) -> AsyncIterator[VllmEngine]:
    async with VllmEngine(vllm_python(), SETTINGS, lease_path=lease_path, on_output=print) as running:
        await running.load_policy(policies[0])
        yield running


async def sample(engine: VllmEngine, prompt: list[int], seed: int = 0, tokens: int = 24) -> Generation:
    return await engine.generate(prompt, Sampling(max_new_tokens=tokens, seed=seed))


def end_of(policy: Path) -> int:
    end: int = json.loads((policy / "config.json").read_text())["eos_token_id"]
    return end


@served
@pytest.mark.timeout(600)
async def test_log_probs_are_those_of_a_direct_forward_pass(engine: VllmEngine, policies: list[Path]) -> None:
    answers = await asyncio.gather(*(sample(engine, prompt, seed) for seed, prompt in enumerate(PROMPTS)))
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        assert answer.logprobs == pytest.approx(forward_logprobs(policies[0], prompt, answer.token_ids), abs=2e-3)


@served
async def test_a_later_turn_extends_an_earlier_one(engine: VllmEngine, policies: list[Path]) -> None:
    first = await sample(engine, PROMPTS[5])
    prompt = [*PROMPTS[5], *first.token_ids, 7, 8, 9]
    second = await sample(engine, prompt)
    assert second.logprobs == pytest.approx(forward_logprobs(policies[0], prompt, second.token_ids), abs=2e-3)


@served
async def test_answers_end_at_the_policys_own_end_token_or_the_limit(engine: VllmEngine, policies: list[Path]) -> None:
    end = end_of(policies[0])
    answers = await asyncio.gather(*(sample(engine, PROMPTS[1], seed, tokens=200) for seed in range(40)))
    assert {answer.finish for answer in answers} == {"stop", "length"}
    for answer in answers:
        assert (answer.token_ids[-1] == end) == (answer.finish == "stop")
        assert end not in answer.token_ids[:-1]
        assert len(answer.token_ids) == 200 or answer.finish == "stop"


@served
async def test_the_models_context_ends_an_answer(engine: VllmEngine) -> None:
    assert engine.context_tokens == 256
    answers = await asyncio.gather(*(sample(engine, [5 + i % 80 for i in range(250)], seed, tokens=60) for seed in range(8)))
    assert {len(answer.token_ids) for answer in answers if answer.finish == "length"} == {6}
    with pytest.raises(EngineError, match="does not fit"):
        await sample(engine, [5] * 256)
    with pytest.raises(EngineError, match="does not fit"):
        await sample(engine, [])


@served
async def test_greedy_and_truncated_sampling(engine: VllmEngine) -> None:
    first = await engine.generate(PROMPTS[2], Sampling(temperature=0.0, max_new_tokens=8))
    assert (await engine.generate(PROMPTS[2], Sampling(top_k=1, max_new_tokens=8, seed=9))).token_ids == first.token_ids
    assert (await engine.generate(PROMPTS[2], Sampling(top_p=1e-6, max_new_tokens=8, seed=9))).token_ids == first.token_ids


@served
async def test_seeds_draw_different_answers(engine: VllmEngine) -> None:
    drawn = await asyncio.gather(*(sample(engine, PROMPTS[3], seed, tokens=8) for seed in range(6)))
    assert len({answer.token_ids for answer in drawn}) > 1


@served
async def test_a_load_waits_for_requests_in_flight_and_swaps_the_policy_in_place(
    engine: VllmEngine, policies: list[Path]
) -> None:
    process = engine._process
    before = asyncio.gather(*(sample(engine, prompt, seed) for seed, prompt in enumerate(PROMPTS)))
    await asyncio.sleep(0)
    started = time.monotonic()
    await engine.load_policy(policies[1])
    print(f"switched in {time.monotonic() - started:.2f} s")
    assert before.done() and engine._process is process
    after = await sample(engine, PROMPTS[0])
    assert after.logprobs == pytest.approx(forward_logprobs(policies[1], PROMPTS[0], after.token_ids), abs=2e-3)
    await engine.load_policy(policies[0])
    again = await sample(engine, PROMPTS[0])
    assert again.logprobs == pytest.approx(forward_logprobs(policies[0], PROMPTS[0], again.token_ids), abs=2e-3)


@served
async def test_a_cancelled_request_leaves_the_others_alone(engine: VllmEngine) -> None:
    doomed = [asyncio.create_task(sample(engine, PROMPTS[4], seed, tokens=200)) for seed in range(4)]
    kept = asyncio.create_task(sample(engine, PROMPTS[0], 1))
    await asyncio.sleep(0.05)
    for task in doomed:
        task.cancel()
    assert (await kept).token_ids
    assert all(isinstance(found, asyncio.CancelledError) for found in await asyncio.gather(*doomed, return_exceptions=True))


@served
async def test_nothing_is_generated_while_the_lease_is_held_alone(engine: VllmEngine, lease_path: Path) -> None:
    lease = Lease(lease_path)
    async with lease.exclusive():
        waiting = asyncio.create_task(sample(engine, PROMPTS[0]))
        await asyncio.sleep(0.5)
        assert not waiting.done()
    assert (await waiting).token_ids


@served
async def test_generation_rests_for_whoever_wants_the_lease_alone_and_goes_on(engine: VllmEngine, lease_path: Path) -> None:
    running = [asyncio.create_task(sample(engine, PROMPTS[0], seed, tokens=250)) for seed in range(40)]
    await asyncio.sleep(0.2)
    async with asyncio.timeout(20), Lease(lease_path).exclusive():
        left = sum(not task.done() for task in running)
        await asyncio.sleep(0.5)
        assert left and sum(not task.done() for task in running) == left
    assert all(answer.token_ids for answer in await asyncio.gather(*running))


@served
@pytest.mark.timeout(600)
async def test_another_shape_starts_another_server_and_a_folder_without_a_model_none(
    engine: VllmEngine, policies: list[Path], tmp_path: Path
) -> None:
    wide = make_policy(tmp_path / "wide", 5, width=512)
    await engine.load_policy(wide)
    answer = await sample(engine, PROMPTS[0])
    assert answer.logprobs == pytest.approx(forward_logprobs(wide, PROMPTS[0], answer.token_ids), abs=2e-3)
    with pytest.raises(EngineError, match="holds no model"):
        await engine.load_policy(tmp_path)
    with pytest.raises(EngineError, match="no policy"):
        await sample(engine, [5])
    await engine.load_policy(wide)
    assert (await sample(engine, PROMPTS[0])).token_ids


@served
async def test_a_dead_server_is_an_engine_error(engine: VllmEngine) -> None:
    assert engine._process is not None
    running = asyncio.create_task(sample(engine, PROMPTS[0], tokens=250))
    await asyncio.sleep(0.2)
    await engine._process.close()
    with pytest.raises(EngineError):
        await running
    with pytest.raises(EngineError):
        await sample(engine, [5])


# --- without vLLM ---------------------------------------------------------------------------------------------------------


async def test_a_python_without_vllm_is_an_error_with_its_words(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    async with VllmEngine(sys.executable, SETTINGS) as engine:
        with pytest.raises(EngineError, match=r"could not start: .*vllm"):
            await engine.load_policy(tmp_path)
        with pytest.raises(EngineError, match="no policy"):
            await sample(engine, [5])


def test_the_named_python_is_taken_or_the_way_to_one_told() -> None:
    assert vllm_python({VLLM_PYTHON_VARIABLE: sys.executable}) == sys.executable
    with pytest.raises(ConfigError, match="cannot be run"):
        vllm_python({VLLM_PYTHON_VARIABLE: "/no/such/python"})
    with pytest.raises(ConfigError, match="pip install vllm"):
        vllm_python({})


GOOD = {"choices": [{"token_ids": [5, 6], "logprobs": {"token_logprobs": [-0.5, -1.0]}, "finish_reason": "length"}]}


def test_a_completion_becomes_a_generation() -> None:
    assert read_generation(GOOD, 1.5) == Generation((5, 6), (-0.5, -1.0), "length", 1.5)


@pytest.mark.parametrize(
    "changes",
    [
        {"token_ids": None},
        {"token_ids": [5]},
        {"logprobs": None},
        {"logprobs": {"token_logprobs": [None, -1.0]}},
        {"finish_reason": "abort"},
        {"finish_reason": None},
    ],
)
def test_a_malformed_completion_is_an_engine_error(changes: dict[str, Any]) -> None:
    with pytest.raises(EngineError):
        read_generation({"choices": [GOOD["choices"][0] | changes]}, 1.0)


@pytest.mark.parametrize("answer", [None, [], {}, {"choices": []}, {"choices": [1]}, {"error": "no"}])
def test_what_is_no_completion_is_an_engine_error(answer: Any) -> None:
    with pytest.raises(EngineError):
        read_generation(answer, 1.0)


async def test_a_server_ends_with_its_owner(tmp_path: Path) -> None:
    """As when the owner is killed: the pipe closes, and nobody is left to say good-bye."""
    from cuda_agent.engines import supervise

    note = tmp_path / "pid"
    program = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(100)"
    owner = await asyncio.create_subprocess_exec(
        sys.executable, supervise.__file__, sys.executable, "-c", program, stdin=asyncio.subprocess.PIPE, start_new_session=True
    )
    async with asyncio.timeout(20):
        while not note.exists() or not note.read_text():
            await asyncio.sleep(0.05)
        assert owner.stdin is not None
        owner.stdin.close()
        assert await owner.wait() == -9
        while os.path.exists(f"/proc/{note.read_text()}/cmdline") and Path(f"/proc/{note.read_text()}/cmdline").read_bytes():
            await asyncio.sleep(0.05)
