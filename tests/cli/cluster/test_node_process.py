"""Readiness notification of a node to the process that started it."""

import argparse
import os
import socket
from pathlib import Path

import pytest

from ottla.cli.cluster.node_process import config_of, report_ready
from ottla.model.errors import ConfigError
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.controller import load_controller_config
from ottla.node.local.local_nodes_driver import READY


def test_systemd_is_notified_in_its_own_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))

        report_ready()

        assert listening.recv(100) == b"READY=1"


def test_an_abstract_address_of_systemd_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"ottla-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        listening.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")

        report_ready()

        assert listening.recv(100) == b"READY=1"


def test_a_started_node_notifies_its_parent_through_the_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    monkeypatch.setenv("OTTLA_READY_FD", str(writer))

    report_ready()

    assert os.read(reader, 10) == READY
    assert os.read(reader, 10) == b""
    os.close(reader)


def config_with(directory: Path, *settings: str) -> None:
    path = directory / "broker.properties"
    path.write_text("node.id=1\ncontroller.quorum.voters=101@localhost:1\n" + "\n".join(settings))
    config_of(argparse.Namespace(config=str(path), set=[]), "broker", load_broker_config)


def test_a_key_that_no_role_knows_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config_with(tmp_path, "our.own.thing=3")
    assert "sets our.own.thing, which Ottla does not know" in capsys.readouterr().err


def test_a_key_of_brokers_is_known_in_a_controllers_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "controller.properties"
    path.write_text(
        "process.roles=controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:1\n"
        "transaction.state.log.min.isr=1\noffsets.topic.replication.factor=1\n"
    )
    config_of(argparse.Namespace(config=str(path), set=[]), "controller", load_controller_config)
    assert "does not know" not in capsys.readouterr().err


def test_keys_of_kafka_without_meaning_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config_with(tmp_path, "num.io.threads=8", "zookeeper.connect=h:1", "num.network.threads=3")
    assert capsys.readouterr().err.splitlines() == [
        "ottla: warning: broker.properties sets 3 keys of Kafka without meaning here, ignored: "
        "num.io.threads, num.network.threads, zookeeper.connect"
    ]


@pytest.mark.parametrize("key", ["queued.max.requests", "replica.socket.receive.buffer.bytes"])
def test_a_key_of_kafka_is_no_slip_of_another(tmp_path: Path, key: str) -> None:
    config_with(tmp_path, f"{key}=1")


def test_a_slip_names_the_key_that_was_meant(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"did you mean default\.replication\.factor\?"):
        config_with(tmp_path, "defualt.replication.factor=3")


def test_a_file_with_other_roles_is_refused_with_its_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="run it with 'ottla server "):
        config_with(tmp_path, "process.roles=broker, controller")
    with pytest.raises(ConfigError, match="run it with 'ottla controller "):
        config_with(tmp_path, "process.roles=controller")


def test_an_advertised_host_that_is_not_found_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_found(host: str, port: int) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", not_found)
    config_with(tmp_path, "advertised.listeners=PLAINTEXT://broker-9.invalid:9092")
    assert capsys.readouterr().err.splitlines() == [
        "ottla: warning: advertised.listeners has PLAINTEXT://broker-9.invalid:9092, and this "
        "machine cannot find that host (Name or service not known); clients may not either"
    ]


def test_one_set_of_settings_may_serve_both_roles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config_with(tmp_path, "leader.imbalance.check.interval.seconds=3")
    assert capsys.readouterr().err == ""


def test_a_setting_without_effect_is_warned_of_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config_with(tmp_path, "log.cleaner.enable=false", "transaction.state.log.load.buffer.size=9")
    assert capsys.readouterr().err.splitlines() == [
        "ottla: warning: broker.properties sets log.cleaner.enable, which has no effect yet: "
        "compacted topics are always compacted",
        "ottla: warning: broker.properties sets transaction.state.log.load.buffer.size, which "
        "has no effect yet: the state is read in parts of 64 KiB, between which other requests are "
        "served",
    ]


def test_a_file_with_a_secret_that_every_user_can_read_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = "metrics.prometheus.bearer.token=0123456789abcdef"
    path = tmp_path / "broker.properties"
    path.touch()
    for mode, is_warned in ((0o640, False), (0o644, True)):
        path.chmod(mode)
        config_with(tmp_path, secret, "metrics.prometheus.port=0")
        shown = capsys.readouterr().err
        assert (f"chmod 600 {path}" in shown) is is_warned
        assert "0123" not in shown
