"""What a timed batch took, laid down by a child and read by the judge, which believes only the form."""

import ctypes
from typing import Any

import numpy as np
import pytest
import torch

from cuda_agent.judge.tally import WORDS, Tally, read


def from_here(address: int, buffer: "np.ndarray[Any, Any]") -> None:
    ctypes.memmove(buffer.ctypes.data, address, buffer.nbytes)


def test_what_was_laid_down_is_read() -> None:
    tally, one, two = Tally(), torch.zeros(3), torch.ones(2)
    tally.write([5, 7, 0], [one, {"a": [two, one], "b": 1.0}, ()])
    places = [[one.data_ptr()], [two.data_ptr(), one.data_ptr()], []]
    assert read(from_here, tally.address, 3) == ([5, 7, 0], places)
    tally.write([9], [two])
    assert read(from_here, tally.address, 1) == ([9], [[two.data_ptr()]])
    assert read(from_here, tally.address, 0) == ([], [])


def test_answers_of_more_tensors_than_fit_are_refused_in_the_child() -> None:
    with pytest.raises(ValueError, match="return fewer"):
        Tally().write([1], [[torch.zeros(1)] * WORDS])


@pytest.mark.parametrize("told", [[-1, 0], [5, -1], [5, WORDS], [5, WORDS - 2, *[1] * (WORDS - 2)]])
def test_nonsense_is_refused(told: list[int]) -> None:
    words = np.zeros(WORDS, np.int64)
    words[: len(told)] = told
    with pytest.raises(ValueError, match="nonsense"):
        read(from_here, int(words.ctypes.data), 2)
