"""Generation with real children and two operators' worth of compilation; resumption without any."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cuda_agent.config import DatasetExecution, DatasetScience
from cuda_agent.errors import ProblemError
from cuda_agent.problems.compose import compose
from cuda_agent.problems.generate import generate
from cuda_agent.problems.problem import Problem, VettedProblem
from cuda_agent.sandbox.forkserver import ForkServer
from cuda_agent.store.session import cache_folder
from tests.problems.texts import catalogue, text

pytestmark = pytest.mark.asyncio(loop_scope="session")
SMALL = catalogue(count=3, held_out=1, eager_ms_min=0.001, eager_ms_max=500.0, seed=7)


def accepted(science: DatasetScience, count: int) -> list[VettedProblem]:
    """The first candidates of a stream, as if all had been accepted."""
    stream = enumerate(compose(science))
    found = [VettedProblem(n, p.ops, p.data_source, p.code, p.sha256) for n, p in (next(stream) for _ in range(count))]
    return found


async def test_a_set_is_made_in_order_and_split(warm: ForkServer) -> None:
    seen: list[VettedProblem] = []
    made = await generate(SMALL, DatasetExecution(), cache_dir=cache_folder(), on_result=seen.append, server=warm)
    assert [problem.position for problem in seen] == [problem.position for problem in made] == list(range(len(made)))
    assert sorted(problem.split for problem in made if problem.accepted) == ["held_out", "train", "train"]
    assert all(problem.split is None for problem in seen)
    assert [problem.code for problem in made] == [problem.code for problem in accepted(SMALL, len(made))]


async def test_a_finished_run_is_taken_up_without_any_child(tmp_path: Path) -> None:
    done = accepted(SMALL, 3)
    made = await generate(SMALL, DatasetExecution(), cache_dir=tmp_path, on_result=pytest.fail, done=done)
    assert [problem.on_side(None) for problem in made] == done
    assert not list(tmp_path.iterdir())


async def test_a_resumed_run_vets_only_what_is_missing(warm: ForkServer) -> None:
    done, seen = accepted(SMALL, 3), []
    without_first = [done[1].on_side("train"), done[2]]
    resumed = await generate(
        SMALL, DatasetExecution(), cache_dir=cache_folder(), on_result=seen.append, done=without_first, server=warm
    )
    assert [problem.position for problem in resumed] == [0, 1, 2]
    assert [problem.position for problem in seen] == [0]


async def test_stored_candidates_of_other_settings_are_refused(tmp_path: Path) -> None:
    other = accepted(SMALL.model_copy(update={"seed": 8}), 2)
    with pytest.raises(ProblemError, match="another text"):
        await generate(SMALL, DatasetExecution(), cache_dir=tmp_path, on_result=pytest.fail, done=other)


async def test_impossible_settings_end_with_a_tally(warm: ForkServer) -> None:
    nothing = catalogue(
        count=2, families=("matmul",), operator_mix={1: 1.0}, eager_ms_min=0.05, eager_ms_max=0.0501, time_margin=1.0
    )
    with pytest.raises(ProblemError, match=r"0 of 2 .* eager_time 4"):
        await generate(nothing, DatasetExecution(), cache_dir=cache_folder(), on_result=lambda _: None, server=warm)


async def test_a_last_problem_that_forbids_an_exact_split_is_refused(tmp_path: Path) -> None:
    first, second, third, fourth = accepted(SMALL, 4)
    twins = [replace(first, ops=("a", "b")), replace(second, ops=("b", "a")), replace(third, ops=("a", "b")), fourth]
    made = await generate(SMALL, DatasetExecution(), cache_dir=tmp_path, on_result=pytest.fail, done=twins)
    assert [problem.rule for problem in made] == [None, None, "split", None]
    assert [problem.split for problem in made] == ["train", "train", None, "held_out"]


def stream(*bodies: str) -> Iterator[Problem]:
    return iter([Problem((f"op{number}",), "torch#1", text(body)) for number, body in enumerate(bodies)])


async def test_near_duplicates_are_refused_in_order_whatever_the_number_of_workers(warm: ForkServer) -> None:
    science = DatasetScience(count=2, eager_ms_min=0.0, eager_ms_max=500.0)
    bodies = ("x = torch.tanh(x)", "y = torch.tanh(x)\nx = y", "x = torch.tanh(x)", "x = torch.sigmoid(x)")
    for workers in (1, 3):
        made = await generate(
            science,
            DatasetExecution(workers=workers),
            cache_dir=cache_folder(),
            on_result=lambda _: None,
            server=warm,
            candidates=stream(*bodies),
        )
        assert [problem.rule for problem in made] == [None, "near_duplicate", "near_duplicate", None]
        assert made[1].reason == "similarity 1.000 to problem 0 of the set" and made[1].compile_ms is None


async def test_a_composer_without_its_candidates_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="composer sampler: its candidates must be passed in"):
        await generate(DatasetScience(count=1), DatasetExecution(), cache_dir=tmp_path, on_result=pytest.fail)
