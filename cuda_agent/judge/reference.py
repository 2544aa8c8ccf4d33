"""The reference child: draws weights and inputs under the judge's seeds and answers them, in float32 and in float64.

Runs the problem's own, untrusted code in a sandbox of its own; the submission never runs here.
"""

import copy
from typing import Any

import torch

from cuda_agent.judge.problem_child import LoadedProblem, clone, same
from cuda_agent.judge.values import pack


class Reference:
    """One problem, asked again and again."""

    def __init__(self, problem: LoadedProblem) -> None:
        """Hold a loaded problem; `draw` comes before `answer`."""
        self.problem = problem
        self.models: dict[int, torch.nn.Module] = {}

    def draw(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Weights under `seed`: what ModelNew is made with (`init`) and its state_dict (`state`)."""
        seed = payload["seed"]
        model = self.problem.model(seed)
        self.models = {**dict(list(self.models.items())[-3:]), seed: model}
        return {"init": pack(self.problem.init_inputs(seed)), "state": pack(dict(model.state_dict()))}

    def answer(self, payload: dict[str, Any]) -> dict[str, Any]:
        """For each of `seeds`: inputs, outputs, outputs in float64 (or None), under the weights of `weights`."""
        with torch.no_grad():
            return {"cases": [self._case(self.models[payload["weights"]], seed) for seed in payload["seeds"]]}

    def _case(self, model: torch.nn.Module, seed: int) -> dict[str, Any]:
        inputs = self.problem.inputs(seed)
        given = clone(inputs)
        output = model(*given)
        case = {"inputs": pack(inputs), "output": pack(output), "mutates": not same(given, inputs)}
        return case | {"exact": self._exact(model, inputs)}

    def _exact(self, model: torch.nn.Module, inputs: list[Any]) -> Any:
        try:
            return pack(_double(copy.deepcopy(model).double()(*_double(inputs))))
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
