"""The training process as its parent sees it: started for real through accelerate launch."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from cuda_agent.config import CriticScience, PpoScience, TrainExecution
from cuda_agent.errors import LearningError
from cuda_agent.learning.actor_critic import train_critic
from cuda_agent.learning.episodes import EpisodeTensors, write_episodes
from cuda_agent.learning.job import CriticJob, PpoJob
from cuda_agent.learning.launch import Trainer, launch_command, launch_environment, run_job
from cuda_agent.learning.models import load_actor
from cuda_agent.learning.session import Session

Bandit = Callable[[int], list[EpisodeTensors]]
ON_CPU = TrainExecution(device="cpu", timeout_seconds=120)


@pytest.fixture
def file(tmp_path: Path, bandit: Bandit) -> Path:
    write_episodes(tmp_path / "episodes.npz", bandit(8))
    return tmp_path / "episodes.npz"


def test_the_command_leaves_nothing_to_probe() -> None:
    command = launch_command(TrainExecution(device="cpu", dtype="bfloat16"), Path("job.json"))
    for option in ("--cpu", "--num_processes", "--num_machines", "--mixed_precision", "--dynamo_backend"):
        assert option in command
    assert command[command.index("--mixed_precision") + 1] == "bf16"
    assert "--multi_gpu" in launch_command(TrainExecution(device="cpu", processes=2), Path("job.json"))
    assert "--config_file" in launch_command(TrainExecution(accelerate_config="fsdp.yaml"), Path("job.json"))


def test_waiting_threads_sleep() -> None:
    assert launch_environment(ON_CPU)["OMP_WAIT_POLICY"] == "PASSIVE"


def group_of(trainer: Trainer) -> int:
    assert trainer._process is not None
    return trainer._process.pid


def gone(group: int) -> bool:
    """Whether nothing of a process group runs any more, after a moment; a zombie that init has yet to reap is gone."""
    deadline = time.monotonic() + 10.0
    while any(os.getpgid(p.pid) == group for p in running()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def running() -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if process.status() != psutil.STATUS_ZOMBIE and os.getpgid(process.pid):
                yield process


@pytest.mark.slow
async def test_ppo_steps_saves_and_then_dies_of_a_kill(policy: Path, tmp_path: Path, file: Path) -> None:
    lines: list[str] = []
    async with Trainer(on_line=lines.append) as trainer:
        before = time.monotonic()
        await trainer.start(PpoJob(actor=policy, execution=ON_CPU, science=PpoScience(actor_rate=1e-3, minibatch=4)))
        assert time.monotonic() - before < 1.0  # the launch overlaps with what comes next
        _, metrics = await asyncio.gather(trainer.ready(), trainer.step(file, 1))  # both wait for the same event
        assert metrics["mean_reward"] == 0.0 and metrics["updates"] == 2 and metrics["tokens_per_second"] > 0
        saved = await trainer.save(tmp_path / "step1")
        assert set(saved.sha256) == {"actor", "critic", "state"}
        load_actor(saved.folder / "actor")
        ready = await trainer.ready()
        assert (ready["device"], ready["processes"]) == ("cpu", 1)

        group = group_of(trainer)
        os.killpg(group, signal.SIGKILL)
        with pytest.raises(LearningError, match=r"ended with status -9 while training step 2 was waited for"):
            await trainer.step(file, 2)
    assert gone(group)


@pytest.mark.slow
async def test_two_processes_train_as_one_does(policy: Path, tmp_path: Path, bandit: Bandit) -> None:
    long = [replace(e, **{n: np.tile(getattr(e, n), 30) for n in ("token_id", "logprob", "mask")}) for e in bandit(7)]
    write_episodes(tmp_path / "long.npz", long)  # 210 tokens each: every optimiser step has several micro-batches
    job = CriticJob(
        actor=policy,
        episodes=tmp_path / "long.npz",
        output=tmp_path / "out",
        science=CriticScience(epochs=2, batch=4, rate=1e-2),
        execution=ON_CPU.model_copy(update={"processes": 2, "micro_tokens": 256}),
    )
    finished = await run_job(job)
    assert (tmp_path / "out" / "critic" / "value_head.safetensors").is_file()
    assert set(finished.saved.sha256) == {"critic"}

    alone: dict[int, dict[str, float]] = {}

    class Heard:
        def send(self, event: str, **fields: Any) -> None:
            if event == "metrics":
                alone[fields["step"]] = fields["metrics"]

    train_critic(Session(job), job, Heard())  # type: ignore[arg-type]
    for step, metrics in alone.items():
        for name in ("critic_loss", "critic_grad_norm", "explained_variance", "mean_value", "tokens"):
            assert finished.metrics[step][name] == pytest.approx(metrics[name], rel=1e-3)


@pytest.mark.slow
async def test_a_process_that_cannot_start_is_an_error_with_its_log(tmp_path: Path) -> None:
    async with Trainer() as trainer:
        await trainer.start(PpoJob(actor=tmp_path, execution=ON_CPU.model_copy(update={"accelerate_config": "/none.yaml"})))
        with pytest.raises(LearningError, match=r"(?s)ended with status 1 while .* its log ends:.*none\.yaml"):
            await trainer.ready()


async def test_running_out_of_time_ends_the_group(policy: Path) -> None:
    async with Trainer() as trainer:
        await trainer.start(PpoJob(actor=policy, execution=ON_CPU.model_copy(update={"timeout_seconds": 0.2})))
        with pytest.raises(LearningError, match=r"waited 0\.2 s for the training process to load its models"):
            await trainer.ready()
        group = group_of(trainer)
    assert gone(group)


async def test_cancelling_ends_the_group(policy: Path) -> None:
    trainer = Trainer()
    await trainer.start(PpoJob(actor=policy, execution=ON_CPU))
    waiting = asyncio.create_task(trainer.ready())
    await asyncio.sleep(0.5)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await trainer.close()
    assert gone(group_of(trainer))


async def test_asking_before_starting_is_an_error() -> None:
    with pytest.raises(LearningError, match="call start first"):
        await Trainer().ready()


def test_the_parent_side_imports_no_torch() -> None:
    modules = "launch, job, episodes, rft, checkpoint, meter, channel"
    code = f"import sys; from cuda_agent.learning import {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
