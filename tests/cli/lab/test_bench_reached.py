"""A benchmark of an unreachable cluster fails at once with that reason."""

import pytest

from ottla.bench.clusters import MEASUREMENTS
from ottla.cli.lab.bench import BENCHES
from ottla.cli.main import run
from ottla.node.local.local_nodes_driver import free_port


@pytest.mark.parametrize(
    "what",
    [
        name
        for name, bench in BENCHES.items()
        if "bootstrap" in bench.options.split() and name not in MEASUREMENTS
    ],
)
def test_a_closed_port_is_one_sentence(what: str, capfd: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert run(["bench", what, "--bootstrap-server", f"127.0.0.1:{port}"]) != 0
    said = capfd.readouterr()
    assert said.err.count("\n") == 1
    assert f"no broker is reached at 127.0.0.1:{port} (Connection refused)" in said.err
