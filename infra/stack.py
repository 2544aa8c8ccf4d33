"""The embedded services together: Postgres, the Prefect server on it, and a worker.

`up` starts them to stay until `down`; `running` starts what is missing for the time of a block. A service started for a
block is stopped by the last block that uses it, in whichever process that is, and never while `up` wants it. Services that
the environment names (CUDA_AGENT_DATABASE_URL, PREFECT_API_URL) are used and never started or stopped.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path
from typing import IO

from sqlalchemy.engine import make_url

from cuda_agent.errors import ServiceError
from cuda_agent.store.migrate import upgrade
from cuda_agent.store.session import BLOB_VARIABLE, DATABASE_VARIABLE, HOME_VARIABLE
from infra.postgres import DATABASE, PREFECT_DATABASE, EmbeddedPostgres, ensure_database
from infra.prefect_server import PrefectServer, answers, client_environment, flush_clients
from infra.processes import exclusively
from infra.settings import StackSettings
from infra.worker import Worker

POSTGRES, PREFECT, WORKER = "postgres", "prefect", "worker"
ALL = (POSTGRES, PREFECT, WORKER)  # in order of start
API_VARIABLE = "PREFECT_API_URL"


@dataclass(frozen=True)
class ServiceStatus:
    """One line of `stack status`."""

    name: str
    running: bool
    detail: str  # address, or what to do


class Stack:
    """All services of one home folder."""

    def __init__(self, settings: StackSettings, api_url: str | None = None) -> None:
        """Nothing is started yet.

        Args:
            settings: where things are.
            api_url: a Prefect server run by someone else.
        """
        self.settings = settings
        self.external_api = api_url
        self.postgres = EmbeddedPostgres(settings)
        self.prefect = PrefectServer(settings)
        self.worker = Worker(settings)

    @classmethod
    def from_environment(cls, port: int | None = None) -> "Stack":
        """The stack that this process's environment describes.

        Raises:
            ConfigError: a variable is malformed.
        """
        return cls(StackSettings.from_environment(port), os.environ.get(API_VARIABLE) or None)

    # --- what a person calls ---------------------------------------------------------------------------------------

    def up(self, services: Iterable[str] = ALL, tell: Callable[[str], None] = lambda line: None) -> dict[str, str]:
        """Start what is missing, to stay until `down`; returns the environment for using it. Idempotent.

        Raises:
            ServiceError: a service did not start; those before it stay up.
        """
        with exclusively(self._lock):
            for name in self._needed(services):
                self._pin(name).touch()
                self._start(name, tell)
        return self.environment()

    def down(self, tell: Callable[[str], None] = lambda line: None) -> list[str]:
        """Stop everything that runs, in reverse order; returns the names. Idempotent.

        Raises:
            ServiceError: the state folder cannot be used.
        """
        if not self.settings.run.is_dir():
            return []
        stopped = []
        with exclusively(self._lock):
            for name in reversed(ALL):
                self._pin(name).unlink(missing_ok=True)
                if self._service(name).stop():
                    tell(f"{name} stopped")
                    stopped.append(name)
        return stopped

    def status(self) -> list[ServiceStatus]:
        """What runs, in order of start."""
        return [ServiceStatus(name, *self._state(name)) for name in ALL]

    @contextmanager
    def running(
        self,
        services: Iterable[str],
        tell: Callable[[str], None] = lambda line: None,
        meanwhile: Callable[[], object] | None = None,
    ) -> Iterator[dict[str, str]]:
        """The services for the time of a block, whose environment variables are set in this process too.

        Args:
            services: of `postgres`, `prefect`, `worker`; what they need is added.
            tell: gets a line for each thing that takes a while.
            meanwhile: called while the Prefect server starts, with the environment set: imports, say.

        Raises:
            ServiceError: a service did not start; what was started is stopped again.
        """
        names = self._needed(services)
        users: list[tuple[str, IO[str]]] = []
        before = dict(os.environ)
        try:
            with exclusively(self._lock):
                for name in names:
                    users.append((name, self._use(name)))
                    self._start(name, tell, meanwhile)
            yield self._apply()
        finally:
            if PREFECT in names:
                flush_clients()
            os.environ.clear()
            os.environ.update(before)
            self._release(users, tell)

    def environment(self) -> dict[str, str]:
        """Variables that make the library, flows and workers use these services."""
        store = self._store_environment()
        return store | ({} if self.external_api else client_environment(self.settings, self.prefect.api_url))

    # --- one service at a time -------------------------------------------------------------------------------------

    def _needed(self, services: Iterable[str]) -> list[str]:
        """The services asked for and those they stand on, in order of start, without external ones."""
        wanted = set(services)
        if unknown := wanted - set(ALL):
            raise ServiceError(f"there is no service {sorted(unknown)[0]}; name of {', '.join(ALL)}")
        if WORKER in wanted and not self.external_api:
            wanted.add(PREFECT)
        if self.external_api:
            wanted.discard(PREFECT)
        if wanted:
            wanted.add(POSTGRES)
        return [name for name in ALL if name in wanted]

    def _start(self, name: str, tell: Callable[[str], None], meanwhile: Callable[[], object] | None = None) -> None:
        if name == POSTGRES:
            self._start_postgres(tell)
        elif name == PREFECT:
            self._start_prefect(tell, meanwhile)
        elif not self.worker.running():
            tell("starting a worker …")
            self.worker.start(self.external_api or self.prefect.api_url, self._store_environment())

    def _start_postgres(self, tell: Callable[[str], None]) -> None:
        if self.settings.database_url is None:
            if not self.postgres.running():
                tell("starting Postgres …")
            self.postgres.start()
        else:
            ensure_database(self.settings.database_url)
        upgrade(self._database_url(DATABASE))

    def _start_prefect(self, tell: Callable[[str], None], meanwhile: Callable[[], object] | None) -> None:
        if self.settings.database_url is not None:
            ensure_database(self._database_url(PREFECT_DATABASE))
        if self.prefect.launch(self._database_url(PREFECT_DATABASE)):
            tell("starting the Prefect server …")
        if meanwhile is not None:
            self._apply()
            meanwhile()
        self.prefect.wait()

    def _service(self, name: str) -> EmbeddedPostgres | PrefectServer | Worker:
        return {POSTGRES: self.postgres, PREFECT: self.prefect, WORKER: self.worker}[name]

    def _state(self, name: str) -> tuple[bool, str]:
        if name == POSTGRES and self.settings.database_url is not None:
            return True, f"run by someone else: {_hidden(self.settings.database_url)}"
        if name == PREFECT and self.external_api is not None:
            return answers(self.external_api), f"run by someone else: {self.external_api}"
        if not self._service(name).running():
            return False, "start it with: cuda-agent stack up"
        details = {POSTGRES: self.postgres.url(), PREFECT: self.prefect.ui_url, WORKER: self.worker.name}
        return True, details[name]

    # --- who uses what ---------------------------------------------------------------------------------------------

    @property
    def _lock(self) -> Path:
        return self.settings.run / "stack.lock"

    def _pin(self, name: str) -> Path:
        """Present while `up` wants the service."""
        return self.settings.run / f"{name}.pinned"

    def _use(self, name: str) -> IO[str]:
        """A shared lock that says this process uses the service; a crash gives it back."""
        stream = (self.settings.run / f"{name}.users").open("w")
        flock(stream, LOCK_SH)
        return stream

    def _release(self, users: list[tuple[str, IO[str]]], tell: Callable[[str], None]) -> None:
        """Stop, last started first, what nobody else uses and `up` does not want."""
        if not users:
            return
        with exclusively(self._lock):
            for name, stream in reversed(users):
                with stream:
                    if not self._pin(name).exists() and _alone(stream) and self._service(name).stop():
                        tell(f"{name} stopped")

    # --- addresses -------------------------------------------------------------------------------------------------

    def _database_url(self, database: str) -> str:
        if self.settings.database_url is None:
            return self.postgres.url(database)
        if database == DATABASE:
            return self.settings.database_url
        return make_url(self.settings.database_url).set(database=database).render_as_string(hide_password=False)

    def _store_environment(self) -> dict[str, str]:
        return {
            HOME_VARIABLE: str(self.settings.home),
            DATABASE_VARIABLE: self._database_url(DATABASE),
            BLOB_VARIABLE: self.settings.blobs,
            "PATH": _path_with_programs(),
        }

    def _apply(self) -> dict[str, str]:
        variables = self.environment()
        os.environ.update(variables)
        return variables


def free_port_stack(stack: Stack) -> Stack:
    """The same stack with a free port for a Prefect server that is not up yet."""
    return Stack(replace(stack.settings, port=0), stack.external_api)


def _alone(stream: IO[str]) -> bool:
    """Turn our shared lock into an exclusive one: possible only when no other process holds it."""
    try:
        flock(stream, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _path_with_programs() -> str:
    """PATH with this environment's programs first, however this process was started."""
    programs = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", "/usr/bin:/bin")
    return path if programs in path.split(os.pathsep) else f"{programs}{os.pathsep}{path}"


def _hidden(url: str) -> str:
    return make_url(url).render_as_string(hide_password=True)
