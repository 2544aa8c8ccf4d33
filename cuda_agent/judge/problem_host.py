"""The trusted side of a problem's two children: reference and baseline, started on first use and kept while wanted.

Whatever the problem's code does wrong is `ProblemInvalid`; a host that cannot keep the children raises a CudaAgentError.
"""

import asyncio
import contextlib
import hashlib
import json
import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cuda_agent.errors import DeviceError, JudgeError
from cuda_agent.judge import calibrate, inductor
from cuda_agent.judge.baseline_facts import BaselineFacts, BaselineLost
from cuda_agent.judge.compare import Exact, Scale, scales
from cuda_agent.judge.cuda_memory import Box
from cuda_agent.judge.device import Device
from cuda_agent.judge.ring import Ring, Sources, Way
from cuda_agent.judge.stress import GIVEN, PLAIN
from cuda_agent.judge.values import Packed, brought, leaves, with_leaves
from cuda_agent.sandbox.forkserver import Child, ChildFailed, ForkServer
from cuda_agent.sandbox.limits import Bind

OPEN_SECONDS = 120.0
ANSWER_SECONDS = 60.0
ANSWER_BYTES = 2**32

ODD = 0.01  # of an answer's elements may be not finite by chance; see `structure`
NO_MEMORY = {"DeviceError", "OutOfMemoryError"}  # of what is raised in a child

T = TypeVar("T")
Leased = Callable[[], contextlib.AbstractAsyncContextManager[None]]
Drawn = tuple[int, str]  # the seed of inputs, and a variant of them
Question = dict[str, Any] | Callable[[], dict[str, Any]]  # or what makes it, on the device


class ProblemInvalid(Exception):
    """The problem itself fails: it does not load, does not answer, or answers with what cannot be compared."""


@dataclass(frozen=True)
class Case:
    """One set of inputs with the expected output, packed, and how they were drawn.

    `after` are the inputs as the reference left them, where it changes them; `aliases` tells whether it answers with their
    memory.
    """

    weights: int
    seed: int
    variant: str
    inputs: Packed
    output: Packed
    after: Packed | None
    aliases: bool

    @property
    def question(self) -> dict[str, Any]:
        """How the reference child gets at the inputs again."""
        given = {"inputs": self.inputs} if self.variant == GIVEN else {}
        return {"weights": self.weights, "seed": self.seed, "variant": self.variant, **given}


@dataclass(frozen=True)
class Part:
    """One draw of weights (arguments of the model and its state_dict, packed) with cases under it."""

    init: Packed
    state: Packed
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Opponent:
    """The warmed-up baseline child, its ring of inputs, and what torch.compile made of the problem."""

    child: Child
    ring: Ring
    facts: BaselineFacts


