"""A tiny policy folder and synthetic episodes, shared by the tests of learning."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from cuda_agent.learning.episodes import EpisodeTensors

VOCABULARY = 32


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every session of these tests, in process or not, runs on the CPU; one thread does for models this small."""
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of an untrained Llama with 2 layers of width 32, tied embeddings, and files of a tokenizer beside it."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    folder = tmp_path_factory.mktemp("policy")
    LlamaForCausalLM(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text('{"made": "by hand"}')
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


@pytest.fixture
def bandit() -> Callable[[int], list[EpisodeTensors]]:
    """Makes n episodes: prompt, one choice, tool output, a second choice. Choosing token 7 first earns 1, else -1."""

    def make(count: int) -> list[EpisodeTensors]:
        rng = np.random.default_rng(5)
        episodes = []
        for i in range(count):
            choice = 7 if i % 2 else int(rng.integers(8, VOCABULARY))
            token_id = np.array([1, 2, 3, choice, 4, 4, int(rng.integers(8, VOCABULARY))], np.int32)
            mask = np.array([0, 0, 0, 1, 0, 0, 1], np.uint8)
            logprob = np.where(mask, np.float32(-np.log(VOCABULARY)), 0).astype(np.float32)
            episodes.append(EpisodeTensors(token_id, logprob, mask, 1.0 if choice == 7 else -1.0, f"r{i}"))
        return episodes

    return make
