"""What was taken from a candidate's process before its first call, as seen from outside.

`judge_seal` (native/seal.cpp) takes torch's operators, the code of other libraries, and on a processor the right to map new
code. The submission's Python runs in the same process before that and could keep it from happening, or undo it: so the
child tells, before anything of the submission is loaded, where the judge can look, and the judge looks at the frozen child
after the seal and again at the end.

It shows how things stand when the judge looks. Native code that puts an operator back for the length of a call and knows
torch's private tables well enough to do so is not caught by this.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from cuda_agent.sandbox.forkserver import Child

KEPT = "the submission kept {} from being taken away; only kernels/ may compute"
OWN_FILTERS = {False: 1, True: 0}  # of system calls that the seal adds, by whether the device is a GPU


@dataclass(frozen=True)
class Seal:
    """`entries` are addresses of operators' table entries that must begin with `pattern`; `code` must not be executable.

    `filters` of system calls were installed before anything of the submission was loaded.
    """

    pattern: bytes
    entries: "np.ndarray[Any, Any]"
    code: tuple[tuple[int, int], ...]
    filters: int

    @classmethod
    def of(cls, filters: int, pattern: bytes, entries: "np.ndarray[Any, Any]", code: Sequence[Sequence[int]]) -> Self:
        """From what the child's trusted part told, and what the judge saw."""
        return cls(pattern, entries, tuple((first, end) for first, end in code), filters)

    def early_fault(self, child: Child) -> str:
        """What stands in the way of sealing the frozen child: a filter of the submission's could answer for the kernel."""
        return "" if child.filters() == self.filters else KEPT.format("the right to new code")

    def fault(self, child: Child, *, is_gpu: bool) -> str:
        """What the frozen child still has, in words; or an empty string.

        Raises:
            ChildFailed: it has ended.
        """
        found = child.gather(self.entries, len(self.pattern))
        if not bool((found == np.frombuffer(self.pattern, np.uint8)).all()):
            return KEPT.format("torch's operators")
        for start, end in child.executable():
            if any(start < last and first < end for first, last in self.code):
                return KEPT.format("another library's code")
        if child.filters() != self.filters + OWN_FILTERS[is_gpu]:
            return KEPT.format("the right to new code")
        return ""
