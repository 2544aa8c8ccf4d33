"""The training process's protocol, in process: what it answers, and how it fails."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cuda_agent.config import RftScience, TrainExecution
from cuda_agent.errors import LearningError
from cuda_agent.learning import run
from cuda_agent.learning.channel import Channel, finite
from cuda_agent.learning.episodes import write_episodes
from cuda_agent.learning.job import PpoJob, RftJob, read_job, write_job


class Parent:
    """The other end of a process's socket, which answers each event in `script` with the command beside it."""

    def __init__(self, path: Path, script: dict[str, dict[str, Any]]) -> None:
        self.events: list[dict[str, Any]] = []
        self._script = script
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(1)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        self._connection, _ = self._listener.accept()
        with self._connection.makefile("rb") as lines:
            for line in lines:
                self.events.append(json.loads(line))
                if command := self._script.get(self.events[-1]["event"]):
                    self._connection.sendall(json.dumps(command).encode() + b"\n")

    def join(self) -> list[str]:
        """The kinds of all events, once the process has closed its end."""
        self._thread.join(5.0)
        return [event["event"] for event in self.events]


@pytest.fixture(autouse=True)
def no_death_signal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tests' own process keeps its tie to its parent."""
    monkeypatch.setattr(run, "die_with_launcher", lambda: None)
    yield


def work(tmp_path: Path, job: Any, script: dict[str, dict[str, Any]]) -> tuple[int, Parent, list[str]]:
    parent = Parent(tmp_path / "socket", script)
    write_job(tmp_path / "job.json", job.model_copy(update={"socket": tmp_path / "socket"}))
    status = run.main(["--job", str(tmp_path / "job.json")])
    return status, parent, parent.join()


def test_a_failing_command_is_one_error_event(policy: Path, tmp_path: Path) -> None:
    step = {"cmd": "step", "episodes": str(tmp_path / "none.npz"), "step": 1}
    status, parent, kinds = work(tmp_path, PpoJob(actor=policy), {"ready": step})
    assert (status, kinds) == (1, ["ready", "error"])
    assert parent.events[1]["expected"] and "none.npz cannot be read" in parent.events[1]["message"]


def test_an_unknown_command_is_refused(policy: Path, tmp_path: Path) -> None:
    status, parent, _ = work(tmp_path, PpoJob(actor=policy), {"ready": {"cmd": "dance"}})
    assert status == 1 and "commands are step, save and stop" in parent.events[-1]["message"]


def test_stop_ends_it_well(policy: Path, tmp_path: Path) -> None:
    status, _, kinds = work(tmp_path, PpoJob(actor=policy), {"ready": {"cmd": "stop"}})
    assert (status, kinds) == (0, ["ready", "stopped"])


def test_a_batch_job_reports_saves_and_ends(policy: Path, tmp_path: Path, bandit: Any) -> None:
    write_episodes(tmp_path / "e.npz", bandit(4))
    job = RftJob(
        actor=policy,
        episodes=tmp_path / "e.npz",
        output=tmp_path / "out",
        progress_seconds=60.0,
        science=RftScience(epochs=2, batch=4, rate=1e-3),
        execution=TrainExecution(device="cpu"),
    )
    status, parent, kinds = work(tmp_path, job, {})
    assert (status, kinds) == (0, ["ready", "progress", "metrics", "metrics", "saved", "done"])
    first, second = (event["metrics"] for event in parent.events if event["event"] == "metrics")
    assert second["loss"] < first["loss"] and second["episodes"] == 4 and second["mean_reward"] == 0.0
    assert set(parent.events[4]["sha256"]) == {"actor"}


def test_a_model_that_is_missing_is_named(tmp_path: Path) -> None:
    status, parent, kinds = work(tmp_path, PpoJob(actor=tmp_path), {})
    assert (status, kinds) == (1, ["error"])
    assert "config.json is missing" in parent.events[0]["message"]


def test_a_job_file_says_which_key_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"kind": "ppo", "actor": "a", "speed": 3}')
    with pytest.raises(LearningError, match=r"job\.json: ppo\.speed is not a known setting"):
        read_job(tmp_path / "job.json")


def test_a_job_survives_its_file(tmp_path: Path) -> None:
    job = PpoJob(actor=Path("a"), resume=Path("r"))
    write_job(tmp_path / "job.json", job)
    assert read_job(tmp_path / "job.json") == job


def test_numbers_that_json_cannot_hold_become_null() -> None:
    assert finite({"a": float("nan"), "b": [float("inf"), 1.5], "c": "x"}) == {"a": None, "b": [None, 1.5], "c": "x"}


def test_a_parent_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(LearningError, match="the parent has ended"):
        Channel(tmp_path / "nobody")
