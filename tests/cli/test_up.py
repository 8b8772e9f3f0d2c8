"""Which ports, roles and settings a local cluster starts with."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.cluster_file import Plan, free_port, make_plan
from ottla.cli.main import run
from ottla.model.errors import ConfigError


def planned(directory: Path, port: int | None) -> Plan:
    plan = make_plan(directory, host="127.0.0.1", port=port, controllers=1, brokers=1)
    plan.write()
    return plan


def test_a_cluster_comes_back_on_the_port_it_had(tmp_path: Path) -> None:
    first = planned(tmp_path, 0)

    assert planned(tmp_path, None).bootstrap == first.bootstrap
    assert planned(tmp_path, 0).bootstrap == first.bootstrap


def test_a_port_that_is_asked_for_moves_a_cluster_that_is_there(tmp_path: Path) -> None:
    first = planned(tmp_path, 0)
    port = free_port("127.0.0.1")

    second = planned(tmp_path, port)

    assert second.bootstrap == f"127.0.0.1:{port}"
    assert second.controllers == first.controllers


@pytest.mark.parametrize("port", ["65536", "-1", "http"])
def test_what_is_no_port_is_a_usage_error(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["up", f"--port={port}", "--ephemeral"]) == 1

    assert "argument --port" in capsys.readouterr().err


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Put back what 'ottla up' does with SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("own_signals")
def test_a_setting_that_is_not_allowed_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = run(["up", "--dir", str(tmp_path), "--port", "0", "--set", "num.partitions=none"])

    assert code == 1
    assert "num.partitions: is 'none'" in capfd.readouterr().err


@pytest.mark.parametrize(("command", "role"), [("broker", "controller"), ("controller", "broker")])
def test_a_file_of_the_other_role_is_refused(
    command: str, role: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned(tmp_path, 0).write_properties()
    (path,) = tmp_path.glob(f"{role}-*.properties")

    assert run([command, str(path)]) == 1

    said = capsys.readouterr().err
    assert said == (
        f"ottla {command}: process.roles: is {role!r}; run it with 'ottla {role} {path}'\n"
    )


def test_a_busy_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} cannot be listened on"):
            planned(tmp_path, port)
