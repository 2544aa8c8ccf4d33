"""A ring of input sets in memory that the judge and one child share; the judge alone decides what stands there, and when.

The child's trusted part makes tensors over the block before any untrusted code runs; from then on a set's values change
under them. After a use the judge can tell whether a set was written to, and fills it with values that never stood there
before, each tensor in the way that its structure allows (`Way`). A child that keeps answers instead of computing them is
therefore wrong, and since a set is filled only when its turn has come, there is nothing to look ahead at.
"""

import json
import math
from collections.abc import Sequence
from secrets import SystemRandom
from typing import Any, NamedTuple, Self

import numpy as np

from cuda_agent.judge.memory import BYTEWISE, Memory, Mix
from cuda_agent.judge.values import Packed, leaves, storage_type, with_leaves
from cuda_agent.sandbox.forkserver import Child
from cuda_agent.sandbox.shared import Bytes

ALIGNMENT, PAGE = 64, 4_096
SHARES = (0.25, 0.75)  # of one of two mixed sources: what a problem draws from an interval stays in it
BENDS = (0.5, 1.5)
UNMIXED = 0.25  # of the sets, at most, are a draw's own values


class Way(NamedTuple):
    """How a tensor is made anew from drawn ones.

    It `mixes` two of them, or takes one alone. Each is shifted by a random number of blocks, of which it has `places` (all of
    its elements, where it has no structure; 1: not shifted). With a `limit`, the largest magnitude that is drawn, values
    are bent at a random knee, which keeps zero, the limit, signs and order: without it a linear operator's answer could be
    combined from earlier ones wherever blocks stay in place.
    """

    mixes: bool
    places: int
    limit: float = 0.0

    @property
    def renews(self) -> bool:
        """Whether values come that were never drawn."""
        return self.mixes or self.places > 1

    def is_free(self, elements: int) -> bool:
        """Whether a tensor of so many elements has no structure."""
        return self.mixes and self.places == elements


class Sources(NamedTuple):
    """Drawn inputs (packed, all of one form) from which fresh ones are made, and the way of each of their tensors."""

    inputs: tuple[Packed, ...]
    ways: tuple[Way, ...]


