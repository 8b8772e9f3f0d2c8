"""Imports of nodes: each module costs every start, and memory for as long as the node runs."""

import subprocess
import sys

import pytest

from ottla.cli.cluster.forked_nodes import OF_ROLE

RARE = {
    "cramjam",
    "cryptography",
    "email",
    "http",
    "importlib.metadata",
    "lz4",
    "multiprocessing",
    "numpy",
    "opentelemetry.sdk",
    "opentelemetry.trace",
    "ottla.bench",
    "ottla.cli.profiles",
    "ottla.client.admin",
    "ottla.client.admin_parts",
    "ottla.client.consumer",
    "ottla.client.groups",
    "ottla.client.network.bearer_tokens",
    "ottla.client.network.web_fetch",
    "ottla.client.produce",
    "ottla.client.producer",
    "ottla.client.transactions",
    "ottla.jepsen",
    "ottla.model.settings.client",
    "ottla.model.settings.security.client_security",
    "ottla.pipeline",
    "ottla.storage.cleaner.clean_driver",
    "ottla.storage.cleaner.in_place_driver",
    "ottla.wire.generator",
    "re2",
    "rich",
    "tomllib",
    "unittest",
    "urllib.request",
    "zstandard",
}
"""Modules that a plain node may use one day: they are imported with their first use."""

SMALL_ONES = 60
"""Number of modules that every node may import for itself: each costs less than a line here."""


def imported(script: str) -> set[str]:
    """Return the modules that are there after a script in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, {script}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(("role", "other"), [("broker", "controller"), ("controller", "broker")])
def test_a_node_imports_only_what_every_node_needs(role: str, other: str) -> None:
    found = imported(f"ottla.cli.main, {', '.join(OF_ROLE[role])}")
    assert found & {*RARE, f"ottla.{other}"} == set()


def test_what_every_node_imports_is_there_before_nodes_are_forked() -> None:
    up = "ottla.cli.main, ottla.cli.cluster.up"
    before = imported(f"{up}; ottla.cli.cluster.up.preload()")
    controller, broker = (
        imported(f"{up}, {', '.join(modules)}") - before for modules in OF_ROLE.values()
    )
    assert len(controller & broker) < SMALL_ONES


@pytest.mark.parametrize(("role", "other"), [("broker", "controller"), ("controller", "broker")])
def test_several_nodes_of_a_role_have_its_modules_imported_once(role: str, other: str) -> None:
    found = imported(f"ottla.cli.cluster.up; ottla.cli.cluster.up.preload({role!r})")
    assert set(OF_ROLE[role]) <= found
    assert found.isdisjoint(OF_ROLE[other])
