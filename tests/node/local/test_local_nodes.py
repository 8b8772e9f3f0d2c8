"""Nodes as processes: their parent is notified when they serve, and can end all of them."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.node.local import local_nodes_driver
from ottla.node.local.local_nodes_driver import (
    LocalNode,
    NotReadyError,
    end_nodes,
    free_ports,
    listening_ports,
    start_node,
    wait_until_ready,
)

PATIENCE_S = 60.0
SERVES = "import os, signal; os.write(int(os.environ['OTTLA_READY_FD']), b'+'); signal.pause()"
IS_SILENT = "import signal; signal.pause()"
IS_DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SERVES}"
HEARS_OF_PARENT = (
    "import os, signal; from ottla.node.process_driver import die_with_parent; "
    "both = {signal.SIGTERM, signal.SIGRTMIN}; signal.pthread_sigmask(signal.SIG_BLOCK, both); "
    "die_with_parent(); os.write(int(os.environ['OTTLA_READY_FD']), b'+'); "
    "os._exit(7 if signal.sigwait(both) == signal.SIGRTMIN else 1)"
)
"""Program that exits with 7 on request, and with 1 by SIGTERM, which arrives first, when its parent
has died. It waits for blocked signals: one that arrived just before a pause would not end that."""

Start = Callable[[str, str], LocalNode]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A function that starts a script in the place of a node: (name, script)."""
    started: list[LocalNode] = []

    def start(name: str, script: str) -> LocalNode:
        prefix = (sys.executable, "-c", script)
        started.append(start_node("broker", tmp_path / f"{name}.properties", prefix=prefix))
        return started[-1]

    yield start
    for node in started:
        node.process.kill()
        node.process.wait()


def test_nodes_that_serve_are_waited_for(start: Start) -> None:
    nodes = [start("broker-1", SERVES), start("broker-2", SERVES)]
    wait_until_ready(nodes, PATIENCE_S)
    assert [node.process.poll() for node in nodes] == [None, None]


def test_a_node_that_ends_before_it_serves_is_named(start: Start) -> None:
    ended = start("broker-2", "raise SystemExit(1)")
    with pytest.raises(NotReadyError, match="broker-2 ended") as caught:
        wait_until_ready([start("broker-1", IS_SILENT), ended], PATIENCE_S)
    assert caught.value.node is ended


def test_nodes_that_take_too_long_are_named(start: Start) -> None:
    nodes = [start("broker-1", IS_SILENT), start("broker-2", IS_SILENT)]
    with pytest.raises(NotReadyError, match="broker-1, broker-2 not ready in 0 s"):
        wait_until_ready(nodes, 0.0)


def test_a_node_gets_its_role_file_options_and_parent(tmp_path: Path) -> None:
    script = "import os, sys; print(*sys.argv[5:], os.environ['OTTLA_PARENT_PID'])"
    path, said = tmp_path / "node.properties", tmp_path / "said"
    with said.open("wb") as output:
        node = start_node(
            "controller",
            path,
            options=("--set=a=b",),
            output=output,
            prefix=(sys.executable, "-c", script),
        )
    assert node.process.wait(PATIENCE_S) == 0
    assert not node.read_readiness()
    assert said.read_text().split() == ["controller", str(path), "--set=a=b", str(os.getpid())]


def test_a_paused_node_ends_and_one_that_ignores_it_is_killed(start: Start) -> None:
    paused, deaf = start("broker-1", SERVES), start("broker-2", IS_DEAF)
    wait_until_ready([paused, deaf], PATIENCE_S)
    paused.send(signal.SIGSTOP)
    end_nodes([paused.process, deaf.process], 1.0)
    assert paused.process.returncode == -signal.SIGTERM
    assert deaf.process.returncode == -signal.SIGKILL


def test_a_node_outlives_the_thread_that_started_it(start: Start) -> None:
    nodes: list[LocalNode] = []

    def start_in_thread() -> None:
        nodes.append(start("broker-1", HEARS_OF_PARENT))
        wait_until_ready(nodes, PATIENCE_S)

    thread = threading.Thread(target=start_in_thread)
    thread.start()
    of_kernel = Path(f"/proc/self/task/{thread.native_id}")
    thread.join()
    while of_kernel.exists():
        time.sleep(0)
    (node,) = nodes
    node.send(signal.SIGRTMIN)
    assert node.process.wait(PATIENCE_S) == 7


def test_free_ports_are_all_different() -> None:
    assert len(set(free_ports(20))) == 20


def test_free_ports_are_none_of_the_ports_of_outgoing_connections() -> None:
    choices = listening_ports()
    assert choices
    assert all(port in choices for port in free_ports(50))


@pytest.mark.parametrize(
    ("given", "choices"),
    [
        ("32768\t60999\n", range(10_240, 32_768)),
        ("11240 60999", range(10_240, 11_240)),
        ("11239 60999", range(0)),
        ("1024 65535", range(0)),
    ],
)
def test_ports_below_the_kernels_are_taken_where_there_are_enough(
    given: str, choices: range
) -> None:
    assert listening_ports(given) == choices


def test_a_port_in_use_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = int(taken.getsockname()[1])
        monkeypatch.setattr(local_nodes_driver, "listening_ports", lambda: range(port, port + 1))
        assert free_ports(1) != [port]
