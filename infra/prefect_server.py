"""The Prefect server of one home folder, with its UI, on loopback.

It uses the database `prefect` beside the store's, sends nothing anywhere, and keeps out of ~/.prefect. `client_environment`
is what a process needs to talk to it.
"""

import os
import socket
import sys
from typing import Any

import httpx
from sqlalchemy.engine import make_url

from cuda_agent.errors import ServiceError
from infra.processes import ManagedProcess, write_atomically
from infra.settings import DEFAULT_PORT, StackSettings

HOST = "127.0.0.1"
_START_SECONDS = 240.0  # 7 s on an idle machine, half a minute on a busy one; the first start also migrates
ZOMBIE_AUTOMATION = "Crash runs whose process is gone"
_FLUSH_SECONDS = 5
_HEARTBEAT_SECONDS = 30  # the least Prefect allows

_SERVER = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_DATABASE_SQLALCHEMY_POOL_SIZE": "20",
    "PREFECT_SERVER_DATABASE_SQLALCHEMY_MAX_OVERFLOW": "20",
    # batches of 100 cut the UI's lag after a burst of 1,000 task runs from 27 s to 4 s
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": "100",
}


class PrefectServer:
    """Start, stop and address the server. The caller holds the stack's lock."""

    def __init__(self, settings: StackSettings) -> None:
        """Nothing is started or written yet."""
        self.settings = settings
        self.process = ManagedProcess("Prefect server", settings.run / "prefect.pid", settings.logs / "prefect.log")
        self._port_file = settings.run / "prefect.port"

    @property
    def port(self) -> int:
        """Port of the running server, else the one it would take (0: any)."""
        try:
            return int(self._port_file.read_text()) if self.process.process() else self.settings.port
        except (OSError, ValueError):
            return self.settings.port

    @property
    def ui_url(self) -> str:
        """Address of the dashboard."""
        return f"http://{HOST}:{self.port}"

    @property
    def api_url(self) -> str:
        """Value of PREFECT_API_URL."""
        return f"{self.ui_url}/api"

    def running(self) -> bool:
        """Whether the server runs and answers."""
        return self.process.process() is not None and self._healthy()

    def launch(self, database_url: str) -> bool:
        """Start its process on `database_url` (any driver) without waiting. False if it ran already.

        Raises:
            ServiceError: the port is taken or the program could not be started.
        """
        if self.process.process() is not None:
            return False
        port = _claim_port(self.settings.port)
        self.settings.results.mkdir(parents=True, exist_ok=True)
        write_atomically(self._port_file, str(port))
        environment = base_environment() | home_environment(self.settings) | _SERVER
        environment |= {
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": asyncpg_url(database_url),
            "PREFECT_SERVER_API_HOST": HOST,
            "PREFECT_SERVER_API_PORT": str(port),
            "PREFECT_API_URL": f"http://{HOST}:{port}/api",
            "PREFECT__SERVER_FINAL": "1",
        }
        # uvicorn directly: `prefect server start` would import the command line first
        command = [sys.executable, "-m", "uvicorn", "--factory", "prefect.server.api.server:create_app", "--no-access-log"]
        command += ["--host", HOST, "--port", str(port), "--log-level", "warning", "--timeout-graceful-shutdown", "3"]
        self.process.start(command, environment, cwd=self.settings.home)
        return True

    def wait(self) -> None:
        """Until it answers and has its automation.

        Raises:
            ServiceError: the server did not come up; the message ends with its log's last line.
        """
        self.process.wait_ready(self._healthy, _START_SECONDS)
        ensure_zombie_automation(self.api_url)

    def stop(self) -> bool:
        """End it. Returns whether it ran."""
        stopped = self.process.stop(seconds=10.0)
        self._port_file.unlink(missing_ok=True)
        return stopped

    def _healthy(self) -> bool:
        return answers(self.api_url)


