"""One submission's way to a verdict: files, build, load, verify, time. The roles run in children; this side decides.

Everything a submission does wrong ends in a `Verdict`; only faults of the host or of the judge raise (CudaAgentError), and
a faulty problem raises ProblemInvalid. Nothing of a candidate's answer is used before its form was checked.
"""

import asyncio
import contextlib
import math
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from cuda_agent.config import JudgeConfig
from cuda_agent.errors import DeviceError
from cuda_agent.judge.build import MODULES, Manifest
from cuda_agent.judge.compare import difference
from cuda_agent.judge.problem_host import Case, Part, ProblemHost, ProblemInvalid
from cuda_agent.judge.reward import reward
from cuda_agent.judge.timing import BaselineLost, Times, measure, ratio_interval
from cuda_agent.judge.verdict import Status, Submission, Verdict, shorten
from cuda_agent.sandbox.forkserver import Child, ChildFailed, ForkServer
from cuda_agent.sandbox.lease import Lease
from cuda_agent.sandbox.limits import Bind, Limits

TIMED_SETS = 2
LOAD_KINDS = {"MissingClass": "missing_class", "InitSignature": "init_signature", "StateDict": "state_dict"}


class Rejected(Exception):
    """A submission's fault: status, kind and message of its verdict."""

    def __init__(self, status: Status, kind: str | None, message: str) -> None:
        """Name the fault."""
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


@dataclass
class Bench:
    """What every evaluation of a pool shares."""

    server: ForkServer
    manifest: Manifest
    config: JudgeConfig
    lease: Lease
    threads: int
    environment: Mapping[str, Any]
    clock: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "judge-clock"))
    builds: dict[tuple[tuple[str, str], ...], asyncio.Future[Any]] = field(default_factory=dict)


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
    """The questions of one evaluation: draws of weights, each with its cases; the last draw's extra cases are timed."""

    parts: tuple[Part, ...]
    timed: tuple[Case, ...]


