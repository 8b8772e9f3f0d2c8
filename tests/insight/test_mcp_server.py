"""`ottla mcp`, started and asked by the client of the official SDK over standard streams."""

import json
import sys
from importlib import import_module
from typing import Any

import mcp_types as types
import pytest
import trio
from mcp import Client, StdioServerParameters

from ottla.cli.cluster import explain as command
from ottla.cli.main import run
from ottla.client.admin import open_admin
from ottla.client.testing import open_test_cluster
from ottla.insight.answers import ANSWERS
from ottla.model.ids import TopicPartition
from tests.cli_verbs import run_verb

TIMEOUT_S = 120
VALUES: dict[str, dict[str, str]] = {
    "denial": {"user": "alice", "operation": "read", "topic": "orders"},
    "lag": {"group": "billing"},
    "rebalance": {"group": "billing"},
    "transaction": {"topic": "orders"},
    "delivery": {"group": "workers"},
    "plan": {"change": "drain-broker", "broker": "1"},
}


def server(bootstrap: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable, args=["-m", "ottla.cli", "mcp", "--bootstrap", bootstrap]
    )


def words_of(name: str) -> list[str]:
    """Return the command line of an answer with the same values as its tool."""
    asked = next(one for one in ANSWERS if one.name == name)
    words = [name]
    for one in asked.parameters:
        value = VALUES.get(name, {}).get(one.name)
        if value is not None:
            option = f"--{one.name.replace('_', '-')}"
            words += [value] if one.is_required else [option, value]
    return words


def text_of(found: types.CallToolResult) -> str:
    (block,) = found.content
    assert isinstance(block, types.TextContent)
    return str(block.text)


async def test_each_answer_of_the_table_has_a_command_and_a_tool_with_the_same_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    at = TopicPartition("orders", 0)
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster() as cluster, open_admin(cluster.bootstrap) as admin:
            await admin.create_topic("orders", partition_count=1)
            await admin.alter_group_offsets("billing", {at: 0})
            await admin.alter_share_group_offsets("workers", {at: 0})
            async with Client(server(cluster.bootstrap)) as client:
                tools = {one.name: one for one in (await client.list_tools()).tools}
                assert list(tools) == [one.tool for one in ANSWERS]
                for asked in ANSWERS:
                    tool = tools[asked.tool]
                    assert tool.annotations is not None
                    assert tool.annotations.read_only_hint
                    found = await client.call_tool(asked.tool, VALUES.get(asked.name, {}))
                    assert not found.is_error, found
                    capsys.readouterr()
                    await run_verb(command, admin, *words_of(asked.name), "--format", "json")
                    printed: Any = json.loads(capsys.readouterr().out)
                    assert comparable(json.loads(text_of(found))) == comparable(printed)


def comparable(shown: dict[str, Any]) -> dict[str, Any]:
    """Return an explanation without facts that change between two looks."""
    causes = [one | {"evidence": None} for one in shown["causes"]]
    return shown | {"causes": causes, "notes": None, "tables": list(shown["tables"])}


async def test_a_wrong_call_is_a_result_that_the_agent_can_read() -> None:
    with trio.fail_after(TIMEOUT_S):
        async with Client(server("127.0.0.1:1")) as client:
            for name, arguments, reason in (
                ("explain_nothing", {}, "there is no tool"),
                ("explain_lag", {}, "group: is missing"),
                ("explain_lag", {"group": 7}, "group: must be a string"),
            ):
                found = await client.call_tool(name, arguments)
                assert found.is_error
                assert reason in text_of(found)


def test_without_the_package_the_command_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import_module("ottla.client.admin")
    monkeypatch.delitem(sys.modules, "ottla.insight.mcp_server_driver", raising=False)
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    assert run(["mcp", "--bootstrap", "127.0.0.1:1"]) == 1
    assert "[mcp]" in capsys.readouterr().err
