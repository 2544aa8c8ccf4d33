"""The base policy that the quickstart starts from: pretraining texts, an untrained small model, and its folder.

Texts are the teacher's demonstrations on random chains of the catalogue's operators, rendered with the policy's own
tokenizer and template into the very ids an episode would have had; chains whose operators (in any order) are `excluded`
(held-out problems) never occur. Half of them are in the slow style, half in fast ones, so that the policy knows what is
right and reward is left to teach what is fast. The training itself is the `pretrain` job of `learning/run.py`.
"""

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cuda_agent.agent.chat import END_OF_TURN, ChatRenderer, render
from cuda_agent.config import BasePolicyScience
from cuda_agent.engines.messages import Message
from cuda_agent.engines.teacher import Demonstration, Style, demonstrate
from cuda_agent.learning.episodes import EpisodeTensors, write_episodes
from cuda_agent.learning.tokenizer import PAD, save_tokenizer, train_tokenizer
from cuda_agent.problems.catalogue import OPERATORS, Operator
from cuda_agent.problems.compose import SMALL_SHAPES, well_formed
from cuda_agent.problems.compose import render as render_problem
from cuda_agent.workspace.template import episode_prompt

if TYPE_CHECKING:
    from transformers import Qwen3ForCausalLM

SIZES = (1, 2, 3, 4, 5)
STYLE_WEIGHTS: dict[Style, float] = {"serial_passes": 2.0, "fused_serial": 1.0, "fused_parallel": 1.0}  # half slow, half fast
SINGLE_TURN = 0.3
MISTAKE = 0.05  # more cost long texts, and a policy this small hardly learns to mend from them
TOKENIZER_TEXTS = 1_500
INITIAL_STD = 0.07


@dataclass(frozen=True)
class Text:
    """One pretraining conversation, not yet in ids."""

    system: str
    problem_code: str
    demonstration: Demonstration

    @property
    def messages(self) -> list[Message]:
        """System, user, and the demonstration."""
        return [Message("system", self.system), Message("user", self.problem_code), *self.demonstration.messages]


def random_chain(rng: random.Random, size: int) -> tuple[Operator, ...]:
    """A well-formed chain of `size` operators, all operators alike."""
    while True:
        chain = tuple(rng.choices(OPERATORS, k=size))
        if well_formed(chain):
            return chain


def random_problem(rng: random.Random, excluded: Collection[tuple[str, ...]] = ()) -> str:
    """A problem text of 1 to 5 operators whose sorted operator names are not in `excluded`."""
    while True:
        chain = random_chain(rng, rng.choice(SIZES))
        if tuple(sorted(operator.name for operator in chain)) in excluded:
            continue
        linear = any(operator.init for operator in chain)
        return render_problem(chain, rng.choice(SMALL_SHAPES["matmul" if linear else "elementwise"]))


def texts(count: int, seed: int, excluded: Collection[tuple[str, ...]] = ()) -> Iterator[Text]:
    """Demonstrations in the agent's form and, for a share, in the single-turn form; equal arguments give equal texts."""
    rng = random.Random(f"base_policy:{seed}")
    for _ in range(count):
        code, style = random_problem(rng, excluded), rng.choices(list(STYLE_WEIGHTS), list(STYLE_WEIGHTS.values()))[0]
        single, mistake = rng.random() < SINGLE_TURN, rng.random() < MISTAKE
        prompt = episode_prompt(code, "cpu", "short", single_turn=single)
        yield Text(prompt.system, prompt.user, demonstrate(code, style, rng, single_turn=single, mistake=mistake))


def tensors(text: Text, renderer: ChatRenderer) -> EpisodeTensors:
    """The conversation as an episode: mask 1 on what is to be learnt, log-probs 0, no reward."""
    ids = renderer.start(text.system, text.problem_code)
    mask = [0] * len(ids)
    between: list[Message] = []
    answered = False
    for index, message in enumerate(text.demonstration.messages):
        if message.role != "assistant":
            between.append(message)
            continue
        if answered:
            ids, between = renderer.extend(ids, between), []
            mask += [0] * (len(ids) - len(mask))
        answer = [*renderer.encode(renderer.answer_text(message)), renderer.end_of_turn]
        mask += [int(index not in text.demonstration.unlearnt)] * len(answer)
        ids += answer
        answered = True
    zeros = np.zeros(len(ids), np.float32)
    return EpisodeTensors(np.array(ids, np.int32), zeros, np.array(mask, np.uint8), float("nan"))


def make_policy_folder(folder: Path, science: BasePolicyScience) -> None:
    """Write the untrained policy into an existing folder: tokenizer, template, configuration and weights."""
    rendered = [render(text.messages) for text in texts(TOKENIZER_TEXTS, science.seed)]
    tokenizer = train_tokenizer(rendered, science.vocabulary)
    model = untrained(science, tokenizer.get_vocab_size(), tokenizer.token_to_id(PAD), tokenizer.token_to_id(END_OF_TURN))
    model.save_pretrained(folder)
    save_tokenizer(tokenizer, folder, science.context_tokens)


def untrained(science: BasePolicyScience, vocabulary: int, pad: int | None, end: int | None) -> "Qwen3ForCausalLM":
    """A Qwen3 (a Llama whose attention normalises queries and keys) with random weights drawn by the seed.

    Queries and keys of unit size, and weights drawn wider than usual (0.07 for 0.02), are what makes it learn to copy within 300
    steps instead of 900 (docs/experiments.md). Embeddings are tied.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(science.seed)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=science.width,
        intermediate_size=3 * science.width,
        num_hidden_layers=science.layers,
        num_attention_heads=science.heads,
        num_key_value_heads=science.heads,
        head_dim=science.width // science.heads,
        max_position_embeddings=science.context_tokens,
        initializer_range=INITIAL_STD,
        tie_word_embeddings=True,
        pad_token_id=pad,
        bos_token_id=None,
        eos_token_id=end,
    )
    return Qwen3ForCausalLM(config)


def write_pretraining(path: Path, folder: Path, science: BasePolicyScience, excluded: Collection[tuple[str, ...]] = ()) -> int:
    """Write the episode file of pretraining for a policy folder; returns the number of tokens."""
    renderer = ChatRenderer(folder)
    episodes: Sequence[EpisodeTensors] = [
        tensors(text, renderer) for text in texts(science.demonstrations, science.seed, excluded)
    ]
    write_episodes(path, episodes)
    return sum(episode.length for episode in episodes)
