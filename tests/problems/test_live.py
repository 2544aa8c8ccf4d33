"""Whether an answer that came again is the same one, summed in another order, or another one; what a sample sees of one."""

import numpy as np
import pytest
import torch

from cuda_agent.problems.live import FINE, alike, reordered, sample

GENERATOR = torch.Generator().manual_seed(7)
NUMBERS = torch.randn(64, 1024, generator=GENERATOR)
PLACES = torch.randint(0, 64, (4096,), generator=GENERATOR)
ROWS = torch.randn(4096, 256, generator=GENERATOR)


def summed(order: torch.Tensor) -> torch.Tensor:
    """Rows added onto their places in an order, as a GPU's atomics do."""
    return torch.zeros(64, 256).index_add(0, PLACES[order], ROWS[order])


def test_sums_in_another_order_are_the_same_answer() -> None:
    one, other = (summed(torch.randperm(4096, generator=GENERATOR)) for _ in range(2))
    assert not torch.equal(one, other) and reordered([one], [other])


def test_a_last_bit_of_a_narrow_type_is_no_other_answer() -> None:
    sums = NUMBERS.double() + 1e-6 * torch.randn(64, 1024, generator=GENERATOR)
    one, other = NUMBERS.double().half(), sums.half()
    assert not torch.equal(one, other) and reordered({"y": one}, {"y": other})


def test_a_few_other_elements_are_another_answer() -> None:
    other = NUMBERS.clone()
    other[3, :2] = other[3, :2].flip(0) + 1
    assert not reordered(NUMBERS, other)
    assert not reordered(NUMBERS, NUMBERS + 1e-3 * torch.randn(64, 1024, generator=GENERATOR))
    assert not reordered((NUMBERS, PLACES), (NUMBERS, PLACES.roll(1)))
    assert not reordered(NUMBERS, NUMBERS[:32])


def test_equal_answers_and_empty_ones_are_the_same() -> None:
    assert reordered([NUMBERS, PLACES, torch.zeros(0)], [NUMBERS.clone(), PLACES.clone(), torch.zeros(0)])
    assert reordered(torch.ones(8), torch.ones(8))


@pytest.mark.parametrize("every", [2, 4, 16])
@pytest.mark.parametrize("at", [0, 1])
def test_a_sample_sees_what_stands_in_every_so_many_places(every: int, at: int) -> None:
    """As a transposed convolution with strides leaves its answer."""
    value = torch.zeros(16, 4, 262_145)
    value[..., at::every] = torch.randn(value[..., at::every].shape, generator=GENERATOR)
    array = sample(value, FINE)[3]
    assert array.size <= FINE and 0.5 / every < np.count_nonzero(array) / array.size < 2 / every
    assert not alike(sample(torch.zeros_like(value)), value) and alike(sample(value), value.clone())
