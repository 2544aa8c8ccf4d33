"""Device memory that the judge shares with one child, through CUDA's virtual memory management.

A block is physical memory behind a file descriptor; judge and child map it each into their own address space (no unified
addresses, no shared context, other users and namespaces do not matter). The child's part of the block behind the ring is
what its torch allocates from (`native/arena.cpp`), so the judge can read any tensor of the child's at any time without the
child's help. A reference's block is its letter box (`Box`): what it answers lies there, and what it is asked about.
"""

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np

from cuda_agent.judge.answers import Where
from cuda_agent.judge.cuda_driver import copy as copy_within
from cuda_agent.judge.cuda_driver import driver, launch, must, use_device, wait
from cuda_agent.judge.device_array import DeviceArray
from cuda_agent.judge.memory import Mix, kernel_arguments
from cuda_agent.judge.values import BOXED, Packed, aligned, leaves, storage_type, with_leaves
from cuda_agent.sandbox.forkserver import Child, ChildFailed


class Mapping:
    """A block mapped into this process: base address and size. Made by `create` or `attach`."""

    def __init__(self, handle: Any, size: int) -> None:
        """Map the physical memory behind a handle, readable and writable."""
        calls = driver()
        self.handle, self.size = handle, size
        self.address = int(must(calls.cuMemAddressReserve(size, 0, 0, 0)))
        must(calls.cuMemMap(self.address, size, 0, handle, 0))
        access = calls.CUmemAccessDesc()
        access.location = _here()
        access.flags = calls.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        must(calls.cuMemSetAccess(self.address, size, [access], 1))

    def close(self) -> None:
        """Unmap and let go of the memory."""
        calls = driver()
        must(calls.cuMemUnmap(self.address, self.size))
        must(calls.cuMemAddressFree(self.address, self.size))
        must(calls.cuMemRelease(self.handle))


def create(size: int) -> tuple[Mapping, int]:
    """Take at least `size` bytes of the device; the mapping and a descriptor for `attach`.

    Raises:
        DeviceError: the device has no such memory left.
    """
    calls = driver()
    use_device()
    form = calls.CUmemAllocationProp()
    form.type = calls.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    form.location = _here()
    form.requestedHandleTypes = calls.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    flag = calls.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    grain = int(must(calls.cuMemGetAllocationGranularity(form, flag)))
    size = -(-size // grain) * grain
    handle = must(calls.cuMemCreate(size, form, 0))
    descriptor = must(calls.cuMemExportToShareableHandle(handle, form.requestedHandleTypes, 0))
    return Mapping(handle, size), int(descriptor)


def attach(descriptor: int, size: int) -> Mapping:
    """In the child: map the block behind a descriptor; `size` is the mapping's, not the wanted one."""
    calls = driver()
    use_device()
    kind = calls.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return Mapping(must(calls.cuMemImportFromShareableHandle(descriptor, kind)), size)


class Block:
    """A block of the device's memory, `size` bytes behind a `descriptor` for the child."""

    def __init__(self, size: int, kernels: Path) -> None:
        """Take a block; `kernels` is the folder of the compiled native/refresh.cu and native/compare.cu.

        Raises:
            DeviceError: the device has no such memory left.
        """
        self._refresh, self._compare = kernels / "refresh.cubin", kernels / "compare.cubin"
        self._mapping, self.descriptor = create(size)
        self.size = self._mapping.size

    def close(self) -> None:
        """Give the block back."""
        use_device()
        self._mapping.close()
        os.close(self.descriptor)


class DeviceMemory(Block):
    """The judge's side; see `memory.Memory`. `child_address` is where the child says that it mapped the block."""

    sample_bytes = 2**30
    child_address = 0

    def write(self, offset: int, values: Any) -> None:
        """Put bytes there."""
        near = self.keep(values)
        copy_within(self._mapping.address + offset, near.address, near.nbytes)
        wait()

    def holds(self, offset: int, values: Any) -> bool:
        """Whether exactly these bytes stand there."""
        return self.keep(values).holds(self._mapping.address + offset)

    def keep(self, values: Any) -> DeviceArray:
        """The bytes on the device."""
        return values if isinstance(values, DeviceArray) else DeviceArray.of(self._compare, values)

    def renew(self, offset: int, mix: Mix, size: int, dtype: str) -> None:
        """Write fresh values; done when it returns, so that nothing of it is in a child's way."""
        if not size:
            return
        kind, count, first, second = kernel_arguments(mix, size, dtype)
        places = (ctypes.c_void_p(address) for address in (self._mapping.address + offset, mix.one.address, mix.other.address))
        numbers = (ctypes.c_long(number) for number in (count, first, second))
        curve = (ctypes.c_double(value) for value in (mix.share, mix.bend, mix.knee, mix.scale))
        launch(self._refresh, "refresh", count, *places, *numbers, ctypes.c_int(kind), *curve)
        wait()

    def taken(self, offset: int, size: int) -> DeviceArray:
        """A copy of the bytes there."""
        return DeviceArray.at(self._compare, np.dtype(np.uint8), (size,), self._mapping.address + offset)

    def bring(self, child: Child, place: Where) -> DeviceArray:
        """Copy through the judge's own mapping."""
        kind, offset = storage_type(place.dtype), place.address - self.child_address
        if not place.extent:
            return DeviceArray(self._compare, kind, place.shape)
        if not 0 <= offset <= self.size - place.extent or offset % kind.itemsize:
            raise ChildFailed("crash", "the process named memory that is not its own torch's")
        return DeviceArray.at(self._compare, kind, place.shape, self._mapping.address + offset, place.strides)

    def settle(self) -> None:
        """A copy of a few bytes has its turn when what others left running has ended, or has had its share of time."""
        self.taken(0, 8)


class Box(Block):
    """The judge's side of a block that its reference child lays answers into: see `child_device.ChildBox`."""

    def laid(self, packed: Packed) -> Packed:
        """A value for the child: its tensors stand one after another from the beginning of the block, as far as there is room."""
        end = 0

        def place(leaf: Packed) -> Packed:
            nonlocal end
            array = leaf[3]
            if end + array.nbytes > self.size:
                return [*leaf[:3], array.host(), leaf[4]]
            start, end = end, end + aligned(array.nbytes)
            copy_within(self._mapping.address + start, array.address, array.nbytes)
            return [*leaf[:3], [start, array.nbytes, BOXED], leaf[4]]

        laid = with_leaves(packed, (place(leaf) for leaf in leaves(packed)))
        wait()
        return laid

    def array(self, dtype: str, shape: list[int], start: int) -> DeviceArray:
        """A copy of what the child laid there.

        Raises:
            ValueError: that is not in the block.
        """
        kind = storage_type(dtype)
        if not 0 <= start <= self.size - int(np.prod(shape, dtype=np.int64)) * kind.itemsize:
            raise ValueError("a tensor lies outside the block")
        return DeviceArray.at(self._compare, kind, shape, self._mapping.address + start)

    def lifted(self, array: "np.ndarray[Any, Any]") -> DeviceArray:
        """What had no room in the block."""
        return DeviceArray.of(self._compare, array)


def _here() -> Any:
    calls = driver()
    location = calls.CUmemLocation()
    location.type = calls.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = 0
    return location
