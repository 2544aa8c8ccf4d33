"""A small byte-level BPE tokenizer, a problem with a right answer, an engine that plays a script, and the real judge."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import cuda_agent
from cuda_agent.agent.chat import default_template
from cuda_agent.config import JudgeConfig
from cuda_agent.judge.pool import JudgePool
from cuda_agent.sandbox.lease import Lease

CORPUS = [
    "import torch\nimport torch.nn as nn\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return x\n",
    '<tool_call>\n{"name": "Write", "arguments": {"file_path": "model_new.py", "content": "x"}}\n</tool_call>',
    "system\nuser\nassistant\ntool\n",
]


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(default_template())
    return folder


CACHE = Path(cuda_agent.__file__).resolve().parents[1] / ".cuda-agent" / "cache"  # the glue is compiled once per machine


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pool(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[JudgePool]:
    lease = Lease(tmp_path_factory.mktemp("lease") / "cores")
    config = JudgeConfig(timing_seconds=0.5, min_repetitions=5, max_repetitions=10)
    async with JudgePool(config, cache_dir=CACHE, lease=lease) as running:
        yield running