class Leaf(NamedTuple):
    """One tensor of a set and where its memory begins in the set's part of the block; strides count elements.

    Tensors are dense: their memory is one run of elements in the order that the strides give.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.elements * storage_type(self.dtype).itemsize

    @property
    def elements(self) -> int:
        """How many there are."""
        return math.prod(self.shape)

    def over(self, block: Bytes, start: int) -> "np.ndarray[Any, Any]":
        """The tensor as a numpy array over the block, for the set that begins at `start`."""
        kind = storage_type(self.dtype)
        begin = start + self.offset
        flat = block[begin : begin + self.size].view(kind)
        return np.lib.stride_tricks.as_strided(flat, self.shape, [stride * kind.itemsize for stride in self.strides])

    def packed(self, run: Any) -> Packed:
        """The tensor of these bytes."""
        if not isinstance(run, np.ndarray):
            kind = storage_type(self.dtype)
            flat = run.viewed(kind, (self.elements,))
            return ["tensor", self.dtype, list(self.shape), flat.strided(self.shape, self.strides), list(self.strides)]
        array = np.ascontiguousarray(self._replace(offset=0).over(run, 0))
        return ["tensor", self.dtype, list(self.shape), array.reshape(self.shape), list(self.strides)]

    def run(self, array: "np.ndarray[Any, Any]") -> Bytes:
        """A contiguous array's bytes in the order of this tensor's memory."""
        order = sorted(range(len(self.shape)), key=lambda dimension: (-self.strides[dimension], dimension))
        if not isinstance(array, np.ndarray):
            steps = _contiguous(self.shape)
            walked = array.strided([self.shape[axis] for axis in order], [steps[axis] for axis in order])
            return walked.viewed(np.dtype(np.uint8), (self.size,))
        return np.ascontiguousarray(array.reshape(self.shape).transpose(order)).reshape(-1).view(np.uint8)


class Layout(NamedTuple):
    """How a set of inputs lies in memory, and how many sets there are; travels to the child as JSON."""

    tree: Packed  # the inputs with the number of its leaf in place of each tensor
    leaves: tuple[Leaf, ...]
    pitch: int
    sets: int

    @classmethod
    def of(cls, inputs: Packed, sets: int) -> Self:
        """The layout of sets like `inputs` (packed)."""
        placed, offset = [], 0
        for leaf in leaves(inputs):
            dtype, shape, strides = leaf[1], tuple(leaf[2]), tuple(_dense(leaf[2], leaf[4]))
            placed.append(Leaf(dtype, shape, strides, offset))
            offset += -(-placed[-1].size // ALIGNMENT) * ALIGNMENT
        tree = with_leaves(inputs, (["leaf", number] for number in range(len(placed))))
        return cls(tree, tuple(placed), max(PAGE, -(-offset // PAGE) * PAGE), sets)

    @classmethod
    def read(cls, text: str) -> Self:
        """Rebuild from `text`."""
        tree, placed, pitch, sets = json.loads(text)
        return cls(tree, tuple(Leaf(d, tuple(s), tuple(t), o) for d, s, t, o in placed), pitch, sets)

    @property
    def text(self) -> str:
        """As JSON."""
        return json.dumps([self.tree, self.leaves, self.pitch, self.sets])

    @property
    def size(self) -> int:
        """Bytes of all sets."""
        return self.pitch * self.sets


class Ring:
    """The judge's side: places sets, tells whether they were changed, and refreshes them."""

    def __init__(self, sources: Sources, sets: int, memory: Memory) -> None:
        """The ring owns `memory`."""
        self.layout = Layout.of(sources.inputs[0], sets)
        self.memory = memory
        pairs = zip(sources.ways, (leaf.elements for leaf in self.layout.leaves), strict=True)
        self._ways = [way if count and count % way.places == 0 else way._replace(places=1) for way, count in pairs]
        self._chance = SystemRandom()
        self._sources: list[list[Any]] = []
        self._unmixed: list[int] = []
        self.draw_from(sources.inputs)
        self._drawn = 0

    @property
    def is_endless(self) -> bool:
        """Whether a few draws make any number of fresh inputs that tell nothing of each other.

        Not where a tensor comes as it was drawn, nor where mixtures have nothing but their shares: a linear operator's answers
        could be solved for.
        """
        pairs = zip(self._ways, self.layout.leaves, strict=True)
        return all(way.mixes and (way.is_free(leaf.elements) or bool(way.limit)) for way, leaf in pairs)

    @property
    def room(self) -> int:
        """Most calls of a batch: as many as there are sets, and where a tensor comes as it was drawn, as there are draws."""
        is_mixed = all(way.mixes for way in self._ways)
        return self.layout.sets if is_mixed else min(self.layout.sets, len(self._sources))

    def close(self) -> None:
        """Give the memory back."""
        self.memory.close()

    def spans(self, child: Child) -> list[tuple[int, int]]:
        """Address and size of all that is memory of the inputs, under however many addresses the child has it."""
        return [(self.memory.child_address, self.layout.size), *child.shared()]

    def take(self, count: int) -> list[int]:
        """So many sets, which nobody can foresee; each of them once, if there are enough."""
        rest = [self._chance.randrange(self.layout.sets) for _ in range(count - self.layout.sets)]
        return [*self._chance.sample(range(self.layout.sets), min(count, self.layout.sets)), *rest]

    def draw_from(self, sources: Sequence[Packed]) -> None:
        """Make fresh values from these from now on; they have the form of those before."""
        self._sources = [[self.memory.keep(run) for run in self._runs(source)] for source in sources]
        self._unmixed = list(range(len(self._sources)))

    def place(self, number: int, inputs: Packed) -> None:
        """Write exactly these inputs into a set."""
        for offset, values in zip(self._offsets(number), self._runs(inputs), strict=True):
            self.memory.write(offset, values)

    def changed(self, number: int, inputs: Packed) -> bool:
        """Whether a set no longer holds the bytes that were placed there."""
        pairs = zip(self._offsets(number), self._runs(inputs), strict=True)
        return not all(self.memory.holds(offset, values) for offset, values in pairs)

    def refresh(self, number: int) -> None:
        """Fill a set with values that did not stand there before.

        Now and then they are a draw's own, shifted: a mixture has no tails. No draw comes like that twice, so that no answer
        can be kept.
        """
        self._drawn += 1
        turn = self._drawn % len(self._sources)
        unmixed = turn in self._unmixed and self._chance.random() < UNMIXED
        if unmixed:
            self._unmixed.remove(turn)
        one = self._sources[turn]
        other = self._sources[(self._drawn + self._chance.randrange(1, max(2, len(self._sources)))) % len(self._sources)]
        for offset, leaf, way, mine, theirs in zip(
            self._offsets(number), self.layout.leaves, self._ways, one, other, strict=True
        ):
            step = leaf.elements // way.places
            first, second = (self._chance.randrange(way.places) * step for _ in range(2))
            if way.mixes:
                share = 1.0 if unmixed else self._chance.uniform(*SHARES)
                mix = Mix(mine, theirs, first, second, share, *self._curve(way.limit))
                self.memory.renew(offset, mix, leaf.size, leaf.dtype)
            else:
                self.memory.renew(offset, Mix(mine, mine, first * storage_type(leaf.dtype).itemsize, 0, 1.0), leaf.size, BYTEWISE)

    def _curve(self, limit: float) -> tuple[float, float, float]:
        """Bend, knee and scale that keep the limit where it is; no curve without a limit."""
        if not limit:
            return 0.0, 0.0, 1.0
        bend, knee = self._chance.uniform(*BENDS), limit / 2 * self._chance.random() ** 2  # where most values are
        return bend, knee, limit / (limit + bend * (limit - knee))

    def taken(self, number: int) -> Packed:
        """The inputs that stand in a set, packed, in memory of their own."""
        pairs = zip(self._offsets(number), self.layout.leaves, strict=True)
        return with_leaves(self.layout.tree, (leaf.packed(self.memory.taken(offset, leaf.size)) for offset, leaf in pairs))

    def _runs(self, inputs: Packed) -> list[Any]:
        return [leaf.run(packed[3]) for leaf, packed in zip(self.layout.leaves, leaves(inputs), strict=True)]

    def _offsets(self, number: int) -> list[int]:
        return [number * self.layout.pitch + leaf.offset for leaf in self.layout.leaves]


def ring_sets(inputs: Packed, wanted: int, most: int) -> int:
    """How many sets a ring should have: `wanted`, if so many fit into `most` bytes, and at least two."""
    return max(2, min(wanted, most // Layout.of(inputs, 1).pitch))


def _dense(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The strides if they lay a tensor out without gaps or overlap in some order of its dimensions, else contiguous ones."""
    order = sorted((dimension for dimension, size in enumerate(shape) if size > 1), key=lambda dimension: strides[dimension])
    step = 1
    for dimension in order:
        if strides[dimension] != step:
            return _contiguous(shape)
        step *= shape[dimension]
    return [int(strides[dimension]) if size > 1 else step for dimension, size in enumerate(shape)]


def _contiguous(shape: Sequence[int]) -> list[int]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(1, size)
    return strides[::-1]
