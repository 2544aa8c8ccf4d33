"""A problem whose tolerance cannot tell a trivial answer from the right one is not judged."""

import pytest
import torch

from cuda_agent.judge.calibrate import fault, weakness
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
        (lambda x: torch.tanh(x) / x.roll(1), "half precision"),
        (lambda x: torch.relu(x), ""),
        (lambda x: torch.tanh(x).double(), ""),
        (lambda x: torch.tanh(x).double() / x.roll(1).double() ** 3, "half precision"),
        (lambda x: torch.softmax(x, -1), ""),
        (lambda x: 3.0, "no tensor"),
    ],
)
def test_trivial_answers_make_a_problem_invalid(forward: object, words: str) -> None:
    found = fault(*cases(forward))
    assert words in found and bool(found) == bool(words)


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (lambda x: torch.tanh(x), ""),
        (lambda x: (x.argmax(-1), torch.exp(x)), ""),
        (lambda x: (torch.exp(x), x.mean()), ""),
        (lambda x: x.sum(), "one constant passes"),
        (lambda x: (torch.tanh(x), torch.ones_like(x)), "one constant passes for output 1"),
        (lambda x: {"a": torch.tanh(x), "b": x}, "a copy of an input passes for output 1"),
        (lambda x: (torch.tanh(x), torch.arange(64)), "to other inputs passes for output 1"),
        (lambda x: x.mean(0, keepdim=True).expand(64, 32) + 0.0, "the mean row passes"),
        (lambda x: torch.tanh(x).to(torch.bfloat16), ""),
        (lambda x: torch.fft.fft(x), ""),
    ],
)
def test_weakness_asks_each_output_and_whether_rows_differ(forward: object, words: str) -> None:
    found = weakness(*cases(forward))
    assert words in found and bool(found) == bool(words)


def test_an_empty_output_cannot_be_judged() -> None:
    assert "zeros" in fault(*cases(lambda x: x[:0]))
