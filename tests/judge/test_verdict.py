"""Submissions and verdicts as the contract writes them."""

import hashlib
import json
from pathlib import Path

import pytest

from cuda_agent.errors import ConfigError
from cuda_agent.judge.verdict import PHASES, Submission, Verdict, shorten


def test_digest_is_over_path_length_and_bytes() -> None:
    submission = Submission({"model_new.py": "x = 1\n", "kernels/a.cpp": "int a;"})
    by_hand = hashlib.sha256(b"kernels/a.cpp\x006int a;model_new.py\x006x = 1\n").hexdigest()
    assert submission.sha256 == by_hand
    assert Submission.empty.sha256 == hashlib.sha256().hexdigest()


def test_folder_gives_only_the_agents_files(tmp_path: Path) -> None:
    (tmp_path / "kernels/sub").mkdir(parents=True)
    (tmp_path / "model_new.py").write_text("a")
    (tmp_path / "model.py").write_text("b")
    (tmp_path / "kernels/sub/k.cpp").write_text("c")
    submission = Submission.from_folder(tmp_path)
    assert dict(submission.files) == {"model_new.py": "a", "kernels/sub/k.cpp": "c"}
    assert submission.fault("cpu") == ""


def test_missing_folder_is_bad_usage(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no folder"):
        Submission.from_folder(tmp_path / "none")


def test_link_and_binary_are_illegal(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/l.cpp").symlink_to("/etc/passwd")
    assert "links" in Submission.from_folder(tmp_path).fault("cpu")
    (tmp_path / "kernels/l.cpp").unlink()
    (tmp_path / "kernels/b.cpp").write_bytes(b"\0\1")
    assert "binary" in Submission.from_folder(tmp_path).fault("cpu")


@pytest.mark.parametrize("name", ["kernels/x.so", "../x.cpp", "utils/compile.py", "kernels/a.cu", "/kernels/a.cpp", "setup.py"])
def test_other_names_are_illegal(name: str) -> None:
    assert Submission({name: ""}).fault("cpu")


def test_json_has_the_contracts_fields_and_finite_numbers() -> None:
    verdict = Verdict("correct", None, "ok", 3.0, "0" * 64, 1.0, float("nan"), None, {"build": 0.5})
    data = json.loads(json.dumps(verdict.to_json("w"), allow_nan=False))
    assert list(data) == [
        "workspace",
        "status",
        "kind",
        "message",
        "reward",
        "candidate_ms",
        "eager_ms",
        "compile_ms",
        "speedup_vs_eager",
        "speedup_vs_compile",
        "phases",
        "submission_sha256",
    ]
    assert tuple(data["phases"]) == PHASES and data["eager_ms"] is None and data["phases"]["build"] == 0.5


def test_speedups() -> None:
    verdict = Verdict("correct", None, "", 3.0, "", 2.0, 5.0, None)
    assert verdict.speedup_vs_eager == 2.5 and verdict.speedup_vs_compile is None


def test_what_cannot_be_printed_is_replaced() -> None:
    assert shorten("got \ud800\0x").encode() == "got ?\ufffdx".encode()


def test_long_messages_keep_both_ends() -> None:
    text = shorten("a" * 5_000 + "b" * 5_000)
    assert len(text) <= 4_000 and text.startswith("a") and text.endswith("b")
