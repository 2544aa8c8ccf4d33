import pytest
from sqlalchemy import text

from cuda_agent.errors import ConfigError, StoreError
from cuda_agent.store.session import Store, database_url, home_folder, open_store


def test_no_database_named_is_a_config_error(monkeypatch):
    monkeypatch.delenv("CUDA_AGENT_DATABASE_URL", raising=False)
    with pytest.raises(ConfigError, match="stack up"):
        open_store()


@pytest.mark.parametrize("url", ["sqlite:///x.db", "not a url", ""])
def test_other_databases_and_nonsense_are_config_errors(url):
    with pytest.raises(ConfigError):
        database_url(url)


def test_any_postgres_driver_is_read_as_psycopg():
    for url in ("postgresql+asyncpg://u:p@h/d", "postgres://u:p@h/d", "postgresql://u:p@h/d"):
        assert database_url(url).drivername == "postgresql+psycopg"


def test_an_unreachable_database_is_one_sentence_without_the_password(tmp_path):
    unreachable = Store("postgresql://me:secret@127.0.0.1:1/x", str(tmp_path))
    with pytest.raises(StoreError) as caught, unreachable.session() as session:
        session.execute(text("select 1"))
    with pytest.raises(StoreError):
        unreachable.check()
    assert "\n" not in str(caught.value) and "secret" not in str(caught.value) and "stack up" in str(caught.value)


def test_a_session_commits_at_the_end_and_rolls_back_on_an_error(store):
    store.check()
    with store.session() as session:
        session.execute(text("create table scratch (n int)"))
        session.execute(text("insert into scratch values (1)"))
    with pytest.raises(ValueError), store.session() as session:
        session.execute(text("insert into scratch values (2)"))
        raise ValueError
    with open_store().session() as session:
        assert session.execute(text("select n from scratch")).scalars().all() == [1]


def test_the_home_folder_can_be_moved(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_AGENT_HOME", str(tmp_path))
    assert home_folder() == tmp_path
