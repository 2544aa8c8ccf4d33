"""The client against a real HTTP server on loopback that plays an endpoint."""

from collections.abc import Iterator
from typing import Any

import pytest

from cuda_agent.engines.messages import Message, ToolCall, ToolSpec
from cuda_agent.engines.openai import Endpoint as Address
from cuda_agent.engines.openai import OpenAIEngine
from cuda_agent.errors import ConfigError, EngineError
from tests.engines.endpoint import Endpoint, running_endpoint

TOOL = ToolSpec("Bash", "run", {"type": "object", "properties": {"command": {"type": "string"}}})


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with running_endpoint() as running:
        yield running


async def test_a_conversation_with_tool_calls(endpoint: Endpoint):
    endpoint.say(None, ("Bash", '{"command": "ls"}'), ("Bash", '{"command": "pwd"}'))
    endpoint.say("Done.")
    messages = [Message("system", "s"), Message("user", "u")]
    async with OpenAIEngine(endpoint.url, "m", api_key="k") as engine:
        first = await engine.chat(messages, [TOOL], seed=2**40)
        assert first.tool_calls == (ToolCall("Bash", {"command": "ls"}), ToolCall("Bash", {"command": "pwd"}))
        messages += [first, Message("tool", "a"), Message("tool", "b")]
        assert await engine.chat(messages, [TOOL], seed=1) == Message("assistant", "Done.")
    request = endpoint.requests[1]
    assert (request["path"], request["key"], request["model"]) == ("/v1/chat/completions", "Bearer k", "m")
    assert request["tools"][0]["function"]["name"] == "Bash"
    ids = [call["id"] for call in request["messages"][2]["tool_calls"]]
    assert [message.get("tool_call_id") for message in request["messages"][3:]] == ids


async def test_arguments_that_are_no_object_reach_the_tool_check(endpoint: Endpoint):
    endpoint.say("", ("Bash", "{oops"), ("Bash", "[1]"), ("Bash", ""))
    async with OpenAIEngine(endpoint.url, "m") as engine:
        message = await engine.chat([Message("user", "u")], [], seed=0)
    assert [dict(call.arguments) for call in message.tool_calls] == [
        {"not_a_json_object": "{oops"},
        {"not_a_json_object": "[1]"},
        {},
    ]


async def test_transient_faults_are_tried_again(endpoint: Endpoint):
    endpoint.answers += [(503, {}), (429, {})]
    endpoint.say("here")
    async with OpenAIEngine(endpoint.url, "m", pause_seconds=0.01) as engine:
        assert (await engine.chat([Message("user", "u")], [], seed=0)).text == "here"


@pytest.mark.parametrize(
    ("answers", "fault"),
    [
        ([(401, {"error": "no key"})], "status 401"),
        ([(500, {})] * 2, "status 500"),
        ([(200, b"<html>")], "no JSON"),
        ([(200, {})], "without a message"),
    ],
)
async def test_what_remains_is_an_engine_error(endpoint: Endpoint, answers: list[tuple[int, Any]], fault: str):
    endpoint.answers += answers
    async with OpenAIEngine(endpoint.url, "m", attempts=2, pause_seconds=0.01) as engine:
        with pytest.raises(EngineError, match=fault):
            await engine.chat([Message("user", "u")], [], seed=0)


async def test_an_absent_endpoint_is_an_engine_error():
    async with OpenAIEngine("http://127.0.0.1:9/v1", "m", attempts=1) as engine:
        with pytest.raises(EngineError, match="does not answer"):
            await engine.chat([Message("user", "u")], [], seed=0)


def test_the_endpoint_comes_from_arguments_or_environment_and_hides_its_key() -> None:
    known = {"OPENAI_BASE_URL": "http://a/v1", "OPENAI_MODEL": "m", "OPENAI_API_KEY": "secret"}
    endpoint = Address.of(model="n", environment=known)
    assert endpoint.provenance() == {"endpoint": "http://a/v1", "model": "n"}
    assert endpoint.api_key == "secret" and "secret" not in repr(endpoint)
    for environment in ({}, {"OPENAI_MODEL": "m"}, {"OPENAI_BASE_URL": "a", "OPENAI_MODEL": "m"}):
        with pytest.raises(ConfigError, match="http"):
            Address.of(environment=environment)
