"""Actor and critic as modules that answer per policy token, and how they are loaded from and written to folders.

Both take micro-batches padded on the right without an attention mask (see `episodes.MicroBatch`) and pick the hidden
states that predict policy tokens before the head: logits for prompts and tool output are never computed. An actor's
folder is a plain Hugging Face folder; a critic's is the backbone as one, with `value_head.safetensors` beside it.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedModel

from cuda_agent.errors import LearningError

VALUE_HEAD = "value_head.safetensors"
LOGITS_AT_ONCE = 1 << 28  # elements of [policy tokens, vocabulary] held at a time (1 GiB in float32)
WEIGHT_FILES = ("*.safetensors", "*.safetensors.index.json", "*.bin", "*.bin.index.json", "*.gguf", "*.pt", "COMPLETE")


def _score(hidden: Tensor, target: Tensor, head: nn.Module) -> Tensor:
    """Log-probs of `target` [n] under the full vocabulary at temperature 1, from hidden states [n, width]."""
    return -functional.cross_entropy(head(hidden).float(), target, reduction="none")


def _entropy(hidden: Tensor, head: nn.Module) -> Tensor:
    """Entropy in nats of the next-token distribution, [n], from hidden states [n, width]."""
    logprobs = functional.log_softmax(head(hidden).float(), dim=-1)
    return -(logprobs.exp() * logprobs).sum(-1)


class Actor(nn.Module):
    """A causal language model that returns log-probs of policy tokens."""

    def __init__(self, lm: PreTrainedModel) -> None:
        super().__init__()
        self.lm = lm
        self._no_split_modules = lm._no_split_modules  # what FSDP wraps by default

    def forward(self, token_id: Tensor, source: Tensor, target: Tensor, entropy: bool = False) -> tuple[Tensor, Tensor | None]:
        """Log-probs [n] of the n policy tokens, and with `entropy` that of their distributions [n].

        Args: token_id [rows, tokens]; source [n] places of the preceding tokens in the flattened rows; target [n].
        """
        output = self.lm.base_model(input_ids=token_id, use_cache=False)
        hidden = output.last_hidden_state.flatten(0, 1).index_select(0, source)  # [n, width]
        head: nn.Module = self.lm.get_output_embeddings()  # type: ignore[no-untyped-call]
        chunk = max(1, LOGITS_AT_ONCE // self.lm.config.get_text_config().vocab_size)
        if len(target) <= chunk:
            logprob = _score(hidden, target, head)
        else:  # recomputed in the backward pass, so that one chunk's logits exist at a time
            parts = zip(torch.split(hidden, chunk), torch.split(target, chunk), strict=True)
            logprob = torch.cat([checkpoint(_score, h, t, head, use_reentrant=False) for h, t in parts])
        if not entropy:
            return logprob, None
        with torch.no_grad():
            return logprob, torch.cat([_entropy(h, head) for h in torch.split(hidden, chunk)])


class Critic(nn.Module):
    """A backbone with a scalar head: the value of the state in which each policy token was sampled."""

    def __init__(self, backbone: PreTrainedModel) -> None:
        super().__init__()
        self.backbone = backbone
        self._no_split_modules = backbone._no_split_modules
        self.value_head = nn.Linear(backbone.config.get_text_config().hidden_size, 1)
        nn.init.zeros_(self.value_head.weight)  # V = 0 everywhere at first, whatever the backbone says
        nn.init.zeros_(self.value_head.bias)

    def forward(self, token_id: Tensor, source: Tensor) -> Tensor:
        """Values [n] before each of n policy tokens; arguments as of `Actor.forward`."""
        output = self.backbone(input_ids=token_id, use_cache=False)
        hidden = output.last_hidden_state.flatten(0, 1).index_select(0, source)
        values: Tensor = self.value_head(hidden).squeeze(-1).float()
        return values


# --- folders ---------------------------------------------------------------------------------------------------------


def _load(auto: Any, folder: Path) -> PreTrainedModel:
    if not (folder / "config.json").is_file():
        raise LearningError(f"{folder} is no model folder: config.json is missing; name a folder saved with save_pretrained")
    try:
        model = auto.from_pretrained(str(folder), dtype=torch.float32, attn_implementation="sdpa", local_files_only=True)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise LearningError(f"model folder {folder} cannot be loaded: {error}") from error
    assert isinstance(model, PreTrainedModel)
    model.train(False)  # no dropout: the ratio of PPO compares log-probs of two passes
    return model


def _refuse_scaled_logits(model: PreTrainedModel, folder: Path) -> None:
    """Models that transform logits behind the head would be scored wrongly here."""
    config = model.config.get_text_config()
    for name, neutral in (("final_logit_softcapping", None), ("logit_scale", 1.0), ("logits_scaling", 1.0)):
        if getattr(config, name, neutral) not in (neutral, None):
            raise LearningError(f"model {folder} sets {name}, which the trainer does not apply; use a model without it")


def load_actor(folder: Path) -> Actor:
    """The policy of a Hugging Face folder; float32 master weights whatever is stored.

    Raises:
        LearningError: the folder holds no loadable causal language model, or one whose logits are scaled.
    """
    model = _load(AutoModelForCausalLM, folder)
    _refuse_scaled_logits(model, folder)
    return Actor(model)


def load_critic(folder: Path) -> Critic:
    """The critic of a critic's folder, or (from an actor's folder) its backbone with a new zero head.

    Raises:
        LearningError: the folder holds no loadable model.
    """
    critic = Critic(_load(AutoModel, folder)).eval()
    head = folder / VALUE_HEAD
    if head.is_file():
        critic.value_head.load_state_dict(load_file(str(head)))
    return critic


def _part(state: dict[str, Tensor], prefix: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """The entries of a wrapper's state below `prefix`, converted; tied tensors stay tied."""
    converted: dict[int, Tensor] = {}
    part = {}
    for name, tensor in state.items():
        if name.startswith(prefix):
            key = tensor.data_ptr() or id(tensor)
            part[name.removeprefix(prefix)] = converted.setdefault(key, tensor.to(dtype))
    return part


def save_actor(actor: Actor, state: dict[str, Tensor], folder: Path, parent: Path, dtype: torch.dtype) -> None:
    """Write an actor's folder: weights from `state` (the gathered state of `actor`), the rest as in the parent's folder."""
    shutil.copytree(parent, folder, ignore=shutil.ignore_patterns(*WEIGHT_FILES))
    actor.lm.save_pretrained(str(folder), state_dict=_part(state, "lm.", dtype))
    shutil.copyfile(parent / "config.json", folder / "config.json")  # save_pretrained adds the trainer's own settings
    _note_dtype(folder, dtype)


def save_critic(critic: Critic, state: dict[str, Tensor], folder: Path, dtype: torch.dtype) -> None:
    """Write a critic's folder from `state`, the gathered state of `critic`."""
    critic.backbone.save_pretrained(str(folder), state_dict=_part(state, "backbone.", dtype))
    head = {name: tensor.contiguous() for name, tensor in _part(state, "value_head.", dtype).items()}
    save_file(head, str(folder / VALUE_HEAD))


def _note_dtype(folder: Path, dtype: torch.dtype) -> None:
    """Make config.json name the type of the stored weights, which engines load by default."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config.pop("torch_dtype", None)
    config["dtype"] = str(dtype).removeprefix("torch.")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
