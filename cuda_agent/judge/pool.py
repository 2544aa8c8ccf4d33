"""`JudgePool`: the judge as a service of one process; many submissions at once, each judged once.

Children of a problem stay alive while it is in use (least recently used go first); submissions whose problem is loaded go
first. An identical submission on the same problem gets the same verdict, from memory, from a judgement under way, or from
`lookup`, except where its times are in doubt (`doubts`). A bad submission never raises, and a fault of the host is the verdict
`infra_error`, which is never remembered.
"""

import asyncio
import hashlib
import inspect
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from cuda_agent.config import JudgeConfig
from cuda_agent.errors import CudaAgentError, DeviceError, JudgeError
from cuda_agent.judge import doubts, glue, inductor, machine
from cuda_agent.judge.admission import Admission
from cuda_agent.judge.build import Manifest
from cuda_agent.judge.builds import Builds
from cuda_agent.judge.device import Device
from cuda_agent.judge.evaluation import Bench, Evaluation
from cuda_agent.judge.problem_host import ProblemHost, ProblemInvalid
from cuda_agent.judge.verdict import Status, Submission, Verdict, shorten
from cuda_agent.sandbox.forkserver import ForkServer
from cuda_agent.sandbox.lease import Lease, device_lease_path

Lookup = Callable[[str], "Verdict | Awaitable[Verdict | None] | None"]
Record = Callable[[str, Verdict], "Awaitable[None] | None"]
Purpose = Literal["judge", "verify", "profile"]
REMEMBERED = 4_096
RETRY_SECONDS = (1.0, 4.0)
UNSETTLED = frozenset({"infra_error"})
KEYED = ("device", "driver", "torch", "judge", "threads")  # facts of the machine in a stored verdict's key


