"""The store: one Postgres database for rows and one blob root for what is large.

`Store` opens connections lazily and may be made anywhere; only `session()` and `connection()` talk to the database. Every
failure to reach it is a StoreError of one sentence. Sessions commit on success and roll back on any exception; objects stay
readable after the commit.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, InterfaceError, OperationalError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import NullPool

from cuda_agent.errors import ConfigError, StoreError
from cuda_agent.store.blobs import Blobs

DATABASE_VARIABLE = "CUDA_AGENT_DATABASE_URL"
BLOB_VARIABLE = "CUDA_AGENT_STORE"
HOME_VARIABLE = "CUDA_AGENT_HOME"
CACHE_VARIABLE = "CUDA_AGENT_CACHE"
CONNECT_SECONDS = 10


def home_folder() -> Path:
    """Where this checkout keeps services, blobs and caches: $CUDA_AGENT_HOME, else `.cuda-agent` of the checkout."""
    configured = os.environ.get(HOME_VARIABLE)
    if configured:
        return Path(configured).expanduser().absolute()
    return Path(__file__).resolve().parents[2] / ".cuda-agent"


def cache_folder() -> Path:
    """Where what can be made again is kept (glue, weights fetched, leases): $CUDA_AGENT_CACHE, else the home folder's cache."""
    configured = os.environ.get(CACHE_VARIABLE)
    return Path(configured).expanduser().absolute() if configured else home_folder() / "cache"


def database_url(url: str) -> URL:
    """`url` with the psycopg 3 driver, whatever driver or short form it named.

    Raises:
        ConfigError: it is no URL, or not one of Postgres.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise ConfigError(f"{DATABASE_VARIABLE} is no database URL; use postgresql://user:password@host/database") from error
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise ConfigError(f"{DATABASE_VARIABLE} names {parsed.get_backend_name()}; the store needs Postgres (postgresql://…)")
    return parsed.set(drivername="postgresql+psycopg")


class Store:
    """Access to rows (`session`) and blobs (`blobs`). Cheap to make, safe to share between threads, not across fork."""

    def __init__(self, url: str, blob_root: str) -> None:
        """Remember where things are; nothing is opened yet.

        Args:
            url: database URL; any Postgres driver name is replaced by psycopg.
            blob_root: folder, file:// or s3:// URI under which blobs lie.
        """
        self.url = database_url(url)
        self.blobs = Blobs(blob_root)
        self.engine: Engine = create_engine(
            self.url,
            pool_pre_ping=True,
            pool_size=4,
            max_overflow=28,
            connect_args={"connect_timeout": CONNECT_SECONDS},
        )
        self._sessions = sessionmaker(self.engine, expire_on_commit=False)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A session in one transaction: commits at the end of the block, rolls back when it raises.

        Raises:
            StoreError: the database cannot be reached or went away.
        """
        with self._reaching(), self._sessions.begin() as session:
            yield session

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection of its own outside the pool, in autocommit: what holds an advisory lock. Closed at the end."""
        engine = create_engine(
            self.url,
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            connect_args={
                "connect_timeout": CONNECT_SECONDS,
                "keepalives_idle": 30,
                "keepalives_interval": 10,
                "keepalives_count": 3,
            },
        )
        with self._reaching(), engine.connect() as connection:
            yield connection

    def check(self) -> None:
        """Ask the database one question.

        Raises:
            StoreError: it cannot be reached, or holds no tables of this project yet.
        """
        with self.session() as session:
            if session.scalar(text("select to_regclass('public.stage_run')")) is None:
                raise StoreError(f"database {self.place} has no tables yet; run: cuda-agent setup --database")

    def close(self) -> None:
        """Give pooled connections back."""
        self.engine.dispose()

    @property
    def cache_dir(self) -> Path:
        """This machine's cache folder (see cache_folder); may not exist yet."""
        return cache_folder()

    @property
    def place(self) -> str:
        """The database's address for messages, without a password."""
        host = self.url.query.get("host", self.url.host or "localhost")
        return f"{self.url.database} at {host}"

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Turn the driver's connection failures into one sentence."""
        try:
            yield
        except (OperationalError, InterfaceError) as error:
            reason = str(error.orig).strip().splitlines()[0] if error.orig else str(error)
            raise StoreError(
                f"database {self.place} is not usable: {reason}; start it with cuda-agent stack up or set {DATABASE_VARIABLE}"
            ) from error


def open_store() -> Store:
    """The store that the environment names: CUDA_AGENT_DATABASE_URL, and CUDA_AGENT_STORE (default: the home folder's blobs).

    Raises:
        ConfigError: no database is named, or its URL is malformed.
    """
    url = os.environ.get(DATABASE_VARIABLE)
    if not url:
        raise ConfigError(f"no database is named; start the services with cuda-agent stack up, or set {DATABASE_VARIABLE}")
    return Store(url, os.environ.get(BLOB_VARIABLE) or str(home_folder() / "blobs"))
