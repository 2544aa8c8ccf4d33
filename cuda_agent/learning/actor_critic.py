"""The jobs that learn from rewards: critic pretraining, and a step of PPO (paper section 3.3).

A step of PPO first scores the whole batch with the weights that sampled it: those log-probs (the trainer's own, not the
engine's) are the denominator of the ratio, so that a difference of engines never looks like a change of policy; how
far the two are apart is reported, and beyond `max_logprob_gap` nothing is trained. Arrays called flat hold one
element per policy token of the whole batch (`episodes.TokenLayout`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cuda_agent.config import PpoScience
from cuda_agent.errors import LearningError
from cuda_agent.learning import gae, ppo
from cuda_agent.learning.channel import Channel
from cuda_agent.learning.episodes import EpisodeTensors, MicroBatch, TokenLayout, read_episodes, require_rewards
from cuda_agent.learning.job import CriticJob
from cuda_agent.learning.meter import Meter, Pace
from cuda_agent.learning.session import Session
from cuda_agent.learning.supervised import shuffled


def pad(flat: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Flat policy tokens of trajectories with `counts` tokens each, as [trajectories, most tokens], and the mask."""
    mask = torch.arange(int(counts.max()), device=flat.device)[None, :] < counts[:, None]
    padded = torch.zeros(mask.shape, dtype=flat.dtype, device=flat.device)
    padded[mask] = flat
    return padded, mask


