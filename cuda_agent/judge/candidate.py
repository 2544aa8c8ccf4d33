"""The candidate child: the only process that imports a submission. The judge believes nothing that it reports.

What it answers is a claim: where outputs lie (the judge reads them itself), what the calls took (the judge has its own
clock), how long they were inside the extension. Before the submission is imported this process loses the right to start
processes; before the first call torch's operators are taken away, in Python and C++ alike, except for those that only
create, view or copy tensors, and so is the code of other libraries (native/seal.cpp; `sealing` sees that it was done).
"""

import gc
import importlib
import os
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cuda_agent.judge.answers import describe
from cuda_agent.judge.build import MODULES
from cuda_agent.judge.child_device import ChildDevice, child_device
from cuda_agent.judge.faults import REFUSAL
from cuda_agent.judge.ring import Layout
from cuda_agent.judge.stopwatch import Stopwatch
from cuda_agent.judge.tally import Tally
from cuda_agent.judge.values import unpack
from cuda_agent.sandbox import kernel
from cuda_agent.sandbox.seccomp import forbid_processes
from cuda_agent.sandbox.worker import Ready

WORK = Path("/tmp/work")
EXTENSIONS = {str(WORK / f"{name}.so") for name in MODULES.values()}
REFUSED = {"mmap.__new__", "gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys.setprofile", "sys.settrace"}
# Torch's own ways past its dispatcher: graphs run operators below it, and a kernel that is kept is called past its table.
PAST_THE_DISPATCHER = ("_jit_to_static_module", "_fuse_to_static_module", "_dispatch_get_computed_kernel_for_dispatch_key")
REFUSED |= {"sys._current_frames", "os.fork", "os.exec", "os.posix_spawn", "os.system", "subprocess.Popen", "socket.__new__"}


class LoadFault(Exception):
    """The submission does not load; `kind` narrows it. The exception's own text goes to the agent."""


class MissingClass(LoadFault):
    """model_new.py defines no ModelNew."""


class InitSignature(LoadFault):
    """ModelNew does not take Model's arguments."""


class StateDict(LoadFault):
    """ModelNew's parameters and buffers are not Model's."""


class Candidate:
    """A submission with one instance per draw of weights."""

    def __init__(self, payload: dict[str, Any], device: ChildDevice, arguments: list[list[Any]], block: list[int]) -> None:
        """Nothing of the submission is loaded yet; `payload` as in `open_candidate`, `block` where the shared memory lies."""
        self.module, self.device, self.block = payload["module"], device, block
        self.threads, self.untimed_threads = payload["threads"], payload["untimed_threads"]
        self._seal = _loaded("judge_seal", payload["seal"])
        self.models: list[Any] = []
        self.watch, self.tally = Stopwatch(device, self._call, arguments), Tally()
        self.model: Any = None

    def refuse(self) -> None:
        """From here on Python is refused what only a submission that looks for the judge would do."""
        self._seal.refuse_from_now_on(REFUSED, {"ctypes."}, {"cffi", "_cffi_backend"}, EXTENSIONS, REFUSAL)

    def begin(self, payload: dict[str, Any]) -> list[Any]:
        """Before anything of the submission is loaded: address and size of the shared block, and what `sealing.Seal` holds."""
        pattern, entries, code = self._seal.facts()
        return [self.block, pattern, np.array(entries, np.uint64), code]

    def extend(self, payload: dict[str, Any]) -> int:
        """Import the extension; the address of its `State`."""
        extension = importlib.import_module(self.module)
        state: int = extension._state()
        del extension._state  # not for the submission to find
        return state

    def load(self, payload: dict[str, Any]) -> Any:
        """Make a fresh ModelNew with `init`, load `state` strictly, and say where its parameters and buffers lie."""
        module = importlib.import_module("model_new")
        if not hasattr(module, "ModelNew"):
            raise MissingClass("model_new.py defines no class ModelNew")
        init = unpack(payload["init"])
        try:
            with self.device.context():
                model = module.ModelNew(**init) if isinstance(init, dict) else module.ModelNew(*init)
            model = model.to(self.device.name)
        except TypeError as error:
            raise InitSignature(str(error)) from error
        try:
            model.load_state_dict(unpack(payload["state"]), strict=True)
        except (RuntimeError, AttributeError) as error:
            raise StateDict(str(error)) from error
        self.models.append(model.eval())
        return describe(_tensors(model, ""))

    def seal(self, payload: dict[str, Any]) -> None:
        """From here on only the submission's own kernels can compute.

        What is there by now is no matter of the garbage collector's any more: it would run code that is gone.
        """
        gc.collect()
        gc.freeze()
        self._seal.seal()

    def answer(self, payload: dict[str, Any]) -> list[Any]:
        """Call instance `model` on each of `sets`; all outputs live until the next call, so that a shared buffer shows."""
        self.model = self.models[payload["model"]]
        self._use_threads(self.untimed_threads)
        self.watch.batch(payload["sets"])
        return [describe(output) for output in self.watch.kept]

    def timing(self, payload: dict[str, Any]) -> Ready:
        """Stand ready to be timed: each order names, after its first byte, the sets of a batch. Tells where its tally stands."""
        self._use_threads(self.threads)
        return Ready(self.tally.address, self._batch)

    def _batch(self, order: bytes) -> None:
        self.tally.write(self.watch.batch(order[1:]), self.watch.kept)

    def _use_threads(self, count: int) -> None:
        if torch.get_num_threads() != count:
            torch.set_num_threads(count)

    def _call(self, *arguments: Any) -> Any:
        return self.model(*arguments)


