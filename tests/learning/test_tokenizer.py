"""The line-level tokenizer: whole lines, any text back unchanged, and files that transformers reads."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from cuda_agent.agent.chat import END_OF_TURN, START_OF_TURN, ChatRenderer, render
from cuda_agent.errors import LearningError
from cuda_agent.learning.base_model import texts
from cuda_agent.learning.tokenizer import PAD, line_splitter, save_tokenizer, train_tokenizer

CONVERSATIONS = [render(text.messages) for text in texts(200, seed=0)]
TOKENIZER: Tokenizer = train_tokenizer(CONVERSATIONS, vocabulary=640)


def pieces(text: str) -> list[str]:
    return [text[start:end] for _, (start, end) in line_splitter().pre_tokenize_str(text)]


def test_lines_end_at_newlines_and_at_escaped_newlines() -> None:
    assert pieces('a b\n  c\\n\\n"d"\\t\n\ne') == ["a b\n", "  c\\n\\n", '"d"\\t\n\n', "e"]


def test_frequent_lines_are_one_token() -> None:
    for line in ("class Model(nn.Module):\n", "        x = torch.relu(x)\n", "        STEP a = 0.5f * (a + fabsf(a));\\n"):
        assert len(TOKENIZER.encode(line).ids) == 1, line


def test_an_episode_is_about_a_hundred_tokens() -> None:
    lengths = [len(TOKENIZER.encode(text).ids) for text in CONVERSATIONS]
    assert sorted(lengths)[len(lengths) // 2] < 110


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_any_text_comes_back_unchanged(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids, skip_special_tokens=False) == text


def test_vocabulary_is_kept_and_refused_when_too_small() -> None:
    assert TOKENIZER.get_vocab_size() <= 640
    assert all(TOKENIZER.token_to_id(token) is not None for token in (PAD, START_OF_TURN, END_OF_TURN))
    with pytest.raises(LearningError, match="at least"):
        train_tokenizer(CONVERSATIONS, vocabulary=300)


def test_transformers_reads_the_folder(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    save_tokenizer(TOKENIZER, tmp_path, context_tokens=1_024)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    renderer = ChatRenderer(tmp_path)
    assert loaded(CONVERSATIONS[0], add_special_tokens=False)["input_ids"] == renderer.encode(CONVERSATIONS[0])
    assert loaded.eos_token == END_OF_TURN and loaded.pad_token == PAD
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    rendered = loaded.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert rendered == f"{START_OF_TURN}system\ns{END_OF_TURN}\n{START_OF_TURN}user\nu{END_OF_TURN}\n{START_OF_TURN}assistant\n"
