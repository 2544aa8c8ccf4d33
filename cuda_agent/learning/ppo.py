"""The losses and diagnostics of PPO (paper section 3.3, equations 4 and 5), on flat arrays of policy tokens.

Everything here takes one element per policy token, [tokens], the tokens of several trajectories one behind the other;
tokens that are not the policy's never get here. `weight` carries the paper's averaging: 1/T over a trajectory's own T
policy tokens, then the mean over trajectories. A weighted sum over any part of a batch is that part's share of the
batch's loss, so micro-batches and devices add up to the same gradient as one big batch.
"""

import torch
from torch import Tensor


def trajectory_weights(counts: Tensor) -> Tensor:
    """Weight of each policy token, [sum of counts], for trajectories with `counts` [trajectories] policy tokens.

    Each token of trajectory i weighs 1 / (counts[i] * trajectories), so the weights of a batch sum to 1.
    """
    return torch.repeat_interleave(1.0 / (counts.to(torch.float32) * counts.numel()), counts)


def clipped_surrogate(
    logprob: Tensor, old_logprob: Tensor, advantage: Tensor, weight: Tensor, clip_low: float = 0.2, clip_high: float = 0.28
) -> Tensor:
    """The actor's loss: -sum w min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A), a scalar (equation 5, negated).

    rho = exp(logprob - old_logprob). The clip range is the same for both signs of the advantage, as in the paper.
    """
    ratio = torch.exp(logprob - old_logprob)
    clipped = torch.clamp(ratio, 1.0 - clip_low, 1.0 + clip_high)
    return -(weight * torch.minimum(ratio * advantage, clipped * advantage)).sum()


def value_loss(value: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """The critic's loss: sum w (V - V_targ)^2 / 2, a scalar (equation 4; no clipping of the value)."""
    return (weight * 0.5 * (value - target) ** 2).sum()


def approx_kl(logprob: Tensor, old_logprob: Tensor, weight: Tensor) -> Tensor:
    """Estimate of KL(old || new) from the old policy's samples: sum w ((rho - 1) - log rho), a scalar >= 0.

    Schulman's third estimator ("Approximating KL divergence", 2020): unbiased, and of low variance near rho = 1.
    """
    log_ratio = logprob - old_logprob
    return (weight * (torch.expm1(log_ratio) - log_ratio)).sum()


def clip_fraction(
    logprob: Tensor, old_logprob: Tensor, advantage: Tensor, weight: Tensor, clip_low: float = 0.2, clip_high: float = 0.28
) -> Tensor:
    """Weighted share of tokens whose gradient the clip cuts off, a scalar in 0..1.

    The minimum picks the clipped (constant) branch above 1 + clip_high for A > 0 and below 1 - clip_low for A < 0.
    """
    ratio = torch.exp(logprob - old_logprob)
    cut = ((ratio > 1.0 + clip_high) & (advantage > 0)) | ((ratio < 1.0 - clip_low) & (advantage < 0))
    return (weight * cut).sum()


def logprob_gap(trainer: Tensor, engine: Tensor) -> tuple[float, float]:
    """Mean and largest |log-prob of the trainer - of the engine| over policy tokens.

    Both score the same tokens under the same weights, so a gap is a difference of kernels or precision, or a fault
    (other weights, other template, other temperature). The paper's collapse begins here (section 3.3).
    """
    gap = (trainer - engine).abs()
    return (float(gap.mean()), float(gap.max())) if gap.numel() else (0.0, 0.0)
