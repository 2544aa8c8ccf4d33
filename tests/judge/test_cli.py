"""The command's contract: one JSON object per workspace in order, exit statuses, nothing but that on stdout."""

import json
import subprocess
import sys
from pathlib import Path

from cuda_agent.judge.cli import main
from tests.judge.texts import KERNEL, MODEL, PROBLEM

ROOT = Path(__file__).resolve().parents[2]


def _workspace(folder: Path, model: str, kernel: str, problem: str | None = PROBLEM) -> Path:
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "kernel.cpp").write_text(kernel)
    (folder / "model_new.py").write_text(model)
    if problem is not None:
        (folder / "model.py").write_text(problem)
    return folder


def test_two_workspaces_give_two_lines_and_status_zero(tmp_path: Path) -> None:
    good = _workspace(tmp_path / "good", MODEL, KERNEL)
    bad = _workspace(tmp_path / "bad", MODEL, "int x = y;")
    command = [sys.executable, "-m", "cuda_agent.judge.cli", str(good), str(bad), "--backend", "cpu", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    first, second = [json.loads(line) for line in done.stdout.splitlines()]
    assert (first["workspace"], first["status"]) == (str(good), "correct")
    assert first["speedup_vs_eager"] > 0 and first["reward"] >= 1
    assert (second["workspace"], second["status"], second["reward"]) == (str(bad), "build_error", -1.0)


def test_bad_usage_is_status_two_before_any_work(tmp_path: Path) -> None:
    good = _workspace(tmp_path / "good", MODEL, KERNEL)
    assert main([str(good), str(tmp_path / "none"), "--json"]) == 2
    assert main([str(_workspace(tmp_path / "other", MODEL, KERNEL, problem=None))]) == 2
    assert main([str(good), "--problem", str(tmp_path / "none.py")]) == 2
    assert main([str(good), "--backend", "tpu"]) == 2
    assert main([]) == 2
