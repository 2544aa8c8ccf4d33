"""The rounds of a timing: how many, how long, and the clock that must add up."""

import os
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from cuda_agent.config import JudgeConfig
from cuda_agent.judge.rounds import Account
from cuda_agent.judge.timing import LONGER, MAX_BATCH, Answered, Times, measure


@pytest.mark.parametrize(
    ("unaccounted", "usual", "admitted", "forged"),
    [
        (10_000, 0, 2_000_000, False),  # loop overhead
        (900_000, 0, 2_000_000, False),  # within 0.5 ms and a quarter
        (1_100_000, 0, 2_000_000, True),
        (6_000_000, 7_000_000, 2_000_000, False),  # a busy host: the baselines waited as long
        (27_000_000, 7_000_000, 63, True),
    ],
)
def test_clock(unaccounted: int, usual: int, admitted: int, forged: bool) -> None:
    times = Times(1.0, 1.0, None, 15, {}, (), unaccounted, usual, admitted)
    assert times.forged is forged


class Told:
    """A runner whose child claims `times(n)` nanoseconds a call for its n-th batch; the judge's clock saw `wall(n)`."""

    def __init__(self, times: Callable[[int], int], wall: Callable[[int], int]) -> None:
        self.times, self.wall, self.batches = times, wall, list[int]()
        self.form: Sequence[Any] = ()
        self.child = SimpleNamespace(freeze=lambda: None, hasten=lambda cores: None, relax=lambda: None, dismiss=lambda: None)
        self.ring = SimpleNamespace(
            room=MAX_BATCH, take=lambda count: list(range(count)), refresh=lambda number: None, is_endless=True
        )

    def account(self) -> Account:
        return Account(0, 0, 0)

    def stand_ready(self) -> None:
        pass

    def ask(self, which: int, sets: Sequence[int]) -> Answered:
        number = len(self.batches)
        self.batches.append(len(sets))
        return Answered([self.times(number)] * len(sets), [], 100_000 + self.wall(number) * len(sets))


def timed(candidate: Told, baseline: Told, **settings: Any) -> Times:
    config = JudgeConfig(**{"timing_seconds": 60.0, **settings})
    return measure(candidate, baseline, compiles=False, config=config)  # type: ignore[arg-type]


def test_claiming_no_time_at_all_costs_what_the_judges_clock_saw() -> None:
    times = timed(Told(lambda n: 0, lambda n: 1_000_000), Told(lambda n: 1_000_000, lambda n: 1_000_000))
    assert times.forged and times.eager_ms / times.candidate_ms == pytest.approx(1.0)


def test_timing_leaves_the_threads_priority_as_it_was() -> None:
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    timed(Told(lambda n: 1_000, lambda n: 1_000), Told(lambda n: 1_000, lambda n: 1_000))
    assert os.getpriority(os.PRIO_PROCESS, 0) == usual


def test_taking_no_time_on_either_clock_is_a_number_still() -> None:
    times = timed(Told(lambda n: 0, lambda n: 0), Told(lambda n: 1_000, lambda n: 1_000))
    assert 0 < times.candidate_ms < times.eager_ms


def test_a_close_call_gets_longer_batches_until_the_last_round() -> None:
    def near(number: int) -> int:
        return 950_000 + (1_000 if number % 2 else -1_000)

    candidate, baseline = Told(near, near), Told(lambda n: 1_000_000, lambda n: 1_000_000)
    assert timed(candidate, baseline, max_repetitions=4 * LONGER).rounds == 4 * LONGER
    assert [count for number, count in enumerate(candidate.batches[1:]) if number % LONGER == 0] == [2, 4, 8, 16]


def test_precision_goes_on_when_the_step_is_clear() -> None:
    def noisy(number: int) -> int:
        return 500_000 + 50_000 * (number % 3 - 1)

    def rounds(**settings: Any) -> int:
        return timed(Told(noisy, noisy), Told(lambda n: 1_000_000, lambda n: 1_000_000), max_repetitions=30, **settings).rounds

    assert rounds() == 15 and rounds(precision=0.01) == 30


def test_a_speed_that_comes_and_goes_for_all_does_not_show_in_the_ratio() -> None:
    """Slow from some round on, in which one of the two has had its turn already."""

    def now(number: int) -> int:
        return 1_000_000 if len(candidate.batches) < 20 else 2_000_000

    candidate = Told(now, now)
    times = timed(candidate, Told(now, now), min_repetitions=39)
    assert times.rounds == 39 and times.eager_ms / times.candidate_ms == pytest.approx(1.0)


def test_what_fresh_inputs_are_made_from_is_drawn_anew_unless_that_takes_long() -> None:
    quick, slow = _renewals(0.0), _renewals(0.3)
    assert len(quick) == 20 and quick[0] == 2 and max(quick) == 4
    assert 2 <= len(slow) <= 8


def test_no_draw_serves_two_rounds_where_answers_could_be_kept_or_solved_for() -> None:
    quick, slow = _renewals(0.0, endless=False), _renewals(0.06, endless=False)
    assert len(quick) == len(slow) == 20 + 1, "the first one tells how long that takes"
    assert max(quick[1:]) == 4 and 1 < max(slow[1:]) < 4
    assert set(_renewals(0.3, endless=False)[1:]) == {1}


def _renewals(seconds: float, *, endless: bool = True) -> list[int]:
    """For how many calls inputs were drawn, each time, in twenty rounds, where two draws take so long."""
    counts: list[int] = []

    def renew(count: int) -> None:
        counts.append(count)
        time.sleep(seconds)

    pair = [Told(lambda n: 1_000_000, lambda n: 1_000_000) for _ in range(2)]
    for one in pair:
        one.ring.is_endless = endless
    config = JudgeConfig(timing_seconds=60.0, min_repetitions=20, max_repetitions=20)
    measure(*pair, compiles=False, config=config, renew=renew)  # type: ignore[arg-type]
    return counts
