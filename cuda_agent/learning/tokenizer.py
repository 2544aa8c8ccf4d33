"""The small policy's own tokenizer: a byte-level BPE that splits only at line ends, and holds frequent lines whole.

Kernels and agent conversations repeat their lines word for word, so a line is the natural unit: an episode becomes about a
hundred tokens, and writing the right operator is one choice. A line end is a newline or, inside JSON strings, the two
characters backslash and n. Lines seen at least `LINE_COUNT` times are entries of their own (`ignore_merges` makes them win
over merges); the rest of the vocabulary is byte-pair merges, and every byte has an entry, so any text can be encoded.

Saved as a Hugging Face folder without importing transformers: tokenizer.json, tokenizer_config.json (with the chat
template), chat_template.jinja and generation_config.json.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from cuda_agent.agent.chat import END_OF_TURN, START_OF_TURN, default_template
from cuda_agent.errors import LearningError

PAD = "<|endoftext|>"
SPECIAL = (PAD, START_OF_TURN, END_OF_TURN)
LINE_COUNT = 8
LINE = Regex(r"(?:[^\\\n]++|\\(?!n))+(?:\\n|\n)*|(?:\\n|\n)+")


def line_splitter() -> pre_tokenizers.PreTokenizer:
    """Pieces are lines with their line ends, as byte-level characters."""
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(LINE, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> Tokenizer:
    """Train on rendered conversations.

    Args:
        texts: conversations as the chat template renders them.
        vocabulary: entries at most, special ones included; frequent lines come first, merges take what is left.

    Raises:
        LearningError: `vocabulary` leaves no room for all bytes and the frequent lines.
    """
    lines = _frequent_lines(texts)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    merges = vocabulary - len(SPECIAL) - len(alphabet) - len(lines)
    if merges < 0:
        raise LearningError(f"a vocabulary of {vocabulary} is too small; these texts need at least {vocabulary - merges}")
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = line_splitter()
    trainer = trainers.BpeTrainer(
        vocab_size=len(SPECIAL) + len(alphabet) + merges,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    trained.train_from_iterator(texts, trainer)
    return _with_lines(trained, lines)


def _frequent_lines(texts: Iterable[str]) -> list[str]:
    """Byte-level pieces longer than one byte that occur often, the most frequent first; ties by text."""
    splitter = line_splitter()
    counts: Counter[str] = Counter()
    for text in texts:
        for special in SPECIAL:
            text = text.replace(special, "\0")
        for part in text.split("\0"):
            counts.update(piece for piece, _ in splitter.pre_tokenize_str(part))
    frequent = [(piece, count) for piece, count in counts.items() if count >= LINE_COUNT and len(piece) > 1]
    return [piece for piece, _ in sorted(frequent, key=lambda entry: (-entry[1], entry[0]))]


def _with_lines(trained: Tokenizer, lines: Sequence[str]) -> Tokenizer:
    """The tokenizer with whole lines as further entries that win over merges."""
    model = json.loads(trained.to_str())["model"]
    vocabulary: dict[str, int] = model["vocab"]
    for line in lines:
        vocabulary.setdefault(line, len(vocabulary))
    pairs = [tuple(pair) for pair in model["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=True))
    tokenizer.pre_tokenizer = line_splitter()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, context_tokens: int) -> None:
    """Write the Hugging Face files of the tokenizer into an existing folder."""
    tokenizer.save(str(folder / "tokenizer.json"))
    template = default_template()
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TURN,
        "pad_token": PAD,
        "bos_token": None,
        "unk_token": None,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context_tokens,
        "chat_template": template,
    }
    generation = {
        "eos_token_id": tokenizer.token_to_id(END_OF_TURN),
        "pad_token_id": tokenizer.token_to_id(PAD),
        "do_sample": True,
        "temperature": 1.0,
    }
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", encoding="utf-8")
