"""How far right answers may be from exact ones, on problems whose rounding is known."""

from collections.abc import Callable

import pytest
import torch

from cuda_agent.judge.compare import Exact, difference
from cuda_agent.judge.exactness import exact
from cuda_agent.judge.values import pack


class Module(torch.nn.Module):
    def __init__(self, forward: Callable[..., object], weights: tuple[int, ...] = ()) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.weight = torch.nn.Parameter(torch.randn(weights) / 16)
        self.function = forward

    def forward(self, *inputs: torch.Tensor) -> object:
        return self.function(*inputs, self.weight) if self.weight.dim() else self.function(*inputs)


def found(
    forward: Callable[..., object], *inputs: torch.Tensor, weights: tuple[int, ...] = ()
) -> tuple[torch.Tensor, torch.Tensor]:
    told = exact(lambda: Module(forward, weights), list(inputs))
    assert told is not None
    truth, slack = told
    assert truth.dtype == torch.float64 and slack.dtype == torch.float32 and slack.shape == truth.shape
    return truth, slack


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def rounded(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x @ weight * 256.0).round() / 256.0


def test_a_long_sums_slack_is_far_below_the_tolerance_and_never_nothing() -> None:
    truth, slack = found(lambda x, w: x @ w, drawn(64, 256), weights=(256, 128))
    assert float(slack.max()) < 0.3 * 1e-4 * float(truth.std()) and float(slack.min()) > 0


def test_elements_near_a_jump_may_be_on_either_side_and_others_not() -> None:
    x, weight = drawn(256, 256), Module(rounded, (256, 512)).weight.detach()
    _truth, slack = found(rounded, x, weights=(256, 512))
    before = x.double() @ weight.double() * 256.0
    close = ((before - before.floor()) - 0.5).abs() < 1e-5
    assert int(close.sum()) > 0 and bool((slack[close] >= 1 / 256).all())
    assert float((slack > 1e-4).float().mean()) < 0.02


def test_another_order_of_summation_before_a_jump_passes_and_half_precision_does_not() -> None:
    x, weight = drawn(256, 1024), Module(rounded, (1024, 512)).weight.detach()
    truth, slack = found(rounded, x, weights=(1024, 512))
    known = Exact(pack(truth), pack(slack))
    other = sum((x[:, start : start + 8] @ weight[start : start + 8] for start in range(0, 1024, 8)), torch.zeros(256, 512))
    other = (other * 256.0).round() / 256.0
    reference = rounded(x, weight)
    assert int((other != reference).sum()) > 3, "they differ in some jumps"
    assert difference(pack(reference), pack(other)) != ""
    assert difference(pack(reference), pack(other), known) == ""
    coarse = x.to(torch.bfloat16).float() @ weight.to(torch.bfloat16).float()
    assert difference(pack(reference), pack(coarse), known) != ""


def test_one_elements_jump_frees_no_other_one() -> None:
    x = torch.full((4_096,), 0.3)
    x[7] = 1.0 + 2**-22  # next to where the remainder begins anew
    _truth, slack = found(lambda one: torch.remainder(one, 1.0), x)
    assert float(slack[7]) > 0.5 and float(slack[torch.arange(4_096) != 7].max()) < 1e-5


@pytest.mark.parametrize("values", [[0.5, 1.5, 2.5, -0.5], [0.0, 1.0, 2.0, 3.0], [7.0, 0.25, 12.0, 100.0]])
def test_short_numbers_are_meant_exactly(values: list[float]) -> None:
    _, slack = found(lambda x: torch.floor(x) + (x > 0.5), torch.tensor(values * 50))
    assert float(slack.max()) == 0.0


def test_half_precision_moves_by_its_own_units() -> None:
    x = drawn(64, 64).to(torch.bfloat16)
    truth, slack = found(lambda one: one * 3, x)
    part = slack[truth.abs() > 1] / truth[truth.abs() > 1].abs()
    assert 2**-9 < float(part.median()) < 2**-4


def test_integers_have_slack_only_where_rounding_decides_and_structures_are_kept() -> None:
    x = drawn(8, 16)
    x[3, 5] = x[3, 9] = 7.1
    x[3, 9] += 1e-6
    told = exact(lambda: Module(lambda x: {"at": x.argmax(-1), "top": (x.amax(-1),), "over": x > 0.3}), [x])
    assert told is not None
    truth, slack = told
    assert truth["at"].dtype == torch.int64 and slack["at"].tolist() == [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert truth["over"].dtype == torch.bool and float(slack["over"].sum()) == 0.0
    assert truth["top"][0].dtype == torch.float64 and slack["top"][0].shape == (8,)
    reference = pack(x.argmax(-1))
    other = pack(torch.where(torch.arange(8) == 3, 5, x.argmax(-1)))
    known = Exact(pack(truth["at"]), pack(slack["at"]))
    assert difference(reference, other) != "" and difference(reference, other, known) == ""
    assert difference(reference, pack(x.argmax(-1).roll(1)), known) != ""


def test_inputs_that_are_changed_in_place_are_left_alone() -> None:
    x = drawn(8, 16)
    kept = x.clone()
    truth, _ = found(lambda one: one.mul_(2.0), x)
    assert torch.equal(x, kept) and torch.allclose(truth, 2 * kept.double())


def test_what_refuses_pushed_inputs_has_the_slack_of_its_own_rounding() -> None:
    x = drawn(32, 64).softmax(-1)

    def picky(one: torch.Tensor) -> torch.Tensor:
        assert torch.equal(one.float(), x), "not what was drawn"
        return one.log()

    _, slack = found(picky, x)
    assert 0.0 < float(slack.max()) < 1e-5


def test_what_does_not_run_in_float64_has_none() -> None:
    def narrow(one: torch.Tensor) -> torch.Tensor:
        assert one.dtype == torch.float32
        return one + 1

    assert exact(lambda: Module(narrow), [drawn(4)]) is None


def test_poles_and_infinities_give_no_endless_slack() -> None:
    x = torch.tensor([0.0, 1e-30, 0.3, -1.0] * 8)
    _, slack = found(lambda one: 1 / one, x)
    assert bool(slack.isfinite().all())
