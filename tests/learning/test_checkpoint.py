"""Folders appear whole, once, and have stable digests."""

from pathlib import Path

import pytest

from cuda_agent.errors import LearningError
from cuda_agent.learning import checkpoint


def fill(folder: Path, text: str = "w") -> None:
    partial = checkpoint.begin(folder)
    (partial / "actor" / "sub").mkdir(parents=True)
    (partial / "actor" / "sub" / "weights").write_text(text)


def test_a_checkpoint_exists_only_once_published(tmp_path: Path) -> None:
    fill(tmp_path / "c")
    assert not (tmp_path / "c").exists()
    with pytest.raises(LearningError, match="missing or incomplete"):
        checkpoint.require_complete(tmp_path / "c")
    digests = checkpoint.publish(tmp_path / "c")
    assert checkpoint.require_complete(tmp_path / "c") == digests
    assert digests["actor"] == checkpoint.folder_sha256(tmp_path / "c" / "actor")


def test_a_complete_checkpoint_is_never_overwritten(tmp_path: Path) -> None:
    fill(tmp_path / "c")
    checkpoint.publish(tmp_path / "c")
    with pytest.raises(LearningError, match="already complete"):
        checkpoint.begin(tmp_path / "c")


def test_what_an_interrupted_attempt_left_is_replaced(tmp_path: Path) -> None:
    fill(tmp_path / "c", "first")
    (checkpoint.partial_of(tmp_path / "c") / "stray").mkdir()
    fill(tmp_path / "c", "second")
    checkpoint.publish(tmp_path / "c")
    assert not (tmp_path / "c" / "stray").exists()
    assert (tmp_path / "c" / "actor" / "sub" / "weights").read_text() == "second"


def test_the_digest_sees_names_and_bytes_and_not_the_place(tmp_path: Path) -> None:
    for name, file, text in (("a", "x", "1"), ("b", "x", "1"), ("c", "y", "1"), ("d", "x", "2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text)
    digests = [checkpoint.folder_sha256(tmp_path / name) for name in "abcd"]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
