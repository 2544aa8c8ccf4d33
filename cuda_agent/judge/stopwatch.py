"""Timed calls inside a child, the same for candidate, eager and torch.compile.

Every call works on another set of inputs, and every output of a batch is kept until the next one, so that the judge may
read any of them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from cuda_agent.judge.child_device import ChildDevice


class Stopwatch:
    """Times calls of one function on sets of arguments."""

    def __init__(self, device: ChildDevice, function: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> None:
        """`arguments` holds one argument list per set of inputs."""
        self.device, self.function, self.arguments = device, function, arguments
        self.kept: list[Any] = []

    def batch(self, sets: Sequence[int]) -> Sequence[int]:
        """Nanoseconds of a call on each of the sets, in order."""
        self.kept = []
        with torch.no_grad():
            self.kept, times = self.device.timed(self.function, [self.arguments[number] for number in sets])
        return times
