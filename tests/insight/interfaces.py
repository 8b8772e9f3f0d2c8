"""The interfaces of an answer beside the command: its MCP tool and its page of the console, called
with the values of a command line."""

import json
import re
import shlex
from collections.abc import Sequence
from html import unescape
from typing import Any

import trio

from ottla.client.admin import Admin
from ottla.console.links import address
from ottla.insight.answers import Answer, answer_of
from ottla.insight.mcp_server_driver import call
from tests.console.console_fixture import open_browser
from tests.insight.rules.test_totality import parse
from tests.insight.test_mcp_server import text_of

ESCAPE = "\x1b"
TAG = re.compile(r"<[^>]*>")


def values_of(words: Sequence[str]) -> tuple[Answer, dict[str, str]]:
    """Return the answer that the arguments of `ottla explain` name, and the given values of its
    parameters."""
    arguments = parse(shlex.join(["ottla", "explain", *words]))
    asked = answer_of(words[0])
    given = {one.name: getattr(arguments, one.name) for one in asked.parameters}
    return asked, {name: value for name, value in given.items() if value is not None}


async def by_tool(admin: Admin, words: Sequence[str]) -> dict[str, Any]:
    """Return the explanation in the JSON form that the MCP tool returns for a command line."""
    asked, values = values_of(words)
    found = await call(admin, asked.tool, values)
    assert not found.is_error, text_of(found)
    text = text_of(found)
    assert ESCAPE not in text
    shown: dict[str, Any] = json.loads(text)
    return shown


async def by_page(admin: Admin, words: Sequence[str]) -> str:
    """Return the text of the console's page with the same answer. Tags and entities are removed."""
    asked, values = values_of(words)
    async with open_browser(admin) as browser:
        where = address(f"/explain/{asked.name}", {}, values)
        return " ".join(unescape(TAG.sub(" ", await browser.get(where))).split())


def cause_of(shown: dict[str, Any], kind: str) -> tuple[str, str | None, str | None]:
    """Return kind, fix and more of the first cause of this kind in an explanation."""
    cause = next(one for one in shown["causes"] if one["kind"] == kind)
    return cause["kind"], cause["fix"], cause["more"]


async def check_interfaces(admin: Admin, words: Sequence[str], kind: str, fix: str | None) -> None:
    """Check that the MCP tool and the console's page name a cause of this kind, with the command
    that removes it."""
    seen: dict[str, Any] = {}

    async def read_page() -> None:
        seen["page"] = await by_page(admin, words)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_page)
        shown = await by_tool(admin, words)
    found = cause_of(shown, kind)
    assert found[:2] == (kind, fix)
    check_that_commands_parse(shown)
    command = fix or found[2]
    assert command is not None
    assert command in seen["page"], seen["page"]


def check_that_commands_parse(shown: dict[str, Any]) -> None:
    """Check that the real parsers accept the commands of each cause in an explanation."""
    for cause in shown["causes"]:
        for line in filter(None, (cause["fix"], cause["more"])):
            parse(line)
