"""The baseline child: the problem's Model in eager mode and under torch.compile (default mode), timed on request.

Runs in a sandboxed child that knows nothing of any submission and stays alive per problem; `open_baseline` is its entry.
"""

from pathlib import Path
from typing import Any

import torch

from cuda_agent.judge import inductor
from cuda_agent.judge.problem_child import LoadedProblem
from cuda_agent.judge.stopwatch import Stopwatch

INPUT_SETS = 2


class Baseline:
    """Both baselines of one problem."""

    def __init__(self, problem: LoadedProblem, seed: int, *, cached: bool) -> None:
        """Draw weights and inputs under `seed`, compile, and warm both up."""
        model = problem.model(seed)
        inputs = [problem.inputs(seed + 1 + number) for number in range(INPUT_SETS)]
        self.watches = {"eager": Stopwatch(model, inputs)}
        self.watches["eager"].warm()
        self.error, self.cached = "", cached
        try:
            compiled = Stopwatch(torch.compile(model), inputs)
            compiled.warm()
            self.watches["compile"] = compiled
        except Exception as error:  # the boundary: whatever torch.compile raises means that there is no such baseline
            self.error = f"{type(error).__name__}: {error}"

    def facts(self, payload: dict[str, Any]) -> dict[str, Any]:
        """How preparing went, and the newly compiled code in `files`."""
        files = {} if self.cached else inductor.collect()
        return {"compiles": not self.error, "compile_error": self.error[:2_000], "cached": self.cached, "files": files}

    def batch(self, payload: dict[str, Any]) -> list[int]:
        """Time a batch of `which`; see Stopwatch."""
        return self.watches[payload["which"]].batch(payload["count"])


def open_baseline(payload: dict[str, Any]) -> Baseline:
    """Entry for the fork server: `code`, `threads`, `seed`, `bundle` (path of compiled code, or empty)."""
    inductor.use_private_folder()
    cached = bool(payload["bundle"]) and inductor.restore(Path(payload["bundle"]))
    return Baseline(LoadedProblem(payload["code"], payload["threads"]), payload["seed"], cached=cached)
