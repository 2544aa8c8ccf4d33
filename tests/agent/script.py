"""A problem with its right answer, and engines that play a script."""

from collections.abc import Sequence

from cuda_agent.agent.chat import ChatRenderer
from cuda_agent.engines.base import Generation, Sampling
from cuda_agent.engines.messages import Message, ToolCall, ToolSpec

PROBLEM = """import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        x = torch.relu(x)
        return x

def get_inputs():
    return [torch.randn(256, 1024)]

def get_init_inputs():
    return []
"""

KERNEL = """#include "binding_registry.h"
static void run(TensorView x, TensorView y) {
    const float* in = x.f32();
    float* out = y.f32();
    #pragma omp parallel for simd
    for (long i = 0; i < x.numel(); ++i) out[i] = in[i] > 0 ? in[i] : 0;
}
REGISTER_LIGHT(run)
"""

MODEL = """import torch
import torch.nn as nn
import cpu_extension

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        cpu_extension.run(x, y)
        return y
"""


def write(path: str, content: str) -> ToolCall:
    return ToolCall("Write", {"file_path": path, "content": content})


def bash(command: str) -> ToolCall:
    return ToolCall("Bash", {"command": command})


class Script:
    """A text engine that plays its messages one after another, and then has nothing more to say."""

    def __init__(self, *messages: Message) -> None:
        self.messages = messages
        self.asked: list[list[Message]] = []

    async def chat(self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int) -> Message:
        self.asked.append(list(messages))
        at = sum(message.role == "assistant" for message in messages)
        return self.messages[at] if at < len(self.messages) else Message("assistant", "That is all.")

    async def close(self) -> None:
        """Nothing to free."""


class TokenScript:
    """A token engine that plays texts, each in the ids of the policy's tokenizer, cut where the limit says."""

    def __init__(self, renderer: ChatRenderer, *texts: str) -> None:
        self.renderer = renderer
        self.texts = list(texts)
        self.prompts: list[list[int]] = []

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Generation:
        self.prompts.append(list(prompt_ids))
        text = self.texts[len(self.prompts) - 1] if len(self.prompts) <= len(self.texts) else "That is all."
        ids = [*self.renderer.encode(text), self.renderer.end_of_turn]
        kept = ids[: sampling.max_new_tokens]
        return Generation(tuple(kept), (-0.5,) * len(kept), "stop" if len(kept) == len(ids) else "length", 0.0)

    async def load_policy(self, weights: object) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""
