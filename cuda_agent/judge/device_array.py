"""A tensor's elements in the judge's own memory on the GPU, in place of a numpy array in packed values.

Nothing of it leaves the device unless `host` is asked: it is gathered from where a child's tensor lies, compared by kernels
(native/compare.cu) with the rules of `compare`, and copied into rings. Contiguous in the order of its indices.
"""

import ctypes
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from cuda_agent.judge.cuda_driver import Buffer, copy, download, launch, upload, wait
from cuda_agent.judge.memory import TYPES

MOST_AXES = 65  # torch's tensors have at most 64; see `Shape` in native/compare.cu
NOWHERE = 2**64 - 1
Strides = Sequence[int]


class Findings(ctypes.Structure):
    """As in native/compare.cu."""

    _fields_ = [
        *[(name, ctypes.c_ulonglong) for name in ("finite", "odd", "wrong", "first_odd", "first_wrong", "loose", "far")],
        *[(name, ctypes.c_double) for name in ("sum", "squares", "slack", "error")],
    ]


class Shape(ctypes.Structure):
    """As in native/compare.cu."""

    _fields_ = [("rank", ctypes.c_long), ("sizes", ctypes.c_long * MOST_AXES), ("strides", ctypes.c_long * MOST_AXES)]


class DeviceArray:
    """`shape` elements of the numpy type `dtype`; several may share a `buffer`."""

    def __init__(self, kernels: Path, dtype: "np.dtype[Any]", shape: Sequence[int], buffer: Buffer | None = None) -> None:
        """Elements without values, or those of a buffer; `kernels` is the compiled native/compare.cu."""
        self.kernels, self.dtype, self.shape = kernels, np.dtype(dtype), tuple(shape)
        self.size = math.prod(self.shape)
        self.nbytes = self.size * self.dtype.itemsize
        self.buffer = buffer or Buffer(self.nbytes)

    @classmethod
    def of(cls, kernels: Path, array: "np.ndarray[Any, Any]") -> Self:
        """A copy of a numpy array."""
        made = cls(kernels, array.dtype, array.shape)
        upload(made.address, array)
        return made

    @classmethod
    def at(cls, kernels: Path, dtype: "np.dtype[Any]", shape: Sequence[int], source: int, strides: Strides | None = None) -> Self:
        """A copy of what stands at an address of the judge's; strides count elements (None: contiguous).

        Done when it returns.
        """
        made = cls(kernels, dtype, shape)
        if strides is None or _contiguous(made.shape, strides):
            copy(made.address, source, made.nbytes)
        else:
            made._gather(source, strides)
        wait()
        return made

    @property
    def address(self) -> int:
        """Where the first element stands."""
        return self.buffer.address

    def host(self) -> "np.ndarray[Any, Any]":
        """A numpy array of the same elements."""
        array = np.empty(self.shape, self.dtype)
        download(array, self.address)
        return array

    def viewed(self, dtype: "np.dtype[Any]", shape: Sequence[int]) -> "DeviceArray":
        """The same bytes as other elements."""
        return DeviceArray(self.kernels, dtype, shape, self.buffer)

    def strided(self, shape: Sequence[int], strides: Strides) -> "DeviceArray":
        """Elements of this one by strides, which count elements, in the order of their indices."""
        if _contiguous(shape, strides):
            return self.viewed(self.dtype, shape)
        return DeviceArray.at(self.kernels, self.dtype, shape, self.address, strides)

    def filled(self, value: "np.ndarray[Any, Any]") -> "DeviceArray":
        """One like this with the one element of `value` everywhere."""
        return DeviceArray.of(self.kernels, value).strided(self.shape, [0] * len(self.shape))

    def same(self, other: "DeviceArray") -> bool:
        """Whether the bytes are equal."""
        return self.nbytes == other.nbytes and self.holds(other.address)

    def holds(self, address: int) -> bool:
        """Whether these bytes stand at an address of the judge's (a multiple of 8)."""
        words = self.nbytes // 8
        found = _Findings(self.kernels)
        found.unequal(self.address, address, words, 8)
        found.unequal(self.address + 8 * words, address + 8 * words, self.nbytes - 8 * words, 1)
        return bool(found.read().wrong == 0)

    def mean(self, dtype: str) -> float:
        """Of the finite elements; `dtype` is torch's floating-point one."""
        found = _Findings(self.kernels)
        found.run("moments", self.size, *self._numbers(dtype))
        read = found.read()
        return float(read.sum / read.finite) if read.finite else 0.0

    def unequal(self, other: "DeviceArray") -> Findings:
        """`wrong` and `first_wrong` of elements whose bytes differ."""
        found = _Findings(self.kernels)
        found.unequal(self.address, other.address, self.size, self.dtype.itemsize)
        return found.read()

    def spread(self, dtype: str) -> Findings:
        """`finite` and `squares` of the elements, from their mean."""
        return self._spread(dtype).read()

    def differing(
        self, dtype: str, other: "DeviceArray", truth: "DeviceArray | None", slack: "DeviceArray | None", rtol: float, most: float
    ) -> Findings:
        """How an answer differs from this reference, as `compare` has it; `truth` is in float64, `slack` in float32.

        `most` is what the spread counts at most.
        """
        found, own = self._spread(dtype), self._numbers(dtype)
        told = [ctypes.c_void_p(array.address if array is not None else None) for array in (truth, slack)]
        limits = (ctypes.c_double(rtol), ctypes.c_double(most))
        if slack is not None:
            found.run("slacken", self.size, own[0], *told, *own[1:], *limits)
        found.run("differ", self.size, own[0], *_places(other.address), *told, *own[1:], *limits)
        return found.read()

    def _spread(self, dtype: str) -> "_Findings":
        found, own = _Findings(self.kernels), self._numbers(dtype)
        found.run("moments", self.size, *own)
        found.run("spread", self.size, *own)
        return found

    def element(self, number: int) -> Any:
        """One element, by its place in the order of indices."""
        value = np.empty(1, self.dtype)
        download(value, self.address + number * self.dtype.itemsize)
        return value[0]

    def _numbers(self, dtype: str) -> tuple[Any, ...]:
        return *_places(self.address), ctypes.c_long(self.size), ctypes.c_int(TYPES[dtype])

    def _gather(self, source: int, strides: Strides) -> None:
        width, halves = min(8, self.dtype.itemsize), max(1, self.dtype.itemsize // 8)  # nothing asks for 16 bytes to be aligned
        sizes, steps = _folded((*self.shape, halves), (*(halves * stride for stride in strides), 1))
        form = Shape(len(sizes), (ctypes.c_long * MOST_AXES)(*sizes), (ctypes.c_long * MOST_AXES)(*steps))
        count = halves * self.size
        launch(self.kernels, "gather", count, *_places(self.address, source), ctypes.c_long(count), ctypes.c_int(width), form)


class _Findings:
    """`Findings` on the device, begun empty."""

    def __init__(self, kernels: Path) -> None:
        self._kernels = kernels
        self._buffer = Buffer(ctypes.sizeof(Findings))
        begun = np.frombuffer(bytes(Findings(first_odd=NOWHERE, first_wrong=NOWHERE)), np.uint8)
        upload(self._buffer.address, begun)

    def run(self, name: str, count: int, *arguments: Any) -> None:
        if count:
            launch(self._kernels, name, count, *arguments, *_places(self._buffer.address))

    def unequal(self, one: int, other: int, count: int, width: int) -> None:
        """Find which of `count` elements of `width` bytes differ between two addresses."""
        self.run("unequal", count, *_places(one, other), ctypes.c_long(count), ctypes.c_int(width))

    def read(self) -> Findings:
        raw = np.empty(ctypes.sizeof(Findings), np.uint8)
        download(raw, self._buffer.address)
        return Findings.from_buffer_copy(raw.tobytes())


def _places(*addresses: int) -> tuple[ctypes.c_void_p, ...]:
    return tuple(ctypes.c_void_p(address) for address in addresses)


def _contiguous(shape: Sequence[int], strides: Strides) -> bool:
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size > 1 and stride != step:
            return False
        step *= max(1, size)
    return True


def _folded(shape: Sequence[int], strides: Strides) -> tuple[list[int], list[int]]:
    """The same walk with as few axes as can be."""
    sizes: list[int] = []
    steps: list[int] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if sizes and steps[-1] == size * stride:
            sizes[-1], steps[-1] = sizes[-1] * size, stride
        else:
            sizes.append(size)
            steps.append(stride)
    return sizes, steps
