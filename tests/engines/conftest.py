"""A tiny random Llama on disk, and the engine that serves it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from cuda_agent.engines.transformers import TransformersEngine

STOP = 3


def save_llama(folder: Path, seed: int, **settings: int) -> Path:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    shape = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    shape |= {"num_key_value_heads": 2, "max_position_embeddings": 128, "eos_token_id": STOP, "initializer_range": 0.2}
    LlamaForCausalLM(LlamaConfig(**{**shape, **settings})).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("llama"), seed=0)


@pytest.fixture(scope="session")
def other_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("other"), seed=1)


@pytest.fixture(scope="session")
def lease_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lease") / "cores"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(weights: Path, lease_path: Path) -> AsyncIterator[TransformersEngine]:
    async with TransformersEngine(weights, rows=4, lease_path=lease_path) as running:
        yield running
