"""One submission's way to a verdict: files, build, load, verify, time, prove. The roles run in children; this side decides.

Everything a submission does wrong ends in a `Verdict`; only faults of the host or of the judge raise (CudaAgentError), and
a faulty problem raises ProblemInvalid. Nothing of a candidate's answer is used before its form was checked.
"""

import asyncio
import contextlib
import math
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from cuda_agent.config import JudgeConfig
from cuda_agent.errors import DeviceError, JudgeError
from cuda_agent.judge import nvml, proof
from cuda_agent.judge.admission import Admission
from cuda_agent.judge.baseline_facts import BaselineLost
from cuda_agent.judge.build import MODULES
from cuda_agent.judge.builds import Builds, Built
from cuda_agent.judge.device import Device
from cuda_agent.judge.examination import NONSENSE, Examination, Instance, mutation
from cuda_agent.judge.faults import Rejected, run_fault
from cuda_agent.judge.problem_host import Case, Opponent, Part, ProblemHost, ProblemInvalid
from cuda_agent.judge.reward import reward
from cuda_agent.judge.ring import Ring, Sources
from cuda_agent.judge.stress import PLAIN, VARIANTS
from cuda_agent.judge.timing import MAX_BATCH, Runner, Times, measure
from cuda_agent.judge.values import Packed
from cuda_agent.judge.verdict import Status, Submission, Verdict, shorten
from cuda_agent.sandbox.forkserver import Child, ChildFailed, ForkServer
from cuda_agent.sandbox.lease import Lease

SOURCES = 16  # most draws that fresh inputs are made from: where they keep a structure, each call of a batch has its own
ANSWERS = 2**25  # bytes that a candidate may send: where tensors lie, never what is in them
PROOFS = 3  # answers without kernels that must all be right


