"""Registering the stages of prefect.yaml with a server, once for each state of that file and of the flows."""

import hashlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from cuda_agent.errors import ServiceError
from infra.prefect_server import base_environment
from infra.processes import write_atomically
from infra.worker import CHECKOUT

_SECONDS = 300


def deploy_all(stamp: Path, variables: Mapping[str, str], *, force: bool = False) -> bool:
    """Deploy what prefect.yaml lists. False if nothing changed since the last time.

    Args:
        stamp: file that remembers what was deployed to this server.
        variables: environment of the server's clients.
        force: deploy again in any case.

    Raises:
        ServiceError: a deployment was refused.
    """
    definition = CHECKOUT / "prefect.yaml"
    if not definition.exists():
        return False
    state = _digest([definition, *sorted((CHECKOUT / "flows").glob("*.py")), CHECKOUT / "cuda_agent" / "config.py"])
    if not force and stamp.exists() and stamp.read_text() == state:
        return False
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    made = subprocess.run(
        command,
        cwd=CHECKOUT,
        env=base_environment() | dict(variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if made.returncode != 0:
        lines = [line.strip() for line in (made.stderr + made.stdout).splitlines() if line.strip()]
        raise ServiceError(f"the stages could not be deployed: {lines[-1] if lines else 'no reason given'}; check prefect.yaml")
    write_atomically(stamp, state)
    return True


def _digest(paths: list[Path]) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths if path.exists())).hexdigest()
