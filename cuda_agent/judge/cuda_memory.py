"""Device memory that the judge shares with one child, through CUDA's virtual memory management.

A block is physical memory behind a file descriptor; judge and child map it each into their own address space (no unified
addresses, no shared context, other users and namespaces do not matter). The child's part of the block behind the ring is
what its torch allocates from (`native/arena.cpp`), so the judge can read any tensor of the child's at any time without the
child's help. Uses the driver through cuda-bindings, which CUDA builds of torch bring along.
"""

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cuda_agent.errors import DeviceError
from cuda_agent.judge.memory import Mix, kernel_arguments
from cuda_agent.sandbox.forkserver import Child, ChildFailed
from cuda_agent.sandbox.shared import Bytes


class Mapping:
    """A block mapped into this process: base address and size. Made by `create` or `attach`."""

    def __init__(self, handle: Any, size: int) -> None:
        """Map the physical memory behind a handle, readable and writable."""
        driver = _driver()
        self.handle, self.size = handle, size
        self.address = int(_must(driver.cuMemAddressReserve(size, 0, 0, 0)))
        _must(driver.cuMemMap(self.address, size, 0, handle, 0))
        access = driver.CUmemAccessDesc()
        access.location = _here()
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        _must(driver.cuMemSetAccess(self.address, size, [access], 1))

    def close(self) -> None:
        """Unmap and let go of the memory."""
        driver = _driver()
        _must(driver.cuMemUnmap(self.address, self.size))
        _must(driver.cuMemAddressFree(self.address, self.size))
        _must(driver.cuMemRelease(self.handle))


def create(size: int) -> tuple[Mapping, int]:
    """Take at least `size` bytes of the device; the mapping and a descriptor for `attach`.

    Raises:
        DeviceError: the device has no such memory left.
    """
    driver = _driver()
    use_device()
    form = driver.CUmemAllocationProp()
    form.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    form.location = _here()
    form.requestedHandleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    flag = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    grain = int(_must(driver.cuMemGetAllocationGranularity(form, flag)))
    size = -(-size // grain) * grain
    handle = _must(driver.cuMemCreate(size, form, 0))
    descriptor = _must(driver.cuMemExportToShareableHandle(handle, form.requestedHandleTypes, 0))
    return Mapping(handle, size), int(descriptor)


def attach(descriptor: int, size: int) -> Mapping:
    """In the child: map the block behind a descriptor; `size` is the mapping's, not the wanted one."""
    driver = _driver()
    use_device()
    kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return Mapping(_must(driver.cuMemImportFromShareableHandle(descriptor, kind)), size)


def use_device() -> None:
    """Make the first visible device's primary context current in this thread."""
    driver = _driver()
    _must(driver.cuInit(0))
    device = _must(driver.cuDeviceGet(0))
    _must(driver.cuCtxSetCurrent(_must(driver.cuDevicePrimaryCtxRetain(device))))


class DeviceMemory:
    """The judge's side; see `memory.Memory`. `child_address` is where the child says that it mapped the block."""

    def __init__(self, size: int, module: Path) -> None:
        """Take a block; `module` is the compiled native/refresh.cu."""
        self._module = module
        self._mapping, self.descriptor = create(size)
        self.size = self._mapping.size
        self.child_address = 0
        self._kept: list[int] = []

    def write(self, offset: int, values: Bytes) -> None:
        """Put bytes there."""
        if values.size:
            use_device()
            _must(_driver().cuMemcpyHtoD(self._mapping.address + offset, np.ascontiguousarray(values), values.size))

    def holds(self, offset: int, values: Bytes) -> bool:
        """Whether exactly these bytes stand there."""
        found = np.empty(values.size, np.uint8)
        self._download(offset, found)
        return bool(np.array_equal(found, values))

    def keep(self, values: Bytes) -> int:
        """A copy on the device."""
        use_device()
        address = int(_must(_driver().cuMemAlloc(max(1, values.size))))
        self._kept.append(address)
        if values.size:
            _must(_driver().cuMemcpyHtoD(address, np.ascontiguousarray(values), values.size))
        return address

    def renew(self, offset: int, mix: Mix, size: int, dtype: str) -> None:
        """Write fresh values; done when it returns, so that nothing of it is in a child's way."""
        if not size:
            return
        use_device()
        kind, count, first, second = kernel_arguments(mix, size, dtype)
        values = (self._mapping.address + offset, mix.one, mix.other, count, first, second, kind, mix.share)
        types = (*[ctypes.c_void_p] * 3, *[ctypes.c_long] * 3, ctypes.c_int, ctypes.c_double)
        blocks = min(4_096, -(-count // 256))
        _must(_driver().cuLaunchKernel(_kernel(self._module), blocks, 1, 1, 256, 1, 1, 0, 0, (values, types), 0))
        _must(_driver().cuCtxSynchronize())

    def taken(self, offset: int, size: int) -> Bytes:
        """A copy of the bytes there."""
        found = np.empty(size, np.uint8)
        self._download(offset, found)
        return found

    def read(self, child: Child, address: int, buffer: memoryview) -> None:
        """Read the child's memory through the judge's own mapping."""
        offset = address - self.child_address
        if not 0 <= offset <= self.size - buffer.nbytes:
            raise ChildFailed("crash", "the process named memory that is not its own torch's")
        self._download(offset, np.frombuffer(buffer, np.uint8))

    def close(self) -> None:
        """Give the block back."""
        use_device()
        for address in self._kept:
            _must(_driver().cuMemFree(address))
        self._kept.clear()
        self._mapping.close()
        os.close(self.descriptor)

    def _download(self, offset: int, found: Bytes) -> None:
        if found.size:
            use_device()
            _must(_driver().cuMemcpyDtoH(found, self._mapping.address + offset, found.size))


@cache
def _kernel(module: Path) -> Any:
    driver = _driver()
    loaded = _must(driver.cuModuleLoadData(module.read_bytes()))
    return _must(driver.cuModuleGetFunction(loaded, b"refresh"))


def _here() -> Any:
    driver = _driver()
    location = driver.CUmemLocation()
    location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = 0
    return location


def _driver() -> Any:
    from cuda.bindings import driver  # type: ignore[import-not-found]

    return driver


def _must(answer: Any) -> Any:
    """The result of a driver call."""
    status, *results = answer
    if int(status) != 0:
        raise DeviceError(f"the GPU refused a request: {status.name}; see nvidia-smi")
    return results[0] if len(results) == 1 else results
