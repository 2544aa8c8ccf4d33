import os
import socket
import subprocess
import sys
from pathlib import Path

from infra.doctor import Finding, check_blobs, check_compiler, check_database, check_folder, check_port, check_vllm, exit_status
from infra.settings import StackSettings

CHECKOUT = Path(__file__).resolve().parents[2]


def test_without_a_compiler_the_line_names_the_mend(monkeypatch):
    monkeypatch.setenv("PATH", "")
    finding = check_compiler()[0]
    assert finding.level == "fail" and "apt-get install g++" in finding.line() and "\n" not in finding.line()
    assert exit_status([finding]) == 2


def test_the_command_works_with_an_empty_path_and_tells_what_is_missing(tmp_path):
    environment = {"PATH": "", "CUDA_AGENT_HOME": str(tmp_path), "HOME": os.environ.get("HOME", "/")}
    command = [sys.executable, "-m", "cuda_agent.cli", "doctor"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=170, cwd=CHECKOUT)
    assert run.returncode == 2, run.stderr
    assert "Traceback" not in run.stderr
    assert any(line.startswith("fail g++") for line in run.stdout.splitlines())
    assert all(line[:4].strip() in ("ok", "warn", "fail") for line in run.stdout.splitlines())


def test_the_python_of_vllm_is_looked_at_where_one_is_named(monkeypatch):
    monkeypatch.delenv("CUDA_AGENT_VLLM_PYTHON", raising=False)
    assert check_vllm() == []
    for named, detail in ((sys.executable, "has no vLLM"), ("/no/such/python", "cannot be run")):
        monkeypatch.setenv("CUDA_AGENT_VLLM_PYTHON", named)
        (finding,) = check_vllm()
        assert finding.level == "fail" and detail in finding.detail and finding.mend


def test_a_folder_that_cannot_be_written_fails(tmp_path):
    assert check_folder("home", tmp_path / "not" / "yet")[0].level in ("ok", "warn")
    finding = check_folder("home", Path("/proc/nowhere"))[0]
    assert finding.level == "fail" and "CUDA_AGENT_HOME" in finding.mend


def test_an_unreachable_database_is_infrastructure(tmp_path):
    settings = StackSettings(home=tmp_path, database_url="postgresql://u@127.0.0.1:1/x")
    findings = check_database(settings)
    assert findings[0].level == "fail" and exit_status(findings) == 3


def test_a_blob_store_that_takes_no_blob_fails(tmp_path):
    (tmp_path / "file").write_text("")
    assert check_blobs(StackSettings(home=tmp_path)) == []
    assert check_blobs(StackSettings(home=tmp_path, blob_root=str(tmp_path / "file")))[0].level == "fail"


def test_a_taken_port_is_a_warning(tmp_path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert check_port(StackSettings(home=tmp_path, port=port))[0].level == "warn"


def test_what_a_person_must_mend_decides_the_status():
    failures = [Finding("a", "fail", "x", status=3), Finding("b", "fail", "x"), Finding("c", "warn", "x")]
    assert exit_status(failures) == 2
    assert exit_status(failures[:1]) == 3
    assert exit_status(failures[2:]) == 0
