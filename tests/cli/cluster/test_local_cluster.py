"""`ottla up` as an operator uses it: real processes, its output, and its end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import run

pytestmark = pytest.mark.cluster

PATIENCE_S = 60.0


def test_three_and_three_stop_and_come_back(up: Callable[..., Any]) -> None:
    first = up("--controllers=3", "--brokers=3", "--port=0")
    where = ["--dir", str(first.directory)]
    assert run(["topic", "create", "kept", "--partitions=6", "--replication-factor=1", *where]) == 0
    addresses = (first.directory / "broker-3.properties").read_text()

    first.stop()

    first.path.unlink()
    second = up()
    assert (second.directory / "broker-3.properties").read_text() == addresses
    assert run(["topic", "describe", "kept", *where]) == 0
    second.stop()


def test_a_node_that_dies_is_named_with_how_to_start_it_again(up: Callable[..., Any]) -> None:
    one = up("--port=0")

    os.kill(one.pid("broker"), signal.SIGKILL)

    path = one.directory / "broker-1.properties"
    one.said(f"broker 1 was ended by signal 9; start it again with: ottla broker {path}")


def test_a_node_that_dies_is_started_again_when_that_was_asked(
    up: Callable[..., Any], tmp_path: Path
) -> None:
    # Files of the user's current directory must not replace modules of the nodes.
    for name in ("json.py", "trio.py"):
        (tmp_path / name).write_text("raise ImportError('not a module of Ottla')")
    one = up("--port=0", "--restart", "--set", "broker.session.timeout.ms=3000")
    first = one.pid("broker")
    wait_until_resting(one.process.pid)

    os.kill(first, signal.SIGKILL)

    one.said("broker 1 was ended by signal 9; it is started again in 1 s")
    one.said("broker 1 serves again")
    assert one.pid("broker") != first
    wait_until_resting(one.process.pid)


def test_nodes_are_forked_and_named_and_end_with_their_starter(up: Callable[..., Any]) -> None:
    one = up("--port=0")
    pids = [one.pid("controller"), one.pid("broker")]
    names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids]
    assert names == ["controller-101", "broker-1"]
    assert [os.getsid(pid) for pid in pids] == pids

    one.process.kill()

    deadline = time.monotonic() + PATIENCE_S
    while any(map(is_alive, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_what_keeps_a_node_from_starting_is_said(
    tmp_path: Path,
) -> None:
    options = [f"--dir={tmp_path}", "--port=0", "--controllers=2", "--brokers=2"]
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli", "up", *options, "--set=log.retention.ms=soon"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert "log.retention.ms: is 'soon'" in done.stderr
    assert "ended before it was ready; its reason is above" in done.stderr


def is_resting(pid: int) -> bool:
    return b"resting_driver" in Path(f"/proc/{pid}/cmdline").read_bytes()


def wait_until_resting(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_resting(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
