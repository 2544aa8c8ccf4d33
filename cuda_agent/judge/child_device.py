"""What differs between devices inside children: where inputs lie, how calls are timed, where torch computes.

`cpu`: tensors over the shared memory file, the process's clock. `cuda`: tensors over the shared device memory, CUDA events,
and in a candidate torch allocates from the shared block (`cuda_memory`). TF32 is one setting for all children.
"""

import ctypes
import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter_ns
from typing import Any

import numpy as np
import torch

from cuda_agent.judge import cuda_memory
from cuda_agent.judge.ring import Layout, Leaf
from cuda_agent.judge.trees import mapped
from cuda_agent.judge.values import BOXED, Packed, aligned, array_of, check_dense, leaves
from cuda_agent.sandbox.kernel import keep_heap
from cuda_agent.sandbox.shared import SHARED, attach

Function = Callable[..., Any]

DEPTHS, STRIDE = 32, 13  # places on the stack that batches are made at; every one comes up before one comes again


class ChildDevice:
    """The processor."""

    name = "cpu"

    def __init__(self) -> None:
        """Nothing was timed yet."""
        self._batches = 0

    def inputs(self, layout: Layout, block: int, arena: str) -> tuple[list[list[Any]], list[int]]:
        """Argument lists of all sets of a ring, and where the shared block of `block` bytes lies: address and size."""
        memory = attach(block)
        memory[::4096].sum()  # no call, timed or not, should be the first to touch a page
        starts = [number * layout.pitch for number in range(layout.sets)]
        sets = [_arguments(layout, [_host_tensor(leaf, memory, start) for leaf in layout.leaves]) for start in starts]
        return sets, [int(memory.ctypes.data), int(memory.nbytes)]

    def box(self, block: int) -> "ChildBox | None":
        """A shared block of so many bytes to lay answers into; None where the judge reads them out of this process."""
        return None

    def timed(self, function: Function, arguments: Sequence[Sequence[Any]]) -> tuple[list[Any], list[int]]:
        """Call on each argument list: the outputs, and nanoseconds by call."""
        self._batches += 1
        return _timed_at(self._batches * STRIDE % DEPTHS, function, arguments)

    def finish(self) -> None:
        """Return when everything asked of the device is done."""

    def forget(self) -> int:
        """Give back memory that torch keeps for later; the most bytes that tensors took since the last time, where it counts."""
        return 0

    def bound(self, share: float) -> None:
        """Let torch take no more than such a part of a GPU's memory."""

    def is_spent(self) -> bool:
        """Whether this process can use the device no more, whatever comes: after an illegal access in a kernel."""
        return False

    def context(self) -> AbstractContextManager[Any]:
        """Where a problem's own tensors are made."""
        return nullcontext() if self.name == "cpu" else torch.device(self.name)

    def seed(self, seed: int) -> None:
        """As `torch.manual_seed`, which takes 4 ms: it looks up its callers for dynamo."""
        torch.default_generator.manual_seed(seed)

    def moved(self, value: Any) -> Any:
        """A value with all its tensors on this device."""
        return value if self.name == "cpu" else mapped(value, lambda tensor: tensor.to(self.name))


class MetaDevice(ChildDevice):
    """None at all: tensors have shapes and types there, and no values."""

    name = "meta"


