"""The losses by hand."""

import math

import pytest
import torch

from cuda_agent.learning import ppo


def surrogate(ratio: float, advantage: float) -> tuple[float, float]:
    """Loss of one token of weight 1, and its gradient by the log-prob."""
    logprob = torch.tensor([math.log(ratio)], requires_grad=True)
    loss = ppo.clipped_surrogate(logprob, torch.zeros(1), torch.tensor([advantage]), torch.ones(1))
    loss.backward()
    assert logprob.grad is not None
    return loss.item(), logprob.grad.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.25, 2.0, -2.5, -2.5),  # within 1.28, where a symmetric 0.2 would have cut
        (1.5, 2.0, -2.56, 0.0),  # cut at 1.28
        (0.5, 2.0, -1.0, -1.0),  # below the range, but worse: not cut
        (0.5, -1.0, 0.8, 0.0),  # cut at 0.8
        (1.5, -1.0, 1.5, 1.5),  # above the range, but worse: not cut
    ],
)
def test_clipped_surrogate(ratio: float, advantage: float, loss: float, gradient: float) -> None:
    assert surrogate(ratio, advantage) == (pytest.approx(loss, rel=1e-5), pytest.approx(gradient, rel=1e-5))


def test_each_trajectory_weighs_the_same_whatever_its_length() -> None:
    weights = ppo.trajectory_weights(torch.tensor([1, 4]))
    assert weights.tolist() == pytest.approx([0.5, 0.125, 0.125, 0.125, 0.125])


def test_parts_of_a_batch_add_up_to_the_loss_of_the_batch() -> None:
    torch.manual_seed(1)
    counts = torch.tensor([3, 5, 2])
    weight, new, old, advantage = ppo.trajectory_weights(counts), *torch.randn(3, 10)
    whole = ppo.clipped_surrogate(new, old, advantage, weight)
    parts = [ppo.clipped_surrogate(new[s], old[s], advantage[s], weight[s]) for s in (slice(0, 3), slice(3, 10))]
    per_trajectory = [-(t.minimum(c)).mean() for t, c in _terms(new, old, advantage, counts)]
    assert sum(parts).item() == pytest.approx(whole.item(), rel=1e-5)
    assert torch.stack(per_trajectory).mean().item() == pytest.approx(whole.item(), rel=1e-5)


def _terms(
    new: torch.Tensor, old: torch.Tensor, advantage: torch.Tensor, counts: torch.Tensor
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Unclipped and clipped terms of equation 5, trajectory by trajectory."""
    ratio = (new - old).exp()
    sizes = counts.tolist()
    return list(zip((ratio * advantage).split(sizes), (ratio.clamp(0.8, 1.28) * advantage).split(sizes), strict=True))


def test_value_loss_is_half_the_weighted_squared_error() -> None:
    loss = ppo.value_loss(torch.tensor([1.0, 2.0, 0.0]), torch.tensor([2.0, 2.0, 3.0]), torch.tensor([0.5, 0.25, 0.25]))
    assert loss.item() == pytest.approx(0.5 * (0.5 * 1 + 0.25 * 9))


def test_approx_kl_is_zero_for_equal_policies_and_positive_otherwise() -> None:
    weight = torch.tensor([0.5, 0.5])
    assert ppo.approx_kl(torch.tensor([-1.0, -2.0]), torch.tensor([-1.0, -2.0]), weight).item() == 0
    found = ppo.approx_kl(torch.log(torch.tensor([0.5, 0.25])), torch.log(torch.tensor([0.25, 0.5])), weight)
    assert found.item() == pytest.approx(0.5 * (2 - 1 - math.log(2)) + 0.5 * (0.5 - 1 + math.log(2)))


def test_clip_fraction_counts_only_tokens_without_gradient() -> None:
    ratios, advantages = torch.tensor([1.5, 0.5, 0.5, 1.5]), torch.tensor([1.0, -1.0, 1.0, -1.0])
    found = ppo.clip_fraction(ratios.log(), torch.zeros(4), advantages, torch.full((4,), 0.25))
    assert found.item() == pytest.approx(0.5)


def test_logprob_gap_is_mean_and_largest_difference() -> None:
    mean, largest = ppo.logprob_gap(torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -2.1]))
    assert (mean, largest) == (pytest.approx(0.3), pytest.approx(0.5))
