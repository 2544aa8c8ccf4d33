"""The real server process on a tiny random Llama."""

import asyncio
import math
from pathlib import Path

import pytest

from cuda_agent.engines.base import Generation, Sampling
from cuda_agent.engines.transformers import TransformersEngine
from cuda_agent.errors import EngineError
from cuda_agent.sandbox.lease import Lease

STOP = 3
PROMPTS = [[5, 9, 20 + i, *range(30, 30 + 3 * i)] for i in range(9)]
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def sample(engine: TransformersEngine, prompt: list[int], seed: int = 0, tokens: int = 24) -> Generation:
    return await engine.generate(prompt, Sampling(max_new_tokens=tokens, seed=seed))


def forward_logprobs(weights: Path, prompt: list[int], answer: tuple[int, ...]) -> list[float]:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(weights)
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *answer]])).logits[0]
    table = logits.log_softmax(dim=-1)
    return [float(table[len(prompt) - 1 + i, token]) for i, token in enumerate(answer)]


async def test_log_probs_are_those_of_a_direct_forward_pass(engine: TransformersEngine, weights: Path):
    answers = await asyncio.gather(*(sample(engine, prompt, seed) for seed, prompt in enumerate(PROMPTS)))
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        assert answer.logprobs == pytest.approx(forward_logprobs(weights, prompt, answer.token_ids), abs=1e-4)


async def test_a_seed_fixes_the_answer_whatever_else_is_in_the_batch(engine: TransformersEngine):
    alone = [await sample(engine, prompt, seed) for seed, prompt in enumerate(PROMPTS)]
    together = await asyncio.gather(*(sample(engine, prompt, seed) for seed, prompt in enumerate(PROMPTS)))
    assert [one.token_ids for one in together] == [one.token_ids for one in alone]
    assert len({(await sample(engine, PROMPTS[0], seed)).token_ids for seed in range(5)}) > 1


async def test_a_later_turn_reuses_the_earlier_one_and_agrees_with_a_forward_pass(engine: TransformersEngine, weights: Path):
    prompt = PROMPTS[8]
    for turn in range(3):
        answer = await sample(engine, prompt, turn, tokens=12)
        assert answer.logprobs == pytest.approx(forward_logprobs(weights, prompt, answer.token_ids), abs=1e-4)
        prompt = [*prompt, *answer.token_ids, 7, 8]


async def test_answers_end_at_the_stop_token_or_the_limit(engine: TransformersEngine):
    answers = await asyncio.gather(*(sample(engine, PROMPTS[1], seed, tokens=60) for seed in range(24)))
    assert {answer.finish for answer in answers} == {"stop", "length"}
    for answer in answers:
        assert (answer.token_ids[-1] == STOP) == (answer.finish == "stop")
        assert STOP not in answer.token_ids[:-1]
        assert len(answer.token_ids) == 60 or answer.finish == "stop"


async def test_the_models_context_ends_an_answer(engine: TransformersEngine):
    prompt = [5 + i % 80 for i in range(120)]
    answers = await asyncio.gather(*(sample(engine, prompt, seed, tokens=60) for seed in range(8)))
    assert {len(answer.token_ids) for answer in answers if answer.finish == "length"} == {8}
    with pytest.raises(EngineError, match="does not fit"):
        await sample(engine, [5] * 128)


async def test_greedy_and_truncated_sampling(engine: TransformersEngine, weights: Path):
    greedy = Sampling(temperature=0.0, max_new_tokens=8)
    first = await engine.generate(PROMPTS[2], greedy)
    assert (await engine.generate(PROMPTS[2], Sampling(top_k=1, max_new_tokens=8, seed=9))).token_ids == first.token_ids
    assert (await engine.generate(PROMPTS[2], Sampling(top_p=1e-6, max_new_tokens=8, seed=9))).token_ids == first.token_ids


async def test_sampled_frequencies_follow_the_distribution(engine: TransformersEngine, weights: Path):
    draws = await asyncio.gather(*(sample(engine, PROMPTS[3], seed, tokens=1) for seed in range(400)))
    token = draws[0].token_ids[0]
    share = math.exp(draws[0].logprobs[0])
    count = sum(draw.token_ids[0] == token for draw in draws)
    assert abs(count - 400 * share) < 5 * math.sqrt(400 * share * (1 - share)) + 1


async def test_a_load_waits_for_requests_in_flight_and_swaps_the_policy(
    engine: TransformersEngine, weights: Path, other_weights: Path
):
    before = asyncio.gather(*(sample(engine, prompt, seed) for seed, prompt in enumerate(PROMPTS)))
    await asyncio.sleep(0)
    await engine.load_policy(other_weights)
    assert before.done()
    after = await sample(engine, PROMPTS[0])
    assert after.logprobs == pytest.approx(forward_logprobs(other_weights, PROMPTS[0], after.token_ids), abs=1e-4)
    await engine.load_policy(weights)
    assert (await sample(engine, PROMPTS[0])).token_ids == (await before)[0].token_ids


async def test_a_cancelled_request_leaves_the_others_alone(engine: TransformersEngine):
    expected = await sample(engine, PROMPTS[0], 1)
    doomed = [asyncio.create_task(sample(engine, PROMPTS[4], seed, tokens=100)) for seed in range(4)]
    kept = asyncio.create_task(sample(engine, PROMPTS[0], 1))
    await asyncio.sleep(0.01)
    for task in doomed:
        task.cancel()
    assert (await kept).token_ids == expected.token_ids


async def test_no_step_is_computed_while_the_lease_is_held_alone(engine: TransformersEngine, lease_path: Path):
    lease = Lease(lease_path)
    async with lease.exclusive():
        task = asyncio.create_task(sample(engine, PROMPTS[0]))
        await asyncio.sleep(0.3)
        assert not task.done()
    async with lease.shared():
        assert (await task).token_ids


async def test_a_failed_load_and_a_dead_server_are_engine_errors(engine: TransformersEngine, tmp_path: Path):
    with pytest.raises(EngineError, match="does not load"):
        await engine.load_policy(tmp_path)
    with pytest.raises(EngineError, match="no policy"):
        await sample(engine, [5])
    await engine._process.close()
    with pytest.raises(EngineError):
        await sample(engine, [5])
