"""The measuring device as the judge sees it: what its children are told, which memory they share, what they may use."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda_agent.config import JudgeConfig
from cuda_agent.judge import cuda_driver, machine, nvml, proof
from cuda_agent.judge.answers import Where
from cuda_agent.judge.cuda_memory import Box, DeviceMemory
from cuda_agent.judge.glue import SEAL_MODULE
from cuda_agent.judge.memory import HostMemory, Memory
from cuda_agent.judge.ring import Layout, Ring, Sources, ring_sets
from cuda_agent.judge.values import Packed, leaves
from cuda_agent.sandbox import view
from cuda_agent.sandbox.limits import Bind, Limits

HOST_RING, GPU_RING = 512 * 2**20, 2 * 2**30  # most bytes of a ring: batches of what takes long to read are short
SMALL_RING, FEW_SETS = 32 * 2**20, 16  # more sets than these few where they take no more bytes than this
LEAST_ARENA = 2 * 2**30
CONTEXT = 2**30  # what a process on a GPU takes for itself, generously
BOX, BOX_SHARE = 2 * 2**30, 64  # bytes, and at most one part in so many of the device's memory
EVALUATION = 8 * 2**30  # a GPU's memory for each evaluation under way, with its share of references and baselines


@dataclass(frozen=True)
class Device:
    """One of a machine's devices; `threads` of the processor serve its children."""

    config: JudgeConfig
    threads: int
    glue: Path

    @property
    def settings(self) -> dict[str, Any]:
        """What every child's payload holds."""
        return {"backend": self.config.backend, "threads": self.threads, "tf32": self.config.tf32}

    @property
    def untimed_threads(self) -> int:
        """For what is not timed and runs beside other work: two threads that wait for each other on a shared core take ten times
        as long as one.
        """
        return max(1, self.threads // 4)

    @property
    def is_gpu(self) -> bool:
        """Whether this is no processor."""
        return self.config.backend == "cuda"

    @property
    def binds(self) -> tuple[Bind, ...]:
        """What children see beyond the usual."""
        return (*(view.gpu_binds() if self.is_gpu else ()), Bind.of(self.glue))

    @property
    def seal(self) -> str:
        """The judge's own module in a candidate."""
        return str(self.glue / SEAL_MODULE)

    @property
    def arena(self) -> str:
        """The library of a candidate's allocator; empty where answers are read from its own memory."""
        return str(self.glue / "arena.so") if self.is_gpu else ""

    def limits(self, seconds: float, output: int = 2**31) -> Limits:
        """Of a child that computes; a CUDA process maps far more than it uses, so its address space is not bounded."""
        return Limits(seconds, 0 if self.is_gpu else self.config.memory_mb, 128, output, 512)

    def ring(self, sources: Sources, wanted: int, outputs: Packed | None = None, state: Packed | None = None) -> Ring:
        """A ring of up to `wanted` sets like the sources; for a candidate on a GPU with room for its tensors behind it."""
        sets, size = self._sizes(sources.inputs[0], wanted, outputs, state)
        return Ring(sources, sets, self._memory(size))

    def candidate_bytes(self, inputs: Packed, wanted: int, outputs: Packed, state: Packed | None) -> int:
        """What a candidate with such a ring takes of a GPU's memory; 0 on a processor."""
        return self._sizes(inputs, wanted, outputs, state)[1] + CONTEXT if self.is_gpu else 0

    def _sizes(self, inputs: Packed, wanted: int, outputs: Packed | None, state: Packed | None) -> tuple[int, int]:
        """Sets of a ring, and bytes of its block."""
        pitch, most = Layout.of(inputs, 1).pitch, GPU_RING if self.is_gpu else HOST_RING
        sets = ring_sets(inputs, wanted, min(most, max(SMALL_RING, FEW_SETS * pitch)))
        room = _room(inputs, outputs, state, sets) if self.is_gpu and outputs is not None else 0
        return sets, Layout.of(inputs, sets).size + room

    def most_at_once(self) -> int:
        """How many evaluations should be under way: one for each core, and no more than a GPU's memory holds."""
        cores = len(os.sched_getaffinity(0))
        if not self.is_gpu:
            return cores
        return max(1, min(cores, cuda_driver.memory().total // EVALUATION))

    @property
    def starves(self) -> bool:
        """Whether a process that hangs may keep others waiting: an endless kernel does."""
        return self.is_gpu

    def free_bytes(self) -> int:
        """Of a GPU's memory; a processor's candidates have limits of their own."""
        if not self.is_gpu:
            return sys.maxsize
        return cuda_driver.memory().free

    def too_quick(self, form: Sequence[Where], calls: int, ms: float) -> str:
        """Why the times of batches of `calls` cannot be, given where an answer's tensors lie; empty if they can.

        Nothing is known of a processor's memory.
        """
        if not self.is_gpu:
            return ""
        written = sum(place.own for place in form)
        bandwidth = nvml.bandwidth(machine.gpu().uuid)
        return proof.faster_than_memory(written, calls, ms, cache=cuda_driver.cache_bytes(), bandwidth=bandwidth)

    def box(self) -> Box | None:
        """On a GPU: a block for what a reference is asked and answers, so that it stays on the device.

        Raises:
            DeviceError: the device has no such memory left.
        """
        if not self.is_gpu:
            return None
        return Box(min(BOX, cuda_driver.memory().total // BOX_SHARE), self.glue)

    def _memory(self, size: int) -> Memory:
        if not self.is_gpu:
            return HostMemory(size, self.glue / "refresh.so")
        return DeviceMemory(size, self.glue)


def _room(inputs: Packed, outputs: Packed, state: Packed | None, sets: int) -> int:
    """Bytes for what torch allocates in a candidate: all answers of a batch, some temporaries of each, its weights."""
    call = _bytes(inputs) + _bytes(outputs)
    return max(LEAST_ARENA, _bytes(outputs) * sets + 6 * (call + (_bytes(state) if state else 0)))


def _bytes(packed: Packed) -> int:
    return sum(leaf[3].nbytes for leaf in leaves(packed))
