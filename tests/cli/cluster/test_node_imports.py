"""What nodes import: each module costs every start, and memory for as long as the node runs."""

import subprocess
import sys

import pytest

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
    "ottla.model.settings.client_security",
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
"""What a plain node may use one day: it is imported with its first use."""


SMALL_ONES = 60
"""Number of modules that every node may import for itself: each costs less than a line here."""


def imported(script: str) -> set[str]:
    """Return the modules that are there after a script in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, {script}; print('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("modules", "other"),
    [
        ("ottla.cli.cluster.broker, ottla.broker.opening_driver", "ottla.controller"),
        ("ottla.cli.cluster.controller, ottla.controller.main_driver", "ottla.broker"),
    ],
    ids=["broker", "controller"],
)
def test_a_node_imports_only_what_every_node_needs(modules: str, other: str) -> None:
    script = f"import sys, ottla.cli.main, {modules}; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) & {*RARE, other} == set()
