"""Names of checkpoints: folders are taken as they are, everything else is one sentence."""

from pathlib import Path

import pytest

from cuda_agent.errors import ConfigError
from cuda_agent.learning.named_checkpoint import NEEDED, named_checkpoint


def test_a_models_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    for name in NEEDED:
        (tmp_path / name).write_text("{}")
    assert named_checkpoint(str(tmp_path)) == tmp_path


def test_another_folder_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"lacks tokenizer\.json; name a Hugging Face model folder"):
        named_checkpoint(str(tmp_path))


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no folder and cannot be fetched"):
        named_checkpoint(str(tmp_path / "absent"))
