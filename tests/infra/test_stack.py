import os
import socket

import httpx
import psycopg
import pytest

from cuda_agent.errors import ServiceError
from infra.prefect_server import ZOMBIE_AUTOMATION, asyncpg_url, ensure_zombie_automation
from infra.settings import StackSettings
from infra.stack import Stack


def test_postgres_for_a_block_is_migrated_used_and_stopped(tmp_path):
    stack = Stack(StackSettings(home=tmp_path / "home", port=0, durable=False))
    before = os.environ.get("CUDA_AGENT_DATABASE_URL")
    with stack.running({"postgres"}) as variables:
        assert os.environ["CUDA_AGENT_DATABASE_URL"] == variables["CUDA_AGENT_DATABASE_URL"]
        with psycopg.connect(variables["CUDA_AGENT_DATABASE_URL"]) as connection:
            assert connection.execute("select count(*) from stage_run").fetchone() == (0,)
        with Stack(stack.settings).running({"postgres"}):
            pass
        assert stack.postgres.running(), "a second user must not stop what the first still uses"
    assert not stack.postgres.running()
    assert os.environ.get("CUDA_AGENT_DATABASE_URL") == before


def test_a_block_that_fails_stops_what_it_started(tmp_path):
    stack = Stack(StackSettings(home=tmp_path / "home", port=0, durable=False))
    with pytest.raises(KeyboardInterrupt), stack.running({"postgres"}):
        raise KeyboardInterrupt
    assert not stack.postgres.running()


def test_a_taken_port_is_one_sentence_with_the_port_and_nothing_stays_up(tmp_path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        stack = Stack(StackSettings(home=tmp_path / "home", port=port, durable=False))
        with pytest.raises(ServiceError, match=f"port {port} is taken") as caught, stack.running({"prefect"}):
            pass
    assert "--port" in str(caught.value) and "\n" not in str(caught.value)
    assert not stack.postgres.running()


def test_what_up_started_outlives_a_block_and_down_stops_it(tmp_path):
    stack = Stack(StackSettings(home=tmp_path / "home", port=0, durable=False))
    stack.up({"postgres"})
    with stack.running({"postgres"}):
        pass
    assert [state.running for state in stack.status()] == [True, False, False]
    assert stack.down() == ["postgres"] and stack.down() == []


def test_an_external_database_is_used_and_left_alone(postgres, tmp_path):
    stack = Stack(StackSettings(home=tmp_path / "home", port=0, database_url=postgres.url("external")))
    with stack.running({"postgres"}) as variables:
        assert variables["CUDA_AGENT_DATABASE_URL"] == postgres.url("external")
        with psycopg.connect(postgres.url("external")) as connection:
            assert connection.execute("select count(*) from rollout").fetchone() == (0,)
    assert postgres.running() and not stack.postgres.running()
    assert stack.status()[0].running


def test_a_prefect_url_keeps_its_parts_for_asyncpg():
    assert asyncpg_url("postgresql://u:p@h:5/prefect?sslmode=require") == "postgresql+asyncpg://u:p@h:5/prefect?ssl=require"
    assert asyncpg_url("postgresql+psycopg://u@/d?host=/run").startswith("postgresql+asyncpg://u@/d?host=")


@pytest.mark.slow
def test_the_server_answers_serves_its_ui_and_has_the_zombie_automation_once(prefect_server):
    api = prefect_server["PREFECT_API_URL"]
    assert httpx.get(f"{api}/health", trust_env=False).json() is True
    page = httpx.get(api.removesuffix("/api"), follow_redirects=True, trust_env=False)
    assert page.status_code == 200 and "<html" in page.text
    assert ensure_zombie_automation(api) is False
    found = httpx.post(f"{api}/automations/filter", json={}, trust_env=False).json()
    assert [automation["name"] for automation in found] == [ZOMBIE_AUTOMATION]


@pytest.mark.slow
def test_a_worker_comes_up_is_found_again_and_goes_with_down(prefect_server, stack):
    stack.up({"worker"})
    try:
        assert [state.running for state in stack.status()] == [True, True, True]
        stack.up({"worker"})
    finally:
        stack.worker.stop()
        for name in ("postgres", "prefect", "worker"):
            stack._pin(name).unlink(missing_ok=True)
    assert not stack.worker.running()
