"""The few calls of the CUDA driver that the judge itself makes, without torch: memory of its own, copies, its own kernels.

Everything runs on the default stream of the first visible device's primary context. Uses cuda-bindings, which CUDA builds of
torch bring along.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cuda_agent.errors import DeviceError

THREADS, MOST_BLOCKS = 256, 2_048
KEPT_BYTES = 4 * 2**30  # of freed memory, for the next allocation


def driver() -> Any:
    """The module of driver calls."""
    from cuda.bindings import driver as found  # type: ignore[import-not-found]

    return found


def must(answer: Any) -> Any:
    """The result of a driver call.

    Raises:
        DeviceError: the call failed.
    """
    status, *results = answer
    if int(status) != 0:
        raise DeviceError(f"the GPU refused a request: {status.name}; see nvidia-smi")
    return results[0] if len(results) == 1 else results


def use_device() -> None:
    """Make the first visible device's primary context current in this thread."""
    must(driver().cuCtxSetCurrent(_context()))


@cache
def _context() -> Any:
    calls = driver()
    must(calls.cuInit(0))
    device = must(calls.cuDeviceGet(0))
    context = must(calls.cuDevicePrimaryCtxRetain(device))
    kept = calls.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    must(calls.cuMemPoolSetAttribute(must(calls.cuDeviceGetDefaultMemPool(device)), kept, calls.cuuint64_t(KEPT_BYTES)))
    return context


class MemoryState(NamedTuple):
    """Bytes of the device."""

    free: int
    total: int


def memory() -> MemoryState:
    """As it is now, whoever took the rest."""
    use_device()
    return MemoryState(*map(int, must(driver().cuMemGetInfo())))


@cache
def cache_bytes() -> int:
    """Size of the device's last cache."""
    calls = driver()
    use_device()
    return int(must(calls.cuDeviceGetAttribute(calls.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 0)))


class Buffer:
    """Memory of the judge's own on the device, given back with the object."""

    def __init__(self, size: int) -> None:
        """Take `size` bytes.

        Raises:
            DeviceError: there is no such memory left.
        """
        self.address = 0
        use_device()
        self.address = int(must(driver().cuMemAllocAsync(max(1, size), 0)))

    def __del__(self) -> None:
        """Give it back; whoever is done with the driver by then has nothing to give."""
        if self.address and driver is not None:
            calls = driver()
            calls.cuCtxSetCurrent(_context())
            calls.cuMemFreeAsync(self.address, 0)


def copy(target: int, source: int, size: int) -> None:
    """Within the device."""
    if size:
        use_device()
        must(driver().cuMemcpyDtoDAsync(target, source, size, 0))


def upload(target: int, array: "np.ndarray[Any, Any]") -> None:
    """Copy an array's bytes to the device."""
    near = np.ascontiguousarray(array)
    if near.nbytes:
        use_device()
        must(driver().cuMemcpyHtoD(target, near.ctypes.data, near.nbytes))  # an array of one number is taken for an address


def download(array: "np.ndarray[Any, Any]", source: int) -> None:
    """Fill a contiguous array from the device."""
    if array.nbytes:
        use_device()
        must(driver().cuMemcpyDtoH(array.ctypes.data, source, array.nbytes))


def launch(module: Path, name: str, count: int, *arguments: Any) -> None:
    """Run a kernel of a compiled module over `count` elements; arguments are ctypes values."""
    use_device()
    places = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
    blocks = max(1, min(MOST_BLOCKS, -(-count // THREADS)))
    grid = (blocks, 1, 1, THREADS, 1, 1)
    must(driver().cuLaunchKernel(_kernel(module, name), *grid, 0, 0, ctypes.addressof(places), 0))


def wait() -> None:
    """Until everything asked for is done."""
    use_device()
    must(driver().cuStreamSynchronize(0))


@cache
def _kernel(module: Path, name: str) -> Any:
    return must(driver().cuModuleGetFunction(_module(module), name.encode()))


@cache
def _module(path: Path) -> Any:
    return must(driver().cuModuleLoadData(path.read_bytes()))
