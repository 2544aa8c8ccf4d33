"""Pretraining texts as ids, and the untrained policy's folder."""

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cuda_agent.agent.chat import ChatRenderer
from cuda_agent.config import BasePolicyScience
from cuda_agent.engines.teacher import LINES, demonstrate, statements
from cuda_agent.learning.base_model import Text, make_policy_folder, random_problem, tensors, texts, write_pretraining
from cuda_agent.learning.episodes import read_episodes
from cuda_agent.problems.catalogue import BY_STATEMENT
from cuda_agent.workspace.template import episode_prompt

SCIENCE = BasePolicyScience(vocabulary=768, demonstrations=50)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("policy")
    make_policy_folder(made, SCIENCE)
    return made


def names(problem_code: str) -> tuple[str, ...]:
    return tuple(sorted(BY_STATEMENT[statement].name for statement in statements(problem_code)))


def test_problems_have_one_to_five_known_statements() -> None:
    rng = random.Random(0)
    problems = [statements(random_problem(rng)) for _ in range(300)]
    assert {len(program) for program in problems} == {1, 2, 3, 4, 5}
    assert {statement for program in problems for statement in program} == set(LINES)


def test_excluded_operators_never_occur_in_any_order() -> None:
    seen = Counter(names(random_problem(random.Random(seed))) for seed in range(400))
    excluded = {name for name, _ in seen.most_common(20)}
    assert not excluded & {names(text.problem_code) for text in texts(400, seed=0, excluded=excluded)}


def test_texts_follow_the_seed_and_mix_styles_and_forms() -> None:
    some = list(texts(400, seed=3))
    assert some == list(texts(400, seed=3)) != list(texts(400, seed=4))
    kernels = [text.demonstration.messages[0].tool_calls[0].arguments["content"] for text in some]
    fused = sum("#define STEP\n" in kernel for kernel in kernels)
    parallel = sum("omp parallel" in kernel for kernel in kernels)
    assert 150 < fused < 250 and 60 < parallel < 140
    assert 80 < sum(len(text.demonstration.messages) == 1 for text in some) < 160
    assert any(text.demonstration.unlearnt for text in some)


def test_ids_are_those_of_an_episode(folder: Path) -> None:
    renderer = ChatRenderer(folder)
    for text in texts(30, seed=1):
        episode, whole = tensors(text, renderer), renderer.conversation(text.messages)
        assert episode.token_id.tolist() == whole.ids
        assert text.demonstration.unlearnt or episode.mask.tolist() == whole.mask
        assert not episode.logprob.any() and np.isnan(episode.reward)


def test_wrong_attempts_are_not_learnt(folder: Path) -> None:
    renderer = ChatRenderer(folder)
    code = random_problem(random.Random(5))
    prompt = episode_prompt(code, "cpu", "short")
    shown = demonstrate(code, "fused_serial", random.Random(0), mistake=True)
    episode = tensors(Text(prompt.system, prompt.user, shown), renderer)
    learnt = renderer.decode(episode.token_id[episode.mask == 1].tolist())
    assert learnt.count("kernels/kernel.cpp") == 1 and "model_new.py" not in learnt


def test_folder_holds_a_policy_of_two_to_five_million_parameters(folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    assert 2e6 <= sum(parameter.numel() for parameter in model.parameters()) <= 5e6
    assert model.config.vocab_size == ChatRenderer(folder).tokenizer.get_vocab_size() <= SCIENCE.vocabulary
    assert {file.name for file in folder.iterdir()} >= {"config.json", "tokenizer.json", "chat_template.jinja"}


def test_pretraining_file_is_read_back(folder: Path, tmp_path: Path) -> None:
    tokens = write_pretraining(tmp_path / "episodes.npz", folder, SCIENCE)
    episodes = read_episodes(tmp_path / "episodes.npz")
    assert len(episodes) == SCIENCE.demonstrations and sum(episode.length for episode in episodes) == tokens
