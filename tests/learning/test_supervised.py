"""Schedules, batches, and learning from given answers in process."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from cuda_agent.config import BasePolicyScience, RftScience
from cuda_agent.learning.episodes import EpisodeTensors, TokenLayout, write_episodes
from cuda_agent.learning.job import PretrainJob, RftJob
from cuda_agent.learning.session import Session
from cuda_agent.learning.supervised import endless, learning_rate, mean_reward, pretrain, rft, shuffled


def test_the_rate_rises_over_the_warmup_and_falls_to_its_final_share() -> None:
    rates = [learning_rate(step, 12, 1.0, 0.15, 0.1, "linear") for step in range(12)]
    assert rates[:3] == pytest.approx([0.5, 1.0, 1.0])
    assert rates[-1] == pytest.approx(0.1)
    assert rates[2:] == sorted(rates[2:], reverse=True)


def test_the_cosine_is_halfway_in_the_middle_and_constant_stays() -> None:
    assert learning_rate(5, 11, 2.0, 0.0, 0.0, "cosine") == pytest.approx(1.0)
    assert learning_rate(10, 11, 2.0, 0.0, 0.0, "constant") == 2.0


def test_batches_cover_everything_once_and_follow_the_seed() -> None:
    parts = shuffled(10, 4, (1, 2))
    assert sorted(i for part in parts for i in part) == list(range(10))
    assert sorted(len(part) for part in parts) == [3, 3, 4]
    assert parts == shuffled(10, 4, (1, 2)) and parts != shuffled(10, 4, (1, 3))


def test_endless_batches_go_through_all_before_any_returns() -> None:
    first = [i for batch in islice(endless(7, 3, 0), 7) for i in batch]
    assert [sorted(first[start : start + 7]) for start in (0, 7, 14)] == [list(range(7))] * 3


@pytest.mark.parametrize("kind", ["pretrain", "rft"])
def test_supervised_jobs_make_the_given_answers_likely(
    kind: str, policy: Path, tmp_path: Path, bandit: Callable[[int], list[EpisodeTensors]]
) -> None:
    episodes = [episode for episode in bandit(8) if episode.reward > 0]
    write_episodes(tmp_path / "e.npz", episodes)
    common = {"actor": policy, "episodes": tmp_path / "e.npz", "output": tmp_path / "out"}
    if kind == "pretrain":
        job: PretrainJob | RftJob = PretrainJob(science=BasePolicyScience(steps=30, batch=4, rate=1e-2), **common)
    else:
        job = RftJob(science=RftScience(epochs=30, batch=4, rate=1e-2), **common)
    session = Session(job)
    (pretrain if isinstance(job, PretrainJob) else rft)(session, job, None)
    layout = TokenLayout.of(episodes)
    logprob, _ = session.logprobs(session.batches(episodes, layout, range(len(episodes)))[0])
    assert logprob[::2].exp().min() > 0.9  # the first choice, token 7


def test_mean_reward_leaves_out_demonstrations(bandit: Callable[[int], list[EpisodeTensors]]) -> None:
    assert mean_reward(bandit(4)) == 0.0
    assert mean_reward([]) is None
