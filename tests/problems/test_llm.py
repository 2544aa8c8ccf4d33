"""The composer against a real OpenAI-compatible server on loopback; what it writes is parsed, and vetted in real children."""

from collections.abc import Iterator, Sequence

import pytest

from cuda_agent.config import DatasetExecution
from cuda_agent.engines.openai import OpenAIEngine
from cuda_agent.errors import EngineError, ProblemError
from cuda_agent.problems.generate import generate
from cuda_agent.problems.llm import PATIENCE, LlmComposer, Malformed, in_torch, prompt, read_answer
from cuda_agent.problems.problem import Problem, VettedProblem
from cuda_agent.sandbox.forkserver import ForkServer
from cuda_agent.store.session import cache_folder
from tests.engines.endpoint import Endpoint as Server
from tests.engines.endpoint import running_endpoint
from tests.problems.texts import catalogue, text

OPERATORS = ["torch.softmax", "nn.functional.gelu", "nn.Linear", "torch.tanh", "torch.cumsum", "nn.LayerNorm"]
SCIENCE = catalogue(count=2, eager_ms_min=0.001, eager_ms_max=500.0, seed=3)
GOOD = text("x = torch.softmax(nn.functional.gelu(x), dim=-1)")
OTHER = text("x = torch.cumsum(torch.tanh(x), dim=1)")


def block(code: str) -> str:
    return f"Here it is.\n\n```python\n{code}```\n"


@pytest.fixture
def server() -> Iterator[Server]:
    with running_endpoint() as running:
        yield running


async def composed(
    server: Server, count: int, *, at_once: int = 1, first: Sequence[Problem] = ()
) -> tuple[list[Problem], LlmComposer]:
    async with (
        OpenAIEngine(server.url, "m", attempts=1) as engine,
        LlmComposer(engine, OPERATORS, SCIENCE, at_once=at_once, first=first) as composer,
    ):
        await composer.ahead(count)
        return list(composer), composer


async def test_answers_become_problems_and_the_rest_is_counted(server: Server) -> None:
    for answer in [block(GOOD), "I would rather not.", block(GOOD), block("def f(:\n"), block(OTHER)]:
        server.say(answer)
    found, composer = await composed(server, 2)
    assert [problem.ops for problem in found] == [("nn.functional.gelu", "torch.softmax"), ("torch.tanh", "torch.cumsum")]
    assert [problem.data_source for problem in found] == ["torch#2", "torch#2"]
    assert found[0].code == GOOD
    malformed = {"no fenced Python block": 1, "the same text again": 1, "breaks the problem contract": 1}
    assert composer.report() == {"asked": 5, "malformed": malformed}


async def test_questions_depend_on_seed_and_number_and_name_the_contract(server: Server) -> None:
    before = [read_answer(block(OTHER))]
    for _ in range(2):
        server.say(block(GOOD))
        assert [problem.code for problem in (await composed(server, 2, first=before))[0]] == [OTHER, GOOD]
    asked = [request["messages"][0]["content"] for request in server.requests]
    assert asked[0] == asked[1] and server.requests[0]["seed"] == SCIENCE.seed + 1
    for part in ("class Model(nn.Module)", "get_inputs()", "get_init_inputs()", "one fenced Python block", "0.001 to 500 ms"):
        assert part in asked[0]
    assert "$" not in prompt(OPERATORS, 2, SCIENCE) and "exactly 2 of these" in prompt(OPERATORS, 2, SCIENCE)


async def test_questions_follow_the_mix(server: Server) -> None:
    async with OpenAIEngine(server.url, "m") as engine:
        only_pairs = LlmComposer(engine, OPERATORS, SCIENCE.model_copy(update={"operator_mix": {2: 1.0}}))
        assert all("exactly 2 of these" in only_pairs.question(number) for number in range(8))
        assert len({only_pairs.question(number) for number in range(8)}) > 4


async def test_several_questions_at_once_keep_their_order(server: Server) -> None:
    codes = [text(f"x = torch.tanh(x * {number}.5)") for number in range(6)]
    for code in [*codes, *codes]:
        server.say(block(code))
    found, _ = await composed(server, 4, at_once=3)
    assert len({problem.code for problem in found}) == len(found) == 4


