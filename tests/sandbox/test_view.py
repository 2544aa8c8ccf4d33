"""Which nodes of the host a sandbox may get."""

import re
from pathlib import Path

import pytest

from cuda_agent.sandbox import view
from cuda_agent.sandbox.limits import Bind


def test_gpu_nodes_are_those_that_cuda_opens() -> None:
    for name in ("nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        assert view.GPU_NODES.fullmatch(name)
    for name in ("nvidia-modeset", "nvidia-caps", "null", "nvidia"):
        assert not view.GPU_NODES.fullmatch(name)


def test_gpu_binds_are_the_nodes_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "GPU_NODES", re.compile("zero|null|shm|no-such-node"))
    null, zero = (Bind.of(Path("/dev") / name) for name in ("null", "zero"))
    assert view.gpu_binds() == [null, zero]
