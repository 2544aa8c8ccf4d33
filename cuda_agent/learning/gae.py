"""Generalised advantage estimation over the policy's own tokens, and how well a critic explains the returns.

The recursion runs over policy tokens only: tokens of prompts and tool output are skipped, as if the trajectory held
nothing else. They are no actions, so no temporal difference belongs to them, and a discount or lambda < 1 must not
depend on how much a tool printed; from one action the next state is the one in which the policy samples again.
Rewards are zero except for the outcome reward at the last policy token, after which the value is 0 (paper section 3.3).
"""

import torch
from torch import Tensor


def gae(values: Tensor, mask: Tensor, rewards: Tensor, gamma: float = 1.0, lam: float = 0.95) -> tuple[Tensor, Tensor]:
    """Advantages and value targets (paper equation 3, and V_targ of equation 4).

    With s the next policy token after t: delta_t = r_t + gamma V_s - V_t and A_t = delta_t + gamma lam A_s; behind the
    last policy token V and A are 0, and r is the outcome reward there and 0 before.

    Args:
        values: V of the state in which each token was sampled, [batch, tokens]; ignored where the mask is 0.
        mask: 1 (or true) at the policy's own tokens, [batch, tokens].
        rewards: outcome reward of each trajectory, [batch].
        gamma: discount per policy token.
        lam: lambda of GAE.

    Returns:
        Advantages and targets (advantage + value), both [batch, tokens] and 0 where the mask is 0.
    """
    own = mask.to(torch.bool)
    advantages = torch.zeros_like(values)
    next_value = torch.zeros_like(rewards, dtype=values.dtype)
    next_advantage = torch.zeros_like(next_value)
    pending = rewards.to(values.dtype)  # the outcome, until the last policy token has taken it
    for t in range(values.shape[1] - 1, -1, -1):
        here = own[:, t]
        delta = pending + gamma * next_value - values[:, t]
        advantage = delta + gamma * lam * next_advantage
        advantages[:, t] = torch.where(here, advantage, advantages[:, t])
        next_value = torch.where(here, values[:, t], next_value)
        next_advantage = torch.where(here, advantage, next_advantage)
        pending = torch.where(here, torch.zeros_like(pending), pending)
    return advantages, (advantages + values) * own


def discounted_outcomes(mask: Tensor, rewards: Tensor, gamma: float = 1.0) -> Tensor:
    """The return from each policy token on, [batch, tokens]: gamma^(policy tokens still to come) times the outcome."""
    own = mask.to(torch.bool)
    to_come = own.flip(1).cumsum(1).flip(1) - 1
    return torch.where(own, rewards[:, None] * gamma ** to_come.clamp(min=0).to(rewards.dtype), torch.zeros(()))


def explained_variance(values: Tensor, targets: Tensor) -> float | None:
    """1 - Var(targets - values) / Var(targets) over all elements; 1 is perfect, 0 is no better than a constant.

    Returns:
        None where the targets do not vary (all trajectories ended alike): the share is undefined there.
    """
    spread = targets.var(unbiased=False)
    if targets.numel() == 0 or spread <= 1e-12:
        return None
    return float(1.0 - (targets - values).var(unbiased=False) / spread)


def whiten(advantages: Tensor, mask: Tensor) -> Tensor:
    """Advantages shifted and scaled to mean 0 and deviation 1 over the policy tokens; 0 elsewhere, same shape."""
    own = mask.to(torch.bool)
    inside = advantages[own]
    return torch.where(own, (advantages - inside.mean()) / (inside.std(unbiased=False) + 1e-8), torch.zeros(()))
