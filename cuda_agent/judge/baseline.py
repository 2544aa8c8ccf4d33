"""The baseline child: the problem's Model in eager mode and under torch.compile (default mode), timed on request.

Runs in a sandboxed child that knows nothing of any submission and stays alive per problem; `open_baseline` is its entry.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from cuda_agent.judge import inductor
from cuda_agent.judge.baseline_facts import BASELINES
from cuda_agent.judge.child_device import child_device
from cuda_agent.judge.problem_child import LoadedProblem
from cuda_agent.judge.ring import Layout
from cuda_agent.judge.stopwatch import Stopwatch
from cuda_agent.judge.tally import Tally
from cuda_agent.sandbox.worker import Ready

WARMING = 3


class Baseline:
    """Both baselines of one problem, once `prepare` was called."""

    def __init__(self, payload: dict[str, Any]) -> None:
        """Keep what `open_baseline` was given; import what compiling needs, which uses no device."""
        importlib.import_module("torch._inductor.compile_fx")
        self.payload = payload
        self.watches: dict[str, Stopwatch] = {}
        self.tally = Tally()

    def prepare(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Draw weights, compile, and warm both up: how it went, and the newly compiled code in `files`."""
        mine = self.payload
        cached = bool(mine["bundle"]) and inductor.restore(Path(mine["bundle"]))
        device = child_device(mine)
        arguments, _ = device.inputs(Layout.read(mine["layout"]), mine["block"], "")
        model = LoadedProblem(mine["code"], device).model(mine["seed"])
        error = self._warm(Stopwatch(device, model, arguments), lambda: Stopwatch(device, torch.compile(model), arguments))
        files = {} if cached else inductor.collect()
        return {"compiles": not error, "compile_error": error[:2_000], "cached": cached, "files": files}

    def _warm(self, eager: Stopwatch, compiling: Callable[[], Stopwatch]) -> str:
        """Call both; why torch.compile cannot take the problem, if so."""
        sets = [number % len(eager.arguments) for number in range(WARMING)]
        eager.batch(sets)
        self.watches["eager"] = eager
        try:
            compiled = compiling()
            compiled.batch(sets)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # the boundary: whatever torch.compile raises means that there is no such baseline
            return f"{type(error).__name__}: {error}"
        self.watches["compile"] = compiled
        return ""

    def timing(self, payload: dict[str, Any]) -> Ready:
        """Stand ready to be timed as a candidate does: an order's first byte says which baseline is asked."""
        return Ready(self.tally.address, self._batch)

    def _batch(self, order: bytes) -> None:
        watch = self.watches[BASELINES[order[0] - 1]]
        self.tally.write(watch.batch(order[1:]), watch.kept)
        watch.kept = []  # nobody reads them, and the other one needs the memory


def open_baseline(payload: dict[str, Any]) -> Baseline:
    """Entry for the fork server.

    `code`, `seed`, `bundle` (path of compiled code, or empty); `backend`, `threads`, `tf32`; `layout` and `block` of the ring.
    """
    inductor.use_private_folder()
    return Baseline(payload)
