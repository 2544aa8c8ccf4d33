import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, inspect

from cuda_agent.errors import StoreError
from cuda_agent.store import migrate
from cuda_agent.store.session import database_url as with_driver
from cuda_agent.store.tables import Base


def test_migrations_create_exactly_the_tables(database_url):
    with create_engine(with_driver(database_url)).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []


def test_upgrading_twice_changes_nothing_and_downgrading_removes_all(database_url):
    migrate.upgrade(database_url)
    migrate.downgrade(database_url)
    engine = create_engine(with_driver(database_url))
    assert set(inspect(engine).get_table_names()) <= {"alembic_version"}
    assert inspect(engine).get_view_names() == []
    migrate.upgrade(database_url)
    assert "rollout" in inspect(engine).get_table_names()
    engine.dispose()


def test_a_database_of_a_newer_version_is_refused(database_url):
    with psycopg.connect(database_url) as connection:
        connection.execute("update alembic_version set version_num = '9999'")
    with pytest.raises(StoreError, match="newer version"):
        migrate.upgrade(database_url)


def test_an_unreachable_database_is_one_sentence(tmp_path):
    with pytest.raises(StoreError, match="could not be migrated") as caught:
        migrate.upgrade(f"postgresql://postgres@/x?host={tmp_path}")
    assert "\n" not in str(caught.value)
