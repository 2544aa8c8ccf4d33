"""The reference child: draws weights and inputs under the judge's seeds and answers them, and in float64 when asked.

Runs the problem's own, untrusted code in a sandbox of its own; the submission never runs here.
"""

from typing import Any

import torch

from cuda_agent.judge.problem_child import LoadedProblem, clone, same
from cuda_agent.judge.values import pack


class Reference:
    """One problem, asked again and again; each exam is one call, so that callers cannot mix."""

    def __init__(self, problem: LoadedProblem) -> None:
        """Hold a loaded problem."""
        self.problem = problem

    def exam(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Draw weights under each of `weights` and answer sets of inputs drawn under `seeds`, shared out among the draws.

        A model without weights needs one draw only. Each part holds what ModelNew is made with (`init`), the state_dict
        (`state`), the seed it was drawn under (`weights`) and its cases: seed, inputs, output, whether the reference changes
        its inputs.
        """
        weights, seeds = list(payload["weights"]), list(payload["seeds"])
        parts = [self._part(weights[0], [])]
        if not parts[0]["state"][1]:
            weights = weights[:1]
        share = -(-len(seeds) // len(weights))
        return {"parts": [self._part(seed, seeds[n * share : (n + 1) * share]) for n, seed in enumerate(weights)]}

    def _part(self, weights: int, seeds: list[int]) -> dict[str, Any]:
        model = self.problem.model(weights)
        with torch.no_grad():
            cases = [self._case(model, seed) for seed in seeds]
        init, state = pack(self.problem.init_inputs(weights)), pack(dict(model.state_dict()))
        return {"weights": weights, "init": init, "state": state, "cases": cases}

    def _case(self, model: torch.nn.Module, seed: int) -> dict[str, Any]:
        inputs = self.problem.inputs(seed)
        given = clone(inputs)
        output = model(*given)
        return {"seed": seed, "inputs": pack(inputs), "output": pack(output), "mutates": not same(given, inputs)}

    def exact(self, payload: dict[str, Any]) -> Any:
        """The output in float64 for the weights and inputs drawn under two seeds, or None."""
        model, inputs = self.problem.model(payload["weights"]), self.problem.inputs(payload["seed"])
        try:
            with torch.no_grad():
                return pack(_double(model.double()(*_double(inputs))))
        except Exception:  # the boundary: a problem that cannot run in float64 is compared with float32 alone
            return None


def _double(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, list | tuple):
        return type(value)(_double(item) for item in value)
    if isinstance(value, dict):
        return {key: _double(item) for key, item in value.items()}
    return value


def open_reference(payload: dict[str, Any]) -> Reference:
    """Entry for the fork server: `code`, `threads`."""
    return Reference(LoadedProblem(payload["code"], payload["threads"]))
