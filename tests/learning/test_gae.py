"""Advantages by hand, and what must not matter to them."""

import pytest
import torch
from torch import Tensor

from cuda_agent.learning.gae import discounted_outcomes, explained_variance, gae, whiten


def rows(*values: list[float]) -> Tensor:
    return torch.tensor(values)


def test_two_actions_with_tool_output_between_match_the_hand_computation() -> None:
    values, mask = rows([9.0, 0.5, 9.0, 0.2, 9.0]), rows([0, 1, 0, 1, 0])
    advantages, targets = gae(values, mask, torch.tensor([1.0]), gamma=1.0, lam=0.95)
    # last action: 1 - 0.2 = 0.8; first: (0.2 - 0.5) + 0.95 * 0.8 = 0.46
    assert advantages[0].tolist() == pytest.approx([0, 0.46, 0, 0.8, 0])
    assert targets[0].tolist() == pytest.approx([0, 0.96, 0, 1.0, 0])


def test_discount_counts_actions_and_not_tool_output() -> None:
    values, mask = rows([0.5, 9.0, 9.0, 9.0, 0.2]), rows([1, 0, 0, 0, 1])
    advantages, _ = gae(values, mask, torch.tensor([1.0]), gamma=0.5, lam=0.5)
    # last: 0.8; first: 0.5 * 0.2 - 0.5 + 0.25 * 0.8 = -0.2, however long the tool output between them
    assert advantages[0].tolist() == pytest.approx([-0.2, 0, 0, 0, 0.8])


def test_masked_tokens_change_nothing() -> None:
    torch.manual_seed(0)
    values = torch.randn(3, 40)
    mask = (torch.rand(3, 40) < 0.4).float()
    mask[:, -3] = 1
    rewards = torch.tensor([3.0, -1.0, 0.0])
    whole, _ = gae(values, mask, rewards, 0.97, 0.9)
    for row in range(3):
        own = mask[row].bool()
        alone, _ = gae(values[row, own][None], torch.ones(1, int(own.sum())), rewards[row : row + 1], 0.97, 0.9)
        assert torch.allclose(whole[row, own], alone[0])
        assert whole[row, ~own].abs().sum() == 0


def test_lambda_one_gives_outcome_minus_value() -> None:
    advantages, targets = gae(rows([0.3, 0.1, 0.6]), rows([1, 1, 1]), torch.tensor([2.0]), 1.0, 1.0)
    assert advantages[0].tolist() == pytest.approx([1.7, 1.9, 1.4])
    assert targets[0].tolist() == pytest.approx([2.0, 2.0, 2.0])


def test_lambda_zero_gives_temporal_differences() -> None:
    advantages, _ = gae(rows([0.3, 0.1, 0.6]), rows([1, 1, 1]), torch.tensor([2.0]), 1.0, 0.0)
    assert advantages[0].tolist() == pytest.approx([-0.2, 0.5, 1.4])


def test_outcomes_are_discounted_by_actions_still_to_come() -> None:
    found = discounted_outcomes(rows([0, 1, 0, 1, 1]), torch.tensor([2.0]), 0.5)
    assert found[0].tolist() == pytest.approx([0, 0.5, 0, 1.0, 2.0])


def test_explained_variance_of_perfect_constant_and_wrong_values() -> None:
    targets = torch.tensor([1.0, 3.0])
    assert explained_variance(targets, targets) == pytest.approx(1.0)
    assert explained_variance(torch.tensor([7.0, 7.0]), targets) == pytest.approx(0.0)
    assert explained_variance(torch.tensor([3.0, 1.0]), targets) == pytest.approx(-3.0)


def test_explained_variance_is_undefined_when_all_end_alike() -> None:
    assert explained_variance(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 3.0])) is None


def test_whitened_advantages_have_mean_zero_and_deviation_one_over_actions() -> None:
    white = whiten(rows([5.0, 1.0, 3.0]), rows([0, 1, 1]))
    assert white[0].tolist() == pytest.approx([0, -1, 1], abs=1e-6)
