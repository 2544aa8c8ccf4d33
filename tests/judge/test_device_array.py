"""On a GPU: what the judge's own kernels find is what numpy finds on the host."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuda_agent.judge import glue, machine
from cuda_agent.judge.compare import Exact, difference, scales
from cuda_agent.judge.values import leaves, with_leaves
from cuda_agent.store.session import cache_folder

pytestmark = pytest.mark.gpu
DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "bool", "uint8", "complex64"]
SHAPES = [(), (1,), (3, 5), (257, 129), (0, 4), (2, 3, 4, 5)]


@pytest.fixture(scope="module")
def kernels() -> Iterator[Path]:
    yield Path(glue.prepare(cache_folder(), "cuda", machine.gpu().arch).folder) / "compare.cubin"


def drawn(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    values = np.asarray(np.random.default_rng(seed).normal(0, 3, shape))
    if dtype == "bfloat16":
        return np.asarray((values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16))
    if dtype == "complex64":
        values = values + 1j * np.flip(values)
    return np.asarray(values > 0 if dtype == "bool" else values).astype(dtype)


def packed(dtype: str, array: np.ndarray) -> list[Any]:
    return ["tensor", dtype, list(array.shape), array, [step // array.itemsize for step in np.ascontiguousarray(array).strides]]


def lifted(kernels: Path, value: list[Any]) -> list[Any]:
    from cuda_agent.judge.device_array import DeviceArray

    return with_leaves(value, ([*leaf[:3], DeviceArray.of(kernels, leaf[3]), leaf[4]] for leaf in leaves(value)))


def changed(array: np.ndarray, dtype: str, seed: int) -> np.ndarray:
    """With one element in another place, which may differ by little."""
    other = array.copy()
    if array.size:
        index = np.unravel_index(np.random.default_rng(seed).integers(array.size), array.shape)
        one = array.dtype.type(1)
        other[index] = other[index] ^ one if array.dtype.kind in "bu" else other[index] + one
    return other


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_same_differences_are_found(kernels: Path, dtype: str, shape: tuple[int, ...]) -> None:
    expected = drawn(dtype, shape, 1)
    for number, got in enumerate((expected.copy(), changed(expected, dtype, 2), drawn(dtype, shape, 3))):
        one, other = packed(dtype, expected), packed(dtype, got)
        there = difference(lifted(kernels, one), lifted(kernels, other))
        here = difference(one, other)
        assert bool(there) == bool(here), (number, there, here)
        assert there.partition(";")[0] == here.partition(";")[0]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_exact_answer_widens_what_is_allowed_alike(kernels: Path, dtype: str) -> None:
    expected = drawn(dtype, (300, 70), 4)
    exact = np.random.default_rng(4).normal(0, 3, (300, 70))
    slack = np.abs(np.random.default_rng(5).normal(0, 1e-3, (300, 70))).astype(np.float32)
    slack[slack < 1e-3] = 0
    told = Exact(packed("float64", exact), packed("float32", slack))
    lift = Exact(*(lifted(kernels, value) for value in told))
    outcomes = set()
    for factor in (0.0, 1e-5, 1e-4, 3e-4, 1e-3, 1e-2, 1e-1):
        got = (exact * (1 + factor)).astype(np.float32)
        stored = (got.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bfloat16" else got.astype(dtype)
        one, other = packed(dtype, expected), packed(dtype, stored)
        for spreads in (None, [1e-3]):
            here = difference(one, other, told, spreads=spreads)
            there = difference(lifted(kernels, one), lifted(kernels, other), lift, spreads=spreads)
            assert there == here
            outcomes.add(bool(here))
    assert outcomes == {True, False}


def test_strays_are_counted_alike(kernels: Path) -> None:
    expected = drawn("float32", (64, 128), 6)
    slack = np.zeros(expected.shape, np.float32)
    slack[:5] = 0.5
    told = Exact(packed("float64", expected.astype(np.float64)), packed("float32", slack))
    lift = Exact(*(lifted(kernels, value) for value in told))
    for count, off in ((0, 0.4), (1, 0.4), (2, 0.4), (3, 0.4), (1, 0.6), (300, 0.4)):
        got = expected.copy()
        got.reshape(-1)[len(got.reshape(-1)) - count :] += np.float32(off)
        one, other = packed("float32", expected), packed("float32", got)
        here, there = difference(one, other, told), difference(lifted(kernels, one), lifted(kernels, other), lift)
        assert there == here and bool(here) == (count > 2 or off > 0.5)


def test_integers_between_which_rounding_decides_are_left_out_alike(kernels: Path) -> None:
    expected = drawn("int64", (64, 128), 8)
    slack = np.zeros(expected.shape, np.float32)
    slack[3, 4] = 1
    told = Exact(packed("int64", expected), packed("float32", slack))
    lift = Exact(*(lifted(kernels, value) for value in told))
    for index, differs in (((3, 4), False), ((3, 5), True)):
        got = expected.copy()
        got[index] += 1
        one, other = packed("int64", expected), packed("int64", got)
        here, there = difference(one, other, told), difference(lifted(kernels, one), lifted(kernels, other), lift)
        assert there == here and bool(here) is differs


@pytest.mark.parametrize("dtype", DTYPES)
def test_scales_are_found_alike(kernels: Path, dtype: str) -> None:
    values = drawn(dtype, (257, 129), 7)
    for spoiled in (False, True):
        if spoiled and values.dtype.kind in "fc":
            values[3, 4] = np.inf
        here, there = scales(packed(dtype, values)), scales(lifted(kernels, packed(dtype, values)))
        assert [one.finite for one in here] == [one.finite for one in there]
        assert [one.spread for one in here] == pytest.approx([one.spread for one in there], rel=1e-6)


def test_what_is_not_finite_must_be_so_in_both(kernels: Path) -> None:
    expected = np.array([1.0, np.nan, np.inf, -np.inf, 2.0] * 100, np.float32)
    for position, value in ((0, np.nan), (1, 0.0), (2, -np.inf), (3, 5.0)):
        got = expected.copy()
        got[position] = value
        there = difference(lifted(kernels, packed("float32", expected)), lifted(kernels, packed("float32", got)))
        assert there == difference(packed("float32", expected), packed("float32", got)) != ""
    same = lifted(kernels, packed("float32", expected))
    assert difference(same, lifted(kernels, packed("float32", expected))) == ""


@pytest.mark.parametrize("dtype", DTYPES)
def test_strided_elements_are_gathered_in_order(kernels: Path, dtype: str) -> None:
    from cuda_agent.judge.device_array import DeviceArray

    array = drawn(dtype, (6, 10, 7), 5)
    near = DeviceArray.of(kernels, array)
    for axes in ((0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)):
        turned = array.transpose(axes)
        steps = [step // array.itemsize for step in turned.strides]
        assert np.array_equal(near.strided(turned.shape, steps).host(), turned)
    assert np.array_equal(near.strided((6, 5), [70, 14]).host(), array[:, ::2, 0])
    one = np.asarray(array.reshape(-1)[3])
    assert np.array_equal(near.filled(one).host(), np.broadcast_to(one, array.shape))


def test_bytes_are_the_same_or_not(kernels: Path) -> None:
    from cuda_agent.judge.device_array import DeviceArray

    for size in (1, 7, 8, 9, 1_000_003):
        array = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
        near = DeviceArray.of(kernels, array)
        assert near.same(DeviceArray.of(kernels, array))
        for place in (0, size - 1):
            other = array.copy()
            other[place] ^= 1
            assert not near.same(DeviceArray.of(kernels, other))


def test_means_are_numpys(kernels: Path) -> None:
    from cuda_agent.judge.device_array import DeviceArray

    array = np.random.default_rng(1).normal(5, 1, (999, 77)).astype(np.float32)
    assert DeviceArray.of(kernels, array).mean("float32") == pytest.approx(array.mean(dtype=np.float64), rel=1e-12)
