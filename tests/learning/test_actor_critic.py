"""PPO and critic pretraining on a tiny policy, in process."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cuda_agent.config import CriticScience, PpoScience
from cuda_agent.errors import LearningError
from cuda_agent.learning.actor_critic import Rewarded, flat_gae, ppo_step, score, train_critic
from cuda_agent.learning.episodes import EpisodeTensors, write_episodes
from cuda_agent.learning.job import CriticJob, PpoJob
from cuda_agent.learning.session import Session

Bandit = Callable[[int], list[EpisodeTensors]]
SCIENCE = PpoScience(
    actor_rate=3e-3, critic_rate=3e-3, minibatch=4, max_logprob_gap=9.0
)  # a batch is reused, so the engine's log-probs age


def open_session(policy: Path, science: PpoScience = SCIENCE, resume: Path | None = None) -> Session:
    session = Session(PpoJob(actor=policy, science=science))
    session.train_actor(policy, science.actor_rate)
    session.train_critic(policy, science.critic_rate)
    if resume is not None:
        session.resume(resume)
    return session


@pytest.fixture
def file(tmp_path: Path, bandit: Bandit) -> Path:
    write_episodes(tmp_path / "episodes.npz", bandit(8))
    return tmp_path / "episodes.npz"


def first_choices(session: Session, file: Path) -> torch.Tensor:
    """Probability of each episode's first choice under the current policy, [episodes]."""
    return score(session, Rewarded.read(file, session))["logprobs"][::2].exp()


def test_flat_gae_keeps_trajectories_apart() -> None:
    values, counts = torch.tensor([0.5, 0.2, 0.1]), torch.tensor([2, 1])
    advantages, targets = flat_gae(values, counts, torch.tensor([1.0, -1.0]), 1.0, 0.95)
    assert advantages.tolist() == pytest.approx([0.46, 0.8, -1.1])
    assert targets.tolist() == pytest.approx([0.96, 1.0, -1.0])


def test_ppo_makes_rewarded_choices_likelier_and_others_less_so(policy: Path, file: Path) -> None:
    session = open_session(policy)
    before = first_choices(session, file)
    for step in range(1, 7):
        metrics = ppo_step(session, SCIENCE, file, step)
    after = first_choices(session, file)
    assert (after[1::2] > 2 * before[1::2]).all()
    assert after[::2].mean() < before[::2].mean()
    assert metrics["mean_reward"] == 0.0 and metrics["positive_share"] == 0.5
    assert metrics["approx_kl"] > 0 and math.isfinite(metrics["actor_loss"])


def test_critic_only_steps_leave_the_actor_as_it_is(policy: Path, file: Path) -> None:
    science = SCIENCE.model_copy(update={"critic_only_steps": 1})
    session = open_session(policy, science)
    before = first_choices(session, file)
    metrics = ppo_step(session, science, file, 0)
    assert torch.equal(first_choices(session, file), before)
    assert metrics["critic_grad_norm"] > 0 and "actor_loss" not in metrics
    ppo_step(session, science, file, 1)
    assert not torch.equal(first_choices(session, file), before)


def test_the_first_update_of_a_step_is_on_policy(policy: Path, file: Path) -> None:
    science = SCIENCE.model_copy(update={"minibatch": 64})
    metrics = ppo_step(open_session(policy, science), science, file, 1)
    assert metrics["updates"] == 1
    assert metrics["approx_kl"] == pytest.approx(0.0, abs=1e-6) and metrics["clip_fraction"] == 0
    # V = 0: lambda-returns are r * 0.95 and r, so per trajectory the mean advantage is 0.975 r; rewards average 0
    assert metrics["actor_loss"] == pytest.approx(0.0, abs=1e-4)
    assert metrics["critic_loss"] == pytest.approx(0.5 * (0.95**2 + 1) / 2, rel=1e-4)
    assert metrics["entropy"] == pytest.approx(math.log(32), rel=0.02)


