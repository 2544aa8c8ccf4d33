import stat

import psycopg
import pytest

from cuda_agent.errors import ServiceError
from infra.postgres import DATABASE, PREFECT_DATABASE, EmbeddedPostgres, ensure_database
from infra.settings import StackSettings


@pytest.fixture
def closed_home(tmp_path):
    """A home below a folder that only its owner may enter, as under /root or a user's private home."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    return closed / "home"


def test_the_server_starts_below_a_private_folder_and_opens_nothing(closed_home):
    server = EmbeddedPostgres(StackSettings(home=closed_home, durable=False))
    try:
        assert server.start() is True and server.start() is False
        for database in (DATABASE, PREFECT_DATABASE):
            with psycopg.connect(server.url(database)) as connection:
                connection.execute("create extension if not exists pg_trgm")
        assert stat.S_IMODE(closed_home.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(server.settings.data.stat().st_mode) == 0o700
        assert stat.S_IMODE(server.settings.sockets.stat().st_mode) == 0o700
        server.process.process().kill()  # a crash, then a stale postmaster.pid with a recycled pid
        server.process.process() and server.process.stop()
        (server.settings.data / "postmaster.pid").write_text("1\n")
        assert server.start() is True
    finally:
        server.stop()


def test_a_long_path_gets_a_short_socket_folder(tmp_path):
    settings = StackSettings(home=tmp_path / ("long" * 30))
    assert len(str(settings.sockets)) < 90
    assert settings.sockets != StackSettings(home=tmp_path / ("lung" * 30)).sockets


def test_databases_are_made_once_and_an_absent_server_is_one_sentence(postgres, tmp_path):
    assert ensure_database(postgres.url("once")) is True
    assert ensure_database(postgres.url("once")) is False
    with pytest.raises(ServiceError) as caught:
        ensure_database(f"postgresql://postgres@/once?host={tmp_path}")
    assert "\n" not in str(caught.value)


def test_a_home_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ServiceError, match="CUDA_AGENT_HOME"):
        EmbeddedPostgres(StackSettings(home=tmp_path / "file" / "home")).start()
