"""Real services for tests: an embedded Postgres, a Prefect server on it, an S3 server. Started once, on first use.

`store` gives a test an empty, migrated database of its own (a copy of a template, some 50 ms) and a blob folder.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen
from uuid import uuid4

import psycopg
import pytest

from cuda_agent.store.migrate import upgrade
from cuda_agent.store.session import BLOB_VARIABLE, DATABASE_VARIABLE, Store
from infra.postgres import EmbeddedPostgres, ensure_database
from infra.settings import StackSettings
from infra.stack import Stack

for variable in ("CUDA_AGENT_HOME", "CUDA_AGENT_CACHE", "CUDA_AGENT_PORT", DATABASE_VARIABLE, BLOB_VARIABLE, "PREFECT_API_URL"):
    os.environ.pop(variable, None)


def free_port() -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A running embedded server of this test session."""
    settings = StackSettings(home=tmp_path_factory.mktemp("services"), port=0, durable=False)
    server = EmbeddedPostgres(settings)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def template_database(postgres: EmbeddedPostgres) -> str:
    """Name of a migrated database without connections, for copying."""
    ensure_database(postgres.url("template_cuda_agent"))
    upgrade(postgres.url("template_cuda_agent"))
    return "template_cuda_agent"


@pytest.fixture
def database_url(postgres: EmbeddedPostgres, template_database: str) -> Iterator[str]:
    """URL of a migrated database for one test."""
    name = f"test_{uuid4().hex[:12]}"
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as connection:
        connection.execute(f"create database {name} template {template_database} strategy file_copy")
        yield postgres.url(name)
        connection.execute(f"drop database {name} with (force)")


@pytest.fixture
def store(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty store; open_store() in the test's process and its children finds the same one."""
    monkeypatch.setenv(DATABASE_VARIABLE, database_url)
    monkeypatch.setenv(BLOB_VARIABLE, str(tmp_path / "blobs"))
    monkeypatch.setenv("CUDA_AGENT_HOME", str(tmp_path / "home"))
    opened = Store(database_url, str(tmp_path / "blobs"))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """URL of an S3 server on loopback (moto)."""
    port = free_port()
    environment = os.environ | {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/moto-api/", server)
        yield address
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def s3_root(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An s3:// root in a new bucket; s3fs finds the server through the environment."""
    import s3fs

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    s3fs.S3FileSystem.clear_instance_cache()
    bucket = f"bucket-{uuid4().hex[:8]}"
    s3fs.S3FileSystem().mkdir(bucket)
    return f"s3://{bucket}/blobs"


def _wait_for(url: str, process: subprocess.Popen[bytes], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urlopen(url, timeout=2):
                return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack of this session with nothing running yet and a free port."""
    settings = StackSettings(home=tmp_path_factory.mktemp("stack") / "home", port=0, durable=False)
    made = Stack(settings)
    yield made
    made.down()


@pytest.fixture(scope="session")
def prefect_server(stack: Stack) -> Iterator[dict[str, str]]:
    """The variables that use a real Prefect server on real Postgres, running for the rest of the session.

    They are not left set: other tests must find the environment as it was.
    """
    before = dict(os.environ)
    with stack.running({"postgres", "prefect"}) as variables:
        os.environ.clear()
        os.environ.update(before)
        yield variables