async def test_a_model_that_never_answers_well_ends_with_the_reasons(server: Server) -> None:
    for _ in range(PATIENCE):
        server.say("no")
    with pytest.raises(ProblemError, match=f"{PATIENCE} answers in a row; .*: no fenced Python block {PATIENCE}"):
        await composed(server, 1)


async def test_an_endpoint_that_fails_is_an_engine_error(server: Server) -> None:
    server.answers.append((401, {"error": "no key"}))
    with pytest.raises(EngineError, match="status 401"):
        await composed(server, 1)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("", "no fenced Python block"),
        ("```python\n" + GOOD, "no fenced Python block"),
        ("```json\n{}\n```", "no fenced Python block"),
        (block(GOOD) + block(OTHER), "more than one Python block"),
        (block(GOOD.replace("class Model", "class Net")), "breaks the problem contract"),
        (block(GOOD.replace("def get_inputs", "def inputs")), "breaks the problem contract"),
        (block("\x00" + GOOD), "breaks the problem contract"),
        (block(GOOD.replace("softmax", "soft\ud800max")), "no valid text"),
        (block(text("x = torch.tanh(x)", head="import os")), "imports more than torch"),
        (block(text("x = torch.tanh(x)", head="from triton import jit")), "imports more than torch"),
        (block(text("x = x.view(-1)")), "applies no operator of torch"),
        (block(text("x = torch.frobnicate(x)")), "applies operators that torch has not"),
        (block(text("\n".join(["x = torch.tanh(x)"] * 6))), "applies more than five operators"),
        (block(text("x = torch.tanh(x).exp().sin().cos().neg().abs()")), "applies more than five operators"),
    ],
)
def test_what_is_no_problem_is_malformed(answer: str, kind: str) -> None:
    with pytest.raises(Malformed) as fault:
        read_answer(answer)
    assert fault.value.kind == kind


def test_reshaping_is_no_operator_and_fences_may_look_otherwise() -> None:
    code = text("x = torch.tanh(x).reshape(-1, 4)\nx = torch.sum(x, dim=1)")
    for answer in (f"```\n{code}```", f"````py\n{code}````", f"~~~python title\n{code}~~~", block(code.replace("\n", "\r\n"))):
        assert read_answer(answer).ops == ("torch.tanh", "torch.sum")


def test_names_are_looked_up_in_torch() -> None:
    assert all(in_torch(name) for name in ["nn.Conv2d", "nn.functional.gelu", "torch.linalg.inv", "torch.add"])
    assert not any(in_torch(name) for name in ["nn.Nonsense", "torch.pi", "torch.linalg"])


def test_no_operator_to_offer_is_told(server: Server) -> None:
    with pytest.raises(ProblemError, match="seed list holds no operator"):
        LlmComposer(OpenAIEngine(server.url, "m"), [], SCIENCE)


@pytest.mark.asyncio(loop_scope="session")
async def test_a_set_is_made_from_answers_and_resumed_with_new_ones(warm: ForkServer, server: Server) -> None:
    constant = text("x = torch.tanh(x * 0.0)")
    for code in (GOOD, constant, OTHER):
        server.say(block(code))
    seen: list[VettedProblem] = []
    async with OpenAIEngine(server.url, "m", attempts=1) as engine:

        async def run(count: int, done: list[VettedProblem]) -> list[VettedProblem]:
            first = [problem.problem for problem in done]
            async with LlmComposer(engine, OPERATORS, SCIENCE, at_once=1, first=first) as composer:
                return await generate(
                    SCIENCE.model_copy(update={"count": count}),
                    DatasetExecution(workers=1),
                    cache_dir=cache_folder(),
                    on_result=seen.append,
                    done=done,
                    server=warm,
                    candidates=composer,
                    ahead=composer.ahead,
                )

        first = await run(1, [])
        again = await run(2, [problem.on_side(None) for problem in first])
    assert [problem.code for problem in first] == [GOOD] and again[0].code == GOOD
    assert [problem.code for problem in again[1:]] == [constant, OTHER]
    assert [problem.accepted for problem in again] == [True, False, True]
    assert [problem.position for problem in seen] == [0, 1, 2]
