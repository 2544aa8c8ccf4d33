"""The training process: `accelerate launch -m cuda_agent.learning.run --job JOB.json`, on one device or many.

It reads a job (`job.py`), says `ready`, and works. Batch jobs send `progress` and `metrics` events, then `saved`, then
`done`, and end. PPO answers commands: {"cmd": "step", "episodes": FILE, "step": N} with `metrics`; {"cmd": "save",
"folder": DIR} with `saved`; {"cmd": "stop"} with `stopped`. Any failure is one `error` event and exit status 1.
"""

import argparse
import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuda_agent.errors import LearningError
from cuda_agent.learning.channel import Channel
from cuda_agent.learning.job import CriticJob, Job, PpoJob, PretrainJob, RftJob, read_job

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_launcher() -> None:
    """Have the kernel end this process when its launcher ends: launchers of several processes give each its own group."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(argv: list[str] | None = None) -> int:
    """Run one job; returns the exit status."""
    die_with_launcher()
    parser = argparse.ArgumentParser(prog="cuda_agent.learning.run", description="one training process")
    parser.add_argument("--job", type=Path, required=True, help="file written by cuda_agent.learning.job.write_job")
    job = read_job(parser.parse_args(argv).job)
    channel = Channel(job.socket) if os.environ.get("RANK", "0") == "0" else None
    try:
        _work(job, channel)
    except Exception as error:  # the boundary of the process: whatever happens, the parent is told in one sentence
        traceback.print_exc()
        if channel:
            expected = isinstance(error, LearningError)
            message = str(error) if expected else f"{type(error).__name__}: {error}"
            channel.send("error", expected=expected, message=message)
        return 1
    finally:
        if channel:
            channel.close()
    return 0


def _work(job: Job, channel: Channel | None) -> None:
    from cuda_agent.learning.session import Session  # torch and transformers: seconds

    session = Session(job)
    if isinstance(job, PpoJob):
        _serve(session, job, channel)
    else:
        _batch(session, job, channel)
    session.accelerator.end_training()


def _batch(session: Any, job: PretrainJob | RftJob | CriticJob, channel: Channel | None) -> None:
    from cuda_agent.learning import actor_critic, supervised

    if isinstance(job, PretrainJob):
        supervised.pretrain(session, job, channel)
    elif isinstance(job, RftJob):
        supervised.rft(session, job, channel)
    else:
        actor_critic.train_critic(session, job, channel)
    digests = session.save(job.output, resumable=False)
    if channel:
        channel.send("saved", folder=str(job.output), sha256=digests)
        channel.send("done")


def _serve(session: Any, job: PpoJob, channel: Channel | None) -> None:
    """Take commands until `stop`; the first process hears them and passes them on."""
    from accelerate.utils import broadcast_object_list

    from cuda_agent.learning.actor_critic import ppo_step

    session.train_actor(job.actor, job.science.actor_rate)
    session.train_critic(job.critic or job.actor, job.science.critic_rate)
    if job.resume is not None:
        session.resume(job.resume)
    session.announce(channel)
    answer: Callable[..., None] = channel.send if channel else (lambda *_, **__: None)
    while True:
        (command,) = broadcast_object_list([channel.receive() if channel else None])
        match command:
            case {"cmd": "step", "episodes": str(path), "step": int(step)}:
                answer("metrics", step=step, metrics=ppo_step(session, job.science, Path(path), step))
            case {"cmd": "save", "folder": str(folder)}:
                digests = session.save(Path(folder), resumable=True)
                answer("saved", folder=folder, sha256=digests)
            case {"cmd": "stop"}:
                answer("stopped")
                return
            case _:
                raise LearningError(f"command {command!r} is not known; commands are step, save and stop")


if __name__ == "__main__":
    sys.exit(main())
