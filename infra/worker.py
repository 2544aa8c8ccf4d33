"""A process worker on the work pool `local`: runs deployed flows as child processes of this machine."""

import os
import sys
from pathlib import Path

import httpx

from infra.prefect_server import base_environment, client_environment
from infra.processes import ManagedProcess
from infra.settings import WORK_POOL, StackSettings

CHECKOUT = Path(__file__).resolve().parents[1]
_START_SECONDS = 120.0
_QUERY_SECONDS = 2  # of delay before a scheduled run is picked up; every stage start pays about twice this


class Worker:
    """Start and stop the worker. The caller holds the stack's lock."""

    def __init__(self, settings: StackSettings) -> None:
        """Nothing is started yet."""
        self.settings = settings
        self.process = ManagedProcess("worker", settings.run / "worker.pid", settings.logs / "worker.log")

    @property
    def name(self) -> str:
        """The worker's name in the dashboard; one for each machine and home folder."""
        return f"{os.uname().nodename}-{self.settings.home.parent.name}"

    def running(self) -> bool:
        """Whether its process runs."""
        return self.process.process() is not None

    def start(self, api_url: str, store_environment: dict[str, str]) -> bool:
        """Start it and wait until the server has heard of it. False if it ran already.

        Raises:
            ServiceError: it ended or was not heard of in time.
        """
        if self.running():
            return False
        environment = base_environment() | client_environment(self.settings, api_url) | store_environment
        environment["PREFECT_WORKER_QUERY_SECONDS"] = str(_QUERY_SECONDS)
        environment["PREFECT_WORKER_HEARTBEAT_SECONDS"] = "15"
        command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", WORK_POOL, "--type", "process"]
        command += ["--name", self.name, "--install-policy", "never"]
        self.process.start(command, environment, cwd=CHECKOUT)
        self.process.wait_ready(lambda: self._heard(api_url), _START_SECONDS)
        return True

    def stop(self) -> bool:
        """End it and the flow runs that it started. Returns whether it ran."""
        return self.process.stop(seconds=10.0)

    def _heard(self, api_url: str) -> bool:
        wanted = {"workers": {"status": {"any_": ["ONLINE"]}}}
        try:
            answer = httpx.post(f"{api_url}/work_pools/{WORK_POOL}/workers/filter", json=wanted, timeout=5.0, trust_env=False)
            return answer.status_code == 200 and any(worker["name"] == self.name for worker in answer.json())
        except httpx.HTTPError:
            return False
