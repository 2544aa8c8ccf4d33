"""Results of vetting in order of position, whatever finishes first.

Invariant: of two problems that resemble each other the earlier one stays, for any number of workers and after any
interruption; each result that is new is kept (stored, told) once, in order.
"""

from collections.abc import Callable, Mapping

from cuda_agent.config import DatasetScience
from cuda_agent.problems.problem import VettedProblem
from cuda_agent.problems.rules import unlike
from cuda_agent.problems.similarity import Twins

Keep = Callable[[VettedProblem], None]


class Ordered:
    """Takes results as they come and settles each once all earlier positions are settled."""

    def __init__(self, science: DatasetScience, done: Mapping[int, VettedProblem], keep: Keep) -> None:
        """`done` holds an earlier run's results by position; they are settled like new ones but not kept again."""
        self.science, self._done, self._keep = science, done, keep
        self._waiting: dict[int, VettedProblem] = {}
        self.settled: list[VettedProblem] = []
        self.accepted: list[VettedProblem] = []  # of these
        self.twins = Twins()  # the accepted ones, to compare with
        self._advance()

    @property
    def accepted_ahead(self) -> int:
        """Accepted results that wait for an earlier position."""
        return sum(problem.accepted for problem in self._waiting.values())

    def finished(self) -> bool:
        """Whether no further result is wanted; asked before each one is settled."""
        return False

    def final(self, result: VettedProblem) -> VettedProblem:
        """The last word on a result that is about to be settled."""
        return result

    def add(self, result: VettedProblem) -> None:
        """Take in a result."""
        self._waiting[result.position] = result
        self._advance()

    def _advance(self) -> None:
        while not self.finished():
            position = len(self.settled)
            new = position in self._waiting
            found = self._waiting.pop(position) if new else self._done.get(position)
            if found is None:
                return
            result = self.final(unlike(found.on_side(None), self.science, self.twins))
            if new:
                self._keep(result)
            self.settled.append(result)
            if result.accepted:
                self.accepted.append(result)
                self.twins.add(result.code, result.facts, str(result.facts.get("name", position)))
