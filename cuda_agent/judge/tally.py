"""What the calls of a timed batch took and where their answers lie, as a child lays it down for the judge to read.

It stands in memory of the child's own, at an address that is told once: nothing is built, encoded or sent while the clock runs.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cuda_agent.judge.answers import addresses

WORDS = 16_384  # of 64 bits: by call its nanoseconds, the number of its tensors, their addresses


class Tally:
    """In the child."""

    def __init__(self) -> None:
        """Nothing was counted yet; `address` is where it stands."""
        self._words = np.zeros(WORDS, np.int64)
        self._view = self._words.data
        self.address = int(self._words.ctypes.data)

    def write(self, times: Sequence[int], outputs: Sequence[Any]) -> None:
        """Lay down a batch.

        Raises:
            ValueError: its answers hold more tensors than there is room for.
        """
        view, place = self._view, 0
        try:
            for nanoseconds, output in zip(times, outputs, strict=True):
                found = addresses(output)
                view[place], view[place + 1] = nanoseconds, len(found)
                place += 2
                for address in found:
                    view[place] = address
                    place += 1
        except IndexError as error:
            raise ValueError(f"{len(times)} answers hold more tensors than can be timed; return fewer") from error


def read(peek_into: Callable[[int, "np.ndarray[Any, Any]"], None], address: int, calls: int) -> tuple[list[int], list[list[int]]]:
    """In the judge: nanoseconds of so many calls, and the addresses of each one's tensors. Believes nothing but the form.

    Raises:
        ValueError: that is no tally.
        ChildFailed: from `peek_into`, the child's memory cannot be read there.
    """
    words = np.empty(WORDS, np.int64)
    peek_into(address, words)
    told, place = words.data, 0
    times, places = [], []
    for _ in range(calls):
        nanoseconds, count = told[place : place + 2].tolist() if place + 2 <= WORDS else (-1, -1)
        if nanoseconds < 0 or not 0 <= count <= WORDS - place - 2:
            raise ValueError("a batch was tallied with nonsense")
        times.append(nanoseconds)
        places.append(told[place + 2 : place + 2 + count].tolist())
        place += 2 + count
    return times, places
