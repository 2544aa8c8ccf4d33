"""What the judge does for an agent during an episode: checks and times on request, over a socket in the sandbox.

The agent's command waits for the answer meanwhile. That wait is not charged to the command's time, and the lease that
commands hold is let go, so that the judge can have the cores to itself. A fault of the judge is kept in `fault`: the agent
sees a neutral line, and the episode ends as an infrastructure error.
"""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol, Self

from cuda_agent.agent import alone
from cuda_agent.errors import CudaAgentError, JudgeError
from cuda_agent.judge.build import Manifest
from cuda_agent.judge.pool import profile_text
from cuda_agent.judge.verdict import Submission, Verdict
from cuda_agent.sandbox.jobs import JobReport
from cuda_agent.sandbox.lease import Lease
from cuda_agent.sandbox.shell import Shell, ShellResult
from cuda_agent.workspace.tools.text import cut

REQUESTS = 200  # of one episode; more are refused
SLICE_SECONDS = 1.0  # longest that background jobs keep someone waiting who wants to measure
_REQUEST_BYTES = 65_536
_LONGEST = 86_400.0
_PRINTED = 16_000  # characters of a measuring script's output that go back


class Judge(Protocol):
    """What episodes need of judge/pool.py's JudgePool."""

    @property
    def lease(self) -> Lease:
        """The lease on the measuring device; held, shared, while an agent's commands run."""
        ...

    @property
    def manifest(self) -> Manifest:
        """The glue that submissions are built with, for the agent's own builds."""
        ...

    async def judge(self, problem_code: str, submission: Submission, *, seed: int | None = None, fresh: bool = False) -> Verdict:
        """The verdict that counts."""
        ...

    async def verify(self, problem_code: str, submission: Submission) -> Verdict:
        """Feedback on correctness, without times."""
        ...

    async def profile_verdict(self, problem_code: str, submission: Submission) -> Verdict:
        """Feedback with times, from other seeds than the verdict that counts."""
        ...


class MeteredShell:
    """A shell whose commands are charged their own time only, and hold the lease while they run.

    Nothing inside runs without the lease: whatever a command leaves behind is stopped when the lease is let go. Background
    jobs run in slices of it, so whoever wants to measure waits for a slice at most.
    """

    def __init__(self, shell: Shell, lease: Lease | None) -> None:
        self._shell = shell
        self._lease = lease
        self._held: AsyncExitStack | None = None
        self._running = False
        self._pauses = 0  # requests under way, for which the lease was let go
        self._uncharged = 0  # of these, with the wait for the lease afterwards
        self._unpaused = asyncio.Event()
        self._unpaused.set()
        self._changed = asyncio.Event()
        self._slices: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Nothing to set up."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """End the shell with all its jobs, and let the lease go."""
        await self._shell.close()
        if self._slices is not None:
            self._slices.cancel()
            await asyncio.gather(self._slices, return_exceptions=True)
        await self._release()

    async def start(self, command: str) -> str:
        """Start a background job and return its id. Raises JobFault, SandboxError."""
        self._running = True
        try:
            await self._hold()
            job_id = await self._shell.start(command)
        finally:
            self._running = False
            await self._release_unless_working()
        if self._lease is not None and (self._slices is None or self._slices.done()):
            self._slices = asyncio.create_task(self._slice())
        return job_id

    async def look(self, job_id: str) -> JobReport:
        """What a job printed since the last look, and how it stands. Raises JobFault."""
        return await self._shell.look(job_id)

    async def kill(self, job_id: str) -> JobReport:
        """End a job and what it started. Raises JobFault."""
        return await self._shell.kill(job_id)

    async def run(self, command: str, timeout: float | None = None) -> ShellResult:
        """Run a command for at most `timeout` seconds of its own. Raises SandboxError."""
        limit = _LONGEST if timeout is None else timeout
        self._running = True
        await self._hold()
        task = asyncio.create_task(self._shell.run(command, _LONGEST))
        try:
            in_time = await self._watch(task, limit)
            if not in_time:
                await self._shell.interrupt()  # the command's bash ends with it, which ends the task
            result = await task
        finally:
            task.cancel()
            self._running = False
            await self._release_unless_working()
        if in_time:
            return result
        return ShellResult(f"{result.output}\n[stopped after {limit:g} s; the shell was restarted]", None, True, limit)

    async def _watch(self, task: "asyncio.Task[ShellResult]", limit: float) -> bool:
        """Wait for the task; False when it has used up its own time."""
        used = 0.0
        while not task.done():
            self._changed.clear()
            paused, since = self._uncharged > 0, time.monotonic()
            change = asyncio.create_task(self._changed.wait())
            try:
                await asyncio.wait({task, change}, timeout=None if paused else limit - used, return_when=asyncio.FIRST_COMPLETED)
            finally:
                change.cancel()
            used += 0.0 if paused else time.monotonic() - since
            if used >= limit and not task.done():
                return False
        return True

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Stop the clock, let go of the lease and hold everything still: the command waits for the judge."""
        self._uncharged += 1
        self._changed.set()
        try:
            async with self._pause():
                yield
            if self._running:
                await self._hold()
        finally:
            self._uncharged -= 1
            self._changed.set()

    @contextlib.asynccontextmanager
    async def _pause(self) -> AsyncIterator[None]:
        """Nothing takes the lease for this shell meanwhile, a new command neither."""
        self._pauses += 1
        self._unpaused.clear()
        try:
            await self._release()
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                self._unpaused.set()

    async def _slice(self) -> None:
        """Hold the lease for background jobs, a slice at a time: between two of them others get their turn."""
        while self._shell.working:
            await self._hold(command=False)
            await asyncio.sleep(SLICE_SECONDS)
            if not self._running:
                await self._release()
            await self._shell.settle()

    async def _hold(self, *, command: bool = True) -> None:
        """Take the lease for a command or for jobs, unless it is no longer wanted when it is there; waits out every pause."""
        while self._lease is not None and self._held is None:
            await self._unpaused.wait()
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(self._lease.shared())
                if self._pauses:
                    continue
                if self._held is None and (self._running if command else self._shell.working):
                    self._held = stack.pop_all()
                    self._shell.thaw()
                return

    async def _release_unless_working(self) -> None:
        if not self._shell.working:
            await self._release()

    async def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._shell.freeze()
            await held.aclose()


