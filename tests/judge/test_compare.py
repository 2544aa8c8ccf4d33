"""What counts as the same output: by hand, on packed values."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuda_agent.judge.compare import MOST_STRAYS, STRAYS, Exact, Scale, difference, scales

RNG = np.random.default_rng(0)
BASE = RNG.standard_normal((64, 128)).astype(np.float32)


def tensor(array: Any, dtype: str = "") -> list[Any]:
    array = np.asarray(array)
    return ["tensor", dtype or array.dtype.name, list(array.shape), array]


def known(exact: Any, slack: Any) -> Exact:
    return Exact(tensor(np.asarray(exact, np.float64)), tensor(np.asarray(slack, np.float32)))


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


def test_float32_is_no_answer_to_a_problem_in_float64() -> None:
    wide = RNG.standard_normal((64, 128))
    assert difference(tensor(wide), tensor(wide * (1 + 1e-13))) == ""
    assert "differ" in difference(tensor(wide), tensor(wide.astype(np.float32).astype(np.float64)))


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
    assert difference(tensor(forward), tensor(backward), known(exact, 4 * np.abs(forward - exact))) == ""


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(-8, -2), st.floats(-8, -2), st.floats(-3, 3))
def test_what_passes_without_the_exact_answer_passes_with_it(seed: int, rounding: float, error: float, scale: float) -> None:
    rng = np.random.default_rng(seed)
    exact = rng.standard_normal((8, 16)) * 10.0**scale
    reference = (exact + rng.standard_normal(exact.shape) * 10.0 ** (scale + rounding)).astype(np.float32)
    answer = (reference + rng.standard_normal(exact.shape) * 10.0 ** (scale + error)).astype(np.float32)
    if difference(tensor(reference), tensor(answer)) == "":
        assert difference(tensor(reference), tensor(answer), known(exact, 4 * np.abs(reference - exact))) == ""


def test_slack_is_each_elements_own() -> None:
    slack = np.zeros(BASE.shape)
    slack[5, 6] = 0.5
    near, elsewhere = BASE.copy(), BASE.copy()
    near[5, 6] += 0.4
    elsewhere[5, 7] += 0.4
    assert difference(tensor(BASE), tensor(near), known(BASE, slack)) == ""
    assert "first at [5, 7]" in difference(tensor(BASE), tensor(elsewhere), known(BASE, slack))


def test_a_few_may_stray_where_many_have_more_slack_than_tolerance() -> None:
    slack = np.zeros(BASE.shape)
    slack[0, :] = slack[1, :] = slack[2, :] = 0.5
    answer = BASE.copy()
    most = min(slack[slack > 0].size // STRAYS, MOST_STRAYS)
    answer.reshape(-1)[-most:] += 0.4
    assert most == 1 and difference(tensor(BASE), tensor(answer), known(BASE, slack)) == ""
    answer[-1, -1 - most] += 0.4
    assert "differ" in difference(tensor(BASE), tensor(answer), known(BASE, slack))
    answer = BASE.copy()
    answer[-1, -1] += 0.6
    assert "differ" in difference(tensor(BASE), tensor(answer), known(BASE, slack)), "farther than any slack"


def test_a_wide_answer_buys_no_tolerance_beyond_the_usual_spread() -> None:
    wide = BASE.copy()
    wide[0, 0] = 1e6
    answer = wide + np.float32(0.1) * (wide < 1e5)
    assert difference(tensor(wide), tensor(answer)) == ""
    assert "differ" in difference(tensor(wide), tensor(answer), spreads=[2.0])
    assert difference(tensor(wide), tensor(wide.copy()), spreads=[2.0]) == ""


def test_exact_answers_of_another_form_are_refused() -> None:
    with pytest.raises(ValueError, match="form"):
        difference(tensor(BASE), tensor(BASE), known(BASE[:1], np.zeros(BASE[:1].shape)))
    with pytest.raises(ValueError):
        difference(["list", [tensor(BASE), tensor(BASE)]], ["list", [tensor(BASE), tensor(BASE)]], known(BASE, BASE))


def test_items_take_their_own_slack() -> None:
    none, wide = np.zeros(BASE.shape), np.full(BASE.shape, 0.5)
    exact = Exact(
        ["list", [tensor(BASE.astype(np.float64))] * 2],
        ["list", [tensor(none.astype(np.float32)), tensor(wide.astype(np.float32))]],
    )
    one, other = tensor(BASE), tensor(BASE + np.float32(0.4))
    assert difference(["list", [one, one]], ["list", [one, other]], exact) == ""
    assert "output[0]" in difference(["list", [one, one]], ["list", [other, one]], exact)


def test_scales_tell_spread_and_whether_all_is_finite() -> None:
    odd = BASE.copy()
    odd[0, 0] = np.nan
    plain, broken, counted = scales(["list", [tensor(BASE), tensor(odd), tensor(np.array([1, 2]))]])
    assert plain.finite == 1.0 and plain.spread == pytest.approx(BASE.std(), rel=1e-5)
    assert broken.finite == 1 - 1 / BASE.size and broken.spread == pytest.approx(BASE.std(), rel=1e-2)
    assert counted == Scale(0.0, 1.0)


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
