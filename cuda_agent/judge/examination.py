"""One candidate under examination: loaded, sealed, asked, and what its answers are worth.

The judge places inputs in the ring, releases the candidate, freezes it when it says that it is done, and reads answers,
inputs and weights itself: between two questions the candidate never runs. Every fault raises `Rejected`.
"""

import asyncio
import functools
import itertools
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from cuda_agent.config import JudgeConfig
from cuda_agent.judge.answers import Misplaced, Where, fetch, locate
from cuda_agent.judge.compare import difference
from cuda_agent.judge.faults import Rejected, load_fault, run_fault
from cuda_agent.judge.problem_host import Case, Part, ProblemHost, ProblemInvalid
from cuda_agent.judge.ring import Ring
from cuda_agent.judge.rounds import Account
from cuda_agent.judge.sealing import Seal
from cuda_agent.judge.stress import GIVEN
from cuda_agent.judge.values import Packed, same_bytes
from cuda_agent.sandbox.forkserver import Child, ChildFailed

SPREADS = 2.0  # what the spread of an answer to fresh inputs counts at most, in those of answers to drawn ones
NONSENSE = "the process answered with nonsense"
T = TypeVar("T")


class Instance:
    """One ModelNew in the child: its number, where its parameters and buffers lie, and what was loaded into them."""

    def __init__(self, number: int, places: list[Where], state: Packed) -> None:
        """Made by `Examination.load`."""
        self.number, self.places, self.state = number, places, state


STATE = struct.Struct("3q")


