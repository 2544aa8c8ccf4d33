"""Plans are pure: same arguments, same episodes; every problem comes before any repeats."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuda_agent.agent.planning import draw_problems, episode_seed, plan_evaluation, plan_training_batch

PROBLEMS = [UUID(int=i) for i in range(7)]


@given(count=st.integers(1, 20), steps=st.integers(1, 5), seed=st.integers(0, 100))
def test_draws_over_the_steps_use_every_problem_before_any_repeats(count: int, steps: int, seed: int) -> None:
    sequence = [problem for step in range(steps) for problem in draw_problems(PROBLEMS, count, seed, step)]
    assert len(sequence) == count * steps
    for start in range(0, len(sequence) - len(sequence) % 7, 7):
        assert set(sequence[start : start + 7]) == set(PROBLEMS)


def test_a_training_plan_repeats_each_drawn_problem_and_numbers_positions() -> None:
    plan = plan_training_batch(PROBLEMS, episodes=5, samples_per_problem=2, seed=3, step=0)
    assert [p.position for p in plan] == [0, 1, 2, 3, 4]
    assert plan[0].problem_id == plan[1].problem_id != plan[2].problem_id
    assert plan == plan_training_batch(PROBLEMS, episodes=5, samples_per_problem=2, seed=3, step=0)
    assert len({p.seed for p in plan}) == 5


def test_steps_change_seeds_and_evaluations_do_not_depend_on_the_policy() -> None:
    assert episode_seed(0, 0, 0) != episode_seed(0, 1, 0)
    plan = plan_evaluation(PROBLEMS, 2, seed=1)
    assert len(plan) == 14
    assert plan == plan_evaluation(PROBLEMS, 2, seed=1)


def test_an_empty_split_is_refused() -> None:
    with pytest.raises(ValueError, match="no problem"):
        plan_training_batch([], 4, 1, 0, 0)