class JudgePool:
    """Async context manager; see the module's contract. It belongs to one event loop."""

    def __init__(
        self,
        config: JudgeConfig,
        *,
        cache_dir: Path,
        server: ForkServer | None = None,
        lease: Lease | None = None,
        lookup: Lookup | None = None,
        record: Record | None = None,
        max_problems: int = 10,
        at_once: int = 0,
    ) -> None:
        """Prepare; nothing starts before `async with`.

        `cache_dir` holds the glue, inductor's headers and the default lease. `server` is a running one of
        `inductor.warm_server` to use instead of an own one. `lookup(key)` and `record(key, verdict)` may be
        plain or async and let the caller keep verdicts. At most `max_problems` keep their children (about 250 MB each);
        `at_once` submissions build and verify at a time (0: one per core, as far as a GPU's memory goes).
        """
        self.config, self._cache_dir = config, cache_dir.resolve()
        self.lease = lease or Lease(device_lease_path(self._cache_dir))
        self._server, self._own_server = server, server is None
        self._lookup, self._record, self._max_problems = lookup, record, max_problems
        self._at_once = at_once
        self._slots: _Slots
        self._hosts: OrderedDict[str, ProblemHost] = OrderedDict()
        self._known: OrderedDict[tuple[Purpose, str], asyncio.Future[Verdict]] = OrderedDict()
        self._feats = doubts.Feats()
        self._under_way: set[Evaluation] = set()
        self._confirming = asyncio.Lock()
        self._bench: Bench | None = None
        self.manifest: Manifest  # of the glue that submissions are built with, once running; the agent's shell sees its folder

    async def __aenter__(self) -> Self:
        """Prepare the glue (once per machine) and start the fork server, unless one was given.

        Raises:
            ConfigError: backend cuda without a GPU.
            BuildEnvironmentError, SandboxError: this host cannot build or isolate.
        """
        backend = self.config.backend
        arch = machine.gpu().arch if backend == "cuda" else ""
        manifest = await asyncio.to_thread(glue.prepare, self._cache_dir, backend, arch)
        threads = self.config.threads or len(os.sched_getaffinity(0))
        if self._server is None:
            self._server = await inductor.warm_server(self._cache_dir, threads, backend)
        self.manifest = manifest
        builds = Builds(self._server, manifest, self.config, self._cache_dir / "builds")
        environment = machine.environment(self.config, threads)
        device = Device(self.config, threads, Path(manifest.folder))
        self._slots = _Slots(self._at_once or device.most_at_once())
        admission = Admission(device.free_bytes)
        self._bench = Bench(self._server, builds, self.config, self.lease, device, environment, admission)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End every child, and the server if it is the pool's own."""
        for task in [future for future in self._known.values() if not future.done()]:
            task.cancel()
        await asyncio.gather(*self._known.values(), return_exceptions=True)
        for host in self._hosts.values():
            await host.close()
        self._hosts.clear()
        if self._bench is not None:
            self._bench.clock.shutdown(wait=False)
            self._bench = None
        if self._own_server and self._server is not None:
            await self._server.close()
            self._server = None

    def key(self, problem_code: str, submission: Submission) -> str:
        """What a verdict is stored under: problem, submission, settings and machine."""
        environment = self._running().environment
        parts = [
            _digest(problem_code),
            submission.sha256,
            self.config.model_dump_json(),
            *(str(environment.get(name)) for name in KEYED),
        ]
        return _digest("\0".join(parts))

    async def judge(self, problem_code: str, submission: Submission, *, seed: int | None = None, fresh: bool = False) -> Verdict:
        """The verdict that counts: five inputs and interleaved times, under seeds that no feedback used.

        `seed` replays a judgement. `fresh` judges again even if the verdict is known. Never raises for a bad submission.
        """
        return await self._once("judge", problem_code, submission, seed=seed, fresh=fresh or seed is not None)

    async def verify(self, problem_code: str, submission: Submission) -> Verdict:
        """Feedback for the agent without times: `verdict.feedback()` is the text.

        A submission that was judged before gets what its verdict says: another exam would tell it nothing new.
        """
        judged = await self._judged(self.key(problem_code, submission))
        return judged or await self._once("verify", problem_code, submission)

    async def profile_verdict(self, problem_code: str, submission: Submission) -> Verdict:
        """Feedback for the agent with times, apart from the verdict that counts."""
        return await self._once("profile", problem_code, submission)

    # --- one judgement per submission ------------------------------------------------------------------------------------

    async def _once(
        self, purpose: Purpose, code: str, submission: Submission, *, seed: int | None = None, fresh: bool = False
    ) -> Verdict:
        key = (purpose, self.key(code, submission))
        future = None if fresh else self._known.get(key)
        if future is None:
            future = asyncio.ensure_future(self._judge(purpose, key[1], code, submission, seed, fresh=fresh))
            if not fresh:
                self._known[key] = future
                while len(self._known) > REMEMBERED:
                    self._known.popitem(last=False)
        try:
            verdict = await asyncio.shield(future)
        except asyncio.CancelledError:
            if fresh:
                future.cancel()
            raise
        if self._known.get(key) is future and (verdict.status in UNSETTLED or self._doubted(purpose, verdict)):
            del self._known[key]
        return verdict

    def _doubted(self, purpose: Purpose, verdict: Verdict) -> bool:
        """Whether whoever asks again must get a new one."""
        return purpose == "judge" and doubts.near_step(verdict, self.config.milestone)

    async def _judge(
        self, purpose: Purpose, key: str, code: str, submission: Submission, seed: int | None, *, fresh: bool
    ) -> Verdict:
        if purpose == "judge" and not fresh and (found := await self._looked_up(key)) and not self._doubted(purpose, found):
            return found
        verdict = await self._evaluate(code, submission, seed, timed=purpose != "verify")
        if purpose == "judge" and seed is None and self._feats.extraordinary(verdict):
            verdict = doubts.settled(verdict, await self._evaluate(code, submission, None, timed=True))
        if purpose == "judge":  # feedback has no key: it must never be looked up as the verdict that counts
            verdict = replace(verdict, environment={**verdict.environment, "cache_key": key})
        if purpose == "judge" and self._record is not None and verdict.status not in UNSETTLED:
            await _settle(self._record(key, verdict))
        return verdict

    async def _judged(self, key: str) -> Verdict | None:
        """The verdict that counts, if it is in memory or stored already."""
        known = self._known.get(("judge", key))
        if known is not None:
            return known.result() if known.done() and not known.cancelled() and not known.exception() else None
        return await self._looked_up(key)

    async def _looked_up(self, key: str) -> Verdict | None:
        found: Verdict | None = None if self._lookup is None else await _settle(self._lookup(key))
        return found

    async def _evaluate(self, code: str, submission: Submission, seed: int | None, *, timed: bool) -> Verdict:
        bench, started = self._running(), time.monotonic()
        digest = _digest(code)
        chosen = secrets.randbits(62) if seed is None else seed
        await self._slots.take(lambda: digest in self._hosts)
        waited = time.monotonic() - started
        host = self._host(digest, code)
        evaluation = Evaluation(bench, host, submission, chosen, timed=timed)
        evaluation.phases.seconds["queue"] = waited
        try:
            return await self._confirmed(evaluation)
        except ProblemInvalid as fault:
            return self._refused("problem_invalid", str(fault), submission, evaluation)
        except (CudaAgentError, OSError) as fault:  # the boundary between a fault of the host and a verdict
            return self._refused("infra_error", f"{type(fault).__name__}: {fault}", submission, evaluation)
        finally:
            host.users -= 1
            self._slots.give()
            await self._evict()

    async def _confirmed(self, evaluation: Evaluation) -> Verdict:
        """The verdict; a time-out next to others, where one that hangs keeps others waiting, only if it happens alone, too."""
        self._under_way.add(evaluation)
        if len(self._under_way) > 1:
            for other in self._under_way:
                other.in_company = True
        try:
            verdict = await self._tried(evaluation)
        finally:
            self._under_way.discard(evaluation)
        if verdict.status != "timeout" or not evaluation.in_company or not evaluation.bench.device.starves:
            return verdict
        mine = (evaluation.bench, evaluation.host, evaluation.submission, evaluation.seed)
        async with self._confirming:
            return await self._tried(Evaluation(*mine, timed=evaluation.timed, alone=True))

    async def _tried(self, evaluation: Evaluation) -> Verdict:
        """The verdict; a host that was short of memory or time for a moment is asked again."""
        for pause in RETRY_SECONDS:
            try:
                return await evaluation.verdict()
            except (DeviceError, JudgeError):
                await asyncio.sleep(pause)
        return await evaluation.verdict()

    def _refused(self, status: Status, message: str, submission: Submission, evaluation: Evaluation) -> Verdict:
        environment = {**self._running().environment, "seed": evaluation.seed}
        phases = dict(evaluation.phases.seconds)
        return Verdict(status, None, shorten(message), None, submission.sha256, phases=phases, environment=environment)

    def _host(self, digest: str, code: str) -> ProblemHost:
        bench = self._running()
        if digest not in self._hosts:
            self._hosts[digest] = ProblemHost(bench.server, code, bench.device, bench.gpu_lease, self._root)
        self._hosts.move_to_end(digest)
        host = self._hosts[digest]
        host.users += 1
        return host

    async def _evict(self) -> None:
        idle = [digest for digest, host in self._hosts.items() if host.users == 0]
        for digest in idle[: max(0, len(self._hosts) - self._max_problems)]:
            await self._hosts.pop(digest).close()

    @property
    def _root(self) -> Path:
        return inductor.root_of(self._cache_dir)

    def _running(self) -> Bench:
        if self._bench is None:
            raise JudgeError("the judge pool is not running; use it in `async with`")
        return self._bench


class _Slots:
    """A semaphore whose next turn goes to the longest-waiting one that is `preferred`, else to the longest-waiting."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    async def take(self, preferred: Callable[[], bool]) -> None:
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((preferred, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give()
            else:
                self._waiting = [entry for entry in self._waiting if entry[1] is not turn]
            raise

    def give(self) -> None:
        self._waiting = [entry for entry in self._waiting if not entry[1].done()]
        if not self._waiting:
            self._free += 1
            return
        chosen = next((entry for entry in self._waiting if entry[0]()), self._waiting[0])
        self._waiting.remove(chosen)
        chosen[1].set_result(None)


def profile_text(verdict: Verdict) -> str:
    """What utils.profiling prints."""
    if verdict.status == "correct":
        return f"[PASS] {verdict.message}"
    return verdict.feedback()


async def _settle(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
