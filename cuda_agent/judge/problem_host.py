"""The trusted side of a problem's two children: reference and baseline, started on first use and kept while wanted.

Whatever the problem's code does wrong is `ProblemInvalid`; a host that cannot keep the children raises a CudaAgentError.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda_agent.errors import JudgeError
from cuda_agent.judge import inductor
from cuda_agent.judge.baseline_facts import BaselineFacts
from cuda_agent.sandbox.forkserver import Child, ChildFailed, ForkServer
from cuda_agent.sandbox.limits import Bind, Limits

OPEN_SECONDS = 120.0
ANSWER_SECONDS = 60.0


class ProblemInvalid(Exception):
    """The problem itself fails: it does not load, does not answer, or answers with what cannot be compared."""


@dataclass(frozen=True)
class Case:
    """One set of inputs with the expected output, packed, and the seeds under which weights and inputs were drawn."""

    weights: int
    seed: int
    inputs: Any
    output: Any
    mutates: bool


@dataclass(frozen=True)
class Part:
    """One draw of weights (arguments of the model and its state_dict, packed) with cases under it."""

    init: Any
    state: Any
    cases: tuple[Case, ...]


class ProblemHost:
    """Both children of one problem, asked by one caller at a time."""

    def __init__(self, server: ForkServer, code: str, *, threads: int, memory_mb: int, inductor_root: Path) -> None:
        """Start nothing yet."""
        self._server, self.code, self._threads = server, code, threads
        self._limits = Limits(wall_seconds=OPEN_SECONDS, memory_mb=memory_mb, processes=128, output_bytes=2**31, file_mb=512)
        self._root = inductor_root
        self.sha256 = hashlib.sha256(code.encode()).hexdigest()
        self._reference: Child | None = None
        self._baseline: Child | None = None
        self._facts: BaselineFacts | None = None
        self._opening, self._asking = asyncio.Lock(), asyncio.Lock()
        self.timing = asyncio.Lock()
        self.users = 0

    async def exam(self, weights: Sequence[int], seeds: Sequence[int]) -> list[Part]:
        """Questions and answers: sets of inputs under `seeds`, shared out among draws of weights under `weights`.

        Raises:
            ProblemInvalid: the problem fails.
        """
        answer = await self._ask_reference("exam", {"weights": list(weights), "seeds": list(seeds)})
        try:
            return [_part(part) for part in answer["parts"]]
        except (KeyError, TypeError, ValueError) as error:
            raise ProblemInvalid("the reference answered with nonsense") from error

    async def exact(self, case: Case) -> Any:
        """A case's expected output in float64, packed; None where the problem cannot run in it.

        Raises:
            ProblemInvalid: the problem fails.
        """
        return await self._ask_reference("exact", {"weights": case.weights, "seed": case.seed})

    async def baseline(self) -> tuple[Child, BaselineFacts]:
        """The warmed-up baseline child and what torch.compile made of the problem; hold `timing` while using it.

        Raises:
            ProblemInvalid: the problem does not run even in eager mode.
        """
        async with self._opening:
            if self._baseline is None or not self._baseline.alive or self._facts is None:
                self._baseline = await self._open_baseline()
        return self._baseline, self._facts  # type: ignore[return-value]

    async def close(self) -> None:
        """End both children."""
        for child in (self._reference, self._baseline):
            if child is not None:
                await child.close()
        self._reference = self._baseline = None

    async def _ask_reference(self, method: str, payload: dict[str, Any]) -> Any:
        try:
            async with self._asking:
                if self._reference is None or not self._reference.alive:
                    common = {"code": self.code, "threads": self._threads}
                    self._reference = await self._server.open("cuda_agent.judge.reference:open_reference", common, self._limits)
            return await self._reference.call(method, payload, ANSWER_SECONDS)
        except ChildFailed as failure:
            raise _fault(failure) from failure

    async def _open_baseline(self) -> Child:
        bundle = inductor.bundle_path(self._root, self.sha256)
        payload = {"code": self.code, "threads": self._threads, "seed": 1, "bundle": str(bundle) if bundle.exists() else ""}
        try:
            child = await self._server.open(
                "cuda_agent.judge.baseline:open_baseline", payload, self._limits, (Bind.of(self._root),)
            )
            answer = await child.call("facts", {}, ANSWER_SECONDS)
        except ChildFailed as failure:
            raise _fault(failure) from failure
        self._facts = BaselineFacts.of(answer)
        if answer["files"] and self._facts.compiles:
            inductor.write_bundle(bundle, answer["files"])
        return child


def _part(data: dict[str, Any]) -> Part:
    weights = int(data["weights"])
    cases = tuple(
        Case(weights, int(case["seed"]), case["inputs"], case["output"], bool(case["mutates"])) for case in data["cases"]
    )
    return Part(data["init"], data["state"], cases)


def _fault(failure: ChildFailed) -> Exception:
    """A time-out may be the machine's fault and is tried again elsewhere; everything else is the problem's."""
    if failure.kind == "timeout":
        return JudgeError(f"the problem did not answer in time: {failure.detail}")
    return ProblemInvalid(f"the problem fails: {failure.detail}")
