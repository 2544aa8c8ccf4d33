"""Alembic's environment: one database, given as the URL or the open connection that cuda_agent.store.migrate passes."""

from alembic import context
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from cuda_agent.store.session import database_url
from cuda_agent.store.tables import Base

target_metadata = Base.metadata


def main() -> None:
    """Run the migrations asked for in one transaction."""
    connection = context.config.attributes.get("connection")
    if connection is not None:
        run(connection)
        return
    url = context.get_x_argument(as_dictionary=True).get("url") or context.config.get_main_option("sqlalchemy.url")
    if not url:
        raise SystemExit("name the database: alembic -x url=postgresql://… upgrade head")
    with create_engine(database_url(url), poolclass=NullPool).connect() as opened:
        run(opened)
        opened.commit()


def run(connection) -> None:
    """Configure on a connection and run."""
    context.configure(connection=connection, target_metadata=target_metadata, compare_type=True, compare_server_default=True)
    with context.begin_transaction():
        context.run_migrations()


main()
