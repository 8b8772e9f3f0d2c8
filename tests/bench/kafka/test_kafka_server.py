"""The start and end of Apache Kafka, played by a script in the place of Java."""

import os
import re
import sys
from pathlib import Path

import pytest

from ottla.bench.kafka import kafka_server
from ottla.bench.kafka.kafka_server import java_program, open_kafka, properties, version_of
from ottla.model.errors import ConfigError, RefusedError

JAVA = f"""#!{sys.executable}
import pathlib, re, signal, socket, sys

from ottla.bench.requests import METADATA_VERSION
from ottla.wire import codec, headers
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse, MetadataResponseBroker

config = pathlib.Path(sys.argv[-1])
print(" ".join(sys.argv[1:]), flush=True)
if "format" in sys.argv:
    FORMAT
    sys.exit()
assert (config.parent / "formatted").exists()
SERVE
port = int(re.search(r"PLAINTEXT://127.0.0.1:([0-9]+)", config.read_text())[1])
server = socket.create_server(("127.0.0.1", port))
for known in (0, 1):
    client, _ = server.accept()
    data = client.recv(65536)[4:]
    at = headers.decode_request_header(data).body_at
    assert codec.decode(MetadataRequest, METADATA_VERSION, data, at).topics == []
    brokers = [MetadataResponseBroker(node_id=1, host="h", port=port)] * known
    header = headers.encode_response_header(3, METADATA_VERSION, 1)
    answer = header + codec.encode(MetadataResponse(brokers=brokers), METADATA_VERSION)
    client.sendall(len(answer).to_bytes(4, "big") + answer)
    client.close()
signal.pause()
"""
FORMATS = '(config.parent / "formatted").touch()'


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    directory = tmp_path / "jars"
    directory.mkdir()
    (directory / "kafka_2.13-4.3.0.jar").touch()
    return directory


def fake_java(tmp_path: Path, *, format_: str = FORMATS, serve: str = "") -> str:
    path = tmp_path / "java"
    path.write_text(JAVA.replace("    FORMAT", f"    {format_}").replace("SERVE", serve))
    path.chmod(0o755)
    return str(path)


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_kafka_is_formatted_started_and_stopped(tmp_path: Path, jars: Path) -> None:
    settings = {"num.partitions": "1"}
    with open_kafka(jars, tmp_path, settings, java=fake_java(tmp_path)) as kafka:
        assert is_running(kafka.pid)
        assert kafka.version == "4.3.0"
        port = kafka.bootstrap.partition(":")[2]
        written = (tmp_path / "server.properties").read_text()
        assert f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n" in written
        assert "num.partitions=1\n" in written

    assert not is_running(kafka.pid)
    formatted, served = (tmp_path / "kafka.out").read_text().splitlines()
    assert f"-cp {jars}/*" in formatted
    assert re.search(r"StorageTool format --cluster-id \S{22} --config", formatted)
    assert "kafka.Kafka" in served


def test_a_kafka_that_ignores_sigterm_is_killed(
    tmp_path: Path, jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_server, "STOP_TIMEOUT_S", 0.2)
    java = fake_java(tmp_path, serve="signal.signal(signal.SIGTERM, signal.SIG_IGN)")

    with open_kafka(jars, tmp_path, {}, java=java) as kafka:
        pass

    assert not is_running(kafka.pid)


def test_an_error_while_it_is_used_stops_it_too(tmp_path: Path, jars: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        open_kafka(jars, tmp_path, {}, java=fake_java(tmp_path)) as kafka,
    ):
        raise KeyboardInterrupt

    assert not is_running(kafka.pid)


@pytest.mark.parametrize(
    ("format_", "serve", "reason"),
    [
        ("sys.exit('no space')", "", "Kafka did not format its directory: no space"),
        (FORMATS, "sys.exit('no port')", "ended with code 1 before it was ready: no port"),
    ],
)
def test_a_failed_start_is_refused_with_its_last_line(
    tmp_path: Path, jars: Path, format_: str, serve: str, reason: str
) -> None:
    java = fake_java(tmp_path, format_=format_, serve=serve)
    with pytest.raises(RefusedError, match=reason), open_kafka(jars, tmp_path, {}, java=java):
        pass


def test_a_kafka_that_never_answers_is_stopped_and_refused(
    tmp_path: Path, jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_server, "READY_TIMEOUT_S", 0.3)
    pids = tmp_path / "pid"
    serve = f"import os; pathlib.Path({str(pids)!r}).write_text(str(os.getpid())); signal.pause()"
    java = fake_java(tmp_path, serve=serve)

    with (
        pytest.raises(RefusedError, match=r"was not ready in 0\.3 s"),
        open_kafka(jars, tmp_path, {}, java=java),
    ):
        pass

    assert not pids.exists() or not is_running(int(pids.read_text()))


def test_a_missing_java_and_a_directory_without_kafka_are_named(tmp_path: Path, jars: Path) -> None:
    with pytest.raises(ConfigError, match="JAVA_HOME"), open_kafka(jars, tmp_path, {}, java="/no"):
        pass
    with pytest.raises(ConfigError, match=r"needs one kafka_2\.13-\*\.jar"):
        version_of(tmp_path)


def test_java_is_that_of_java_home_else_of_the_path() -> None:
    assert java_program({"JAVA_HOME": "/jvm"}) == os.path.join("/jvm", "bin", "java")
    assert java_program({}) == "java"


def test_the_nodes_own_settings_win(tmp_path: Path) -> None:
    text = properties(tmp_path, 1, 2, {"node.id": "7", "num.partitions": "3"})
    assert "node.id=1\n" in text
    assert "num.partitions=3\n" in text
    assert "controller.quorum.voters=1@127.0.0.1:2\n" in text
