"""The reference child: draws weights and inputs under the judge's seeds and answers them, and in float64 when asked.

Runs the problem's own, untrusted code in a sandbox of its own; the submission never runs here.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cuda_agent.judge.child_device import ChildBox, child_device
from cuda_agent.judge.exactness import exact
from cuda_agent.judge.problem_child import LoadedProblem, clone, same
from cuda_agent.judge.ring import Way
from cuda_agent.judge.stress import GIVEN, PLAIN, applied
from cuda_agent.judge.structure import ways_of
from cuda_agent.judge.trees import tensors
from cuda_agent.judge.values import held, pack, unpack

T = TypeVar("T")
SOURCES = 3
MOST_SOURCES_BYTES = 2**28
WAYS_SEED = 77  # the same for every submission
MOST_CACHED = 2**29  # bytes of a GPU that torch may keep between two questions


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects the names of operators that run."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the operator and run it."""
        self.names.add(str(func.overloadpacket.__name__))
        return func(*args, **(kwargs or {}))


class Reference:
    """One problem, asked again and again; each exam is one call, so that callers cannot mix."""

    def __init__(self, problem: LoadedProblem, box: ChildBox | None = None) -> None:
        """Hold a loaded problem; on a GPU answers are laid into the `box`."""
        self.problem, self.box = problem, box
        self.operators: list[str] = []
        self.kept: list[Any] = []

    def exam(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Draw weights under each of `weights` and answer sets of inputs: `shared` ones dealt out among the draws, `last` ones.

        Both hold pairs of a seed and a variant of `stress`. A model without weights needs one draw only. Each part
        holds what ModelNew is made with (`init`), the state_dict (`state`), the seed it was drawn under (`weights`) and its
        cases: seed, variant, inputs, output, inputs after the call if they changed, whether it answers with their memory.
        Variants whose answer is not finite are left out. `sources` are inputs alone, drawn under the first SOURCES of those
        seeds, or under more where tensors keep a structure; `ways` says which do (see `structure`). Tensors stay where they
        are until the next call (`values.held`).
        """
        self._begin()
        weights, shared = list(payload["weights"]), list(payload["shared"])
        if not self.problem.model(weights[0]).state_dict():
            weights = weights[:1]
        shares = [shared[number :: len(weights)] for number in range(len(weights))]
        shares[-1] += payload["last"]
        parts = [self._part(seed, share) for seed, share in zip(weights, shares, strict=True)]
        sources = [self._held(inputs) for inputs in self._sources(payload["sources"])]
        told = {"sources": sources, "ways": self._ways, "operators": self._operators(weights[0])}
        return self._done({"parts": parts, **told})

    def _sources(self, seeds: list[int]) -> Iterator[list[Any]]:
        few = [self.problem.inputs(seed) for seed in seeds[:SOURCES]]
        yield from few
        if few and not all(self._free(few[0])):
            most = MOST_SOURCES_BYTES // max(1, sum(tensor.nbytes for tensor in tensors(few[0])))
            yield from (self.problem.inputs(seed) for seed in seeds[SOURCES:most])

    @cached_property
    def _ways(self) -> list[Way]:
        return ways_of(self.problem, WAYS_SEED)

    def _operators(self, weights: int) -> list[str]:
        """Names of torch's operators in a call, found once."""
        if not self.operators:
            with torch.no_grad(), Recorder() as recorder:
                self.problem.model(weights)(*self.problem.inputs(weights))
            self.operators = sorted(recorder.names)
        return self.operators

    def _part(self, weights: int, questions: list[tuple[int, str]]) -> dict[str, Any]:
        model = self.problem.model(weights)
        with torch.no_grad():
            cases = [case for seed, variant in questions if (case := self._case(model, seed, variant)) is not None]
        init, state = (held(pack(value), self.kept) for value in (self.problem.init_inputs(weights), dict(model.state_dict())))
        return {"weights": weights, "init": init, "state": state, "cases": cases}

    def _case(self, model: torch.nn.Module, seed: int, variant: str) -> dict[str, Any] | None:
        inputs = self._inputs({"seed": seed, "variant": variant})
        if variant != PLAIN and not any(self._free(inputs)):
            return None
        try:
            return self._answered(model, inputs, seed, variant)
        except Exception:
            if variant == PLAIN:
                raise
            return None  # the boundary: a problem need not answer what it never draws itself

    def _answered(self, model: torch.nn.Module, inputs: list[Any], seed: int, variant: str) -> dict[str, Any] | None:
        given = clone(inputs)
        output = model(*given)
        if variant not in (PLAIN, GIVEN) and not _finite(output):
            return None
        facts = {"seed": seed, "variant": variant, "aliases": bool(_storages(output) & _storages(given))}
        facts["after"] = None if same(given, inputs) else self._held(given)
        return {**facts, "inputs": self._held(inputs), "output": self._held(output)}

    def given(self, payload: dict[str, Any]) -> list[Any]:
        """Cases of each of `inputs` (packed) under a draw of weights."""
        self._begin(payload["inputs"])
        model = self.problem.model(payload["weights"])
        with torch.no_grad():
            return self._done([self._answered(model, self._unpacked(inputs), 0, GIVEN) for inputs in payload["inputs"]])

    def draws(self, payload: dict[str, Any]) -> list[Any]:
        """Inputs alone under each of `seeds`, packed."""
        self._begin()
        return self._done([self._held(self.problem.inputs(seed)) for seed in payload["seeds"]])

    def _begin(self, letters: Sequence[Any] = ()) -> None:
        """Let go of what was answered before; `letters` are packed values that came with the question."""
        self.kept = []
        if self.box is not None:
            self.box.begin(letters)

    def _done(self, answer: T) -> T:
        """An answer whose tensors are there."""
        if self.box is not None:
            torch.cuda.synchronize()
            if torch.cuda.memory_reserved() > MOST_CACHED:
                torch.cuda.empty_cache()
        return answer

    def _unpacked(self, inputs: Any) -> list[Any]:
        return list(self.problem.device.moved(unpack(inputs, self.box.taken if self.box is not None else None)))

    def _held(self, value: Any) -> Any:
        return held(pack(value, self.box.place if self.box is not None else None), self.kept)

    def exact(self, payload: dict[str, Any]) -> Any:
        """The output in float64 for the weights and inputs of a case, and its slack (see `exactness`), or None."""
        self._begin([payload["inputs"]] if "inputs" in payload else ())
        inputs = self._inputs(payload)
        try:
            found = exact(lambda: self.problem.model(payload["weights"]), inputs)
        except torch.OutOfMemoryError:  # then it is judged without
            found = None
        return self._done(None if found is None else self._held(found))

    def _inputs(self, question: dict[str, Any]) -> list[Any]:
        seed, variant = question["seed"], question["variant"]
        if variant == GIVEN:
            return self._unpacked(question["inputs"])
        inputs = self.problem.inputs(seed)
        return list(applied(variant, inputs, seed, self._free(inputs)))

    def _free(self, inputs: list[Any]) -> list[bool]:
        """Which of the tensors have no structure."""
        return [way.is_free(tensor.numel()) for way, tensor in zip(self._ways, tensors(inputs), strict=True)]


def _finite(output: Any) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors(output) if tensor.is_floating_point())


def _storages(value: Any) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in tensors(value) if tensor.numel()}


def open_reference(payload: dict[str, Any]) -> Reference:
    """Entry for the fork server: `code`; `backend`, `threads`, `tf32`; size of the `box`, 0 where there is none."""
    device = child_device(payload)
    return Reference(LoadedProblem(payload["code"], device), device.box(payload["box"]))
