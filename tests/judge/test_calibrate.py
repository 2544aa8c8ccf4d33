"""A problem whose tolerance cannot tell a trivial answer from the right one is not judged."""

import pytest
import torch

from cuda_agent.judge.calibrate import fault
from cuda_agent.judge.values import Packed, pack


def draw(seed: int) -> torch.Tensor:
    return torch.randn(64, 32, generator=torch.Generator().manual_seed(seed))


def cases(forward: object) -> tuple[list[Packed], list[Packed]]:
    inputs = [draw(seed) for seed in (1, 2)]
    return [pack([x]) for x in inputs], [pack(forward(x)) for x in inputs]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (lambda x: torch.tanh(x), ""),
        (lambda x: x.sum(-1), ""),
        (lambda x: (x.argmax(-1), torch.exp(x)), ""),
        (lambda x: torch.relu(x) * 0, "zeros"),
        (lambda x: torch.full_like(x, 3.0), "one constant"),
        (lambda x: torch.arange(64.0) + 0 * x.sum(), "to other inputs"),
        (lambda x: x.clone(), "a copy of an input"),
        (lambda x: 3.0, "no tensor"),
    ],
)
def test_trivial_answers_make_a_problem_invalid(forward: object, words: str) -> None:
    found = fault(*cases(forward))
    assert words in found and bool(found) == bool(words)
