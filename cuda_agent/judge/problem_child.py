"""Loading a problem inside a sandboxed child: shared by the reference and the baseline; never imported by the judge.

Models run in eval mode. Everything random is drawn under a seed that the judge owns, one draw for weights and one for each
set of inputs, so that two children given the same seeds hold the same values.
"""

import os
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from cuda_agent.judge.child_device import ChildDevice
from cuda_agent.judge.trees import mapped


class LoadedProblem:
    """A problem's module with its three parts under one spelling."""

    def __init__(self, code: str, device: ChildDevice) -> None:
        """Execute the problem's text; its tensors will be on `device`."""
        os.environ["OMP_NUM_THREADS"] = str(torch.get_num_threads())
        self.device = device
        module = types.ModuleType("problem")
        sys.modules["problem"] = module
        exec(compile(code, "model.py", "exec"), module.__dict__)
        self.module = module
        self.get_inputs = _either(module, "get_inputs", "getInputs")
        self.get_init_inputs = _either(module, "get_init_inputs", "getInitInputs")

    def init_inputs(self, seed: int) -> Any:
        """Arguments of Model under a seed: a list, or a dictionary of keywords."""
        self.device.seed(seed)
        with self.device.context():
            return self.device.moved(self.get_init_inputs())

    def model(self, seed: int) -> torch.nn.Module:
        """A fresh Model with weights drawn under a seed, in eval mode."""
        init = self.init_inputs(seed)
        self.device.seed(seed)
        with self.device.context():
            made = self.module.Model(**init) if isinstance(init, dict) else self.module.Model(*init)
        return made.to(self.device.name).eval()  # type: ignore[no-any-return]

    def inputs(self, seed: int) -> list[Any]:
        """Inputs drawn under a seed."""
        self.device.seed(seed)
        with self.device.context():
            return list(self.device.moved(list(self.get_inputs())))


def _either(module: types.ModuleType, *names: str) -> Callable[[], Any]:
    for name in names:
        if hasattr(module, name):
            return getattr(module, name)  # type: ignore[no-any-return]
    raise AttributeError(f"model.py defines no {names[0]}")


def clone(value: Any) -> Any:
    """Copy a value's tensors."""
    return mapped(value, torch.clone)


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal bit for bit as far as torch tells (NaN equals NaN)."""
    if isinstance(one, torch.Tensor):
        return one.shape == other.shape and bool(torch.equal(one, other) or torch.allclose(one, other, 0.0, 0.0, equal_nan=True))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return bool(one == other)
