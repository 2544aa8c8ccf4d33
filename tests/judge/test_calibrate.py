"""A problem whose tolerance cannot tell a trivial answer from the right one is not judged."""

from collections.abc import Callable

import pytest
import torch

from cuda_agent.judge.calibrate import fault, weakness
from cuda_agent.judge.compare import Exact
from cuda_agent.judge.exactness import exact
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
        (lambda x: torch.cat([1e3 * torch.tanh(x[:, :28]), torch.sigmoid(x[:, 28:])], 1), "rows or columns in half precision"),
        (lambda x: torch.cat([1e3 * torch.tanh(x[:56]), torch.sigmoid(x[56:])]), "rows or columns in half precision"),
        (lambda x: torch.nn.functional.pad(torch.tanh(x), (8, 8)), ""),
        (lambda x: torch.tanh(x).cumsum(0), ""),
        (lambda x: torch.tanh(x) ** 2, ""),
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


def layers(scale: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Two layers; what the first one's rounding does to the answer is `scale` times what it would be."""
    generator = torch.Generator().manual_seed(5)
    first, second = (torch.randn(32, 32, generator=generator) / 32**0.5 for _ in range(2))
    return lambda x: torch.sin(scale * (x @ first.to(x.dtype))) @ second.to(x.dtype)


@pytest.mark.parametrize(("scale", "invalid"), [(1.0, False), (10.0, False), (1_000.0, True)])
def test_rounding_that_hides_half_precision_makes_a_problem_invalid(scale: float, invalid: bool) -> None:
    """As it would hide a second layer in half precision, behind a first one whose rounding is magnified."""
    forward = layers(scale)
    inputs, outputs = cases(forward)
    known = exact(lambda: Layers(forward), [draw(1)])
    assert known is not None
    told = Exact(*map(pack, known))
    assert not fault(inputs, outputs)
    for found in (fault(inputs, outputs, told), weakness(inputs, outputs, told)):
        assert ("half precision" in found) == invalid, found


class Layers(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def test_one_other_answer_that_happens_to_be_near_is_no_fault() -> None:
    inputs, outputs = cases(torch.tanh)
    near = pack(torch.tanh(draw(1)) * (1 + 1e-7))
    assert "other inputs" in fault(inputs, [outputs[0], near])
    assert not fault(inputs, [outputs[0], near, outputs[1]])


def test_a_minority_that_rounding_frees_is_asked_of_by_itself() -> None:
    """As one that lies behind small differences of large numbers, beside what is exact."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.tanh(x), 0.1 * (x[:, 1:12] + 1e5 - x[:, :11] - 1e5)], 1)

    inputs, outputs = cases(forward)
    truth, slack = forward(draw(1)).double(), torch.zeros(64, 43)
    slack[:, 32:] = 10.0
    assert not fault(inputs, outputs)
    assert "where rounding hides" in fault(inputs, outputs, Exact(pack(truth), pack(slack)))
    slack[:, 33:] = 0.0
    assert not fault(inputs, outputs, Exact(pack(truth), pack(slack))), "they are few"
