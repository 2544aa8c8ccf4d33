"""The baseline child: the problem's Model in eager mode and under torch.compile (default mode), timed on request.

Runs in a sandboxed child that knows nothing of any submission and stays alive per problem; `open_baseline` is its entry.
"""

from pathlib import Path
from typing import Any

import torch

from cuda_agent.judge import inductor
from cuda_agent.judge.child_device import child_device
from cuda_agent.judge.problem_child import LoadedProblem
from cuda_agent.judge.ring import Layout
from cuda_agent.judge.stopwatch import Stopwatch

WARMING = 3


class Baseline:
    """Both baselines of one problem."""

    def __init__(self, problem: LoadedProblem, seed: int, arguments: list[list[Any]], *, cached: bool) -> None:
        """Draw weights under `seed`, compile, and warm both up on the sets of inputs in `arguments`."""
        model = problem.model(seed)
        warming = [number % len(arguments) for number in range(WARMING)]
        self.watches = {"eager": Stopwatch(problem.device, model, arguments)}
        self.watches["eager"].batch(warming)
        self.error, self.cached = "", cached
        try:
            compiled = Stopwatch(problem.device, torch.compile(model), arguments)
            compiled.batch(warming)
            self.watches["compile"] = compiled
        except Exception as error:  # the boundary: whatever torch.compile raises means that there is no such baseline
            self.error = f"{type(error).__name__}: {error}"

    def facts(self, payload: dict[str, Any]) -> dict[str, Any]:
        """How preparing went, and the newly compiled code in `files`."""
        files = {} if self.cached else inductor.collect()
        return {"compiles": not self.error, "compile_error": self.error[:2_000], "cached": self.cached, "files": files}

    def batch(self, payload: dict[str, Any]) -> list[Any]:
        """Time a call of `which` on each of `sets`; of the form of a candidate's answer."""
        return [self.watches[payload["which"]].batch(payload["sets"]), []]


def open_baseline(payload: dict[str, Any]) -> Baseline:
    """Entry for the fork server.

    `code`, `seed`, `bundle` (path of compiled code, or empty); `backend`, `threads`, `tf32`; `layout` and `block` of the ring.
    """
    inductor.use_private_folder()
    cached = bool(payload["bundle"]) and inductor.restore(Path(payload["bundle"]))
    device = child_device(payload)
    arguments, _ = device.inputs(Layout.read(payload["layout"]), payload["block"], "")
    return Baseline(LoadedProblem(payload["code"], device), payload["seed"], arguments, cached=cached)
