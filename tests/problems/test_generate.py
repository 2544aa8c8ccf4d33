"""Generation with real children and two operators' worth of compilation; resumption without any."""

from pathlib import Path

import pytest

from cuda_agent.config import DatasetExecution, DatasetScience
from cuda_agent.errors import ProblemError
from cuda_agent.problems.compose import compose
from cuda_agent.problems.generate import generate
from cuda_agent.problems.problem import VettedProblem
from cuda_agent.store.session import cache_folder

SMALL = DatasetScience(count=3, held_out=1, eager_ms_min=0.001, eager_ms_max=500.0, seed=7)


def accepted(science: DatasetScience, count: int) -> list[VettedProblem]:
    """The first candidates of a stream, as if all had been accepted."""
    stream = enumerate(compose(science))
    found = [VettedProblem(n, p.ops, p.data_source, p.code, p.sha256) for n, p in (next(stream) for _ in range(count))]
    return found


async def test_a_set_is_made_in_order_and_split() -> None:
    seen: list[VettedProblem] = []
    made = await generate(SMALL, DatasetExecution(workers=2), cache_dir=cache_folder(), on_result=seen.append)
    assert [problem.position for problem in seen] == [problem.position for problem in made] == list(range(len(made)))
    assert sorted(problem.split for problem in made if problem.accepted) == ["held_out", "train", "train"]
    assert all(problem.split is None for problem in seen)
    assert [problem.code for problem in made] == [problem.code for problem in accepted(SMALL, len(made))]


async def test_a_finished_run_is_taken_up_without_any_child(tmp_path: Path) -> None:
    done = accepted(SMALL, 3)
    made = await generate(SMALL, DatasetExecution(), cache_dir=tmp_path, on_result=pytest.fail, done=done)
    assert [problem.on_side(None) for problem in made] == done
    assert not list(tmp_path.iterdir())


async def test_a_resumed_run_vets_only_what_is_missing() -> None:
    done, seen = accepted(SMALL, 3), []
    resumed = await generate(SMALL, DatasetExecution(), cache_dir=cache_folder(), on_result=seen.append, done=done[:2])
    assert [problem.position for problem in resumed][:3] == [0, 1, 2]
    assert [problem.position for problem in seen] == list(range(2, len(resumed)))


async def test_stored_candidates_of_other_settings_are_refused(tmp_path: Path) -> None:
    other = accepted(SMALL.model_copy(update={"seed": 8}), 2)
    with pytest.raises(ProblemError, match="another text"):
        await generate(SMALL, DatasetExecution(), cache_dir=cache_folder(), on_result=lambda _: None, done=other)


async def test_impossible_settings_end_with_a_tally() -> None:
    nothing = DatasetScience(count=2, families=("matmul",), operator_mix={1: 1.0}, eager_ms_min=0.05, eager_ms_max=0.0501)
    with pytest.raises(ProblemError, match="0 of 2 .* eager_time 4"):
        await generate(nothing, DatasetExecution(), cache_dir=cache_folder(), on_result=lambda _: None)
