"""The jobs that learn from given answers: pretraining on demonstrations, and rejection fine-tuning."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from cuda_agent.learning.channel import Channel
from cuda_agent.learning.episodes import EpisodeTensors, MicroBatch, TokenLayout, read_episodes
from cuda_agent.learning.job import PretrainJob, RftJob
from cuda_agent.learning.meter import Meter, Pace
from cuda_agent.learning.rft import sft_loss
from cuda_agent.learning.session import Session


def learning_rate(step: int, steps: int, peak: float, warmup_share: float, final_share: float, schedule: str) -> float:
    """Rate of step 0..steps-1: rises linearly over the warm-up, then falls to `final_share` of the peak by the last step.

    `schedule` is the form of the fall: cosine, linear or constant (no fall).
    """
    warmup = math.ceil(steps * warmup_share)
    if step < warmup:
        return peak * (step + 1) / warmup
    if schedule == "constant":
        return peak
    done = (step - warmup) / max(1, steps - 1 - warmup)
    left = 1.0 - done if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return peak * (final_share + (1.0 - final_share) * left)


def shuffled(count: int, size: int, seed: Sequence[int]) -> list[list[int]]:
    """A permutation of 0..count-1 by `seed`, cut into batches of nearly equal size, none larger than `size`."""
    order = np.random.default_rng(list(seed)).permutation(count)
    return [[int(i) for i in part] for part in np.array_split(order, -(-count // size))]


def endless(count: int, size: int, seed: int) -> Iterator[list[int]]:
    """Batches of `size` indexes (fewer if there are fewer episodes), epoch after epoch, each in a new order."""
    rng = np.random.default_rng(seed)
    waiting: list[int] = []
    size = min(size, count)
    while True:
        while len(waiting) < size:
            waiting += [int(i) for i in rng.permutation(count)]
        yield waiting[:size]
        waiting = waiting[size:]


class Supervised:
    """Steps of supervised learning of the session's actor on one file's episodes."""

    def __init__(self, session: Session, episodes: Sequence[EpisodeTensors], max_grad_norm: float) -> None:
        self.session = session
        self.episodes = episodes
        self.layout = TokenLayout.of(episodes)
        self.max_grad_norm = max_grad_norm

    def step(self, indexes: list[int], *meters: Meter, rate: float | None = None) -> None:
        """One optimiser step on the episodes at `indexes`, counted in each meter as loss (nats per token) and grad_norm."""
        session = self.session
        assert session.actor is not None
        policy_tokens = int(self.layout.counts[indexes].sum())
        batches = session.batches(self.episodes, self.layout, indexes)

        def loss(batch: MicroBatch) -> Tensor:
            logprob, _ = session.logprobs(batch)
            return sft_loss(logprob, torch.full_like(logprob, 0.0 if batch.ghost else 1.0 / policy_tokens))

        (total,) = session.total(session.actor.backward(loss, batches))
        norm = session.actor.update(self.max_grad_norm, rate)
        for meter in meters:
            meter.add(sum(self.episodes[i].length for i in indexes), policy_tokens, loss=total, grad_norm=norm)


def pretrain(session: Session, job: PretrainJob, channel: Channel | None) -> None:
    """Supervised learning on demonstrations; `progress` events and one `metrics` event at the end, for step 1."""
    science = job.science
    episodes = read_episodes(job.episodes)
    session.train_actor(job.actor, science.rate)
    session.announce(channel)
    learner = Supervised(session, episodes, job.max_grad_norm)
    whole, recent, pace = Meter(), Meter(), Pace(job.progress_seconds)
    for step, indexes in zip(range(science.steps), endless(len(episodes), science.batch, science.seed), strict=False):
        rate = learning_rate(step, science.steps, science.rate, job.warmup_share, job.final_rate_share, job.schedule)
        learner.step(indexes, whole, recent, rate=rate)
        if channel and (pace.due() or step == science.steps - 1):
            channel.send("progress", step=step + 1, steps=science.steps, rate=rate, **recent.metrics())
            recent = Meter()
    if channel:
        channel.send("metrics", step=1, metrics={**whole.metrics(), "episodes": len(episodes)})


def rft(session: Session, job: RftJob, channel: Channel | None) -> None:
    """Supervised learning on the policy's own tokens; a `metrics` event per epoch (step = epoch, from 1)."""
    science = job.science
    episodes = read_episodes(job.episodes)
    session.train_actor(job.actor, science.rate)
    session.announce(channel)
    learner, pace = Supervised(session, episodes, science.max_grad_norm), Pace(job.progress_seconds)
    for epoch in range(1, science.epochs + 1):
        meter = Meter()
        parts = shuffled(len(episodes), science.batch, (science.seed, epoch))
        for i, indexes in enumerate(parts):
            learner.step(indexes, meter)
            if channel and pace.due():
                channel.send("progress", epoch=epoch, step=i + 1, steps=len(parts), **meter.metrics())
        if channel:
            metrics = {**meter.metrics(), "episodes": len(episodes), "mean_reward": mean_reward(episodes)}
            channel.send("metrics", step=epoch, metrics=metrics)


def mean_reward(episodes: Sequence[EpisodeTensors]) -> float | None:
    """Mean over the episodes that have a reward; None if none has."""
    rewards = [episode.reward for episode in episodes if math.isfinite(episode.reward)]
    return sum(rewards) / len(rewards) if rewards else None
