"""One training run's models, optimisers and devices under Accelerate.

Everything that depends on the number of processes or the device is here: preparing, forward passes, gathering, clipping,
saving and resuming. Losses passed to `backward` are shares of a loss over the whole batch of all processes.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate import Accelerator, DistributedDataParallelKwargs, InitProcessGroupKwargs
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from cuda_agent.errors import LearningError
from cuda_agent.learning import checkpoint, models
from cuda_agent.learning.channel import Channel
from cuda_agent.learning.episodes import EpisodeTensors, MicroBatch, TokenLayout, micro_batches
from cuda_agent.learning.job import AdamWSettings, Job

CPU_MICRO_TOKENS = 1_024  # larger ones leave the caches: 1.9 k tokens/s of CPU time against 1.6 k at 4,096 (loaded machine)


class Trained:
    """A model with its optimiser, prepared for the run's devices."""

    def __init__(self, session: "Session", model: nn.Module, rate: float, settings: AdamWSettings) -> None:
        self.accelerator = session.accelerator
        optimiser = AdamW(
            model.parameters(),
            lr=rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.eps,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self.model: nn.Module
        self.optimiser: Optimizer
        self.model, self.optimiser = self.accelerator.prepare(model, optimiser)

    def backward(self, loss: Callable[[MicroBatch], Tensor], batches: Sequence[MicroBatch]) -> float:
        """Accumulate the gradients of each micro-batch's loss; processes combine them once, at the last.

        Returns:
            The sum of this process's losses.
        """
        total = torch.zeros((), device=self.accelerator.device)
        for i, batch in enumerate(batches):
            last = i == len(batches) - 1
            with nullcontext() if last else self.accelerator.no_sync(self.model):
                share = loss(batch)
                self.accelerator.backward(share * self.accelerator.num_processes)  # gradients are averaged over processes
            total += share.detach()
        return float(total)

    def update(self, max_grad_norm: float, rate: float | None = None) -> float:
        """Clip, step and clear; returns the gradient's norm before clipping.

        Raises:
            LearningError: the norm is not finite.
        """
        norm = float(self.accelerator.clip_grad_norm_(self.model.parameters(), max_grad_norm))
        if not norm < float("inf"):
            raise LearningError(f"the gradient's norm is {norm}: training diverged; lower the learning rate")
        if rate is not None:
            for group in self.optimiser.param_groups:
                group["lr"] = rate
        self.optimiser.step()
        self.optimiser.zero_grad()
        return norm

    def state(self) -> dict[str, Tensor]:
        """The whole model's weights, gathered to the first process (other processes may get an empty one)."""
        state: dict[str, Tensor] = self.accelerator.get_state_dict(self.model)
        return state


class Session:
    """Devices and models of one job. `actor` and `critic` are None where the job has no use for them."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.started = time.monotonic()
        patience = InitProcessGroupKwargs(timeout=timedelta(days=2))  # processes wait for rollouts in a collective
        self.accelerator = Accelerator(kwargs_handlers=[patience, DistributedDataParallelKwargs(broadcast_buffers=False)])
        torch.manual_seed(job.science.seed)
        transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # they flood the run's log
        logging.getLogger("accelerate.utils.other").setLevel(logging.ERROR)  # warns of tied weights at each save
        self.dtype = torch.bfloat16 if job.execution.dtype == "bfloat16" else torch.float32
        self.actor: Trained | None = None
        self.critic: Trained | None = None

    @property
    def main(self) -> bool:
        """Whether this is the process that talks to the parent and writes files."""
        return bool(self.accelerator.is_main_process)

    def train_actor(self, folder: Path, rate: float) -> Trained:
        """Load and prepare the actor."""
        self.actor = Trained(self, models.load_actor(folder), rate, self.job.optimiser)
        return self.actor

    def train_critic(self, folder: Path, rate: float) -> Trained:
        """Load and prepare the critic (a new head on an actor's backbone if `folder` is an actor's)."""
        self.critic = Trained(self, models.load_critic(folder), rate, self.job.optimiser)
        return self.critic

    def announce(self, channel: Channel | None) -> None:
        """Tell the parent that the models are loaded, and on what they run."""
        if channel is None:
            return
        trained = (("actor", self.actor), ("critic", self.critic))
        channel.send(
            "ready",
            kind=self.job.kind,
            device=str(self.accelerator.device),
            processes=self.accelerator.num_processes,
            threads=torch.get_num_threads(),
            parameters={name: sum(p.numel() for p in part.model.parameters()) for name, part in trained if part is not None},
            seconds=time.monotonic() - self.started,
        )

    # --- micro-batches -----------------------------------------------------------------------------------------------

    def batches(self, episodes: Sequence[EpisodeTensors], layout: TokenLayout, indexes: Sequence[int]) -> list[MicroBatch]:
        """This process's micro-batches of the episodes at `indexes`."""
        bound = self.job.execution.micro_tokens
        if self.accelerator.device.type == "cpu":
            bound = min(bound, CPU_MICRO_TOKENS)
        return micro_batches(episodes, layout, indexes, bound, self.accelerator.num_processes, self.accelerator.process_index)

    def tensor(self, array: Any) -> Tensor:
        """A numpy array on the device."""
        return torch.from_numpy(array).to(self.accelerator.device)

    def logprobs(self, batch: MicroBatch, entropy: bool = False) -> tuple[Tensor, Tensor | None]:
        """The actor's log-probs (and entropies) of the batch's policy tokens, [policy tokens]."""
        assert self.actor is not None
        result: tuple[Tensor, Tensor | None] = self.actor.model(
            self.tensor(batch.token_id), self.tensor(batch.source), self.tensor(batch.target), entropy
        )
        return result

    def values(self, batch: MicroBatch) -> Tensor:
        """The critic's values before the batch's policy tokens, [policy tokens]."""
        assert self.critic is not None
        result: Tensor = self.critic.model(self.tensor(batch.token_id), self.tensor(batch.source))
        return result

    def total(self, *numbers: float) -> list[float]:
        """Sums over all processes."""
        sums = self.accelerator.reduce(torch.tensor(numbers, dtype=torch.float64, device=self.accelerator.device), "sum")
        return [float(number) for number in sums]

    def merge(self, flat: Tensor) -> Tensor:
        """Combine flat arrays that each process filled at its own tokens (zero elsewhere) into the whole, everywhere."""
        merged: Tensor = self.accelerator.reduce(flat, "sum")
        return merged

    # --- saving ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _folder(self, folder: Path) -> Iterator[Path]:
        """A temporary folder that all processes write to; published when all are done."""
        if self.main:
            checkpoint.begin(folder)
        self.accelerator.wait_for_everyone()
        yield checkpoint.partial_of(folder)
        self.accelerator.wait_for_everyone()
        if self.main:
            checkpoint.publish(folder)
        self.accelerator.wait_for_everyone()

    def save(self, folder: Path, *, resumable: bool) -> dict[str, str]:
        """Write actor, critic and (if `resumable`) the trainer's state as parts of a checkpoint.

        Returns:
            sha256 by part (actor, critic, state, as far as they exist) in the main process; elsewhere nothing.

        Raises:
            LearningError: the checkpoint exists already.
        """
        with self._folder(folder) as partial:
            if self.actor is not None:
                state = self.actor.state()
                if self.main:
                    actor = self.accelerator.unwrap_model(self.actor.model)
                    models.save_actor(actor, state, partial / "actor", self.job.actor, self.dtype)
            if self.critic is not None:
                state = self.critic.state()
                if self.main:
                    critic = self.accelerator.unwrap_model(self.critic.model)
                    models.save_critic(critic, state, partial / "critic", self.dtype)
            if resumable:
                self.accelerator.save_state(str(partial / "state"))
        return dict(checkpoint.require_complete(folder)) if self.main else {}

    def resume(self, folder: Path) -> None:
        """Go on from a checkpoint of `save`: weights at full precision, optimisers and random state.

        Raises:
            LearningError: the checkpoint is incomplete or holds no trainer state.
        """
        if "state" not in checkpoint.require_complete(folder):
            raise LearningError(f"checkpoint {folder} holds no trainer state; resume from one saved during PPO")
        self.accelerator.load_state(str(folder / "state"))