class ProblemHost:
    """Both children of one problem, asked by one caller at a time."""

    def __init__(self, server: ForkServer, code: str, device: Device, lease: Leased, inductor_root: Path) -> None:
        """Start nothing yet; `lease` is held, besides the caller's, while a child uses the device for more than a few calls."""
        self._server, self.code, self._device, self._lease = server, code, device, lease
        self._limits = device.limits(OPEN_SECONDS, ANSWER_BYTES)
        self._root = inductor_root
        self.sha256 = hashlib.sha256(code.encode()).hexdigest()
        self._reference: Child | None = None
        self._box: Box | None = None
        self._opponent: Opponent | None = None
        self._fault: str | None = None
        self._late = 0  # time-outs in a row
        self.operators: frozenset[str] = frozenset()  # of torch that the reference calls, known after the first exam
        self.usual: list[Scale] = []  # of each tensor of an answer as inputs are drawn: the widest spread
        self._opening, self._asking, self._calibrating = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        self.timing = asyncio.Lock()
        self.users = 0

    async def exam(
        self, weights: Sequence[int], shared: Sequence[Drawn], last: Sequence[Drawn], sources: Sequence[int] = ()
    ) -> tuple[list[Part], Sources]:
        """Sets of inputs with their answers: `shared` ones dealt out among draws of weights, `last` ones under the last draw.

        Besides, what fresh inputs are made from: draws under the first few of the seeds `sources`, or under all of them where
        they come back as they are.

        Raises:
            ProblemInvalid: the problem fails, or cannot tell right answers from trivial ones.
        """
        questions = {"shared": [list(question) for question in shared], "last": [list(question) for question in last]}
        asked = {"weights": list(weights), **questions, "sources": list(sources)}
        found: tuple[list[Part], Sources] = await self._asked("exam", asked, self._examined, self._lease)
        async with self._calibrating:
            if self._fault is None:
                await self._calibrate(found[0])
        if self._fault:
            raise ProblemInvalid(self._fault)
        return found

    async def answers(self, weights: int, inputs: Sequence[Packed]) -> list[Case]:
        """The reference's answers to given inputs. The caller holds the device's lease.

        Raises:
            ProblemInvalid: the problem fails.
        """
        cases: list[Case] = await self._asked(
            "given",
            lambda: {"weights": weights, "inputs": self._laid(["list", list(inputs)])[1]},
            lambda answer: [_case(weights, case, self._brought) for case in answer],
        )
        return cases

    @contextlib.asynccontextmanager
    async def drawing(self) -> AsyncIterator[Callable[[Sequence[int]], list[Packed]]]:
        """What draws inputs under seeds, for a thread that may not wait for the event loop; nobody else asks meanwhile.

        The caller holds the device's lease. The function raises BaselineLost when the problem does not answer.

        Raises:
            ProblemInvalid: the problem fails.
        """
        async with self._asking:
            reference = await self._opened_reference()

            def draw(seeds: Sequence[int]) -> list[Packed]:
                try:
                    answer = reference.call_blocking("draws", {"seeds": list(seeds)}, ANSWER_SECONDS)
                    return [self._brought(source) for source in answer]
                except (ChildFailed, IndexError, KeyError, TypeError, ValueError) as failure:
                    raise BaselineLost(f"the problem drew no more inputs: {failure}") from failure

            yield draw

    async def exact(self, case: Case) -> Exact | None:
        """A case's expected output in float64 with its slack; None where the problem cannot run in it.

        The caller holds the device's lease.

        Raises:
            ProblemInvalid: the problem fails.
        """
        return await self._exact(case, contextlib.nullcontext)

    async def _exact(self, case: Case, lease: Leased) -> Exact | None:

        def question() -> dict[str, Any]:
            asked = case.question
            return asked | {"inputs": self._laid(asked["inputs"])} if "inputs" in asked else asked

        def bring(answer: Any) -> Exact | None:
            return None if answer is None else Exact(*self._brought(answer)[1])

        return await self._asked("exact", question, bring, lease)

    def strangeness(self, case: Case) -> str:
        """Why a right answer to fresh inputs cannot be told from a wrong one; empty where it can."""
        for usual, found in zip(self.usual, scales(case.output), strict=False):
            if found.finite < usual.finite - ODD:
                return "fresh inputs, made from drawn ones, leave the domain that the problem needs: its answer is not finite"
        return ""

    async def opponent(self, sources: Sources, sets: int) -> Opponent:
        """The baselines, opened on first use with a ring of up to `sets` sets; hold `timing` to use them.

        Raises:
            ProblemInvalid: the problem does not run even in eager mode.
        """
        async with self._opening:
            if self._opponent is None or not self._opponent.child.alive:
                await self._close_opponent()
                self._opponent = await self._open_opponent(sources, sets)
        return self._opponent

    async def close(self) -> None:
        """End both children."""
        await self._close_reference()
        await self._close_opponent()

    async def _close_opponent(self) -> None:
        if self._opponent is not None:
            await self._opponent.child.close()
            self._opponent.ring.close()
            self._opponent = None

    async def _calibrate(self, parts: Sequence[Part]) -> None:
        """Find out once whether the problem can be judged at all, and what its answers are like."""
        plain = [case for case in parts[0].cases if case.variant == PLAIN]
        if len(plain) < 2:
            return
        questions = [case.inputs for case in plain], [case.output for case in plain]
        exact = await self._exact(plain[0], self._lease)
        try:
            self._fault = await asyncio.to_thread(calibrate.fault, *questions, exact)
            found = [await asyncio.to_thread(scales, case.output) for case in plain]
            self.usual = [Scale(max(leaf).spread, min(one.finite for one in leaf)) for leaf in zip(*found, strict=True)]
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise ProblemInvalid("the reference answered with nonsense") from error

    async def _asked(
        self, method: str, question: Question, bring: Callable[[Any], T], lease: Leased = contextlib.nullcontext
    ) -> T:
        """One call of the reference child, and what `bring` makes of its answer, before the next one is asked.

        All that uses the device, on either side, happens under `lease`, or under the caller's. It is taken first: whoever
        holds it may be waiting for the child, and must not wait for someone who waits for the lease.
        """
        async with self._asking:
            await self._opened_reference()
        async with lease(), self._asking:
            try:
                reference = await self._opened_reference()
                asked = await asyncio.to_thread(question) if callable(question) else question
                answer = await reference.call(method, asked, ANSWER_SECONDS)
                self._late = 0
                return await asyncio.to_thread(bring, answer)
            except ChildFailed as failure:
                raise self._blamed(failure) from failure
            except (IndexError, KeyError, TypeError, ValueError) as error:
                raise ProblemInvalid("the reference answered with nonsense") from error

    async def _opened_reference(self) -> Child:
        if self._reference is None or not self._reference.alive:
            await self._close_reference()
            self._box = await asyncio.to_thread(self._device.box)
            payload = {"code": self.code, **self._device.settings, "threads": self._device.untimed_threads}
            payload["box"] = self._box.size if self._box else 0
            shared = self._box.descriptor if self._box else None
            target, binds = "cuda_agent.judge.reference:open_reference", self._device.binds
            try:
                self._reference = await self._server.open(target, payload, self._limits, binds, shared=shared)
            except ChildFailed as failure:
                raise self._blamed(failure) from failure
        return self._reference

    async def _close_reference(self) -> None:
        if self._reference is not None:
            await self._reference.close()
            self._reference = None
        if self._box is not None:
            self._box.close()
            self._box = None

    def _blamed(self, failure: ChildFailed) -> Exception:
        """Whose fault a child's failure is: one time-out may be a busy host's, a second one in a row is the problem's.

        A GPU without memory for it may be full of others'.
        """
        if failure.name in NO_MEMORY:
            return DeviceError(f"no memory for the problem: {failure.detail}")
        if failure.kind != "timeout":
            return ProblemInvalid(f"the problem fails: {failure.detail}")
        self._late += 1
        if self._late > 1:
            return ProblemInvalid(f"the problem gave {failure.detail}, {self._late} times in a row")
        return JudgeError(f"the problem did not answer in time: {failure.detail}")

    def _laid(self, packed: Packed) -> Packed:
        return packed if self._box is None else self._box.laid(packed)

    def _brought(self, packed: Packed) -> Packed:
        assert self._reference is not None
        return brought(packed, self._reference.peek_into, self._box)

    def _examined(self, answer: Any) -> tuple[list[Part], Sources]:
        assert self._reference is not None
        parts = [_part(part, self._brought, self._reference.peek_into) for part in answer["parts"]]
        self.operators = self.operators or frozenset(map(str, answer["operators"]))
        inputs = tuple(self._brought(source) for source in answer["sources"])
        ways = tuple(Way(bool(mixes), int(places), float(limit)) for mixes, places, limit in answer["ways"])
        if len({_form(case.inputs) for part in parts for case in part.cases} | {_form(source) for source in inputs}) > 1:
            raise ProblemInvalid(
                "the problem draws other shapes or other numbers each time; only the values of tensors may differ"
            )
        bounded = all(way.places > 0 and 0 <= way.limit < math.inf for way in ways)
        if not bounded or any(len(list(leaves(source))) != len(ways) for source in inputs):
            raise ValueError("ways that there are not")
        return parts, Sources(inputs, ways)

    async def _open_opponent(self, sources: Sources, sets: int) -> Opponent:
        bundle = inductor.bundle_path(self._root, self.sha256)
        async with self._lease():
            ring = await asyncio.to_thread(self._device.ring, sources, sets)
        payload = {"code": self.code, "seed": 1, "bundle": str(bundle) if bundle.exists() else "", **self._device.settings}
        payload |= {"layout": ring.layout.text, "block": ring.memory.size}
        target, binds = "cuda_agent.judge.baseline:open_baseline", (Bind.of(self._root), *self._device.binds)
        try:
            child = await self._server.open(target, payload, self._limits, binds, shared=ring.memory.descriptor)
            answer = await child.call("prepare", {}, OPEN_SECONDS)
        except BaseException as failure:
            ring.close()
            raise (self._blamed(failure) if isinstance(failure, ChildFailed) else failure) from failure
        self._late = 0
        facts = BaselineFacts.of(answer)
        if answer["files"] and facts.compiles:
            inductor.write_bundle(bundle, answer["files"])
        return Opponent(child, ring, facts)


def _form(inputs: Packed) -> str:
    """All of some inputs but the values of their tensors."""
    return json.dumps(with_leaves(inputs, (["tensor", *leaf[1:3]] for leaf in leaves(inputs))))


def _part(data: dict[str, Any], bring: Callable[[Packed], Packed], read: Callable[..., None]) -> Part:
    """The draw itself goes on to the candidate, so it comes to the host."""
    weights = int(data["weights"])
    cases = tuple(_case(weights, case, bring) for case in data["cases"])
    return Part(brought(data["init"], read), brought(data["state"], read), cases)


def _case(weights: int, data: dict[str, Any], bring: Callable[[Packed], Packed]) -> Case:
    after = None if data["after"] is None else bring(data["after"])
    told = (int(data["seed"]), str(data["variant"]), bring(data["inputs"]), bring(data["output"]))
    return Case(weights, *told, after, bool(data["aliases"]))
