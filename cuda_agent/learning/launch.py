"""The parent's side of a training process: start it, talk to it, and never outlive or leak it. No torch here.

`Trainer` runs `accelerate launch` in a process group of its own. `start` returns at once: importing torch twice (the
launcher, then the process) takes seconds that overlap with whatever the parent does next; the first call that needs
the process waits. Output lines go to a callback. A process that dies, fails or hangs is a LearningError that says
what was waited for and how its log ends. Cancelling any call, or leaving the `async with`, ends the whole group.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import cuda_agent
from cuda_agent.config import TrainExecution
from cuda_agent.errors import LearningError
from cuda_agent.learning.job import CriticJob, Job, PpoJob, PretrainJob, RftJob, write_job

TAIL_LINES = 40
STOP_SECONDS = 20.0  # what a process gets to end by itself
LINE_BYTES = 1 << 20  # longest event

Event = dict[str, Any]
Metrics = dict[str, Any]


@dataclass(frozen=True)
class Saved:
    """A finished checkpoint: its folder, and the sha256 of each part (actor, critic, state) that it holds."""

    folder: Path
    sha256: Mapping[str, str]


@dataclass(frozen=True)
class Finished:
    """What a batch job left: its checkpoint, and its metrics by step (epoch)."""

    saved: Saved
    metrics: Mapping[int, Metrics] = field(default_factory=dict)


def has_cuda() -> bool:
    """Whether this machine has an NVIDIA device, found without torch."""
    return Path("/dev/nvidiactl").exists() and os.environ.get("CUDA_VISIBLE_DEVICES", "all") not in ("", "-1")


def launch_command(execution: TrainExecution, job_file: Path) -> list[str]:
    """The command line. All that `accelerate launch` would probe, ask or warn about is given.

    Plain data parallelism by default; `accelerate_config` names a file of `accelerate config` (FSDP, several machines).
    """
    cpu = execution.device == "cpu" or (execution.device == "auto" and not has_cuda())
    arguments = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", str(execution.processes)]
    arguments += ["--mixed_precision", "bf16" if execution.dtype == "bfloat16" else "no"]
    threads = max(1, len(os.sched_getaffinity(0)) // execution.processes)
    arguments += ["--num_cpu_threads_per_process", str(threads)]
    if execution.accelerate_config is not None:
        arguments += ["--config_file", execution.accelerate_config]
    else:
        arguments += ["--num_machines", "1", "--dynamo_backend", "no", "--main_process_port", "0"]
        if execution.processes > 1:
            arguments.append("--multi_gpu")  # also for CPU processes: ACCELERATE_USE_CPU decides, this picks the launcher
        elif cpu:
            arguments.append("--cpu")
    return [*arguments, "--module", "cuda_agent.learning.run", "--job", str(job_file)]


def launch_environment(execution: TrainExecution) -> dict[str, str]:
    """The process's environment.

    Threads that wait must sleep: OpenMP's default is to spin, and on cores that others use too a training step took
    4.5 times as long (13.2 s against 2.9 s at a load of 7 on 2 cores).
    """
    environment = dict(os.environ)
    root = str(Path(cuda_agent.__file__).resolve().parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
    environment["PYTHONUNBUFFERED"] = "1"
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    environment.setdefault("TOKENIZERS_PARALLELISM", "false")
    environment.setdefault("HF_HUB_OFFLINE", "1")  # models are folders
    if execution.device == "cpu" or (execution.device == "auto" and not has_cuda()):
        environment["ACCELERATE_USE_CPU"] = "true"
    return environment


class Trainer:
    """One training process. Use as an async context manager, or call `close` in the end.

    Args:
        on_line: gets each line of the process's output.
        on_event: gets each event (see `run.py`), `progress` included.
    """

    def __init__(self, *, on_line: Callable[[str], None] | None = None, on_event: Callable[[Event], None] | None = None) -> None:
        self._on_line = on_line or (lambda line: None)
        self._on_event = on_event or (lambda event: None)
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._writer: asyncio.StreamWriter | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._server: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._folder: Path | None = None
        self._timeout = 0.0
        self._ready: Event | None = None
        self._loading = asyncio.Lock()  # held by whoever waits for it
        self._serving = False  # whether the process listens for commands
        self._serving_kind = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self._kill()
        await self.close()

    # --- life --------------------------------------------------------------------------------------------------------

    async def start(self, job: Job) -> None:
        """Launch the process for `job` and return without waiting for it; `job.socket` is set here.

        Raises:
            LearningError: this trainer was started before, or the command cannot be run.
        """
        if self._process is not None:
            raise LearningError("this trainer was started before; make a new one for another job")
        self._timeout = job.execution.timeout_seconds
        self._serving_kind = isinstance(job, PpoJob)
        self._folder = Path(tempfile.mkdtemp(prefix="trainer-"))  # short: a socket's path has at most 107 bytes
        socket, job_file = self._folder / "socket", self._folder / "job.json"
        write_job(job_file, job.model_copy(update={"socket": socket}))
        self._server = await asyncio.start_unix_server(self._connected, str(socket), limit=LINE_BYTES)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *launch_command(job.execution, job_file),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=launch_environment(job.execution),
                start_new_session=True,
                limit=LINE_BYTES,
            )
        except OSError as error:
            await self.close()
            raise LearningError(f"the training process cannot be started: {error}") from error
        self._tasks = [asyncio.create_task(self._read_output()), asyncio.create_task(self._watch())]

    async def close(self) -> None:
        """End the process and remove its files. May be called again.

        One that serves is asked to stop first. Then the group is killed: after `stopped` or `done` nothing is left to
        be written, and the interpreters' own shutdown would only take seconds.
        """
        if self._serving:
            self._send({"cmd": "stop"})
            with contextlib.suppress(LearningError, TimeoutError):
                await asyncio.wait_for(self._wait_for("stopped", "the training process to stop"), STOP_SECONDS)
        process = self._process
        self._kill()
        if process is not None:
            await process.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()
        if self._server is not None:
            self._server.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _kill(self) -> None:
        self._serving = False
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    # --- requests ----------------------------------------------------------------------------------------------------

    async def ready(self) -> Event:
        """Wait until the models are loaded; the `ready` event: device, processes, threads, parameters, seconds."""
        async with self._loading:  # two callers must not take each other's event
            if self._ready is None:
                self._ready = await self._wait_for("ready", "the training process to load its models")
                self._serving = self._serving_kind
            return self._ready

    async def step(self, episodes: Path, step: int) -> Metrics:
        """Run one PPO step on an episodes file.

        Returns:
            The metrics of `actor_critic.ppo_step`.

        Raises:
            LearningError: the step failed, or the process died or took longer than `timeout_seconds`.
        """
        await self.ready()
        self._send({"cmd": "step", "episodes": str(episodes), "step": step})
        metrics: Metrics = (await self._wait_for("metrics", f"training step {step}"))["metrics"]
        return metrics

    async def save(self, folder: Path) -> Saved:
        """Write actor, critic and trainer state to `folder` (which must not hold a checkpoint yet).

        Raises:
            LearningError: as for `step`, or the checkpoint exists.
        """
        await self.ready()
        self._send({"cmd": "save", "folder": str(folder)})
        event = await self._wait_for("saved", f"checkpoint {folder.name}")
        return Saved(Path(event["folder"]), event["sha256"])

    async def finish(self) -> Finished:
        """Wait for a batch job's end.

        Raises:
            LearningError: the job failed, or the process died or was silent for `timeout_seconds`.
        """
        metrics: dict[int, Metrics] = {}
        saved: Saved | None = None
        while True:
            event = await self._next("the training job's next sign of life", asyncio.get_running_loop().time() + self._timeout)
            match event["event"]:
                case "ready":
                    self._ready = event
                case "metrics":
                    metrics[event["step"]] = event["metrics"]
                case "saved":
                    saved = Saved(Path(event["folder"]), event["sha256"])
                case "done":
                    assert saved is not None
                    return Finished(saved, metrics)

    # --- plumbing ----------------------------------------------------------------------------------------------------

    def _send(self, command: Mapping[str, Any]) -> None:
        if self._writer is not None:
            self._writer.write(json.dumps(command).encode() + b"\n")

    async def _wait_for(self, kind: str, what: str) -> Event:
        deadline = asyncio.get_running_loop().time() + self._timeout
        while (event := await self._next(what, deadline))["event"] != kind:
            pass
        return event

    async def _next(self, what: str, deadline: float) -> Event:
        """The next event; errors, the process's end, time running out and cancelling all end the group."""
        if self._process is None:
            raise LearningError(f"waited for {what}, but no training process was started; call start first")
        try:
            async with asyncio.timeout_at(deadline):
                event = await self._events.get()
        except TimeoutError:
            self._kill()
            raise LearningError(
                f"waited {self._timeout:g} s for {what}: the limit is execution.timeout_seconds; {self._log()}"
            ) from None
        except asyncio.CancelledError:
            self._kill()
            raise
        if event is None:
            self._events.put_nowait(None)  # for whoever asks again
            status = await self._process.wait()
            raise LearningError(f"the training process ended with status {status} while {what} was waited for; {self._log()}")
        if event["event"] == "error":
            self._kill()
            raise LearningError(event["message"] if event["expected"] else f"{what} failed: {event['message']}; {self._log()}")
        return event

    def _log(self) -> str:
        return "its log ends:\n" + "\n".join(self._tail) if self._tail else "it logged nothing"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                event: Event = json.loads(line)
                self._on_event(event)
                self._events.put_nowait(event)

    async def _read_output(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        while raw := await self._process.stdout.readline():
            line = raw.decode(errors="replace").rstrip()
            self._tail.append(line)
            self._on_line(line)

    async def _watch(self) -> None:
        """Tell a waiting request that the process has ended, after what it still said."""
        assert self._process is not None
        await self._process.wait()
        await asyncio.wait(self._tasks[:1], timeout=2.0)  # the rest of its output
        self._events.put_nowait(None)


async def run_job(
    job: PretrainJob | RftJob | CriticJob,
    *,
    on_line: Callable[[str], None] | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Finished:
    """Run a batch job from start to end.

    Raises:
        LearningError: as for `Trainer.finish`.
    """
    async with Trainer(on_line=on_line, on_event=on_event) as trainer:
        await trainer.start(job)
        return await trainer.finish()


__all__ = ["Finished", "PpoJob", "Saved", "Trainer", "run_job"]
