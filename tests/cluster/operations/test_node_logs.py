"""Log file of a real node, also when it ends in a hurry."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

DEADLINE_S = 60


def events_of(path: Path) -> list[str]:
    """Return the events of the lines of a file of log.format=json."""
    if not path.exists():
        return []
    return [json.loads(line)["event"] for line in path.read_text().splitlines()]


def wait_for(path: Path, event: str) -> None:
    until = time.monotonic() + DEADLINE_S
    while event not in events_of(path):
        assert time.monotonic() < until, events_of(path)
        time.sleep(0.05)


def test_a_broker_that_looks_for_its_controllers_stops_when_asked(tmp_path: Path) -> None:
    file = tmp_path / "broker-1.log"
    settings = tmp_path / "broker.properties"
    settings.write_text(
        f"node.id=1\ncontroller.quorum.voters=101@localhost:1\nlog.dirs={tmp_path}/data\n"
        f"listeners=PLAINTEXT://localhost:0\nlog.format=json\nlog.file={file}\n"
        "initial.broker.registration.timeout.ms=3600000\n"
    )
    command = [sys.executable, "-m", "ottla.cli", "broker", str(settings)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as node:
        wait_for(file, "node.started")
        wait_for(file, "quorum.unreachable")
        node.send_signal(signal.SIGTERM)
        assert node.wait(DEADLINE_S) == 0
    assert events_of(file)[-1] == "node.stopped"


def test_a_second_signal_loses_no_line(tmp_path: Path) -> None:
    file = tmp_path / "broker-1.log"
    settings = tmp_path / "broker.properties"
    settings.write_text(
        f"node.id=1\ncontroller.quorum.voters=101@localhost:1\nlog.dirs={tmp_path}/data\n"
        f"listeners=PLAINTEXT://localhost:0\nlog.format=json\nlog.file={file}\n"
    )
    command = [sys.executable, "-m", "ottla.cli", "broker", str(settings)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as node:
        # Later than that it started: until it hears signals, one ends it without a word.
        wait_for(file, "quorum.unreachable")
        node.send_signal(signal.SIGTERM)
        wait_for(file, "node.stopping")
        node.send_signal(signal.SIGINT)
        assert node.wait(DEADLINE_S) in (128 + signal.SIGINT, -signal.SIGINT, 0)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["event"] for line in lines][:1] == ["node.started"]
    assert {line["node"] for line in lines} == {"broker 1"}
    assert lines[0]["fields"]["roles"] == ["broker"]