class Evaluation:
    """Judges one submission on one problem with one seed."""

    def __init__(self, bench: Bench, host: ProblemHost, submission: Submission, seed: int, *, timed: bool) -> None:
        """`timed` False stops after verification."""
        self.bench, self.host, self.submission, self.seed, self.timed = bench, host, submission, seed, timed
        self.phases = Phases()
        self.times: Times | None = None
        self.compile_error = ""

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
                message = self._time_table(self.times)
        except Rejected as fault:
            status, kind, message = fault.status, fault.kind, fault.message
            self.times = None
        self.phases.seconds["total"] = time.monotonic() - started + waited
        return self._verdict(status, kind, message)

    def _verdict(self, status: Status, kind: str | None, message: str) -> Verdict:
        times = self.times
        candidate, eager, compiled = (times.candidate_ms, times.eager_ms, times.compile_ms) if times else (None, None, None)
        earned = reward(status, candidate, eager, compiled, self.bench.config.milestone)
        environment = {**self.bench.environment, "seed": self.seed, **self._measured(times)}
        own = (candidate, eager, compiled, dict(self.phases.seconds), environment)
        return Verdict(status, kind, shorten(message), earned, self.submission.sha256, *own)

    def _measured(self, times: Times | None) -> dict[str, Any]:
        if times is None:
            return {}
        intervals = {
            name: ratio_interval([mine / other for mine, other in zip(times.raw_ms["candidate"], values, strict=True)])
            for name, values in times.raw_ms.items()
            if name != "candidate"
        }
        facts: dict[str, Any] = {"rounds": times.rounds, "raw_ms": dict(times.raw_ms), "ratio_intervals": intervals}
        return facts | ({"compile_error": self.compile_error} if self.compile_error else {})

    # --- stages ---------------------------------------------------------------------------------------------------------

    def _check_files(self) -> None:
        if "model_new.py" not in self.submission.files:
            raise Rejected("load_error", "missing_file", "model_new.py is missing")
        fault = self.submission.fault(self.bench.config.backend)
        if fault:
            raise Rejected("hack", "illegal_file", fault)
        if not any(name.startswith("kernels/") for name in self.submission.files):
            raise Rejected("hack", "no_custom_kernel", "kernels/ is empty; the work must be done by kernels of your own")

    async def _run(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            async with self._leased(self.bench.lease.shared()):
                exam, binary = await self._prepare()
                candidate = await self._load(binary)
                stack.push_async_callback(candidate.close)
                await self._verify(candidate, exam)
                if not self.timed:
                    return
                with self.phases.timed("load"):
                    baseline, facts = await self.host.baseline()
                self.compile_error = facts.compile_error
                with self.phases.timed("verify"):
                    await self._ask(candidate, "ready", {"cases": [case.inputs for case in exam.timed]})
            async with self.host.timing, self._leased(self.bench.lease.exclusive()):
                with self.phases.timed("time"):
                    self.times = await self._measure(candidate, baseline, compiles=facts.compiles)
            await self._check_times(self.times, exam)

    @contextlib.asynccontextmanager
    async def _leased(self, lease: contextlib.AbstractAsyncContextManager[None]) -> AsyncIterator[None]:
        with self.phases.timed("queue"):
            await lease.__aenter__()
        try:
            yield
        finally:
            await lease.__aexit__(None, None, None)

    async def _prepare(self) -> tuple[Exam, bytes]:
        """Build and draw at the same time; a build error does not wait for the reference, which finishes by itself."""
        exam = asyncio.ensure_future(self._exam())
        exam.add_done_callback(lambda done: done.cancelled() or done.exception())
        with self.phases.timed("build"):
            binary = await self._build()
        with self.phases.timed("load"):
            return await asyncio.shield(exam), binary

    async def _exam(self) -> Exam:
        chance = random.Random(self.seed)
        weights, count = [chance.randrange(2**31), chance.randrange(2**31)], self.bench.config.inputs
        parts = await self.host.exam(weights[: min(2, count)], [chance.randrange(2**31) for _ in range(count + TIMED_SETS)])
        last = parts[-1]
        verified = replace(last, cases=last.cases[:-TIMED_SETS])
        return Exam((*parts[:-1], verified), last.cases[-TIMED_SETS:])

    async def _build(self) -> bytes:
        kernels = {name: text for name, text in self.submission.files.items() if name.startswith("kernels/")}
        key = tuple(sorted(kernels.items()))
        if key not in self.bench.builds:
            while len(self.bench.builds) >= 256:
                self.bench.builds.pop(next(iter(self.bench.builds)))
            self.bench.builds[key] = asyncio.ensure_future(self._compile(kernels))
        try:
            answer = await asyncio.shield(self.bench.builds[key])
        except ChildFailed as failure:
            self.bench.builds.pop(key, None)
            if failure.kind == "timeout":
                raise Rejected(
                    "build_error", "timeout", f"the build took more than {self.bench.config.build_seconds:g} s"
                ) from failure
            raise Rejected("build_error", failure.kind, failure.detail) from failure
        except BaseException:
            self.bench.builds.pop(key, None)
            raise
        if not isinstance(answer["binary"], bytes):
            raise Rejected("build_error", None, answer["message"])
        return answer["binary"]

    async def _compile(self, kernels: Mapping[str, str]) -> dict[str, Any]:
        config = self.bench.config
        limits = Limits(config.build_seconds + 5.0, config.memory_mb, 128, 2**28, 1_024)
        payload = {"files": dict(kernels), "manifest": str(self.bench.manifest.path), "timeout": config.build_seconds}
        payload["fast_math"] = config.fast_math
        binds = (Bind.of(self.bench.manifest.path.parent),)
        answer = await self.bench.server.run("cuda_agent.judge.candidate:build_module", payload, limits, binds)
        return answer  # type: ignore[no-any-return]

    async def _load(self, binary: bytes) -> Child:
        config = self.bench.config
        limits = Limits(config.run_seconds, config.memory_mb, 128, 2**31, 512)
        payload = {
            "files": dict(self.submission.files),
            "module": MODULES[config.backend],
            "binary": binary,
            "threads": self.bench.threads,
        }
        with self.phases.timed("load"):
            try:
                return await self.bench.server.open("cuda_agent.judge.candidate:open_candidate", payload, limits)
            except ChildFailed as failure:
                raise _load_fault(failure) from failure

    async def _verify(self, candidate: Child, exam: Exam) -> None:
        for part in exam.parts:
            with self.phases.timed("load"):
                try:
                    await candidate.call("load", {"init": part.init, "state": part.state}, self.bench.config.run_seconds)
                except ChildFailed as failure:
                    raise _load_fault(failure) from failure
            if not part.cases:  # few inputs: this draw of weights has timed cases only, whose outputs are checked then
                continue
            with self.phases.timed("verify"):
                answer = await self._ask(candidate, "verify", {"cases": [case.inputs for case in part.cases]})
                _check_conduct(answer, part.cases)
                for number, (case, output) in enumerate(zip(part.cases, answer["outputs"], strict=True)):
                    if found := await self._difference(case, output):
                        raise Rejected("wrong_output", None, f"input set {number}: {found}")
                if answer.get("state_changed"):
                    raise Rejected("hack", "state_mutated", "forward changed parameters or buffers")

    async def _ask(self, candidate: Child, method: str, payload: dict[str, Any]) -> Any:
        try:
            return await candidate.call(method, payload, self.bench.config.run_seconds)
        except ChildFailed as failure:
            raise _run_fault(failure) from failure

    async def _measure(self, candidate: Child, baseline: Child, *, compiles: bool) -> Times:
        """Run the timing in the clock thread; when cancelled, end the candidate first and wait for the thread."""
        loop = asyncio.get_running_loop()

        def work() -> Times:
            return measure(candidate, baseline, compiles=compiles, input_sets=TIMED_SETS, config=self.bench.config)

        running = loop.run_in_executor(self.bench.clock, work)
        try:
            return await asyncio.shield(running)
        except ChildFailed as failure:
            raise _run_fault(failure) from failure
        except BaselineLost as failure:
            baseline.alive = False
            raise DeviceError(f"the baseline was lost while timing: {failure}") from failure
        except asyncio.CancelledError:
            candidate.kill()
            await asyncio.gather(running, return_exceptions=True)
            raise

    async def _difference(self, case: Case, output: Any) -> str:
        """What is wrong with an output; the float64 reference is asked for only where the float32 one does not settle it."""
        found = await asyncio.to_thread(difference, case.output, output)
        exact = await self.host.exact(case) if found else None
        if exact is None:
            return found
        try:
            return await asyncio.to_thread(difference, case.output, output, exact)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise ProblemInvalid("the reference answered with nonsense in float64") from error

    async def _check_times(self, times: Times, exam: Exam) -> None:
        for sample in times.samples:
            if found := await self._difference(exam.timed[sample.input_set], sample.output):
                raise Rejected("wrong_output", "while_timed", f"during timing, {found}")
        if times.forged:
            missing = times.unaccounted_ns / 1e6
            raise Rejected("hack", "clock", f"the calls took {missing:.2f} ms longer than the process admits")

    def _time_table(self, times: Times) -> str:
        rows = [("candidate", times.candidate_ms), ("eager", times.eager_ms), ("compile", times.compile_ms)]
        table = ", ".join(f"{name} {'none' if ms is None else f'{ms:.4f} ms'}" for name, ms in rows)
        speedups = f"{times.eager_ms / times.candidate_ms:.2f}x vs eager"
        if times.compile_ms is not None and math.isfinite(times.compile_ms):
            speedups += f", {times.compile_ms / times.candidate_ms:.2f}x vs compile"
        return f"{table}; {speedups}"


# --- answers of a candidate -----------------------------------------------------------------------------------------------


def _check_conduct(answer: Any, cases: tuple[Case, ...]) -> None:
    """Decide on all of an answer to `verify` but its outputs' values."""
    if not isinstance(answer, dict) or not isinstance(answer.get("outputs"), list) or len(answer["outputs"]) != len(cases):
        raise Rejected("runtime_error", "protocol", "the process answered with nonsense")
    forbidden = answer.get("forbidden")
    if forbidden:
        raise Rejected("hack", "forbidden_op", f"torch operators do the work: {str(forbidden)[:300]}; only kernels/ may compute")
    if not answer.get("calls"):
        raise Rejected("hack", "no_custom_kernel", "forward never called a kernel of the extension")
    if answer.get("mutated") and not any(case.mutates for case in cases):
        raise Rejected("hack", "input_mutated", "forward changed its inputs")


def _own_lines(failure: ChildFailed) -> str:
    """The part of a traceback that lies in the submission's files, then the error."""
    lines, kept = failure.trace.splitlines(), []
    for number, line in enumerate(lines):
        if "/tmp/work/" in line:
            kept += [line.strip().replace("/tmp/work/", ""), *(text.strip() for text in lines[number + 1 : number + 2])]
    return "\n".join([*kept[-6:], failure.detail])


def _load_fault(failure: ChildFailed) -> Rejected:
    if failure.kind == "exception":
        kind = LOAD_KINDS.get(
            failure.name, "import" if failure.name in ("ImportError", "ModuleNotFoundError", "SyntaxError") else "exception"
        )
        return Rejected("load_error", kind, _own_lines(failure))
    return _run_fault(failure)


def _run_fault(failure: ChildFailed) -> Rejected:
    if failure.kind == "timeout":
        return Rejected("timeout", None, failure.detail)
    if failure.kind == "exception":
        return Rejected("runtime_error", failure.name[:60] or None, _own_lines(failure))
    output = failure.trace.strip()[-500:] if failure.kind == "crash" else ""
    return Rejected("runtime_error", failure.kind, failure.detail + (f"; it printed: {output}" if output else ""))
