"""`cuda-agent rollouts run` on a real database, judge and sandbox, without a Prefect server."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from cuda_agent.agent.batch import require_complete
from cuda_agent.agent.planning import plan_training_batch
from cuda_agent.agent.player import BatchPlayer
from cuda_agent.agent.rollouts import play_missing
from cuda_agent.cli import app
from cuda_agent.config import BasePolicyScience, RolloutExecution, RolloutScience
from cuda_agent.engines.openai import OpenAIEngine
from cuda_agent.errors import ConfigError, EngineError
from cuda_agent.judge.pool import JudgePool
from cuda_agent.learning.base_model import make_policy_folder
from cuda_agent.problems.cli import stored_set
from cuda_agent.problems.sources import read_path
from cuda_agent.store.queries import dataset_problems, failed_attempts, finished_rollouts, get_batch
from cuda_agent.store.session import CACHE_VARIABLE, Store, cache_folder
from cuda_agent.store.tables import RolloutBatch
from cuda_agent.store.trajectories import open_batch
from tests.agent.script import KERNEL, MODEL, PROBLEM
from tests.conftest import free_port
from tests.engines.endpoint import Endpoint, running_endpoint

CACHE = str(cache_folder())


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, CACHE)
    for name in ("OPENAI_BASE_URL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)


def written(folder: Path, *operators: str) -> Path:
    """A parquet file with one problem for each operator."""
    texts = [PROBLEM.replace("relu", operator) for operator in operators]
    table = {"ops": [[operator] for operator in operators], "data_source": ["torch#1"] * len(texts), "code": texts}
    pq.write_table(pa.table(table), folder / "set.parquet")
    return folder / "set.parquet"


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    return written(tmp_path, "relu", "tanh")


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with running_endpoint() as running:
        yield running


def sample(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """The object that the command prints."""
    app(["rollouts", "run", "--json", *map(str, arguments)], standalone_mode=False)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_teacher_solves_a_set_and_the_same_command_finds_the_batch(
    store: Store, problems: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = ("--problems", problems, "--engine", "teacher", "--backend", "cpu", "--episodes", 4)
    first = sample(capsys, *wanted)
    assert first["episodes"] == 4 and first["outcomes"] == {"correct": 4} and first["tokens_per_second"] is None
    assert sum(first["rewards"].values()) == 4 and set(first["rewards"]) <= {"1", "2", "3"} and first["seconds"] > 0
    assert sample(capsys, *wanted) == first
    app(["rollouts", "run", *map(str, wanted)], standalone_mode=False)
    again = capsys.readouterr()
    assert "outcomes: 4 correct" in again.out and first["batch_id"] in again.out and "correct, reward" not in again.err
    with store.session() as session:
        assert session.query(RolloutBatch).count() == 1


def test_a_model_behind_an_endpoint_plays_the_agent(
    store: Store, tmp_path: Path, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, content in (("kernels/relu.cpp", KERNEL), ("model_new.py", MODEL)):
        endpoint.say(None, ("Write", json.dumps({"file_path": path, "content": content})))
    relu = ("--problems", written(tmp_path, "relu"), "--engine", "openai", "--endpoint", endpoint.url, "--model", "m")
    found = sample(capsys, *relu, "--episodes", 1)
    assert found["outcomes"] == {"correct": 1} and found["tokens_per_second"] is None
    (rollout,) = finished_rollouts(store, UUID(found["batch_id"]))
    assert rollout.turns == 6 and rollout.stop_reason == "max_turns"
    first = endpoint.requests[0]
    assert first["model"] == "m" and {"Bash", "Write"} <= {tool["function"]["name"] for tool in first["tools"]}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A small untrained model behind `transformers serve`: the endpoint's address and the model's folder."""
    folder, port = tmp_path / "model", free_port()
    folder.mkdir()
    make_policy_folder(folder, BasePolicyScience(width=32, layers=1, heads=2))
    vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()
    generation = json.loads((folder / "generation_config.json").read_text())
    generation["suppress_tokens"] = [place for token, place in vocabulary.items() if "tool_call" in token]
    (folder / "generation_config.json").write_text(json.dumps(generation))  # the server breaks on a call that is no JSON
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(folder), "--port", str(port)]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen([*command, "--device", "cpu"], stdout=log, stderr=log)
        try:
            wait_until_served(f"http://127.0.0.1:{port}/health", server, tmp_path / "log")
            yield f"http://localhost:{port}/v1", folder
        finally:
            server.terminate()
            server.wait(20)


def wait_until_served(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError):
            urlopen(address, timeout=5).close()
            return
        assert server.poll() is None, log.read_text()[-2_000:]
        time.sleep(0.1)
    raise AssertionError(log.read_text()[-2_000:])


def test_a_model_behind_transformers_serve_plays_and_hands_in_nothing(
    store: Store, problems: Path, served: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    address, folder = served
    model = ("--engine", "openai", "--endpoint", address, "--model", folder)
    found = sample(capsys, "--problems", problems, *model, "--episodes", 2)
    assert found["outcomes"] == {"no_submission": 2} and found["rewards"] == {"-1": 2}


@pytest.mark.asyncio(loop_scope="session")
async def test_an_endpoint_that_is_down_is_told_and_every_attempt_is_kept(store: Store, problems: Path, pool: JudgePool) -> None:
    dataset = stored_set(store, read_path(problems))
    science, told = RolloutScience(engine="openai", episodes=2), list[str]()
    batch_id = open_batch(
        store, dataset_id=dataset, policy_version_id=None, engine="openai", purpose="train", science=science, episodes=2
    )
    found = {problem.id: problem for problem in dataset_problems(store, dataset)}
    plans = plan_training_batch(list(found), 2, 1, 0, 0)
    engine = OpenAIEngine("http://127.0.0.1:9/v1", "m", attempts=2, pause_seconds=0.01)
    player = BatchPlayer(store, get_batch(store, batch_id), science, plans, found, engine, pool, None)
    await play_missing(player, RolloutExecution(), told.append)
    assert sum("infra_error: model m at http://127.0.0.1:9/v1" in line for line in told) == 2
    assert failed_attempts(store, batch_id) == {0: 3, 1: 3}
    with pytest.raises(EngineError, match="only 0 of 2 episodes"):
        require_complete(store, batch_id)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--engine", "openai"), "needs address and name"),
        (("--engine", "transformers"), "the store holds none; name a checkpoint"),
        (("--engine", "vllm", "--checkpoint", "/no/such"), "no folder"),
        (("--engine", "teacher", "--problems", "/no/such.parquet"), "does not exist"),
    ],
)
def test_what_is_missing_is_named(
    store: Store, problems: Path, arguments: tuple[str, ...], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=fault):
        sample(capsys, "--problems", problems, *arguments)
