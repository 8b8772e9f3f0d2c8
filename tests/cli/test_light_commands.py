"""Imports of commands: a list of topics shows within the time that few modules take to load."""

import subprocess
import sys
from functools import partial
from importlib import import_module

import pytest

from ottla.cli.topics import topic

HEAVY = (
    "asyncio",
    "email",
    "google",
    "grpc",
    "http",
    "importlib.metadata",
    "opentelemetry",
    "ottla.broker",
    "ottla.cli.cluster.moves.reassign",
    "ottla.client.admin",
    "ottla.client.groups",
    "ottla.client.network.bearer_tokens",
    "ottla.controller",
    "ottla.model.settings.client",
    "ottla.model.settings.security.client_security",
    "ottla.model.settings.security.sasl",
    "ottla.model.settings.security.tls",
    "ottla.node",
    "ottla.wire.generator",
    "re2",
    "rich",
    "tomllib",
    "urllib.request",
)
NETWORK = ("ottla.client", "ssl", "trio")


def loaded_by(arguments: list[str]) -> set[str]:
    """Return the modules that a command has loaded when it ends."""
    script = (
        "import sys; from ottla.cli.main import run;"
        f"run({arguments!r}); print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stderr.splitlines())


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["completion", "bash"], ["topic", "--help"], ["version"]],
    ids=" ".join,
)
def test_a_command_that_asks_no_cluster_loads_nothing_of_the_network(arguments: list[str]) -> None:
    assert loaded_by(arguments).isdisjoint({*HEAVY, *NETWORK})


def test_a_list_of_topics_loads_only_the_calls_that_it_makes() -> None:
    """As with an unreachable address: otherwise it loads no trio either (`test_quick_list`)."""
    loaded = loaded_by(["topic", "list", "--bootstrap-server", "127.0.0.1:1"])
    assert "ottla.client.admin_parts.admin_brokers" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_an_operators_command_loads_no_producer_and_no_settings_of_clients() -> None:
    loaded = loaded_by(["group", "list", "--bootstrap-server", "127.0.0.1:1"])
    assert "ottla.client.admin" in loaded
    needed = {"ottla.client.admin", "ottla.client.groups"}
    assert loaded.isdisjoint({*set(HEAVY) - needed, "ottla.client.producer"})


def test_each_verb_of_topics_is_where_the_table_says() -> None:
    bodies = [verb.handler.args[0] for verb in topic.VERBS if isinstance(verb.handler, partial)]
    assert len(bodies) > len(topic.VERBS) / 2
    for body in bodies:
        module, _, function = body.partition(":")
        assert callable(getattr(import_module(module), function))
