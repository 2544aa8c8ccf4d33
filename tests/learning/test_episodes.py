"""Episode files and packing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuda_agent.errors import LearningError
from cuda_agent.learning.episodes import (
    EpisodeTensors,
    TokenLayout,
    collate,
    micro_batches,
    pack,
    read_episodes,
    require_rewards,
    write_episodes,
)


def episode(token_id: list[int], mask: list[int], reward: float = 1.0, name: str = "r") -> EpisodeTensors:
    return EpisodeTensors(np.array(token_id, np.int32), -0.5 * np.array(mask, np.float32), np.array(mask, np.uint8), reward, name)


FIRST = episode([5, 6, 7, 8], [0, 1, 0, 1], 3.0, "first")
SECOND = episode([9, 10], [0, 1], float("nan"), "second")


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    write_episodes(tmp_path / "e.npz", [FIRST, SECOND])
    found = read_episodes(tmp_path / "e.npz")
    assert [e.rollout_id for e in found] == ["first", "second"]
    assert found[0].reward == 3.0 and np.isnan(found[1].reward)
    for name in ("token_id", "logprob", "mask"):
        assert np.array_equal(getattr(found[0], name), getattr(FIRST, name))
        assert getattr(found[0], name).dtype == getattr(FIRST, name).dtype
    assert [path.name for path in tmp_path.iterdir()] == ["e.npz"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (replace(FIRST, mask=FIRST.mask[:2]), "unequal lengths"),
        (episode([1, 2], [0, 0]), "no token of the policy's own"),
        (episode([1, 2], [1, 1]), "begins with a policy token"),
    ],
)
def test_unusable_episodes_are_refused(tmp_path: Path, bad: EpisodeTensors, reason: str) -> None:
    with pytest.raises(LearningError, match=reason):
        write_episodes(tmp_path / "e.npz", [bad])


def test_an_empty_batch_a_missing_file_and_rubbish_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LearningError, match="no usable trajectory"):
        write_episodes(tmp_path / "e.npz", [])
    with pytest.raises(LearningError, match="cannot be read"):
        read_episodes(tmp_path / "none.npz")
    (tmp_path / "rubbish.npz").write_bytes(b"rubbish")
    with pytest.raises(LearningError, match="cannot be read"):
        read_episodes(tmp_path / "rubbish.npz")


def test_a_missing_reward_is_named() -> None:
    with pytest.raises(LearningError, match="episode second has no reward"):
        require_rewards([FIRST, SECOND])


def test_collate_points_before_each_policy_token() -> None:
    layout = TokenLayout.of([FIRST, SECOND])
    batch = collate([FIRST, SECOND], layout, [1, 0])
    assert batch.token_id.tolist() == [[9, 10, 0, 0], [5, 6, 7, 8]]
    assert batch.source.tolist() == [0, 4, 6]
    assert batch.target.tolist() == [10, 6, 8]
    assert batch.flat.tolist() == [2, 0, 1]
    assert batch.token_id.reshape(-1)[batch.source].tolist() == [9, 5, 7]


@given(st.lists(st.integers(2, 300), min_size=1, max_size=60), st.integers(256, 2_000))
def test_groups_hold_each_episode_once_within_the_bound(lengths: list[int], bound: int) -> None:
    groups = pack(lengths, range(len(lengths)), bound)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[i] for i in group) <= bound


@given(st.integers(1, 12), st.integers(1, 5))
def test_processes_get_equally_many_batches_and_share_the_episodes(count: int, processes: int) -> None:
    episodes = [episode([1] * (3 + i), [0] + [1] * (2 + i)) for i in range(count)]
    layout = TokenLayout.of(episodes)
    dealt = [micro_batches(episodes, layout, range(count), 20, processes, rank) for rank in range(processes)]
    assert len({len(batches) for batches in dealt}) == 1
    real = [index for batches in dealt for batch in batches if not batch.ghost for index in batch.episodes]
    assert sorted(real) == list(range(count))
