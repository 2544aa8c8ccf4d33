"""Vetting: each candidate goes through the rules, cheapest stage first, in a sandboxed child that serves many candidates.

Invariants: whatever a candidate does (crash, hang, out of memory, raise) rejects that candidate only, and its child is
replaced; only a host that cannot run sandboxes raises. One `Vetter` belongs to one event loop and vets at most
`execution.workers` candidates at once. On a GPU they share its memory and its time (`company`): one that lacks memory is
vetted again with all of it.
"""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from cuda_agent.config import DatasetExecution, DatasetScience, JudgeConfig
from cuda_agent.errors import DeviceError, SandboxError
from cuda_agent.judge import inductor, machine, nvml
from cuda_agent.problems.company import LEAST, MORE, Company, needed
from cuda_agent.problems.problem import Problem, VettedProblem
from cuda_agent.problems.rules import Evidence, Refusal, Stage, refuse, undecided_by_one_thread
from cuda_agent.problems.similarity import Twins, fingerprint
from cuda_agent.sandbox import view
from cuda_agent.sandbox.forkserver import Child, ChildFailed, ForkServer
from cuda_agent.sandbox.lease import Lease
from cuda_agent.sandbox.limits import Bind, Limits

PROBE = "cuda_agent.problems.probe_child:open_probe"
Methods = tuple[tuple[Stage, str, str], ...]  # stage, method of the probe, rule that a failure breaks
ON_PAPER: Methods = (("size", "size", "runs_eager"),)
METHODS: Methods = (
    ("run", "examine", "runs_eager"),
    ("pace", "pace", "runs_eager"),
    ("matter", "scrutinise", "runs_eager"),
    ("set", "", ""),
    ("time", "time_eager", "runs_eager"),
    ("compile", "compile", "runs_compiled"),
    ("time_compiled", "time_compiled", "runs_compiled"),
)
TIMED = ("pace", "time_compiled")  # by the wall's clock, on a GPU
OUT_OF_MEMORY = re.compile("OutOfMemoryError|out of memory|ALLOC_FAILED")
MOST_UNASKED = 4  # questions left out because they cost a candidate its device, each at the price of an examination
MOST_FACTS = 64_000  # characters as JSON
GONE_SECONDS = 10.0  # for a killed process to give its memory back


@dataclass
class _Place:
    """Where one candidate at a time is vetted: the probe, once there is one, and on a GPU those who share it."""

    company: Company | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    child: Child | None = None


class _Found(NamedTuple):
    """What an examination came to."""

    refusal: Refusal | None
    facts: dict[str, Any]


