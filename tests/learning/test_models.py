"""Actor and critic against the plain Hugging Face model, and their folders."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from cuda_agent.errors import LearningError
from cuda_agent.learning import models
from cuda_agent.learning.episodes import EpisodeTensors, MicroBatch, TokenLayout, collate


def batch_of(*masks: list[int]) -> MicroBatch:
    rng = np.random.default_rng(3)
    episodes = [
        EpisodeTensors(rng.integers(0, 32, len(m)).astype(np.int32), np.zeros(len(m), np.float32), np.array(m, np.uint8), 1.0)
        for m in masks
    ]
    return collate(episodes, TokenLayout.of(episodes), range(len(episodes)))


def inputs(batch: MicroBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.from_numpy(batch.token_id), torch.from_numpy(batch.source), torch.from_numpy(batch.target)


BATCH = batch_of([0, 0, 1, 1, 0, 1], [0, 1, 1])


def test_logprobs_and_entropy_are_those_of_the_plain_model_without_padding(policy: Path) -> None:
    logprob, entropy = models.load_actor(policy)(*inputs(BATCH), entropy=True)
    plain = AutoModelForCausalLM.from_pretrained(policy)
    expected, spread = [], []
    for row, (length, places) in enumerate(((6, [2, 3, 5]), (3, [1, 2]))):
        ids = torch.from_numpy(BATCH.token_id[row : row + 1, :length])
        logprobs = plain(ids).logits[0].log_softmax(-1)
        expected += [logprobs[t - 1, ids[0, t]] for t in places]
        spread += [-(logprobs[t - 1].exp() * logprobs[t - 1]).sum() for t in places]
    assert torch.allclose(logprob, torch.stack(expected), atol=1e-5)
    assert entropy is not None and torch.allclose(entropy, torch.stack(spread), atol=1e-5)


def test_chunked_logits_give_the_same_numbers_and_gradients(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for limit in (1 << 28, 64):  # 64 elements: two tokens at a time
        monkeypatch.setattr(models, "LOGITS_AT_ONCE", limit)
        actor = models.load_actor(policy)
        logprob, _ = actor(*inputs(BATCH))
        logprob.sum().backward()
        results.append((logprob.detach(), [p.grad for p in actor.parameters()]))
    assert torch.allclose(results[0][0], results[1][0], atol=1e-6)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(results[0][1], results[1][1], strict=True))


def test_only_states_before_policy_tokens_receive_gradient(policy: Path) -> None:
    actor = models.load_actor(policy)
    kept = []
    actor.lm.base_model.register_forward_hook(lambda module, args, output: kept.append(output.last_hidden_state))
    logprob, _ = actor(*inputs(BATCH))
    (gradient,) = torch.autograd.grad(logprob.sum(), kept[0])
    touched = gradient.flatten(0, 1).abs().sum(-1).nonzero().flatten().tolist()
    assert touched == sorted(BATCH.source.tolist())


def test_a_new_critic_values_everything_at_zero_and_can_learn(policy: Path) -> None:
    critic = models.load_critic(policy)
    values = critic(*inputs(BATCH)[:2])
    assert values.tolist() == [0.0] * 5
    ((values - 1) ** 2).sum().backward()
    assert critic.value_head.bias.grad.item() == pytest.approx(-10.0)


def test_an_actor_survives_saving_with_its_tokenizer(policy: Path, tmp_path: Path) -> None:
    actor = models.load_actor(policy)
    with torch.no_grad():
        actor.lm.get_input_embeddings().weight.add_(0.25)
    models.save_actor(actor, actor.state_dict(), tmp_path / "a", policy, torch.float32)
    again = models.load_actor(tmp_path / "a")
    assert all(torch.equal(a, b) for a, b in zip(actor.parameters(), again.parameters(), strict=True))
    assert (tmp_path / "a" / "tokenizer.json").read_text() == (policy / "tokenizer.json").read_text()
    assert (tmp_path / "a" / "chat_template.jinja").is_file()


def test_bfloat16_folders_say_so_and_load_as_float32(policy: Path, tmp_path: Path) -> None:
    actor = models.load_actor(policy)
    models.save_actor(actor, actor.state_dict(), tmp_path / "a", policy, torch.bfloat16)
    assert json.loads((tmp_path / "a" / "config.json").read_text())["dtype"] == "bfloat16"
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "a", dtype="auto").dtype is torch.bfloat16
    assert next(models.load_actor(tmp_path / "a").parameters()).dtype is torch.float32


def test_a_critic_survives_saving_with_its_head(policy: Path, tmp_path: Path) -> None:
    critic = models.load_critic(policy)
    torch.nn.init.normal_(critic.value_head.weight)
    models.save_critic(critic, critic.state_dict(), tmp_path / "c", torch.float32)
    again = models.load_critic(tmp_path / "c")
    assert torch.equal(critic(*inputs(BATCH)[:2]), again(*inputs(BATCH)[:2]))


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(LearningError, match=r"config\.json is missing"):
        models.load_actor(tmp_path)
