"""A host with several brokers: one command, the end of one process, more and fewer brokers."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from ottla.node.local.local_nodes_driver import free_port, free_ports
from tests.cluster.operations.server_nodes import READY_S, Nodes, received, send
from tests.stock_files import broker_settings, controller_settings

pytestmark = pytest.mark.cluster

VALUES = [b"%d" % number for number in range(300)]
HOST = "host-1"


def wait_for(is_so: Callable[[], bool], sentence: str) -> None:
    until = time.monotonic() + READY_S
    while not is_so():
        assert time.monotonic() < until, sentence
        time.sleep(0.1)


def brokers_of(nodes: Nodes) -> dict[int, int]:
    """Return the process ids of the host's brokers, by broker id."""
    found = {}
    for line in subprocess.run(
        ["ps", "-o", "pid=,comm=", "--ppid", str(nodes.running[HOST].pid)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.splitlines():
        pid, name = line.split(maxsplit=1)
        if match := re.fullmatch(r"broker-(\d+)", name.strip()):
            found[int(match[1])] = int(pid)
    return found


def run_ottla(*words: str) -> str:
    """Run a command, and return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli", *words],
        capture_output=True,
        text=True,
        timeout=READY_S,
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout + done.stderr


def test_brokers_of_a_host_are_restarted_alone_added_and_drained(nodes: Nodes) -> None:
    clients, controller = free_port(), free_ports(1)[0]
    nodes.format("controller", controller_settings(nodes.directory / "c", controller), "-s")
    settings = broker_settings(nodes.directory / "b", clients, controller) | {"node.id": "1"}
    nodes.write(HOST, {**settings, "ottla.brokers.per.host": "2"})
    nodes.start("controller", HOST)
    bootstrap = f"localhost:{clients}"
    where = ["--bootstrap", bootstrap]
    run_ottla("topic", "create", "records", "--partitions", "6", *where)
    send(bootstrap, VALUES[:100])

    before = brokers_of(nodes)
    assert before.keys() == {100, 101}
    os.kill(before[101], signal.SIGKILL)
    wait_for(lambda: "broker 101 serves again" in nodes.log_of(HOST), "it is restarted")
    after = brokers_of(nodes)
    assert after[100] == before[100]
    assert after[101] != before[101]
    send(bootstrap, VALUES[100:200])

    nodes.stop(HOST)
    nodes.start(HOST, options=["--brokers-per-host=3"])
    assert brokers_of(nodes).keys() == {100, 101, 102}
    run_ottla("topic", "reassign", "records", "--brokers", "100,101,102", "--yes", *where)
    send(bootstrap, VALUES[200:])

    nodes.stop(HOST)
    nodes.start(HOST)
    assert "broker 102 is one more than 2 and has" in nodes.log_of(HOST)
    run_ottla("broker", "remove", "102", "--yes", *where)
    assert brokers_of(nodes).keys() == {100, 101}
    assert set(received(bootstrap, len(VALUES))) == set(VALUES)

    nodes.stop(HOST)
    nodes.start(HOST)
    assert brokers_of(nodes).keys() == {100, 101}


def test_a_broker_that_is_refused_ends_the_start_of_its_host(nodes: Nodes) -> None:
    clients, controller = free_port(), free_port()
    nodes.format("controller", controller_settings(nodes.directory / "c", controller), "-s")
    nodes.start("controller")
    settings = broker_settings(nodes.directory / "b", clients, controller) | {"node.id": "1"}
    taken = broker_settings(nodes.directory / "d", clients + 10, controller) | {"node.id": "9"}
    nodes.write("other", taken)
    nodes.start("other")
    path = nodes.write(HOST, settings)

    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli", "server", str(path), "--brokers-per-host", "2"],
        capture_output=True,
        text=True,
        timeout=READY_S,
        check=False,
    )

    assert done.returncode == 1
    assert "cannot be opened" in done.stderr
    assert "ottla server: broker 101 ended before it was ready" in done.stderr


def test_systemd_is_notified_once_all_brokers_serve(nodes: Nodes) -> None:
    clients, controller = free_port(), free_port()
    nodes.format("controller", controller_settings(nodes.directory / "c", controller), "-s")
    settings = broker_settings(nodes.directory / "b", clients, controller) | {"node.id": "1"}
    nodes.write(HOST, settings)
    nodes.start("controller")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(nodes.directory / "notify"))
        listening.settimeout(READY_S)

        nodes.start(
            HOST,
            options=["--brokers-per-host=2"],
            environment={"NOTIFY_SOCKET": str(nodes.directory / "notify")},
        )

        assert listening.recv(100) == b"READY=1"
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.recv(100)
    log = nodes.log_of(HOST)
    assert log.count("keys of Kafka without meaning here") == 1
