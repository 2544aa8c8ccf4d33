"""Preparing a database run by someone else: `python -m infra.prepare` in images, before anything else starts."""

import sys

from sqlalchemy.engine import make_url

from cuda_agent.errors import ConfigError, CudaAgentError
from cuda_agent.store.migrate import upgrade
from cuda_agent.store.session import DATABASE_VARIABLE
from infra.postgres import PREFECT_DATABASE, ensure_database
from infra.settings import StackSettings


def prepare(url: str) -> None:
    """Create the store's and Prefect's databases if they are missing and migrate the store's. Idempotent.

    Raises:
        ServiceError: the server cannot be reached or refuses.
        StoreError: the migration failed.
    """
    ensure_database(url)
    ensure_database(make_url(url).set(database=PREFECT_DATABASE).render_as_string(hide_password=False))
    upgrade(url)


def main() -> int:
    """Prepare the database that the environment names; returns the exit status."""
    try:
        url = StackSettings.from_environment().database_url
        if url is None:
            raise ConfigError(f"{DATABASE_VARIABLE} is not set; the embedded database prepares itself")
        prepare(url)
    except CudaAgentError as error:
        print(f"prepare: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
