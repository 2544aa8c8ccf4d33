"""Which GPUs are found: nvidia-smi's answers are those of a script here, for no GPU is needed to read them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cuda_agent.errors import ConfigError
from cuda_agent.judge import machine

ROWS = "NVIDIA H200, 9.0, 580.159.04, GPU-a\nNVIDIA A100, 8.0, 580.159.04, GPU-b\n"
SCRIPT = """#!/bin/sh
rows='{rows}'
for last; do :; done
case "$*" in *" -i "*) printf '%s' "$rows" | sed -n "$((last + 1))p" ;; *) printf '%s' "$rows" ;; esac
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    machine.gpus.cache_clear()
    yield
    machine.gpus.cache_clear()


def install(folder: Path, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "nvidia-smi").write_text(SCRIPT.format(rows=rows))
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_all_gpus_are_found_and_the_first_one_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, ROWS, monkeypatch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [(gpu.name, gpu.arch, gpu.uuid) for gpu in machine.gpus()] == [
        ("NVIDIA H200", "sm_90a", "GPU-a"),
        ("NVIDIA A100", "sm_80", "GPU-b"),
    ]
    assert machine.gpu() == machine.gpus()[0]


def test_only_visible_gpus_are_found_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, ROWS, monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1, 0")
    assert [gpu.uuid for gpu in machine.gpus()] == ["GPU-b", "GPU-a"]
    machine.gpus.cache_clear()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(ConfigError, match="CUDA_VISIBLE_DEVICES hides every one"):
        machine.gpu()


def test_no_gpu_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    install(tmp_path, "", monkeypatch)
    with pytest.raises(ConfigError, match="lists none; use --backend cpu"):
        machine.gpu()
    (tmp_path / "nvidia-smi").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="not installed here"):
        machine.gpu()
