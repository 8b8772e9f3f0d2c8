"""No way to start nodes shows a secret to other users: not in argv, environment or open files."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.cluster.cluster_file import is_node
from ottla.cli.process_title import _without_secret
from ottla.cli.secret_files import SECRET_ENDINGS
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.client import ConsumerConfig, ProducerConfig
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.declare import SettingKind, definitions
from ottla.model.settings.dynamic import broker_definitions
from ottla.node.local.local_nodes_driver import free_ports
from ottla.node.properties import parse_properties
from tests.secrets_in_sight import open_to_others, secrets_in_sight

SECRET = "k7-top-secret-of-the-tests"
SETTINGS = (
    ("--set", f"delegation.token.secret.key={SECRET}"),
    (f"--set=telemetry.otlp.headers=authorization={SECRET}",),
)
OPTIONS = [word for setting in SETTINGS for word in setting]
OTTLA = [sys.executable, "-m", "ottla.cli"]
PATIENCE_S = 60.0


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A cluster's directory, with the usual umask; its processes are ended after the test."""
    before = os.umask(0o022)
    found = tmp_path / "c"
    try:
        yield found
    finally:
        os.umask(before)
        subprocess.run([*OTTLA, "down", "--dir", str(found)], capture_output=True, check=False)


def up(directory: Path, *options: str) -> None:
    command = [*OTTLA, "up", "--detach", "--dir", str(directory), "--port", "0"]
    subprocess.run([*command, *options, *OPTIONS], check=True, capture_output=True)


def nodes_of(directory: Path) -> list[int]:
    found = json.loads((directory / "cluster.json").read_text())
    return [node["pid"] for role in ("controllers", "brokers") for node in found[role]]


def command_of(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")


@pytest.mark.cluster
@pytest.mark.parametrize("options", [(), ("--secure",), ("--brokers", "2"), ("--restart",)])
def test_a_local_cluster_shows_no_secret(directory: Path, options: tuple[str, ...]) -> None:
    up(directory, *options)
    users = directory / "security" / "users.json"
    secrets = [SECRET]
    if "--secure" in options:
        secrets += json.loads(next((directory / "security").glob("*.json")).read_text()).values()
        assert users.parent.is_dir()
    assert secrets_in_sight(secrets, directory) == []
    assert open_to_others(directory) == []
    # Its nodes are shown as those that are started by hand, and are still known as ours.
    shown = [command_of(pid) for pid in nodes_of(directory)]
    assert {(one[0], one[1]) for one in shown} == {(b"ottla", b"controller"), (b"ottla", b"broker")}
    assert all(parse_properties(Path(one[2].decode()).read_text()) for one in shown)
    assert all(is_node(pid) for pid in nodes_of(directory))
    if "--restart" in options:
        old = nodes_of(directory)
        os.kill(old[1], signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while (pid := nodes_of(directory)[1]) == old[1] or not is_node(pid):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert secrets_in_sight(secrets, directory) == []


@pytest.mark.cluster
def test_nodes_that_are_started_by_hand_show_no_secret(directory: Path) -> None:
    directory.mkdir()
    ports = free_ports(2)
    cluster_id = subprocess.run(
        [*OTTLA, "storage", "random-uuid"], check=True, capture_output=True, text=True
    ).stdout.strip()
    voter = f"101@127.0.0.1:{ports[0]}"
    shared = f"controller.quorum.voters={voter}\n"
    files = {
        "controller": f"process.roles=controller\nnode.id=101\n{shared}"
        f"listeners=CONTROLLER://127.0.0.1:{ports[0]}\nmetadata.log.dir={directory}/m\n",
        "broker": f"process.roles=broker\nnode.id=1\n{shared}"
        f"listeners=PLAINTEXT://127.0.0.1:{ports[1]}\nlog.dirs={directory}/b\n",
    }
    running = []
    try:
        for role, text in files.items():
            path = directory / f"{role}.properties"
            path.write_text(text)
            path.chmod(0o640)
            first = ["--initial-controllers", f"{voter}:{cluster_id}"] if role != "broker" else []
            command = [*OTTLA, "storage", "format", "--config", str(path)]
            subprocess.run([*command, "--cluster-id", cluster_id, *first], check=True)
            read, write = os.pipe()
            running.append(
                subprocess.Popen(
                    [*OTTLA, role, str(path), *OPTIONS],
                    pass_fds=(write,),
                    env={**os.environ, "OTTLA_READY_FD": str(write)},
                )
            )
            os.close(write)
            assert os.read(read, 1) == b"+"
            os.close(read)
        directory.chmod(0o755)
        assert secrets_in_sight([SECRET], directory) == []
        assert open_to_others(directory) == [str(directory)]
        for node, role in zip(running, files, strict=True):
            node_id = 1 if role == "broker" else 101
            name = Path(f"/proc/{node.pid}/comm").read_text()
            assert name == f"{role}-{node_id}\n", "also of nodes that no `ottla up` forked"
            shown = command_of(node.pid)
            assert shown[-4:] == [
                str(directory / f"{role}.properties").encode(),
                b"--set",
                b"delegation.token.secret.key=*",
                b"--set=telemetry.otlp.headers=*",
            ]
    finally:
        for node in reversed(running):
            node.terminate()
            node.wait()


HIDDEN = {
    "ssl.key.password=x": "ssl.key.password=*",
    "--set=ssl.key.password=x=y,z": "--set=ssl.key.password=*",
    "listener.name.sasl.plain.sasl.jaas.config=a b": "listener.name.sasl.plain.sasl.jaas.config=*",
    "SCRAM-SHA-256=[name=al,password=x]": "SCRAM-SHA-256=[name=al,password=*",
    "SCRAM-SHA-256=[password=x,name=al]": "SCRAM-SHA-256=[password=*",
    "ssl.key.password=\udcff": "ssl.key.password=*",
    "ssl.key.password=": "ssl.key.password=",
    "node.id=1": "node.id=1",
    "password": "password",
}


@pytest.mark.parametrize("given", HIDDEN)
def test_secrets_among_arguments_are_hidden(given: str) -> None:
    assert _without_secret(os.fsencode(given)) == HIDDEN[given].encode()


NO_SECRETS = re.compile(r"certificate|truststore|location")


def test_every_setting_that_is_a_password_is_hidden() -> None:
    of_brokers = {**definitions(BrokerConfig), **broker_definitions()}
    of_clients = {**definitions(ProducerConfig), **definitions(ConsumerConfig)}
    known = {**of_brokers, **definitions(ControllerConfig), **of_clients}
    passwords = [key for key, one in known.items() if one.kind is SettingKind.PASSWORD]
    assert len(passwords) > 10
    assert [
        key for key in passwords if not key.endswith(SECRET_ENDINGS) and not NO_SECRETS.search(key)
    ] == []
