"""`ottla down`: stop the cluster of a directory."""

import argparse
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from ottla.cli.cluster.cluster_file import is_alive, is_node
from ottla.cli.common import CLUSTER_FILE, DIRECTORY_DEFAULT, counted, read_cluster_file
from ottla.cli.options import Declared, option
from ottla.cli.terminal import say
from ottla.model.errors import ConfigError

STOP_TIMEOUT_S = 30.0
STARTER_TIMEOUT_S = 10.0
"""Maximum seconds that 'ottla down' waits until the process of 'ottla up' has noticed that its
nodes have ended."""


OPTIONS: tuple[Declared, ...] = (
    option("--dir DIR", "the directory of 'ottla up'", default=DIRECTORY_DEFAULT),
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla down`: ask the brokers, then the controllers, to shut down. Nodes that do not stop in
    time are killed. Returns the exit code."""
    path = Path(arguments.dir) / CLUSTER_FILE
    if not path.exists():
        raise ConfigError("--dir", f"{path} is not there, so no cluster was started from it")
    cluster = read_cluster_file(path)
    stopped = 0
    for role in ("brokers", "controllers"):
        pids = [node["pid"] for node in cluster[role] if is_node(node["pid"])]
        for pid in pids:
            _send_signals(pid, signal.SIGTERM, signal.SIGCONT)  # a paused process ignores SIGTERM
        stopped += len(pids)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while any(map(is_alive, pids)) and time.monotonic() < deadline:
            time.sleep(0.02)
        for pid in filter(is_alive, pids):
            _send_signals(pid, signal.SIGKILL)
    _end_starter(cluster.get("pid"))
    say(f"stopped {counted(stopped, 'node')}" if stopped else "nothing was running")
    return 0


def _send_signals(pid: int, *numbers: signal.Signals) -> None:
    """Send signals that end a process of the local cluster. Does nothing if the process has
    ended."""
    with suppress(ProcessLookupError):
        for number in numbers:
            os.kill(pid, number)


def _end_starter(pid: object) -> None:
    """Wait for the end of the 'ottla up' process that started the cluster's nodes, which ends after
    the nodes. Sends SIGTERM if it continues to run."""
    if not isinstance(pid, int) or not is_node(pid):
        return
    for asks in (False, True):
        if asks and is_node(pid):
            _send_signals(pid, signal.SIGTERM)
        deadline = time.monotonic() + STARTER_TIMEOUT_S
        while is_alive(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
