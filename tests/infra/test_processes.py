import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from cuda_agent.errors import ServiceError
from infra.processes import ManagedProcess

SHOW_SIGNALS = "import signal, time; print([signal.getsignal(n) != signal.SIG_IGN for n in (2, 15)], flush=True); time.sleep(60)"


@pytest.fixture
def process(tmp_path):
    made = ManagedProcess("thing", tmp_path / "thing.pid", tmp_path / "thing.log")
    yield made
    made.stop(1)


def test_a_process_is_found_again_and_stopped(process):
    process.start(["sleep", "60"], os.environ)
    again = ManagedProcess("thing", process.pid_file, process.log)
    assert again.process().pid == process.process().pid
    assert again.stop() is True and again.process() is None
    assert again.stop() is False


def test_a_recycled_pid_is_neither_taken_for_ours_nor_signalled(process):
    other = subprocess.Popen(["sleep", "60"])
    created = psutil.Process(other.pid).create_time()
    process.pid_file.write_text(json.dumps({"pid": other.pid, "created": created - 100, "command": ["sleep"]}))
    assert process.process() is None
    assert process.stop() is False
    assert other.poll() is None
    other.kill()
    other.wait()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x", "created": 1}', '{"pid": 1}'])
def test_a_spoilt_pid_file_means_not_running(process, content):
    process.pid_file.write_text(content)
    assert process.process() is None


def test_a_child_has_default_signals_although_its_parent_ignores_them(process):
    old = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process.start([sys.executable, "-c", SHOW_SIGNALS], os.environ)
    finally:
        signal.signal(signal.SIGINT, old)
    process.wait_ready(lambda: "[" in process.log.read_text(), 20)
    assert process.last_line() == "[True, True]"


def test_a_process_that_ends_while_starting_is_told_with_its_last_line(process):
    process.start(["sh", "-c", "echo no space left; exit 1"], os.environ)
    with pytest.raises(ServiceError, match="no space left"):
        process.wait_ready(lambda: False, 10)


def test_one_that_ignores_the_signal_is_killed_with_its_children(process):
    process.start(["sh", "-c", "trap '' TERM; sleep 77 & echo $! ; wait; wait"], os.environ)
    process.wait_ready(lambda: bool(process.log.read_text().strip()), 10)
    child = int(process.log.read_text())
    process.stop(0.2)
    time.sleep(0.2)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
