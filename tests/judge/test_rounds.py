"""What a call is charged, by what its process admits and by what the judge's clock found."""

import random
import statistics

import pytest

from cuda_agent.judge.rounds import Turn, milliseconds, overheads, ratio_interval, ratios

TRUE, COUNT, BESIDES = 100_000, 16, 300_000  # nanoseconds of a call, calls of a batch, nanoseconds besides them


def test_interval_encloses_the_median_and_shrinks() -> None:
    few, many = [0.9, 1.0, 1.1] * 5, [0.99, 1.0, 1.01] * 200
    assert ratio_interval(few) == (0.9, 1.1)
    assert ratio_interval(many) == (1.0, 1.0)
    assert ratio_interval([1.0]) == (1.0, 1.0)


def batches(seed: int, rounds: int = 30, *, claimed: float = 1.0, noise: float = 100_000.0, saved: float = 0.0) -> list[Turn]:
    """Of a process that admits a share of the truth; the clock's noise is now and then a long wait."""
    chance, made = random.Random(seed), []
    for _ in range(rounds):
        took = TRUE * COUNT * chance.uniform(0.98, 1.02)
        wait = chance.gauss(0, noise) + (3_000_000 if chance.random() < 0.05 else 0)
        made.append(Turn(int(claimed * took), int(took + BESIDES + wait - saved), COUNT))
    return made


def ratio(mine: list[Turn], eager: list[Turn]) -> float:
    usual = overheads(eager, 0)
    return statistics.median(ratios(milliseconds(mine, usual), milliseconds(eager, usual)))


@pytest.mark.parametrize("seed", range(20))
def test_the_clocks_noise_costs_an_honest_process_nothing(seed: int) -> None:
    assert ratio(batches(seed), batches(seed + 100)) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("claimed", [0.0, 0.5, 0.8, 0.9])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_not_admitted_is_charged_all_the_same(seed: int, claimed: float) -> None:
    assert ratio(batches(seed, claimed=claimed), batches(seed + 100)) > 0.96


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("every", [2, 5])
def test_what_is_admitted_in_some_rounds_excuses_no_other(seed: int, every: int) -> None:
    """Nothing is admitted but in every second or fifth round, and all that was missing there."""
    missing, turns = 0, []
    for number, turn in enumerate(batches(seed)):
        missing += turn.admitted
        told = missing if number % every == every - 1 else 1
        turns.append(Turn(told, turn.wall, turn.calls))
        missing -= told
    assert ratio(turns, batches(seed + 100)) > 0.96


@pytest.mark.parametrize("seed", range(5))
def test_a_busy_host_gives_nothing_to_who_admits_nothing(seed: int) -> None:
    """Waits of the length of the whole batch, in every third."""
    chance = random.Random(seed)

    def busy(turns: list[Turn]) -> list[Turn]:
        return [turn._replace(wall=turn.wall + TRUE * COUNT * (chance.random() < 0.33)) for turn in turns]

    assert ratio(busy(batches(seed, claimed=0.0)), busy(batches(seed + 100))) > 0.88


def test_longer_batches_have_an_overhead_of_their_own() -> None:
    assert overheads([Turn(2, 5, 1), Turn(2, 6, 1), Turn(2, 9, 1), Turn(4, 24, 2)], 1) == {1: 4, 2: 20}
    assert overheads([Turn(2, 5, 1)], 7) == {1: 7}


def test_a_gap_smaller_than_eagers_pays_nothing_back() -> None:
    assert ratio(batches(1, saved=200_000), batches(2)) > 0.96


def test_no_time_at_all_is_a_number_still() -> None:
    none, eager = [Turn(0, 0, 1)] * 3, [Turn(1_000, 1_000, 1)] * 3
    assert 0 < ratio(none, eager) < 0.01
