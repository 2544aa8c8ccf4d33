"""Episodes as the trainer reads them: token arrays, one file for many, and packing into bounded micro-batches.

Imports no torch, so that stages write episode files in their own process. A file is an uncompressed npz of flat arrays
with offsets (ragged, no pickles), written beside its final name and renamed. Every episode read or written is valid:
equal lengths, at least one policy token, and none at position 0 (there is nothing to predict it from).
"""

import itertools
import os
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuda_agent.errors import LearningError


@dataclass(frozen=True, eq=False)
class EpisodeTensors:
    """One trajectory over its final context; the arrays have equal lengths.

    Attributes:
        token_id: int32, all tokens of prompts, answers and tool output.
        logprob: float32, the engine's log-prob of each policy token; 0 elsewhere (and everywhere for demonstrations).
        mask: uint8, 1 at the policy's own tokens, end of turn included.
        reward: outcome reward; not a number where nothing was judged (demonstrations), which PPO and critic refuse.
        rollout_id: id of the stored rollout, for messages; may be empty.
    """

    token_id: NDArray[np.int32]
    logprob: NDArray[np.float32]
    mask: NDArray[np.uint8]
    reward: float
    rollout_id: str = ""

    @property
    def length(self) -> int:
        """Tokens in all."""
        return len(self.token_id)

    @property
    def policy_tokens(self) -> int:
        """Tokens that the policy wrote."""
        return int(np.count_nonzero(self.mask))


def check_episode(episode: EpisodeTensors) -> None:
    """Refuse an episode that no loss can be computed on.

    Raises:
        LearningError: unequal lengths, no policy token, or one at position 0.
    """
    name = f"episode {episode.rollout_id or '(unnamed)'}"
    if not len(episode.token_id) == len(episode.logprob) == len(episode.mask):
        raise LearningError(f"{name} has token, log-prob and mask arrays of unequal lengths; store all three over one context")
    if episode.policy_tokens == 0:
        raise LearningError(f"{name} has no token of the policy's own; leave it out of the training batch")
    if episode.mask[0]:
        raise LearningError(f"{name} begins with a policy token, which nothing predicts; put a prompt before it")


def require_rewards(episodes: Sequence[EpisodeTensors]) -> None:
    """Refuse episodes without an outcome reward (infrastructure errors, demonstrations).

    Raises:
        LearningError: a reward is not finite.
    """
    for episode in episodes:
        if not np.isfinite(episode.reward):
            raise LearningError(
                f"episode {episode.rollout_id or '(unnamed)'} has no reward; only judged rollouts train by reward"
            )


