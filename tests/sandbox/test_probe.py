"""What the probe finds and how it names it."""

import os
import subprocess
import sys

import pytest

from cuda_agent.sandbox.probe import probe
from cuda_agent.sandbox.view import PACKAGE

WITHOUT = """
from cuda_agent.sandbox import kernel, probe
def refuse(*_):
    raise PermissionError
kernel.read_memory = refuse
probe.main()
"""


def test_probe_names_what_is_missing() -> None:
    report = probe()
    assert (report.level == "full") == (report.missing == ())
    assert not any("memory" in item for item in report.missing)
    if os.geteuid() != 0:
        assert any("own user id" in item for item in report.missing)


@pytest.mark.skipif(os.geteuid() != 0, reason="once is enough")
def test_host_that_forbids_to_read_memory_is_reported() -> None:
    environment = {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines() == ["reading a child's memory (needed to judge outputs)"], done.stderr
