"""The candidate child: the only process that imports a submission. Nothing it reports is believed beyond what it admits.

Its answers are output tensors, admitted faults, and times that the judge checks against its own clock.
"""

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cuda_agent.judge.problem_child import clone, same
from cuda_agent.judge.stopwatch import Stopwatch
from cuda_agent.judge.values import pack, unpack

WORK = Path("/tmp/work")
# Creation and views only; the work must be done by the submission's own kernels.
CREATION = (
    "empty empty_like empty_strided new_empty new_empty_strided zeros zeros_like new_zeros "
    "ones ones_like new_ones full full_like new_full"
)
VIEWS = (
    "view _unsafe_view reshape _reshape_alias as_strided alias detach t transpose permute slice select expand unsqueeze "
    "squeeze split split_with_sizes unbind chunk narrow flatten unflatten movedim swapaxes view_as expand_as lift_fresh"
)
ALLOWED = frozenset((CREATION + " " + VIEWS).split())


class OperatorRecord(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Names of the torch operators that run, in order of first use."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: dict[str, None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the operator and run it."""
        self.names[str(func.overloadpacket.__name__)] = None
        return func(*args, **(kwargs or {}))


class LoadFault(Exception):
    """The submission does not load; `kind` narrows it. The exception's own text goes to the agent."""


class MissingClass(LoadFault):
    """model_new.py defines no ModelNew."""


class InitSignature(LoadFault):
    """ModelNew does not take Model's arguments."""


class StateDict(LoadFault):
    """ModelNew's parameters and buffers are not Model's."""


class Candidate:
    """A loaded submission with one instance per draw of weights."""

    def __init__(self, module: str) -> None:
        """Import model_new, which imports the extension `module`."""
        self.module = importlib.import_module("model_new")
        self.extension = sys.modules.get(module)
        if not hasattr(self.module, "ModelNew"):
            raise MissingClass("model_new.py defines no class ModelNew")
        self.model: Any = None
        self.watch: Stopwatch | None = None

    def load(self, payload: dict[str, Any]) -> None:
        """Make a fresh ModelNew with `init` and load `state` strictly."""
        init = unpack(payload["init"])
        try:
            model = self.module.ModelNew(**init) if isinstance(init, dict) else self.module.ModelNew(*init)
        except TypeError as error:
            raise InitSignature(str(error)) from error
        try:
            model.load_state_dict(unpack(payload["state"]), strict=True)
        except (RuntimeError, AttributeError) as error:
            raise StateDict(str(error)) from error
        self.model = model.eval()

    def verify(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Answer every set of inputs; all outputs are packed after the last call, so that a shared buffer shows."""
        cases = [unpack(case) for case in payload["cases"]]
        before = clone(dict(self.model.state_dict()))
        calls = self._calls()
        with torch.no_grad(), OperatorRecord() as record:
            outputs = [self.model(*inputs) for inputs in cases]
        mutated = any(not same(unpack(case), inputs) for case, inputs in zip(payload["cases"], cases, strict=True))
        return {
            "outputs": [pack(output) for output in outputs],
            "mutated": mutated,
            "state_changed": not same(before, dict(self.model.state_dict())),
            "forbidden": [name for name in record.names if name not in ALLOWED][:8],
            "calls": self._calls() - calls,
        }

    def _calls(self) -> int:
        """Calls of light bindings so far; where a torch-header binding is registered, these cannot be counted: one."""
        if self.extension is None:
            return 0
        return int(self.extension._light_calls()) + (1 if self.extension._bindings() else 0)

    def ready(self, payload: dict[str, Any]) -> None:
        """Take the input sets for timing and warm up."""
        self.watch = Stopwatch(self.model, [unpack(case) for case in payload["cases"]])
        self.watch.warm()

    def batch(self, payload: dict[str, Any]) -> list[int]:
        """Time a batch; see Stopwatch."""
        assert self.watch is not None
        return self.watch.batch(payload["count"])

    def output(self, payload: dict[str, Any]) -> Any:
        """One output of the last batch."""
        assert self.watch is not None
        return self.watch.output(payload["call"])


def open_candidate(payload: dict[str, Any]) -> Candidate:
    """Entry for the fork server: `files`, `module` (name), `binary` (bytes), `threads`."""
    torch.set_num_threads(payload["threads"])
    os.environ["OMP_NUM_THREADS"] = str(payload["threads"])
    _write(payload["files"])
    (WORK / f"{payload['module']}.so").write_bytes(payload["binary"])
    os.chdir(WORK)
    sys.path.insert(0, str(WORK))
    return Candidate(payload["module"])


def build_module(payload: dict[str, Any]) -> dict[str, Any]:
    """Entry for the fork server: compile the submission's sources in a clean tree; `binary` is None when that fails."""
    from cuda_agent.judge.build import Manifest, build

    manifest = Manifest.read(Path(payload["manifest"]))
    _write(payload["files"])
    header = "binding_registry.h"  # published bindings include it as "../binding_registry.h"
    (WORK / header).write_bytes((Path(manifest.folder) / header).read_bytes())
    output = WORK / "module.so"
    result = build(WORK, output, manifest, payload["timeout"], fast_math=payload["fast_math"])
    return {"binary": output.read_bytes() if result.output else None, "message": result.message}


def _write(files: dict[str, str]) -> None:
    for name, text in files.items():
        path = WORK / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
