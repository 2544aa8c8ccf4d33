"""Bringing a database to the current tables, in process.

Safe to call from several processes at once: an advisory lock lets one migrate while the others wait and find it done.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from cuda_agent.errors import StoreError
from cuda_agent.store.session import database_url

MIGRATIONS = Path(__file__).resolve().parents[2] / "sql" / "migrations"
_LOCK = 0x63756461  # any constant: one migration at a time per database


def alembic_config(connection: Connection | None = None) -> Config:
    """Alembic's configuration for this project, on an open connection if one is given."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def upgrade(url: str, revision: str = "head") -> None:
    """Migrate the database at `url` up to `revision`; nothing happens when it is there already.

    Raises:
        StoreError: it cannot be reached, or was made by a newer version of this project.
    """
    _migrate(url, revision, up=True)


def downgrade(url: str, revision: str = "base") -> None:
    """Migrate the database at `url` down to `revision`; what the later tables held is lost.

    Raises:
        StoreError: it cannot be reached.
    """
    _migrate(url, revision, up=False)


def current_revision(connection: Connection) -> str | None:
    """The revision that a database is at; None before the first."""
    return MigrationContext.configure(connection).get_current_revision()


def _migrate(url: str, revision: str, *, up: bool) -> None:
    target = database_url(url)
    engine = create_engine(target, poolclass=NullPool, connect_args={"connect_timeout": 10})
    scripts = ScriptDirectory.from_config(alembic_config())
    try:
        with engine.begin() as connection:
            connection.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            current = current_revision(connection)
            if current is not None and current not in {script.revision for script in scripts.walk_revisions()}:
                raise StoreError(f"database {target.database} is of a newer version (revision {current}); update this checkout")
            if up and revision == "head" and current == scripts.get_current_head():
                return
            (command.upgrade if up else command.downgrade)(alembic_config(connection), revision)
    except OperationalError as error:
        reason = str(error.orig).strip().splitlines()[0]
        raise StoreError(f"database {target.database} could not be migrated: {reason}; check that it runs") from error
