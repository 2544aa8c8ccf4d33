"""What a training process is asked to do: frozen models that are the job file. No torch here.

The parent writes one of these as JSON; `accelerate launch -m cuda_agent.learning.run --job FILE` reads it. `pretrain`,
`rft` and `critic` work through one episodes file, write `output` and end. `ppo` takes commands over the socket.
"""

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from cuda_agent.config import (
    BasePolicyScience,
    CriticScience,
    Frozen,
    PpoScience,
    RftScience,
    TrainExecution,
    first_fault,
)
from cuda_agent.errors import LearningError


class AdamWSettings(Frozen):
    """AdamW beyond the learning rate. The paper names no optimiser; these are usual for transformers.

    No weight decay: with rates of 3e-6 it would hardly act, and RL should move nothing that reward does not ask for.
    """

    beta1: float = Field(0.9, ge=0.0, lt=1.0)
    beta2: float = Field(0.95, ge=0.0, lt=1.0, description="shorter memory than 0.999: few steps, changing data")
    eps: float = Field(1e-8, gt=0.0)
    weight_decay: float = Field(0.0, ge=0.0)


class _Job(Frozen):
    execution: TrainExecution = TrainExecution()
    optimiser: AdamWSettings = AdamWSettings()
    socket: Path | None = Field(None, description="unix socket of the parent; empty prints events on standard output")
    actor: Path = Field(description="Hugging Face folder of the policy that training starts from, tokenizer included")


class _BatchJob(_Job):
    episodes: Path = Field(description="file of write_episodes")
    output: Path = Field(description="folder to write: OUTPUT/actor or OUTPUT/critic, and OUTPUT/COMPLETE last")
    progress_seconds: float = Field(5.0, gt=0.0, description="shortest time between two progress events")


class PretrainJob(_BatchJob):
    """Supervised learning from demonstrations, from an untrained model."""

    kind: Literal["pretrain"] = "pretrain"
    science: BasePolicyScience = BasePolicyScience()
    optimiser: AdamWSettings = AdamWSettings(weight_decay=0.01)
    schedule: Literal["cosine", "linear", "constant"] = Field("cosine", description="learning rate after the warm-up")
    warmup_share: float = Field(0.05, ge=0.0, lt=1.0, description="share of the steps with a rising rate")
    final_rate_share: float = Field(0.05, ge=0.0, le=1.0, description="share of the rate that is left at the end")
    max_grad_norm: float = Field(1.0, gt=0.0)


class RftJob(_BatchJob):
    """Rejection fine-tuning of the actor on trajectories that `rft.select` kept."""

    kind: Literal["rft"] = "rft"
    science: RftScience = RftScience()


class CriticJob(_BatchJob):
    """Critic pretraining. Without `critic` it starts from the actor's backbone and a zero head."""

    kind: Literal["critic"] = "critic"
    science: CriticScience = CriticScience()
    critic: Path | None = None


class PpoJob(_Job):
    """PPO, a step per command. Without `critic` it starts from the actor's backbone and a zero head."""

    kind: Literal["ppo"] = "ppo"
    science: PpoScience = PpoScience()
    critic: Path | None = None
    resume: Path | None = Field(None, description="folder of an earlier `save` to go on from, optimisers included")


Job = Annotated[PretrainJob | RftJob | CriticJob | PpoJob, Field(discriminator="kind")]
_ADAPTER: TypeAdapter[PretrainJob | RftJob | CriticJob | PpoJob] = TypeAdapter(Job)


def write_job(path: Path, job: Job) -> None:
    """Write a job file."""
    path.write_text(json.dumps(job.model_dump(mode="json"), indent=1), encoding="utf-8")


def read_job(path: Path) -> Job:
    """Read a job file.

    Raises:
        LearningError: the file is missing or breaks a rule; the message names the first key at fault.
    """
    try:
        return _ADAPTER.validate_json(path.read_bytes())
    except OSError as error:
        raise LearningError(f"job file {path}: {error.strerror}; write it with write_job") from error
    except ValidationError as error:
        raise LearningError(f"job file {path}: {first_fault(error)}") from error
