"""What the GPU's management library tells: clocks, why they are held back, and how fast its memory can be. Nothing without it.

A reading costs some 0.1 ms; it is taken before and after times are measured and kept with the verdict.
"""

from functools import cache
from typing import Any, NamedTuple

import pynvml

from cuda_agent.errors import DeviceError

REASONS = {
    "idle": pynvml.nvmlClocksEventReasonGpuIdle,
    "applications": pynvml.nvmlClocksEventReasonApplicationsClocksSetting,
    "power_cap": pynvml.nvmlClocksEventReasonSwPowerCap,
    "hardware": pynvml.nvmlClocksThrottleReasonHwSlowdown,
    "sync_boost": pynvml.nvmlClocksEventReasonSyncBoost,
    "heat": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
    "hardware_heat": pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
    "power_brake": pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
}


class Reading(NamedTuple):
    """Clocks in MHz, degrees Celsius, watts, and which of `REASONS` hold the clocks back."""

    sm_mhz: int
    memory_mhz: int
    celsius: int
    watts: float
    held_back: tuple[str, ...]


def reading(uuid: str) -> Reading | None:
    """How the GPU is now; None if its library does not say."""
    try:
        device = _device(uuid)
        bits = pynvml.nvmlDeviceGetCurrentClocksEventReasons(device)
        return Reading(
            pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_SM),
            pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_MEM),
            pynvml.nvmlDeviceGetTemperature(device, pynvml.NVML_TEMPERATURE_GPU),
            pynvml.nvmlDeviceGetPowerUsage(device) / 1e3,
            tuple(name for name, bit in REASONS.items() if bits & bit),
        )
    except pynvml.NVMLError:
        return None


def free_and_total(uuid: str) -> tuple[int, int]:
    """Bytes of the GPU's memory that nobody has taken, and all there are.

    Raises:
        DeviceError: its library does not say.
    """
    try:
        found = pynvml.nvmlDeviceGetMemoryInfo(_device(uuid))
    except pynvml.NVMLError as error:
        raise DeviceError(f"the GPU does not say how much memory it has ({error}); see nvidia-smi") from error
    return int(found.free), int(found.total)


@cache
def bandwidth(uuid: str) -> float:
    """Most bytes a second between the GPU and its memory: two transfers a clock over the whole bus; infinity if unknown."""
    try:
        device = _device(uuid)
        clock = pynvml.nvmlDeviceGetMaxClockInfo(device, pynvml.NVML_CLOCK_MEM)
        return float(2e6 * clock * pynvml.nvmlDeviceGetMemoryBusWidth(device) / 8)
    except pynvml.NVMLError:
        return float("inf")


@cache
def cuda_version(uuid: str) -> str:
    """The newest CUDA that the driver serves, such as "13.0"; empty if unknown."""
    try:
        _device(uuid)
        version: int = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    except pynvml.NVMLError:
        return ""
    return f"{version // 1_000}.{version % 1_000 // 10}"


@cache
def _device(uuid: str) -> Any:
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByUUID(uuid)
