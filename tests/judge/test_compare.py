"""What counts as the same output: by hand, on packed values."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuda_agent.judge.compare import difference

RNG = np.random.default_rng(0)
BASE = RNG.standard_normal((64, 128)).astype(np.float32)


def tensor(array: Any, dtype: str = "") -> list[Any]:
    array = np.asarray(array)
    return ["tensor", dtype or array.dtype.name, list(array.shape), array]


def test_equal_and_rounding_pass() -> None:
    assert difference(tensor(BASE), tensor(BASE.copy())) == ""
    assert difference(tensor(BASE), tensor(np.nextafter(BASE, np.float32(9)))) == ""


@pytest.mark.parametrize(
    "other",
    [
        np.zeros_like(BASE),
        np.full_like(BASE, BASE.mean()),
        BASE[::-1].copy(),
        BASE.astype(np.float16).astype(np.float32),
        BASE * np.float32(1.001),
        np.where(BASE > 2.5, np.float32(0), BASE),
    ],
    ids=["zeros", "mean", "other rows", "half", "scaled", "few"],
)
def test_shortcuts_fail(other: Any) -> None:
    assert "differ" in difference(tensor(BASE), tensor(other))


def test_tolerance_follows_the_outputs_scale() -> None:
    for scale in (1e-6, 1.0, 1e6):
        small = BASE * np.float32(scale)
        assert difference(tensor(small), tensor(small * np.float32(1 + 1e-6))) == ""
        assert difference(tensor(small), tensor(np.zeros_like(small))) != ""


def test_another_order_of_summation_passes() -> None:
    wide = RNG.standard_normal((32, 4_096)).astype(np.float32)
    forward = np.add.accumulate(wide, axis=1)[:, -1]
    backward = np.add.accumulate(wide[:, ::-1], axis=1)[:, -1]
    exact = wide.astype(np.float64).sum(axis=1)
    assert difference(tensor(forward), tensor(backward), tensor(exact)) == ""


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(-8, -2), st.floats(-8, -2), st.floats(-3, 3))
def test_what_passes_without_the_exact_answer_passes_with_it(seed: int, rounding: float, error: float, scale: float) -> None:
    rng = np.random.default_rng(seed)
    exact = rng.standard_normal((8, 16)) * 10.0**scale
    reference = (exact + rng.standard_normal(exact.shape) * 10.0 ** (scale + rounding)).astype(np.float32)
    answer = (reference + rng.standard_normal(exact.shape) * 10.0 ** (scale + error)).astype(np.float32)
    if difference(tensor(reference), tensor(answer)) == "":
        assert difference(tensor(reference), tensor(answer), tensor(exact)) == ""


def test_message_names_place_values_and_tolerance() -> None:
    wrong = BASE.copy()
    wrong[3, 7] += 1
    text = difference(tensor(BASE), tensor(wrong))
    assert "1 of 8192 elements differ" in text and "[3, 7]" in text and "largest error 1" in text and "allowed" in text


@pytest.mark.parametrize(
    ("expected", "got", "words"),
    [
        (tensor(BASE), tensor(BASE.astype(np.float64)), "dtype"),
        (tensor(BASE), tensor(BASE[:1]), "shape"),
        (tensor(BASE), ["tuple", [tensor(BASE)]], "expected a tensor"),
        (["list", [tensor(BASE)]], ["list", []], "items"),
        (["dict", [["a", tensor(BASE)]]], ["dict", [["b", tensor(BASE)]]], "keys"),
        (tensor(BASE), ["tensor", "float32", [64, 128], [1, 2]], "malformed"),
        (tensor(BASE), ["tensor", "float32", [64, 128], BASE.reshape(-1)], "malformed"),
        (tensor(BASE), None, "NoneType"),
        (tensor(BASE), [], "list"),
        (["scalar", 1.5], ["scalar", 1.25], "1.5"),
        (tensor(np.array([1, 2])), tensor(np.array([1, 3])), "[1]"),
        (tensor(np.array([True])), tensor(np.array([False])), "differ"),
    ],
)
def test_other_forms_are_differences(expected: Any, got: Any, words: str) -> None:
    assert words in difference(expected, got)


def test_infinities_must_agree_and_nan_may_stay() -> None:
    odd = BASE.copy()
    odd[0, 0], odd[0, 1] = np.inf, np.nan
    assert difference(tensor(odd), tensor(odd.copy())) == ""
    other = odd.copy()
    other[0, 0] = -np.inf
    assert "finite" in difference(tensor(odd), tensor(other))
    other = BASE.copy()
    other[5, 5] = np.nan
    assert "finite" in difference(tensor(BASE), tensor(other))


def test_bfloat16_bits_are_read() -> None:
    bits = (BASE.view(np.uint32) >> 16).astype(np.uint16)
    assert difference(tensor(bits, "bfloat16"), tensor(bits.copy(), "bfloat16")) == ""
    assert difference(tensor(bits, "bfloat16"), tensor(np.zeros_like(bits), "bfloat16")) != ""


def test_empty_tensor() -> None:
    empty = np.zeros((0, 4), np.float32)
    assert difference(tensor(empty), tensor(empty.copy())) == ""