class Examination:
    """Asks one candidate child; `form` is how its answers lie in memory, known after the first one."""

    def __init__(self, child: Child, ring: Ring, host: ProblemHost, config: JudgeConfig) -> None:
        """`ring` is the one that the child was opened with; nothing but this asks the child, or the timing in between."""
        self.child, self.ring, self.host, self.config = child, ring, host, config
        self.form: Sequence[Where] = ()
        self._seal: Seal | None = None
        self._state = 0
        self._instances = 0

    async def begin(self) -> None:
        """Learn from the child, before anything of the submission was loaded, where to look later on."""
        (address, _), *seal = await self._ask("begin", {})
        self.ring.memory.child_address = int(address)
        self._seal = Seal.of(await _reading(self.child.filters), *seal)

    async def extend(self) -> None:
        """Load the extension; where its account lies."""
        try:
            answer = await self._released("extend", {})
        except ChildFailed as failure:
            raise load_fault(failure) from failure
        if not isinstance(answer, int):
            raise Rejected("runtime_error", "protocol", NONSENSE)
        self._state = answer

    def account(self) -> Account:
        """What stands there now.

        Raises:
            ChildFailed: the child has ended.
        """
        return Account(*STATE.unpack(self.child.peek(self._state, STATE.size)))

    async def load(self, part: Part) -> Instance:
        """Make an instance with a draw of weights; only before `seal`."""
        try:
            answer = await self._released("load", {"init": part.init, "state": part.state})
        except ChildFailed as failure:
            raise load_fault(failure) from failure
        try:
            places = locate(part.state, answer, self.config.backend, "state_dict")
            loaded = await _reading(fetch, self._bring, part.state, places)
        except Misplaced as fault:
            raise Rejected("load_error", "state_dict", str(fault)) from fault
        if not await asyncio.to_thread(same_bytes, loaded, part.state):
            raise Rejected("hack", "state_mutated", "parameters and buffers do not hold what was loaded into them")
        self._instances += 1
        return Instance(self._instances - 1, places, loaded)

    async def seal(self) -> None:
        """Take torch's operators and other libraries from the child."""
        assert self._seal is not None
        if found := await _reading(self._seal.early_fault, self.child):
            raise Rejected("hack", "forbidden_op", found)
        await self._ask("seal", {})
        await self.check_seal()

    async def check_seal(self) -> None:
        """See from outside that they are still taken."""
        assert self._seal is not None
        if found := await _reading(self._seal.fault, self.child, is_gpu=self.config.backend == "cuda"):
            raise Rejected("hack", "forbidden_op", found)

    async def verify(self, instance: Instance, cases: Sequence[Case]) -> None:
        """Ask for the answers to all cases and compare them."""
        for chunk in _chunks(cases, self.ring.layout.sets):
            outputs = await self._answers(instance, chunk)
            for number, (case, output) in enumerate(zip(chunk, outputs, strict=True)):
                if found := await self.wrong(case, output):
                    note = "" if case.variant == "plain" else f" ({case.variant})"
                    raise Rejected("wrong_output", None, f"input set {number}{note}: {found}")
        held = await _reading(fetch, self._bring, instance.state, instance.places)
        if not await asyncio.to_thread(same_bytes, held, instance.state):
            raise Rejected("hack", "state_mutated", "forward changed parameters or buffers")

    async def needs_kernels(self, instance: Instance, case: Case) -> bool:
        """Whether the answer to a case that was never asked becomes wrong with the extension's functions disabled."""
        try:
            (output,) = await self._answers(instance, (case,), ghost=True)
        except (Rejected, Misplaced):
            return True
        return bool(await self.wrong(case, output))

    def fresh_inputs(self) -> Packed:
        """Inputs that were never asked."""
        self.ring.refresh(0)
        return self.ring.taken(0)

    async def wrong(self, case: Case, output: Packed) -> str:
        """What is wrong with an output; the float64 reference is asked for only where the float32 one does not settle it."""
        spreads = [SPREADS * scale.spread for scale in self.host.usual] if case.variant == GIVEN and self.host.usual else None
        compare = functools.partial(difference, case.output, output, spreads=spreads)
        found = await asyncio.to_thread(compare)
        exact = await self.host.exact(case) if found else None
        if exact is None:
            return found
        try:
            return await asyncio.to_thread(compare, exact=exact)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise ProblemInvalid("the reference answered with nonsense in float64") from error

    async def _answers(self, instance: Instance, cases: Sequence[Case], *, ghost: bool = False) -> list[Packed]:
        for number, case in enumerate(cases):
            self.ring.place(number, case.inputs)
        before = await _reading(self._begun, ghost)
        described = await self._ask("answer", {"model": instance.number, "sets": list(range(len(cases)))})
        if not isinstance(described, list) or len(described) != len(cases):
            raise Rejected("runtime_error", "protocol", NONSENSE)
        outputs: list[Packed] = await _reading(self._fetched, cases, described, before)
        return outputs

    def _begun(self, ghost: bool) -> Account:
        """Before a question: disable the extension's functions or not, and the account as it stands."""
        self.child.poke(self._state, struct.pack("q", int(ghost)))
        return self.account()

    def _fetched(self, cases: Sequence[Case], described: Sequence[Any], before: Account) -> list[Packed]:
        """Read all answers of a frozen child, after all rules about where they lie."""
        if self.account().calls == before.calls:
            raise Rejected("hack", "no_custom_kernel", "forward never called a function of the extension")
        try:
            located = [locate(case.output, one, self.config.backend) for case, one in zip(cases, described, strict=True)]
        except Misplaced as fault:
            raise Rejected("wrong_output", "form", str(fault)) from fault
        spans = self.ring.spans(self.child)
        for number, case in enumerate(cases):
            if found := mutation(case, self.ring.taken(number) if self.ring.changed(number, case.inputs) else None):
                raise Rejected("hack", "input_mutated", found)
            if not case.aliases and any(place.overlaps(*block) for place in located[number] for block in spans):
                raise Rejected("hack", "input_alias", "the output lies in an input's memory; return memory of its own")
        if _overlap(located):
            text = "the output of one call lies where another call's does; return fresh memory from each call"
            raise Rejected("wrong_output", "overwritten", text)
        self.form = located[-1]
        return [fetch(self._bring, case.output, places) for case, places in zip(cases, located, strict=True)]

    def _bring(self, place: Where) -> Any:
        return self.ring.memory.bring(self.child, place)

    async def _ask(self, method: str, payload: dict[str, Any]) -> Any:
        try:
            return await self._released(method, payload)
        except ChildFailed as failure:
            raise run_fault(failure) from failure

    async def _released(self, method: str, payload: dict[str, Any]) -> Any:
        """One call of the child, which is frozen before and after."""
        self.child.thaw()
        answer = await self.child.call(method, payload, self.config.run_seconds)
        self.child.freeze()
        return answer


async def _reading(work: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Blocking work on the memory of a frozen child."""
    try:
        return await asyncio.to_thread(work, *arguments, **named)
    except ChildFailed as failure:
        raise run_fault(failure) from failure


def mutation(case: Case, after: Packed | None) -> str:
    """What is wrong with the inputs after a call (None: they are unchanged), in words; an empty string if nothing is."""
    if case.after is None:
        return "" if after is None else "forward changed its inputs"
    found = difference(case.after, case.inputs if after is None else after, where="input")
    return f"forward left its inputs as the model does not: {found}" if found else ""


def _chunks(cases: Sequence[Case], size: int) -> list[Sequence[Case]]:
    return [cases[start : start + size] for start in range(0, len(cases), size)]


def _overlap(located: Sequence[Sequence[Where]]) -> bool:
    """Whether answers of different calls share memory."""
    spans = sorted((p.address, p.address + p.extent, n) for n, call in enumerate(located) for p in call if p.extent)
    return any(start < end and mine != other for (_, end, mine), (start, _, other) in itertools.pairwise(spans))
