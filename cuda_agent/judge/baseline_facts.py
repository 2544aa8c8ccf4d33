"""What the judge keeps of a problem's baselines; apart from `baseline.py`, which imports torch and runs in children only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

BASELINES = ("eager", "compile")  # as orders number them, from 1


@dataclass(frozen=True)
class BaselineFacts:
    """Whether torch.compile took the problem, why not, and whether its code came from the cache."""

    compiles: bool
    compile_error: str
    cached: bool

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """From the baseline child's answer to `facts`."""
        return cls(bool(answer["compiles"]), str(answer["compile_error"])[:500], bool(answer["cached"]))


class BaselineLost(Exception):
    """A problem's child failed while timing: an infrastructure fault, not the submission's."""
