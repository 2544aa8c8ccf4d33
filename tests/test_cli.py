import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from infra.postgres import EmbeddedPostgres
from infra.settings import StackSettings

CHECKOUT = Path(__file__).resolve().parents[1]


def run(*arguments, home, **variables):
    command = [sys.executable, "-m", "cuda_agent.cli", *map(str, arguments)]
    environment = os.environ | {"CUDA_AGENT_HOME": str(home)} | variables
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, cwd=CHECKOUT)


@pytest.mark.parametrize("name", ["quickstart", "paper"])
def test_a_dry_run_prints_the_resolved_settings(tmp_path, name):
    done = run("campaign", "run", f"infra/campaigns/{name}.yaml", "--dry-run", home=tmp_path)
    assert done.returncode == 0, done.stderr
    settings = yaml.safe_load(done.stdout)
    assert settings["name"] == name and settings["ppo"]["science"]["clip_high"] == 0.28
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: x\nppo: {science: {stepz: 3}}", "ppo.science.stepz is not a known setting"),
        ("name: x\ndataset: {science: {count: 0}}", "dataset.science.count"),
        ("[1, 2]", "holds no mapping"),
        ("a: [", "is not YAML"),
        ("name: x\nbase_policy: {science: {checkpoint: /no/such/model}}", "checkpoint '/no/such/model' is no folder"),
    ],
)
def test_a_bad_campaign_file_is_one_sentence_and_status_2(tmp_path, text, expected):
    (tmp_path / "bad.yaml").write_text(text)
    done = run("campaign", "run", tmp_path / "bad.yaml", home=tmp_path / "home")
    assert done.returncode == 2 and expected in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "home").exists()


@pytest.mark.parametrize("arguments", [["frob"], ["campaign", "run", "--nonsense"], ["stack", "up", "--port", "99999"]])
def test_bad_usage_is_status_2_without_a_traceback(tmp_path, arguments):
    done = run(*arguments, home=tmp_path)
    assert done.returncode == 2 and done.stderr and "Traceback" not in done.stderr


def test_an_unreachable_database_is_status_3(tmp_path):
    done = run("report", home=tmp_path, CUDA_AGENT_DATABASE_URL="postgresql://u@127.0.0.1:1/x")
    assert done.returncode == 3 and "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1


def test_stack_down_and_clean_are_harmless_when_nothing_is_there(tmp_path):
    assert run("stack", "down", home=tmp_path / "home").returncode == 0
    assert run("clean", "--yes", home=tmp_path / "home").returncode == 0
    status = run("stack", "status", home=tmp_path / "home")
    assert status.returncode == 3 and "stack up" in status.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_stops_what_it_started(tmp_path, number):
    wait = "(print('in', flush=True), time.sleep(60))"
    hearing = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # a suite started with & inherits an ignored one
    program = f"import signal, time; {hearing}; from cuda_agent import cli; cli._report = lambda *a: {wait}; cli.main()"
    environment = os.environ | {"CUDA_AGENT_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", program, "report"]
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=CHECKOUT)
    assert child.stdout.readline() == "in\n"
    started = time.monotonic()
    child.send_signal(number)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130 and "interrupted" in errors and "Traceback" not in errors
    assert time.monotonic() - started < 30
    assert EmbeddedPostgres(StackSettings(home=tmp_path / "home")).process.process() is None


def test_light_packages_do_not_import_torch():
    modules = (
        "cuda_agent.config, cuda_agent.store.queries, cuda_agent.store.trajectories, cuda_agent.cli, infra.stack, infra.doctor"
    )
    program = f"import sys, {modules}; sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'prefect')))"
    assert subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT).returncode == 0
