"""Where the services live and how they are set, read from the environment once.

Everything lies under one home folder: `postgres/` (data), `prefect/` (PREFECT_HOME and results), `run/` (pid files, locks,
sockets), `logs/`, `blobs/`, `cache/`. Nothing of the user's own (~/.prefect, ~/.pgpass) is read or written.
"""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cuda_agent.errors import ConfigError
from cuda_agent.store.session import BLOB_VARIABLE, DATABASE_VARIABLE, home_folder

PORT_VARIABLE = "CUDA_AGENT_PORT"
DEFAULT_PORT = 4200
WORK_POOL = "local"
_SOCKET_PATH_BYTES = 100  # of the 107 that a Unix socket's address may have


@dataclass(frozen=True)
class StackSettings:
    """Settings of one stack; two stacks with different homes and ports do not touch each other."""

    home: Path
    port: int = DEFAULT_PORT  # of the Prefect server; 0 picks a free one
    database_url: str | None = None  # a server run by someone else; None embeds one
    blob_root: str | None = None  # None is the home's blobs folder
    durable: bool = True  # False trades crash safety of the embedded database for speed (tests)

    @classmethod
    def from_environment(cls, port: int | None = None) -> "StackSettings":
        """Settings from CUDA_AGENT_HOME, CUDA_AGENT_PORT, CUDA_AGENT_DATABASE_URL and CUDA_AGENT_STORE.

        Raises:
            ConfigError: the port is no port number.
        """
        text = os.environ.get(PORT_VARIABLE, str(DEFAULT_PORT)) if port is None else str(port)
        if not text.isdigit() or int(text) > 65_535:
            raise ConfigError(f"{PORT_VARIABLE} is {text!r}; give a port from 1 to 65535, or 0 for a free one")
        return cls(
            home=home_folder(),
            port=int(text),
            database_url=os.environ.get(DATABASE_VARIABLE) or None,
            blob_root=os.environ.get(BLOB_VARIABLE) or None,
        )

    @property
    def data(self) -> Path:
        """Data folder of the embedded Postgres."""
        return self.home / "postgres"

    @property
    def run(self) -> Path:
        """Pid files and locks."""
        return self.home / "run"

    @property
    def logs(self) -> Path:
        """One log file for each service."""
        return self.home / "logs"

    @property
    def sockets(self) -> Path:
        """Folder of the embedded Postgres' socket: in the home, or in the temporary folder where that path is too long."""
        inside = self.home / "run" / "postgres"
        if len(os.fsencode(inside)) + len("/.s.PGSQL.5432") <= _SOCKET_PATH_BYTES:
            return inside
        name = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"cuda-agent-{os.geteuid()}-{name}"

    @property
    def prefect_home(self) -> Path:
        """PREFECT_HOME of everything this stack starts."""
        return self.home / "prefect"

    @property
    def results(self) -> Path:
        """Where flows and tasks persist their results."""
        return self.home / "prefect" / "results"

    @property
    def blobs(self) -> str:
        """Root of the blob store."""
        return self.blob_root or str(self.home / "blobs")