def _loaded(name: str, path: str) -> Any:
    """A compiled module by its path, under no name that an import would find."""
    loader = ExtensionFileLoader(name, path)
    spec = spec_from_loader(name, loader)
    assert spec is not None
    made = module_from_spec(spec)
    loader.exec_module(made)
    return made


def _tensors(module: Any, prefix: str) -> dict[str, Any]:
    """Parameters and buffers by name, as they are held: `state_dict` is the submission's to redefine."""
    fields = vars(module)
    own = {**fields["_parameters"], **fields["_buffers"]}
    skipped = fields["_non_persistent_buffers_set"]
    found = {f"{prefix}{name}": tensor for name, tensor in own.items() if tensor is not None and name not in skipped}
    for name, child in fields["_modules"].items():
        if child is not None:
            found |= _tensors(child, f"{prefix}{name}.")
    return found


def _without_ctypes() -> None:
    """Leave nothing but a refusal in the modules of ctypes: copies of memory through it raise no audit event."""

    def refuse(name: str) -> Any:
        raise PermissionError(f"ctypes.{name} {REFUSAL}; the work must be done by kernels/")

    for module in (sys.modules["ctypes"], sys.modules["_ctypes"]):
        for held in [name for name in vars(module) if not name.startswith("__")]:
            delattr(module, held)
        vars(module)["__getattr__"] = refuse
    del kernel._libc  # the sandbox's own handle on the C library, by which it is set up


def open_candidate(payload: dict[str, Any]) -> Candidate:
    """Entry for the fork server.

    `files`, `module` (name), `binary` (bytes), `seal` (path of the judge's own module); `backend`, `threads`, `tf32`, and
    `untimed_threads`, which answers are given with; `layout` of the inputs' ring, size of the shared `block`, and `arena`, the
    library of the allocator over the rest of it (backend cuda).
    """
    os.environ["OMP_NUM_THREADS"] = str(payload["threads"])
    device = child_device(payload)
    arguments, block = device.inputs(Layout.read(payload["layout"]), payload["block"], payload["arena"])
    _write(payload["files"])
    (WORK / f"{payload['module']}.so").write_bytes(payload["binary"])
    os.chdir(WORK)
    sys.path.insert(0, str(WORK))
    forbid_processes()
    for name in PAST_THE_DISPATCHER:
        if hasattr(torch._C, name):
            delattr(torch._C, name)
    made = Candidate(payload, device, arguments, block)
    if device.name == "cpu":
        _without_ctypes()
    made.refuse()
    return made


def build_module(payload: dict[str, Any]) -> dict[str, Any]:
    """Entry for the fork server: compile the submission's sources in a clean tree; `binary` is None when that fails.

    `imports` and `headers` as in BuildResult.
    """
    from cuda_agent.judge.build import Manifest, build

    manifest = Manifest.read(Path(payload["manifest"]))
    _write(payload["files"])
    header = "binding_registry.h"  # published bindings include it as "../binding_registry.h"
    (WORK / header).write_bytes((Path(manifest.folder) / header).read_bytes())
    output = WORK / "module.so"
    result = build(WORK, output, manifest, payload["timeout"], fast_math=payload["fast_math"])
    binary = output.read_bytes() if result.output else None
    return {"binary": binary, "message": result.message, "imports": list(result.imports), "headers": result.headers}


def _write(files: dict[str, str]) -> None:
    for name, text in files.items():
        path = WORK / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