class CudaChildDevice(ChildDevice):
    """The first visible GPU."""

    name = "cuda"

    def inputs(self, layout: Layout, block: int, arena: str) -> tuple[list[list[Any]], list[int]]:
        """As for the processor; with `arena`, a library, torch allocates from the block behind the ring from now on."""
        mapping = cuda_memory.attach(SHARED, block)
        if arena:
            _allocate_from(arena, mapping.address + layout.size, block - layout.size)
        starts = [mapping.address + number * layout.pitch for number in range(layout.sets)]
        sets = [_arguments(layout, [_device_tensor(leaf, start + leaf.offset) for leaf in layout.leaves]) for start in starts]
        return sets, [mapping.address, block]

    def box(self, block: int) -> "ChildBox | None":
        """The block that came with this process."""
        return ChildBox(cuda_memory.attach(SHARED, block).address, block) if block else None

    def timed(self, function: Function, arguments: Sequence[Sequence[Any]]) -> tuple[list[Any], list[int]]:
        """As for the processor, by CUDA events; returns when the device is idle."""
        marks: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(len(arguments) + 1)]  # type: ignore[no-untyped-call]
        outputs = []
        marks[0].record()
        for one, mark in zip(arguments, marks[1:], strict=True):
            outputs.append(function(*one))
            mark.record()
        torch.cuda.synchronize()
        return outputs, [int(1e6 * before.elapsed_time(after)) for before, after in itertools.pairwise(marks)]

    def finish(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize()

    def forget(self) -> int:
        """Empty torch's cache."""
        most = torch.cuda.max_memory_allocated()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return most

    def bound(self, share: float) -> None:
        """As for the processor; what does not fit raises OutOfMemoryError."""
        torch.cuda.set_per_process_memory_fraction(min(1.0, share))

    def is_spent(self) -> bool:
        """Whether the context is lost."""
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return True
        return False

    def seed(self, seed: int) -> None:
        """As for the processor, and the device's generator."""
        super().seed(seed)
        torch.cuda.manual_seed(seed)


class ChildBox:
    """A reference's side of the block that it shares with the judge (`cuda_memory.Box`): letters in, answers out.

    An answer stands until the next `begin`.
    """

    def __init__(self, address: int, size: int) -> None:
        """The block as this process has it mapped."""
        self._memory = torch.as_tensor(_Interface(address, size), device="cuda")
        self._size, self._end = size, 0

    def begin(self, question: Any) -> None:
        """Forget what was laid down before; what the judge laid down with a question (packed values in lists) stays."""
        letters = [leaf for packed in question for leaf in leaves(packed) if isinstance(leaf[3], list)]
        self._end = max((aligned(leaf[3][0] + leaf[3][1]) for leaf in letters), default=0)

    def place(self, tensor: torch.Tensor) -> Any:
        """Lay a tensor down: where; or, if there is no room or the tensor is not on the device, its numpy array."""
        check_dense(tensor)
        plain = tensor.detach()
        size = plain.numel() * plain.element_size()
        if plain.device.type != "cuda" or self._end + size > self._size:
            return array_of(tensor)
        start, self._end = self._end, aligned(self._end + size)
        if size:
            plain = plain.resolve_conj().resolve_neg()
            self._memory[start : start + size].view(plain.dtype).view(plain.shape).copy_(plain)
        return [start, size, BOXED]

    def taken(self, leaf: Packed) -> torch.Tensor:
        """A copy of a tensor of the judge's."""
        _, dtype, shape, (start, size, _), _ = leaf
        kind: torch.dtype = getattr(torch, dtype)
        return self._memory[start : start + size].view(kind).view(shape).clone()


def child_device(payload: dict[str, Any]) -> ChildDevice:
    """Set this process up for `backend`, `threads` and `tf32` of a child's payload."""
    torch.set_num_threads(payload["threads"])
    keep_heap()
    if payload["backend"] == "cpu":
        return ChildDevice()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = bool(payload["tf32"])
    return CudaChildDevice()


def _timed_at(depth: int, function: Function, arguments: Sequence[Sequence[Any]]) -> tuple[list[Any], list[int]]:
    """The outputs of calls that are made so many C frames further down the stack, and their nanoseconds.

    Where its stack lies is a process's luck, and decides by a third and more how fast a vectorised loop runs (one process in
    eight was 1.3 times as slow for all its life): batches at many depths have the same share of good and bad places. Between
    two calls nothing is done that need not be: what native code could leave out is given to it for nothing.
    """
    if depth:
        return next(map(_timed_at, (depth - 1,), (function,), (arguments,)))
    outputs, times = [], []
    for one in arguments:
        start = perf_counter_ns()
        output = function(*one)
        times.append(perf_counter_ns() - start)
        outputs.append(output)
    return outputs, times


def _host_tensor(leaf: Leaf, block: "np.ndarray[Any, Any]", start: int) -> torch.Tensor:
    tensor = torch.from_numpy(leaf.over(block, start))
    return tensor.view(torch.bfloat16) if leaf.dtype == "bfloat16" else tensor


class _Interface:
    """Device memory in the form that torch takes without a copy."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


def _device_tensor(leaf: Leaf, address: int) -> torch.Tensor:
    kind: torch.dtype = getattr(torch, leaf.dtype)
    if not leaf.size:
        return torch.empty(leaf.shape, dtype=kind, device="cuda")
    flat = torch.as_tensor(_Interface(address, leaf.size), device="cuda").view(kind)
    return flat.as_strided(leaf.shape, leaf.strides)


def _arguments(layout: Layout, tensors: list[torch.Tensor]) -> list[Any]:
    rebuilt: list[Any] = _rebuilt(layout.tree, tensors)
    return rebuilt


def _rebuilt(tree: Any, tensors: list[torch.Tensor]) -> Any:
    kind = tree[0]
    if kind == "leaf":
        return tensors[tree[1]]
    if kind in ("list", "tuple"):
        items = [_rebuilt(item, tensors) for item in tree[1]]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {key: _rebuilt(item, tensors) for key, item in tree[1]}
    return getattr(torch, tree[1]) if kind == "dtype" else tree[1]


def _allocate_from(library: str, address: int, size: int) -> None:
    arena = ctypes.CDLL(library)
    arena.arena_begin(ctypes.c_size_t(address), ctypes.c_size_t(size))
    allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "arena_alloc", "arena_free")
    torch.cuda.memory.change_current_allocator(allocator)