@pytest.mark.parametrize("micro_tokens", [256, 16_384])
def test_micro_batches_do_not_change_the_gradient(policy: Path, tmp_path: Path, bandit: Bandit, micro_tokens: int) -> None:
    long = [replace(e, **{n: np.tile(getattr(e, n), 9) for n in ("token_id", "logprob", "mask")}) for e in bandit(8)]
    write_episodes(tmp_path / "long.npz", long)
    science = SCIENCE.model_copy(update={"minibatch": 64})
    session = open_session(policy, science)
    job = session.job
    session.job = job.model_copy(update={"execution": job.execution.model_copy(update={"micro_tokens": micro_tokens})})
    metrics = ppo_step(session, science, tmp_path / "long.npz", 1)
    assert metrics["actor_grad_norm"] == pytest.approx(_whole_batch_norm(policy, long), rel=1e-3)


def _whole_batch_norm(policy: Path, episodes: list[EpisodeTensors]) -> float:
    """The actor's gradient norm at ratio 1 and V = 0, straight from the definition and one trajectory at a time."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(policy)
    for episode in episodes:
        ids = torch.from_numpy(episode.token_id.astype(np.int64))[None]
        places = np.flatnonzero(episode.mask)
        logprobs = model(ids).logits[0].log_softmax(-1)[places - 1, ids[0, places]]
        advantages = torch.tensor([episode.reward * 0.95 ** (len(places) - 1 - i) for i in range(len(places))])
        (-(logprobs * advantages).mean() / len(episodes)).backward()
    return float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9))


def test_a_trainer_that_disagrees_with_the_engine_trains_nothing(policy: Path, tmp_path: Path, bandit: Bandit) -> None:
    write_episodes(tmp_path / "e.npz", [replace(e, logprob=e.logprob * 2) for e in bandit(4)])
    session, science = open_session(policy), SCIENCE.model_copy(update={"max_logprob_gap": 0.5})
    before = [p.detach().clone() for p in session.actor.model.parameters()]
    with pytest.raises(LearningError, match=r"step 3: log-probs of trainer and engine differ by 3\.4"):
        ppo_step(session, science, tmp_path / "e.npz", 3)
    assert all(torch.equal(a, b) for a, b in zip(before, session.actor.model.parameters(), strict=True))


def test_critic_pretraining_explains_the_outcomes(policy: Path, tmp_path: Path, file: Path) -> None:
    events: list[dict[str, Any]] = []

    class Heard:
        def send(self, event: str, **fields: Any) -> None:
            events.append({"event": event, **fields})

    job = CriticJob(actor=policy, episodes=file, output=tmp_path / "out", science=CriticScience(epochs=25, batch=4, rate=3e-3))
    train_critic(Session(job), job, Heard())  # type: ignore[arg-type]
    curve = [event["metrics"]["explained_variance"] for event in events if event["event"] == "metrics"]
    assert len(curve) == 25
    assert curve[0] < 0.3 < curve[-1]
    # the state before the first choice is the same for all, so at most about half of the variance can be explained
    assert events[-1]["metrics"]["explained_variance_outcome"] > 0.3


def test_resuming_gives_the_very_parameters_of_an_uninterrupted_run(policy: Path, tmp_path: Path, file: Path) -> None:
    whole = open_session(policy)
    ppo_step(whole, SCIENCE, file, 1)
    digests = whole.save(tmp_path / "step1", resumable=True)
    assert set(digests) == {"actor", "critic", "state"}
    expected = ppo_step(whole, SCIENCE, file, 2)
    resumed = open_session(policy, resume=tmp_path / "step1")
    found = ppo_step(resumed, SCIENCE, file, 2)
    for part in ("actor", "critic"):
        pairs = zip(getattr(whole, part).model.parameters(), getattr(resumed, part).model.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    assert found["actor_loss"] == expected["actor_loss"]


def test_a_checkpoint_of_a_batch_job_cannot_be_resumed_from(policy: Path, tmp_path: Path) -> None:
    session = open_session(policy)
    session.save(tmp_path / "c", resumable=False)
    with pytest.raises(LearningError, match="holds no trainer state"):
        session.resume(tmp_path / "c")