@dataclass
class Bench:
    """What every evaluation of a pool shares."""

    server: ForkServer
    builds: Builds
    config: JudgeConfig
    lease: Lease
    device: Device
    environment: Mapping[str, Any]
    admission: Admission
    clock: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "judge-clock"))

    def gpu_lease(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Held while a child uses the GPU; nothing on backend cpu, where `core_lease` covers it."""
        return self.lease.shared() if self.device.is_gpu else contextlib.nullcontext()

    def core_lease(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Held while the processor is busy, where that is the device; nothing on backend cuda: builds go on while it measures."""
        return contextlib.nullcontext() if self.device.is_gpu else self.lease.shared()


@dataclass
class Phases:
    """Seconds by phase."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add what the block takes to a phase."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start


@dataclass(frozen=True)
class Exam:
    """The questions of one evaluation: draws of weights with cases to verify; `spare`, under the last draw, is asked at the
    end, with the kernels disabled.
    """

    parts: tuple[Part, ...]
    spare: Case
    sources: Sources  # drawn under seeds of their own

    @property
    def candidate(self) -> tuple[int, Packed, Packed]:
        """What `Device` sizes a candidate's block by: sets of inputs, an output, the weights."""
        return MAX_BATCH, self.spare.output, self.parts[-1].state


class Evaluation:
    """Judges one submission on one problem with one seed."""

    def __init__(
        self, bench: Bench, host: ProblemHost, submission: Submission, seed: int, *, timed: bool, alone: bool = False
    ) -> None:
        """`timed` False stops after verification; `alone`: nothing else uses the device while the candidate runs."""
        self.bench, self.host, self.submission, self.seed, self.timed = bench, host, submission, seed, timed
        self.alone = alone
        self.in_company = False  # whether others were under way at some time
        self.phases = Phases()
        self.times: Times | None = None
        self.compile_error = ""
        self.states: dict[str, Any] = {}  # of a GPU, before and after its times were measured

    async def verdict(self) -> Verdict:
        """Run the stages; a rejection is a verdict.

        Raises:
            ProblemInvalid, CudaAgentError: the problem's or the host's fault.
        """
        started, waited = time.monotonic(), self.phases.seconds.get("queue", 0.0)
        status: Status = "correct"
        kind, message = None, "all outputs match"
        try:
            self._check_files()
            await self._run()
            if self.times is not None:
                message = _time_table(self.times)
        except Rejected as fault:
            status, kind, message = fault.status, fault.kind, fault.message
            self.times = None
        except MemoryError as error:
            raise JudgeError("the judge ran out of memory; judge fewer at a time") from error
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # boundary: what a child said
            status, kind, message = "runtime_error", "protocol", f"{NONSENSE} ({type(error).__name__})"
            self.times = None
        self.phases.seconds["total"] = time.monotonic() - started + waited
        return self._verdict(status, kind, message)

    def _verdict(self, status: Status, kind: str | None, message: str) -> Verdict:
        times = self.times
        candidate, eager, compiled = (times.candidate_ms, times.eager_ms, times.compile_ms) if times else (None, None, None)
        intervals = (times.interval("eager"), times.interval("compile")) if times else (None, None)
        earned = reward(status, *intervals, self.bench.config.milestone)
        environment = {**self.bench.environment, "seed": self.seed, **self._measured(times)}
        own = (candidate, eager, compiled, dict(self.phases.seconds), environment)
        return Verdict(status, kind, shorten(message), earned, self.submission.sha256, *own)

    def _measured(self, times: Times | None) -> dict[str, Any]:
        if times is None:
            return {}
        intervals = {name: times.interval(name) for name in times.raw_ms if name != "candidate"}
        facts: dict[str, Any] = {"rounds": times.rounds, "raw_ms": dict(times.raw_ms), "ratio_intervals": intervals}
        facts |= {"checked": len(times.samples), **self.states}
        return facts | ({"compile_error": self.compile_error} if self.compile_error else {})

    # --- stages ---------------------------------------------------------------------------------------------------------

    def _check_files(self) -> None:
        fault = self.submission.fault(self.bench.config.backend)
        if fault:
            raise Rejected("hack", "illegal_file", fault)
        if "model_new.py" not in self.submission.files:
            raise Rejected("load_error", "missing_file", "model_new.py is missing")
        if not any(name.startswith("kernels/") for name in self.submission.files):
            raise Rejected("hack", "no_custom_kernel", "kernels/ is empty; the work must be done by kernels of your own")

    async def _run(self) -> None:
        bench = self.bench
        async with contextlib.AsyncExitStack() as stack:
            async with self._leased(contextlib.nullcontext if self.alone else bench.core_lease):
                exam, built = await self._prepare()
                opening = self._opening(exam)
                with self.phases.timed("queue"):
                    arrived = await stack.enter_async_context(bench.admission.admitted(self._room(exam)))
                async with self._leased(bench.gpu_lease):
                    ring = await self._ring(exam)
                    stack.callback(ring.close)
                candidate = await self._open(built, ring)
                stack.push_async_callback(candidate.close)
                arrived()
                async with self._leased(bench.lease.exclusive if self.alone else bench.gpu_lease):
                    examination = Examination(candidate, ring, self.host, bench.config)
                    last = await self._verify(examination, exam)
                    if not self.timed:
                        await self._prove(examination, last, exam.spare)
                        return
                with self.phases.timed("load"):
                    opponent = await (asyncio.shield(opening) if opening else self._opponent(exam))
                self.compile_error = opponent.facts.compile_error
            async with self.host.timing, self._leased(bench.lease.exclusive):
                with self.phases.timed("time"), self._observed():
                    self.times = await self._measure(examination, opponent, exam)
                    if self.times.forged:  # a busy host may look like that once, a forged clock does always
                        self.times = await self._measure(examination, opponent, exam)
            async with self._leased(bench.lease.shared):
                with self.phases.timed("verify"):
                    await self._check_times(self.times, examination, exam.spare.weights)
                await self._prove(examination, last, exam.spare)

    @contextlib.contextmanager
    def _observed(self) -> Iterator[None]:
        """Note how a GPU was before and after."""
        gpu = self.bench.environment.get("gpu")
        before = nvml.reading(gpu) if gpu else None
        yield
        after = nvml.reading(gpu) if gpu else None
        self.states = {name: state._asdict() for name, state in (("gpu_before", before), ("gpu_after", after)) if state}

    def _opening(self, exam: Exam) -> asyncio.Future[Opponent] | None:
        """On a GPU: open the baselines beside the verification; they stay open for the next one, even if this one fails."""
        if not self.timed or not self.bench.device.is_gpu:
            return None
        opening = asyncio.ensure_future(self._opponent(exam))
        opening.add_done_callback(lambda done: done.cancelled() or done.exception())
        return opening

    async def _opponent(self, exam: Exam) -> Opponent:
        return await self.host.opponent(exam.sources, MAX_BATCH)

    @contextlib.asynccontextmanager
    async def _leased(self, lease: Callable[[], contextlib.AbstractAsyncContextManager[None]]) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            with self.phases.timed("queue"):
                await stack.enter_async_context(lease())
            yield

    async def _prepare(self) -> tuple[Exam, Built]:
        """Build and draw at the same time; a build error does not wait for the reference, which finishes by itself."""
        exam = asyncio.ensure_future(self._exam())
        exam.add_done_callback(lambda done: done.cancelled() or done.exception())
        with self.phases.timed("build"):
            built = await self.bench.builds.get(self.submission.files)
        if built.forbidden:
            raise Rejected("hack", "forbidden_op", f"{built.forbidden}; the work must be done by code in kernels/")
        with self.phases.timed("load"):
            asked = await asyncio.shield(exam)
        if found := proof.needless_library(built.libraries, self.host.operators):
            raise Rejected("hack", "forbidden_op", found)
        return asked, built

    async def _exam(self) -> Exam:
        chance = random.Random(self.seed)
        weights, count = [chance.randrange(2**31), chance.randrange(2**31)], self.bench.config.inputs
        shared = [(chance.randrange(2**31), PLAIN) for _ in range(count)]
        shared += [(chance.randrange(2**31), variant) for variant in VARIANTS]
        spare = (chance.randrange(2**31), PLAIN)
        hidden = [chance.randrange(2**31) for _ in range(SOURCES)]
        parts, sources = await self.host.exam(weights[: min(2, count)], shared, [spare], hidden)
        last = parts[-1]
        return Exam((*parts[:-1], replace(last, cases=last.cases[:-1])), last.cases[-1], sources)

    async def _ring(self, exam: Exam) -> Ring:
        return await asyncio.to_thread(self.bench.device.ring, exam.sources, *exam.candidate)

    def _room(self, exam: Exam) -> int:
        return self.bench.device.candidate_bytes(exam.spare.inputs, *exam.candidate)

    async def _open(self, built: Built, ring: Ring) -> Child:
        config, device = self.bench.config, self.bench.device
        payload: dict[str, Any] = {"files": dict(self.submission.files), "module": MODULES[config.backend]}
        payload["binary"] = built.binary
        payload |= {"layout": ring.layout.text, "block": ring.memory.size, "arena": device.arena, "seal": device.seal}
        payload |= {**device.settings, "untimed_threads": device.untimed_threads}
        limits, shared = device.limits(config.run_seconds, ANSWERS), ring.memory.descriptor
        target = "cuda_agent.judge.candidate:open_candidate"
        with self.phases.timed("load"):
            try:
                return await self.bench.server.open(target, payload, limits, device.binds, shared=shared)
            except ChildFailed as failure:
                raise DeviceError(f"the candidate's process did not begin: {failure}") from failure  # nothing of it ran yet

    async def _verify(self, examination: Examination, exam: Exam) -> Instance:
        """Load an instance for each draw of weights, seal, and ask all of them; the last one."""
        with self.phases.timed("load"):
            await examination.begin()
            await examination.extend()
            instances = [await examination.load(part) for part in exam.parts]
            await examination.seal()
        with self.phases.timed("verify"):
            for instance, part in zip(instances, exam.parts, strict=True):
                await examination.verify(instance, part.cases)
        return instances[-1]

    async def _measure(self, examination: Examination, opponent: Opponent, exam: Exam) -> Times:
        """Run the timing in the clock thread; when cancelled, end the candidate first and wait for the thread."""
        told = (examination.form, exam.spare.output, examination.account, self.bench.config.run_seconds)
        candidate = Runner(examination.child, examination.ring, *told)
        baseline = Runner(opponent.child, opponent.ring)
        loop = asyncio.get_running_loop()

        most = len(exam.sources.inputs)

        def work(draw: Callable[[Sequence[int]], list[Packed]]) -> Times:
            def renew(count: int) -> None:
                sources = draw([secrets.randbelow(2**31) for _ in range(min(most, count + 1))])
                for ring in (examination.ring, opponent.ring):
                    ring.draw_from(sources)

            return measure(candidate, baseline, compiles=opponent.facts.compiles, config=self.bench.config, renew=renew)

        async with self.host.drawing() as draw:
            running = loop.run_in_executor(self.bench.clock, work, draw)
            try:
                return await asyncio.shield(running)
            except ChildFailed as failure:
                raise run_fault(failure) from failure
            except BaselineLost as failure:
                opponent.child.alive = False
                raise DeviceError(f"the baseline was lost while timing: {failure}") from failure
            except asyncio.CancelledError:
                candidate.child.kill()
                await asyncio.gather(running, return_exceptions=True)
                raise

    async def _check_times(self, times: Times, examination: Examination, weights: int) -> None:
        if times.forged:
            missing = times.unaccounted_ns / 1e6
            raise Rejected("hack", "clock", f"the calls took {missing:.2f} ms longer than the process admits")
        if found := self.bench.device.too_quick(examination.form, times.batch, times.candidate_ms):
            raise Rejected("hack", "clock", found)
        cases = await self.host.answers(weights, [sample.inputs for sample in times.samples])
        for sample, case in zip(times.samples, cases, strict=True):
            if found := await asyncio.to_thread(self.host.strangeness, case):
                raise ProblemInvalid(found)
            if found := await examination.wrong(case, sample.output):
                raise Rejected("wrong_output", "while_timed", f"during timing, {found}")
            if sample.aliased and not case.aliases:
                raise Rejected("hack", "input_alias", "during timing, the output lies in an input's memory")
            if found := mutation(case, sample.after):
                raise Rejected("hack", "input_mutated", f"during timing, {found}")
        if found := proof.unentered(times.turns) or proof.idle_kernels(times.turns):
            raise Rejected("hack", "no_custom_kernel", found)

    async def _prove(self, examination: Examination, instance: Instance, spare: Case) -> None:
        with self.phases.timed("prove"):
            if await self._right_without_kernels(examination, instance, spare):
                raise Rejected("hack", "no_custom_kernel", "the answer is right even with the functions of kernels/ disabled")
            await examination.check_seal()

    async def _right_without_kernels(self, examination: Examination, instance: Instance, case: Case) -> bool:
        """Memory that nothing wrote may hold another call's answer, which now and then is right: once proves nothing."""
        for _ in range(PROOFS):
            if await examination.needs_kernels(instance, case):
                return False
            (case,) = await self.host.answers(case.weights, [examination.fresh_inputs()])
        return True


def _time_table(times: Times) -> str:
    rows = [("candidate", times.candidate_ms), ("eager", times.eager_ms), ("compile", times.compile_ms)]
    table = ", ".join(f"{name} {'none' if ms is None else f'{ms:.4f} ms'}" for name, ms in rows)
    speedups = f"{times.eager_ms / times.candidate_ms:.2f}x vs eager"
    if times.compile_ms is not None and math.isfinite(times.compile_ms):
        speedups += f", {times.compile_ms / times.candidate_ms:.2f}x vs compile"
    return f"{table}; {speedups}"