def _joined(arrays: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.zeros(0, dtype)


def write_episodes(path: Path, episodes: Iterable[EpisodeTensors]) -> None:
    """Write episodes to one file, whole or not at all.

    Raises:
        LearningError: there is no episode, or one of them is not usable (see `check_episode`).
    """
    kept = list(episodes)
    if not kept:
        raise LearningError(f"no episodes to write to {path.name}; the batch has no usable trajectory")
    for episode in kept:
        check_episode(episode)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        np.savez(
            file,
            offsets=np.cumsum([0, *(episode.length for episode in kept)]),
            token_id=_joined([episode.token_id for episode in kept], "<i4"),
            logprob=_joined([episode.logprob for episode in kept], "<f4"),
            mask=_joined([episode.mask for episode in kept], "u1"),
            reward=np.array([episode.reward for episode in kept], "<f8"),
            rollout_id=np.array([episode.rollout_id for episode in kept], dtype=np.str_),
        )
    os.replace(partial, path)


def read_episodes(path: Path) -> list[EpisodeTensors]:
    """Read what `write_episodes` wrote.

    Raises:
        LearningError: the file is missing, is no episode file, or holds an unusable episode.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            data = {name: file[name] for name in ("offsets", "token_id", "logprob", "mask", "reward", "rollout_id")}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise LearningError(f"episode file {path} cannot be read ({error}); write it with write_episodes") from error
    offsets = data["offsets"]
    episodes = []
    for i, (start, end) in enumerate(itertools.pairwise(offsets)):
        token_id, logprob, mask = (data[name][start:end] for name in ("token_id", "logprob", "mask"))
        episode = EpisodeTensors(token_id, logprob, mask, float(data["reward"][i]), str(data["rollout_id"][i]))
        check_episode(episode)
        episodes.append(episode)
    return episodes


# --- micro-batches -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TokenLayout:
    """Where each episode's policy tokens lie in flat arrays over a whole batch.

    `counts` [episodes] policy tokens each; `offsets` [episodes + 1]: those of episode i are offsets[i]:offsets[i + 1].
    """

    counts: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, episodes: Sequence[EpisodeTensors]) -> "TokenLayout":
        """The layout of a batch."""
        counts = np.array([episode.policy_tokens for episode in episodes], np.int64)
        return cls(counts, np.concatenate([[0], np.cumsum(counts)]))

    @property
    def total(self) -> int:
        """Policy tokens of the whole batch."""
        return int(self.offsets[-1])

    def indexes(self, episodes: Sequence[int]) -> NDArray[np.int64]:
        """Flat indexes of the policy tokens of these episodes, in the order given."""
        parts = [np.arange(self.offsets[i], self.offsets[i + 1]) for i in episodes]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """Episodes padded together, with the places of their policy tokens.

    Attributes:
        episodes: index of each row's episode in the batch.
        token_id: int64 [rows, tokens], padded with 0 on the right: under causal attention padding there changes
            nothing before it, so no attention mask is needed (and the fast attention paths stay open).
        source: int64 [policy tokens], place (row * tokens + column) of the token *before* each policy token, whose
            hidden state predicts it.
        target: int64 [policy tokens], the policy tokens.
        flat: int64 [policy tokens], their indexes in the batch's flat arrays (`TokenLayout`).
        ghost: true for a filler that keeps processes in step: it is computed, weighs nothing, and reports nothing.
    """

    episodes: tuple[int, ...]
    token_id: NDArray[np.int64]
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    flat: NDArray[np.int64]
    ghost: bool = False


def pack(lengths: Sequence[int], indexes: Sequence[int], micro_tokens: int) -> list[list[int]]:
    """Group `indexes` so that rows x longest length stays within `micro_tokens`; lengths are looked up by index.

    Sorted by length, so that little is padded. An episode longer than the bound gets a group of its own.
    """
    groups: list[list[int]] = []
    for index in sorted(indexes, key=lambda i: (-lengths[i], i)):
        if groups and lengths[groups[-1][0]] * (len(groups[-1]) + 1) <= micro_tokens:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def collate(episodes: Sequence[EpisodeTensors], layout: TokenLayout, rows: Sequence[int], ghost: bool = False) -> MicroBatch:
    """Pad the episodes at `rows` (indexes into `episodes`) into one micro-batch."""
    width = max(episodes[i].length for i in rows)
    token_id = np.zeros((len(rows), width), np.int64)
    source, target = [], []
    for row, i in enumerate(rows):
        episode = episodes[i]
        token_id[row, : episode.length] = episode.token_id
        places = np.flatnonzero(episode.mask)
        source.append(row * width + places - 1)
        target.append(episode.token_id[places].astype(np.int64))
    return MicroBatch(tuple(rows), token_id, np.concatenate(source), np.concatenate(target), layout.indexes(rows), ghost)


def micro_batches(
    episodes: Sequence[EpisodeTensors],
    layout: TokenLayout,
    indexes: Sequence[int],
    micro_tokens: int,
    processes: int = 1,
    rank: int = 0,
) -> list[MicroBatch]:
    """This process's micro-batches for the episodes at `indexes`; every process gets equally many.

    All processes compute the same grouping and take every n-th group; a process left without one repeats the shortest
    group as a ghost, because sharded models need as many forward passes everywhere.
    """
    groups = pack([episode.length for episode in episodes], indexes, micro_tokens)
    rounds = -(-len(groups) // processes)
    mine = [(groups[i], False) if i < len(groups) else (groups[-1][:1], True) for i in range(rank, rounds * processes, processes)]
    return [collate(episodes, layout, rows, ghost) for rows, ghost in mine]