def flat_gae(values: Tensor, counts: Tensor, rewards: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """`gae.gae` on flat policy tokens: advantages and targets, both flat."""
    padded, mask = pad(values, counts)
    advantages, targets = gae.gae(padded, mask, rewards, gamma, lam)
    return advantages[mask], targets[mask]


def flat_outcomes(counts: Tensor, rewards: Tensor, gamma: float) -> Tensor:
    """`gae.discounted_outcomes` for flat policy tokens."""
    _, mask = pad(torch.zeros(int(counts.sum()), device=counts.device), counts)
    return gae.discounted_outcomes(mask, rewards, gamma)[mask]


@dataclass(frozen=True, eq=False)
class Rewarded:
    """Judged episodes with the arrays that every pass over them needs, on the device."""

    episodes: Sequence[EpisodeTensors]
    layout: TokenLayout
    counts: Tensor  # int64 [episodes], policy tokens
    rewards: Tensor  # float32 [episodes]

    @classmethod
    def read(cls, path: Path, session: Session) -> "Rewarded":
        """Read a file of judged episodes.

        Raises:
            LearningError: the file is unusable, or an episode has no reward.
        """
        episodes = read_episodes(path)
        require_rewards(episodes)
        layout = TokenLayout.of(episodes)
        rewards = np.array([episode.reward for episode in episodes], np.float32)
        return cls(episodes, layout, session.tensor(layout.counts), session.tensor(rewards))

    def empty(self) -> Tensor:
        """A flat array of zeros."""
        return torch.zeros(self.layout.total, device=self.rewards.device)

    def tokens(self, indexes: Sequence[int]) -> int:
        """Unpadded tokens of the episodes at `indexes`."""
        return sum(self.episodes[i].length for i in indexes)

    def weights(self, indexes: Sequence[int]) -> Tensor:
        """Flat weights for a mini-batch of these episodes (`ppo.trajectory_weights`); 0 at all other episodes."""
        weights = self.empty()
        flat = torch.from_numpy(self.layout.indexes(indexes)).to(weights.device)
        weights[flat] = ppo.trajectory_weights(self.counts[torch.as_tensor(indexes, device=weights.device)])
        return weights


# --- critic pretraining ------------------------------------------------------------------------------------------------


def train_critic(session: Session, job: CriticJob, channel: Channel | None) -> None:
    """Fit the critic to its lambda-returns; a `metrics` event per epoch (step = epoch, from 1).

    The target V + A of equation 4 is taken with the critic's weights of the very moment, in the pass that also trains
    it: outcomes then travel to early tokens within an epoch, and there is no second pass. An epoch's explained variance
    is over its own passes, so it describes the critic during the epoch; after the last one, all is scored once more.
    """
    science = job.science
    data = Rewarded.read(job.episodes, session)
    session.train_critic(job.critic or job.actor, science.rate)
    session.announce(channel)
    pace = Pace(job.progress_seconds)
    for epoch in range(1, science.epochs + 1):
        meter, seen = Meter(), data.empty()
        parts = shuffled(len(data.episodes), science.batch, (science.seed, epoch))
        for i, indexes in enumerate(parts):
            _critic_step(session, job, data, indexes, seen, meter)
            if channel and pace.due():
                channel.send("progress", epoch=epoch, step=i + 1, steps=len(parts), **meter.metrics())
        values = session.merge(seen) if epoch < science.epochs else score(session, data)["values"]
        metrics = {**meter.metrics(), **critic_metrics(data, values, science.gamma, science.lam)}
        if channel:
            channel.send("metrics", step=epoch, metrics=metrics)


def _critic_step(session: Session, job: CriticJob, data: Rewarded, indexes: list[int], seen: Tensor, meter: Meter) -> None:
    """One optimiser step; puts the values it saw into the flat array `seen`."""
    assert session.critic is not None
    weights = data.weights(indexes)
    batches = session.batches(data.episodes, data.layout, indexes)

    def loss(batch: MicroBatch) -> Tensor:
        rows, flat = torch.as_tensor(batch.episodes, device=seen.device), session.tensor(batch.flat)
        values = session.values(batch)
        _, targets = flat_gae(values.detach(), data.counts[rows], data.rewards[rows], job.science.gamma, job.science.lam)
        if not batch.ghost:
            seen[flat] = values.detach()
        return ppo.value_loss(values, targets, weights[flat] * (not batch.ghost))

    (total,) = session.total(session.critic.backward(loss, batches))
    norm = session.critic.update(job.science.max_grad_norm)
    meter.add(data.tokens(indexes), int(data.layout.counts[indexes].sum()), critic_loss=total, critic_grad_norm=norm)


def critic_metrics(data: Rewarded, values: Tensor, gamma: float, lam: float) -> dict[str, Any]:
    """How well flat values explain the returns: against equation 4's targets, and against the outcomes themselves."""
    _, targets = flat_gae(values, data.counts, data.rewards, gamma, lam)
    return {
        "explained_variance": gae.explained_variance(values, targets),
        "explained_variance_outcome": gae.explained_variance(values, flat_outcomes(data.counts, data.rewards, gamma)),
        "mean_value": float(values.mean()),
        "mean_reward": float(data.rewards.mean()),
        "episodes": len(data.episodes),
    }


# --- PPO ---------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def score(session: Session, data: Rewarded) -> dict[str, Tensor]:
    """Flat arrays over all episodes: `values` if there is a critic; `logprobs` and `entropy` if there is an actor."""
    names = ([] if session.critic is None else ["values"]) + ([] if session.actor is None else ["logprobs", "entropy"])
    flat = {name: data.empty() for name in names}
    for batch in session.batches(data.episodes, data.layout, range(len(data.episodes))):
        found: dict[str, Tensor | None] = {}
        if session.critic is not None:
            found["values"] = session.values(batch)
        if session.actor is not None:
            found["logprobs"], found["entropy"] = session.logprobs(batch, entropy=True)
        if not batch.ghost:
            for name, tensor in found.items():
                assert tensor is not None
                flat[name][session.tensor(batch.flat)] = tensor.float()
    return {name: session.merge(tensor) for name, tensor in flat.items()}


@dataclass(frozen=True, eq=False)
class Step:
    """The flat arrays that stay fixed during a step of PPO."""

    old_logprobs: Tensor
    advantages: Tensor
    targets: Tensor


def engine_logprobs(data: Rewarded) -> Tensor:
    """The engine's log-probs of the policy tokens, flat."""
    parts = [episode.logprob[episode.mask.astype(bool)] for episode in data.episodes]
    return torch.from_numpy(np.concatenate(parts)).to(data.rewards.device)


def ppo_step(session: Session, science: PpoScience, path: Path, step: int) -> dict[str, Any]:
    """One step of PPO on the rollout batch in `path`: `epochs` passes in mini-batches of trajectories.

    `step` counts from 0; the first `critic_only_steps` leave the actor as it is.

    Returns:
        Metrics: losses, approx_kl, clip_fraction and gradient norms are means over the optimiser steps (the actor's only
        where it was trained); entropy, log-prob gap, explained variance, values and rewards describe the batch before
        the first one.

    Raises:
        LearningError: unusable episodes, trainer and engine disagree, or gradients that are not finite.
    """
    meter = Meter()
    data = Rewarded.read(path, session)
    before = score(session, data)
    gap_mean, gap_max = ppo.logprob_gap(before["logprobs"], engine_logprobs(data))
    if not gap_mean <= science.max_logprob_gap:
        raise LearningError(
            f"step {step}: log-probs of trainer and engine differ by {gap_mean:.3g} on average (allowed "
            f"{science.max_logprob_gap:g}); check that the engine serves the same weights, template and temperature 1"
        )
    advantages, targets = flat_gae(before["values"], data.counts, data.rewards, science.gamma, science.lam)
    used = gae.whiten(advantages[None], torch.ones_like(advantages)[None])[0] if science.normalise_advantages else advantages
    fixed = Step(before["logprobs"], used, targets)
    for epoch in range(science.epochs):
        for indexes in shuffled(len(data.episodes), science.minibatch, (science.seed, step, epoch)):
            weights, batches = data.weights(indexes), session.batches(data.episodes, data.layout, indexes)
            found = {} if step < science.critic_only_steps else _actor_update(session, science, fixed, weights, batches)
            found |= _critic_update(session, science, fixed, weights, batches)
            meter.add(data.tokens(indexes), int(data.layout.counts[indexes].sum()), **found)
    return {
        **meter.metrics(),
        **critic_metrics(data, before["values"], science.gamma, science.lam),
        "entropy": float(before["entropy"].mean()),
        "logprob_gap": gap_mean,
        "logprob_gap_max": gap_max,
        "mean_advantage": float(advantages.mean()),
        "reward_deviation": float(data.rewards.std(unbiased=False)),
        "positive_share": float((data.rewards > 0).float().mean()),
    }


def _actor_update(
    session: Session, science: PpoScience, fixed: Step, weights: Tensor, batches: Sequence[MicroBatch]
) -> dict[str, float]:
    """One optimiser step of the actor on a mini-batch with flat `weights`; returns its metrics."""
    assert session.actor is not None
    clip = (science.clip_low, science.clip_high)
    sums = torch.zeros(2, device=weights.device)  # approximate KL, clip fraction

    def loss(batch: MicroBatch) -> Tensor:
        flat = session.tensor(batch.flat)
        old, advantage, weight = fixed.old_logprobs[flat], fixed.advantages[flat], weights[flat] * (not batch.ghost)
        logprob, _ = session.logprobs(batch)
        new = logprob.detach()
        sums.add_(torch.stack([ppo.approx_kl(new, old, weight), ppo.clip_fraction(new, old, advantage, weight, *clip)]))
        return ppo.clipped_surrogate(logprob, old, advantage, weight, *clip)

    own = session.actor.backward(loss, batches)
    norm = session.actor.update(science.max_grad_norm)
    totals = session.total(own, *(float(number) for number in sums))
    return dict(zip(("actor_loss", "approx_kl", "clip_fraction"), totals, strict=True)) | {"actor_grad_norm": norm}


def _critic_update(
    session: Session, science: PpoScience, fixed: Step, weights: Tensor, batches: Sequence[MicroBatch]
) -> dict[str, float]:
    """One optimiser step of the critic on a mini-batch with flat `weights`; returns its metrics."""
    assert session.critic is not None

    def loss(batch: MicroBatch) -> Tensor:
        flat = session.tensor(batch.flat)
        return ppo.value_loss(session.values(batch), fixed.targets[flat], weights[flat] * (not batch.ghost))

    own = session.critic.backward(loss, batches)
    norm = session.critic.update(science.max_grad_norm)
    (total,) = session.total(own)
    return {"critic_loss": total, "critic_grad_norm": norm}
