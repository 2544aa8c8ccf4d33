"""Vetting on a GPU: `make test ARGS="-m gpu tests/problems"` on a machine with one."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cuda_agent.config import DatasetExecution, DatasetScience, JudgeConfig
from cuda_agent.problems.problem import Problem, VettedProblem
from cuda_agent.problems.vet import Vetter
from cuda_agent.store.session import cache_folder
from tests.problems.texts import LEGAL_ONLY_AFTER_SIGMOID, text

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.gpu, pytest.mark.timeout(300)]
SCIENCE = DatasetScience(count=8, eager_ms_min=0.0, eager_ms_max=50.0)
EXECUTION = DatasetExecution(workers=1, candidate_seconds=60.0)
LARGE = "torch.randn(4096, 4096)"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def vetter() -> AsyncIterator[Vetter]:
    async with Vetter(SCIENCE, EXECUTION, cache_dir=cache_folder(), judge=JudgeConfig(backend="cuda")) as started:
        yield started


async def verdict(vetter: Vetter, code: str) -> VettedProblem:
    return await vetter.vet(0, Problem(("x",), "test", code))


async def test_times_are_the_devices(vetter: Vetter) -> None:
    good = await verdict(vetter, text("x = torch.relu(x)\nx = torch.softmax(x, dim=-1)", inputs=LARGE))
    assert good.accepted, good.reason
    assert good.eager_ms is not None and 0.02 < good.eager_ms < 2.0, "two passes over 64 MB"
    assert good.compile_ms is not None and good.compile_ms < good.eager_ms * 1.5


async def test_what_makes_its_tensors_on_the_host_does_not_run(vetter: Vetter) -> None:
    bad = await verdict(vetter, text("x = x + torch.zeros(4096)", inputs=LARGE))
    assert bad.rule == "runs_eager" and "device" in str(bad.reason)


async def test_a_question_that_a_kernel_asserts_against_refuses_no_problem(vetter: Vetter) -> None:
    found = await verdict(vetter, text(LEGAL_ONLY_AFTER_SIGMOID, inputs=LARGE))
    assert found.accepted, found.reason
    assert found.facts["unasked"] == ["operator torch.sigmoid(x)"]


async def test_sums_in_any_order_are_no_two_answers(vetter: Vetter) -> None:
    added = "x = torch.zeros(4, 4096, device=x.device).index_add(0, torch.arange(4096, device=x.device) % 4, x)"
    assert (found := await verdict(vetter, text(added, inputs=LARGE))).accepted, found.reason
    put = "x = x.index_put((torch.arange(4096, device=x.device) % 4,), torch.tanh(x))[:4]"
    assert (await verdict(vetter, text(put, inputs=LARGE))).rule == "deterministic"


async def test_kernels_that_an_earlier_problem_compiled_run_again(vetter: Vetter) -> None:
    for note in ("# one", "# another"):
        found = await verdict(vetter, text("x = torch.tanh(3 * x)", inputs=LARGE) + note)
        assert found.accepted, found.reason


async def test_a_lost_context_is_not_handed_on(vetter: Vetter) -> None:
    lost = await verdict(vetter, text("x = x[torch.full((4,), 10**9, device=x.device)]"))
    assert lost.rule == "runs_eager", lost.reason
    good = await verdict(vetter, text("x = torch.sigmoid(x) * x"))
    assert good.accepted, good.reason
