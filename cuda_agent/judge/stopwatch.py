"""Timed batches inside a child, the same for candidate, eager and torch.compile: one untimed call, then `count` timed ones.

Input sets take turns, and every output of a batch is kept until the next one, so that the judge may ask for any of them.
"""

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

import torch

from cuda_agent.judge.values import pack
from cuda_agent.sandbox.kernel import keep_heap


class Stopwatch:
    """Times calls of one function on the input sets it was given."""

    def __init__(self, function: Callable[..., Any], inputs: Sequence[Sequence[Any]]) -> None:
        """`inputs` holds one or more argument lists."""
        self.function, self.inputs = function, inputs
        self.kept: list[Any] = []

    def warm(self, calls: int = 3) -> None:
        """Call without timing."""
        keep_heap()
        with torch.no_grad():
            for number in range(calls):
                self.function(*self.inputs[number % len(self.inputs)])

    def batch(self, count: int) -> list[int]:
        """Nanoseconds of each call; the first one is the untimed, waking call. A negative count calls nothing."""
        self.kept = []
        times: list[int] = []
        with torch.no_grad():
            for number in range(count + 1):
                arguments = self.inputs[number % len(self.inputs)]
                start = perf_counter_ns()
                output = self.function(*arguments)
                times.append(perf_counter_ns() - start)
                self.kept.append(output)
        return times

    def output(self, call: int) -> Any:
        """The output of a call of the last batch, packed."""
        return pack(self.kept[call])