class JudgeSocket:
    """Serves one workspace's requests on a unix socket while open.

    `passed` has the submissions that were found correct, newest last; `profiled` has the verdicts that came with times, by
    digest; `fault` is the judge's own, if it had one.
    """

    def __init__(self, path: Path, judge: Judge, problem_code: str, workspace: Path) -> None:
        self.path = path
        self.shell: MeteredShell | None = None
        self.fault: CudaAgentError | None = None
        self.passed: dict[str, Submission] = {}
        self.profiled: dict[str, Verdict] = {}
        self.last_verdict: Verdict | None = None  # of the newest request; reset by whoever reads it
        self._judge, self._problem, self._workspace = judge, problem_code, workspace
        self._server: asyncio.Server | None = None
        self._requests: set[asyncio.Task[None]] = set()
        self._one = asyncio.Lock()
        self._count = 0

    async def __aenter__(self) -> Self:
        """Listen; the sandbox's user may connect."""
        self._server = await asyncio.start_unix_server(self._connection, path=str(self.path), limit=_REQUEST_BYTES)
        os.chmod(self.path, 0o666)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Stop listening, and end the requests under way."""
        if self._server is not None:
            self._server.close()
        for request in self._requests:
            request.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = asyncio.current_task()
        assert request is not None
        self._requests.add(request)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:  # by `close`: whoever asked is gone
            pass
        finally:
            self._requests.discard(request)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError, ValueError):
            request = json.loads(await asyncio.wait_for(reader.readline(), 10.0))
            writer.write(json.dumps(await self._answer(request)).encode())
            await writer.drain()

    async def _answer(self, request: Any) -> Mapping[str, Any]:
        command = request.get("command") if isinstance(request, dict) else None
        if command not in ("verify", "profile", "run"):
            return {"text": "[FAIL] unknown command", "passed": False}
        async with self._one, self.shell.paused() if self.shell else contextlib.nullcontext():
            self._count += 1
            if self._count > REQUESTS:
                return {"text": f"[FAIL] an episode may ask the judge {REQUESTS} times; that was all", "passed": False}
            try:
                if command == "run":
                    return await self._run(request.get("script"))
                verdict = await self._feedback(command)
            except CudaAgentError as error:
                self.fault = error
                return {"text": "[FAIL] the judge is out of order", "passed": False}
        text = verdict.feedback() if command == "verify" else profile_text(verdict)
        return {"text": text, "passed": verdict.status == "correct"}

    async def _run(self, script: Any) -> Mapping[str, Any]:
        """What the agent's own script prints, alone on the device; `script` is its path and its arguments."""
        if not isinstance(script, list) or not script or not all(isinstance(word, str) for word in script):
            return {"text": "[FAIL] name a script: python3 -m utils.run SCRIPT [ARGUMENT...]", "passed": False}
        found = await alone.run_alone(self._judge.lease, self._judge.manifest, self._workspace, script)
        if found.timed_out:
            printed = cut(found.output.rpartition("\n[stopped after")[0].rstrip("\n"), _PRINTED)
            return {"text": f"{printed}\n[FAIL] stopped after {alone.SECONDS:g} s", "passed": False}
        return {"text": cut(found.output, _PRINTED), "passed": found.exit_code == 0}

    async def _feedback(self, command: str) -> Verdict:
        submission = await asyncio.to_thread(Submission.from_folder, self._workspace)
        ask = self._judge.verify if command == "verify" else self._judge.profile_verdict
        verdict = await ask(self._problem, submission)
        if verdict.status == "infra_error":
            raise JudgeError(f"the judge failed: {verdict.message}")
        if command == "profile":
            self.last_verdict = self.profiled[submission.sha256] = verdict
        if verdict.status == "correct":
            self.passed.pop(submission.sha256, None)
            self.passed[submission.sha256] = submission
        return verdict