def answers(api_url: str) -> bool:
    """Whether a Prefect API answers at `api_url`."""
    try:
        return httpx.get(f"{api_url}/health", timeout=5.0, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def base_environment() -> dict[str, str]:
    """This process's environment without the user's own Prefect settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}


def home_environment(settings: StackSettings) -> dict[str, str]:
    """Settings that keep Prefect inside the home folder; results persist there, so that a retry reruns only what failed."""
    return {
        "DO_NOT_TRACK": "1",
        "PREFECT_HOME": str(settings.prefect_home),
        "PREFECT_PROFILES_PATH": str(settings.prefect_home / "profiles.toml"),
        "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "true",
        "PREFECT_RESULTS_LOCAL_STORAGE_PATH": str(settings.results),
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(_HEARTBEAT_SECONDS),
        "PREFECT_CLI_PROMPT": "false",
    }


def client_environment(settings: StackSettings, api_url: str) -> dict[str, str]:
    """What a flow, a worker or a person's shell needs to use the server."""
    return home_environment(settings) | {"PREFECT_API_URL": api_url, "PREFECT_UI_URL": api_url.removesuffix("/api")}


def flush_clients() -> None:
    """Send the logs and events that this process still holds, before its server goes away."""
    if "prefect" in sys.modules:
        from prefect.events.worker import EventsWorker
        from prefect.logging.handlers import APILogWorker

        for worker in (APILogWorker, EventsWorker):
            worker.drain_all(timeout=_FLUSH_SECONDS)


def asyncpg_url(url: str) -> str:
    """The same database for Prefect's driver, which calls sslmode ssl."""
    parsed = make_url(url).set(drivername="postgresql+asyncpg")
    query = {("ssl" if name == "sslmode" else name): value for name, value in parsed.query.items()}
    return parsed.set(query=query).render_as_string(hide_password=False)


def zombie_automation() -> dict[str, Any]:
    """An automation for runs whose process and worker were both killed: no event within three heartbeats is a crash.

    The wildcard is needed because rollouts end in states of their own names.
    """
    return {
        "name": ZOMBIE_AUTOMATION,
        "description": "A flow run that stops sending heartbeats without having ended is marked Crashed.",
        "enabled": True,
        "trigger": {
            "type": "event",
            "match": {"prefect.resource.id": "prefect.flow-run.*"},
            "for_each": ["prefect.resource.id"],
            "after": ["prefect.flow-run.heartbeat"],
            "expect": ["prefect.flow-run.*"],
            "posture": "Proactive",
            "threshold": 1,
            "within": 3 * _HEARTBEAT_SECONDS,
        },
        "actions": [
            {
                "type": "change-flow-run-state",
                "state": "CRASHED",
                "message": f"No heartbeat for {3 * _HEARTBEAT_SECONDS} s: the run's process is gone.",
            }
        ],
    }


def ensure_zombie_automation(api_url: str) -> bool:
    """Create the automation unless one of its name exists. Returns whether it was created.

    Raises:
        ServiceError: the server refused it.
    """
    try:
        with httpx.Client(base_url=api_url, timeout=60.0, trust_env=False) as client:
            wanted = {"automations": {"name": {"any_": [ZOMBIE_AUTOMATION]}}}
            found = client.post("/automations/filter", json=wanted)
            found.raise_for_status()
            if found.json():
                return False
            client.post("/automations/", json=zombie_automation()).raise_for_status()
            return True
    except httpx.HTTPError as error:
        raise ServiceError(f"the Prefect server at {api_url} refused an automation: {error}; look at its log") from error


def _claim_port(port: int) -> int:
    """`port` if it is free, a free one for 0.

    Raises:
        ServiceError: another program listens there.
    """
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            other = port + 1 if port < 65_535 else DEFAULT_PORT
            raise ServiceError(
                f"port {port} is taken by another program; choose another with --port {other} or CUDA_AGENT_PORT={other} "
                "(0 picks a free one)"
            ) from error
        return int(listener.getsockname()[1])