class Vetter:
    """Async context manager around one fork server and its probes."""

    def __init__(
        self,
        science: DatasetScience,
        execution: DatasetExecution,
        *,
        cache_dir: Path,
        evaluation: Mapping[str, str] | None = None,
        lease: Lease | None = None,
        judge: JudgeConfig | None = None,
        server: ForkServer | None = None,
        fresh: bool = False,
    ) -> None:
        """Prepare; nothing starts before `async with`.

        `evaluation` are texts that no accepted problem may resemble, by name. With a `lease`, all is done under its shared side,
        but a processor's eager time alone where the window depends on that. `judge` says on which device and with how many
        threads (default: all cores of the processor). `server` is a running fork server to use instead of an own one, made by
        `inductor.warm_server`. `fresh` gives each candidate a child of its own: slower by some 40 %, for texts of others,
        which could tamper with the next one's process.

        Raises:
            ProblemError: an evaluation text is no problem.
        """
        self._science, self._execution, self._lease, self._judge = science, execution, lease, judge or JudgeConfig()
        self._cache_dir, self._root = cache_dir, inductor.root_of(cache_dir)
        self._evaluation = tuple(fingerprint(code, name) for name, code in (evaluation or {}).items())
        self._server, self._own_server, self._fresh = server, server is None, fresh
        self._idle: asyncio.LifoQueue[_Place] = asyncio.LifoQueue()

    async def __aenter__(self) -> Self:
        """Start the fork server; the first start on a machine builds inductor's precompiled header.

        Raises:
            ConfigError: backend cuda without a GPU.
            DeviceError: no GPU has memory left for a candidate.
            SandboxError: the server does not start.
        """
        for place in self._places():
            self._idle.put_nowait(place)
        if self._server is None:
            self._server = await inductor.warm_server(self._cache_dir, self._judge.threads, self._judge.backend)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End every child."""
        while not self._idle.empty():
            child = self._idle.get_nowait().child
            if child is not None:
                await child.close()
        if self._own_server and self._server is not None:
            await self._server.close()
            self._server = None

    async def vet(self, position: int, problem: Problem, accepted: Twins | None = None) -> VettedProblem:
        """Judge one candidate by all rules; `position` is stored and seeds its inputs.

        `accepted` are problems that it may not resemble; those that are added meanwhile count too.

        Raises:
            SandboxError: no child could be started.
        """
        started = time.monotonic()
        evidence = Evidence(problem, self._science, self._evaluation, {}, accepted, self._judge.backend)
        refusal = refuse("text", evidence)
        facts: dict[str, Any] = {}
        if refusal is None:
            refusal, facts = await self._until_answered(position, evidence)
        facts["vet_seconds"] = round(time.monotonic() - started, 3)
        return _vetted(position, problem, refusal, facts)

    async def _until_answered(self, position: int, evidence: Evidence) -> _Found:
        """Examine a candidate, again with more memory if it lacked some, and without a question that cost it its device."""
        room, unasked = 0, list[str]()
        while True:
            found = await self._probed(position, evidence, room, unasked)
            if unasked:
                found.facts["unasked"] = list(unasked)
            lost_by = found.facts.pop("lost_by", None)
            if found.refusal is None:
                return found
            if found.facts.get("had_all") is False and _lacks_memory(found.refusal, found.facts):
                room = MORE * found.facts["room_bytes"]
            elif isinstance(lost_by, str) and lost_by not in unasked and len(unasked) < MOST_UNASKED:
                unasked.append(lost_by)
            else:
                return found

    async def _probed(self, position: int, evidence: Evidence, room: int, unasked: Sequence[str]) -> _Found:
        """All stages in a probe; on a GPU within `room` bytes of its memory, or what the problem needs by its sizes."""
        code = evidence.problem.code
        payloads: dict[str, dict[str, Any]] = {
            "size": {"code": code},
            "run": {"code": code, "seed": self._science.seed * 1_000_003 + position},
            "matter": {"unasked": list(unasked)},
            "time": {"longest_ms": self._science.window[1]},
        }
        async with self._probe() as probe:
            if probe.company is None:
                found = await self._examine(probe, METHODS, payloads, evidence)
            else:
                found = await self._examine(probe, ON_PAPER, payloads, evidence)
                if found.refusal is None:
                    sizes = found.facts
                    async with probe.company.room(room or needed(sizes)) as held:
                        payloads["run"]["share"] = held.share
                        found = await self._examine(probe, METHODS, payloads, evidence)
                        async with probe.company.running(probe.child):
                            peak = await probe.rest()
                    found.facts.update(sizes, had_all=held.is_all, room_bytes=held.size, peak_bytes=peak)
            found.facts["stage_seconds"] = {name: round(seconds, 3) for name, seconds in probe.seconds.items()}
        return found

    async def _examine(self, probe: "_Probe", methods: Methods, payloads: Mapping[str, Any], evidence: Evidence) -> _Found:
        facts: dict[str, Any] = {}
        files: Mapping[str, bytes] = {}
        for stage, method, rule in methods:
            if method:
                try:
                    async with self._turn(stage, evidence, probe):
                        answer = await probe.call(method, payloads.get(stage, {}))
                except ChildFailed as failure:
                    return _Found(Refusal(rule, str(failure)[:2_000]), facts | {"failure": failure.kind})
                files = answer.pop("files", files)
                facts |= answer
                evidence = replace(evidence, facts=facts)
            refusal = refuse(stage, evidence)
            if refusal is not None:
                return _Found(refusal, facts)
        if files:
            inductor.write_bundle(inductor.bundle_path(self._root, evidence.problem.sha256), files)
        return _Found(None, facts)

    @contextlib.asynccontextmanager
    async def _turn(self, stage: Stage, evidence: Evidence, probe: "_Probe") -> AsyncIterator[None]:
        """Whoever measures alone waits for the others, and they for it: done only where the time window depends on it.

        On a GPU nobody waits for a whole stage of another one's, which is stopped instead.
        """
        if probe.company is not None:
            own = probe.company.quiet() if stage in TIMED else probe.company.running(probe.child)
            async with self._lease.shared() if self._lease else contextlib.nullcontext(), own:
                yield
        elif self._lease is None:
            yield
        elif stage == "time" and undecided_by_one_thread(evidence):
            async with self._lease.exclusive():
                yield
        else:
            async with self._lease.shared():
                yield

    @contextlib.asynccontextmanager
    async def _probe(self) -> AsyncIterator["_Probe"]:
        """A free probe, opened if there is none yet; put back afterwards if it still lives."""
        place = await self._idle.get()
        spent = True
        try:
            if place.child is None:
                place.child = await self._open(place.environment)
            yield _Probe(place.child, self._execution.candidate_seconds, place.company)
            spent = self._fresh or not place.child.alive
        finally:
            if spent and place.child is not None:
                child, place.child = place.child, None
                await child.close()
            self._idle.put_nowait(place)

    def _places(self) -> "list[_Place]":
        """One for each worker; on GPUs no more than there is memory for, evenly."""
        workers = self._execution.workers
        if self._judge.backend == "cpu":
            return [_Place() for _ in range(workers)]
        memory = {gpu: nvml.free_and_total(gpu.uuid) for gpu in machine.gpus()}
        usable = [(gpu, free, total) for gpu, (free, total) in memory.items() if free >= LEAST]
        if not usable:
            most = max(free for free, _ in memory.values()) / 2**30
            raise DeviceError(
                f"{most:.1f} GB of the GPU's memory are free and a candidate needs {LEAST / 2**30:g}; "
                "end what holds the rest (nvidia-smi lists it)"
            )
        places = []
        for number, (gpu, free, total) in enumerate(usable):
            here = min(workers // len(usable) + (number < workers % len(usable)), free // LEAST)
            company = Company(free, total, max(1, here))
            places += [_Place(company, machine.visible(gpu)) for _ in range(here)]
        return places

    async def _open(self, environment: Mapping[str, str]) -> Child:
        assert self._server is not None, "use `async with Vetter(...)`"
        is_gpu = self._judge.backend == "cuda"  # whose processes map far more than they use
        limits = Limits(wall_seconds=60.0, memory_mb=0 if is_gpu else self._execution.candidate_memory_mb, processes=64)
        binds = (Bind.of(self._root), *(view.gpu_binds() if is_gpu else ()))
        payload = self._judge.model_dump(include={"threads", "backend", "tf32"})
        try:
            return await self._server.open(PROBE, payload, limits, binds=binds, env=environment)
        except ChildFailed as failure:
            reason = str(failure).partition("\n")[0]
            raise SandboxError(f"a process for vetting did not start: {reason}; free memory or lower workers") from failure


class _Probe:
    """A child within one candidate's time: the limit counts over all its calls together, waiting for a turn left out."""

    def __init__(self, child: Child, seconds: float, company: Company | None) -> None:
        self.child, self._left, self.company = child, seconds, company
        self.seconds: dict[str, float] = {}

    async def rest(self) -> int:
        """Let it give back what the candidate took, and say how many bytes that was; one that cannot is replaced.

        Of one that has ended, or is killed here, nothing is left when this returns.
        """
        try:
            told = (await self.call("rest", {})).get("peak_bytes")
        except ChildFailed:
            self.child.kill()
            await self.child.ended(GONE_SECONDS)
            return 0
        return told if isinstance(told, int) else 0

    async def call(self, method: str, payload: dict[str, Any]) -> dict[str, Any]:
        """An answer as the probe gives them.

        Raises:
            ChildFailed: as `Child.call`, or it answered with something else.
        """
        started = time.monotonic()
        try:
            answer = await self.child.call(method, payload, max(0.1, self._left))
        finally:
            self.seconds[method] = time.monotonic() - started
            self._left -= self.seconds[method]
        if isinstance(answer, dict) and answer.pop("spent", False):
            self.child.kill()  # the next candidate gets a new one
        if not _is_answer(answer):
            self.child.kill()
            raise ChildFailed("crash", f"{method} answered with nonsense")
        return dict(answer)


def _lacks_memory(refusal: Refusal, facts: Mapping[str, Any]) -> bool:
    return "failure" in facts and bool(OUT_OF_MEMORY.search(refusal.reason))


def _is_answer(answer: Any) -> bool:
    """Whether an answer is one of a probe: finite JSON of bounded size, and compiled files."""
    if not isinstance(answer, dict):
        return False
    files = answer.get("files", {})
    if not isinstance(files, dict) or not all(isinstance(name, str) and isinstance(files[name], bytes) for name in files):
        return False
    try:
        return len(json.dumps({name: value for name, value in answer.items() if name != "files"}, allow_nan=False)) < MOST_FACTS
    except (TypeError, ValueError, RecursionError):
        return False


def _vetted(position: int, problem: Problem, refusal: Refusal | None, facts: dict[str, Any]) -> VettedProblem:
    return VettedProblem(
        position=position,
        ops=problem.ops,
        data_source=problem.data_source,
        code=problem.code,
        code_sha256=problem.sha256,
        rule=refusal.rule if refusal else None,
        reason=refusal.reason if refusal else None,
        eager_ms=facts.get("eager_ms"),
        compile_ms=facts.get("compile_ms"),
        facts=facts,
    )
