"""Counting what optimiser steps did, and how often to say so."""

import math
import time
from typing import Any


class Meter:
    """Adds up a stretch of optimiser steps and says how fast they went."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.tokens = self.policy_tokens = self.updates = 0
        self._sums: dict[str, float] = {}

    def add(self, tokens: int, policy_tokens: int, **numbers: float) -> None:
        """Count one optimiser step: its unpadded tokens in all processes, and numbers to average over steps."""
        self.tokens += tokens
        self.policy_tokens += policy_tokens
        self.updates += 1
        for name, number in numbers.items():
            self._sums[name] = self._sums.get(name, 0.0) + number

    def means(self) -> dict[str, float]:
        """Each number's mean over the optimiser steps."""
        return {name: total / self.updates for name, total in self._sums.items()}

    def metrics(self) -> dict[str, Any]:
        """The means, the counts, and tokens per second since the start."""
        seconds = time.monotonic() - self.started
        counts = {"updates": self.updates, "tokens": self.tokens, "policy_tokens": self.policy_tokens}
        return {**self.means(), **counts, "seconds": seconds, "tokens_per_second": self.tokens / max(seconds, 1e-9)}


class Pace:
    """Says when the next progress event is due; the first one is at once."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._last = -math.inf

    def due(self) -> bool:
        """Whether `seconds` have passed since this last said yes."""
        now = time.monotonic()
        if now - self._last < self.seconds:
            return False
        self._last = now
        return True
