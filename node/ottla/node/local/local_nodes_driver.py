"""Starts nodes as processes of the local machine, waits until they are ready, and ends them. All
code that starts nodes uses this module.

A node is `ottla controller` or `ottla broker` with a settings file. A node writes to a pipe when it
is ready (OTTLA_READY_FD), and ends when its parent ends (OTTLA_PARENT_PID).
"""

import errno
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import IO, Any, Protocol

READY_VARIABLE = "OTTLA_READY_FD"
PARENT_VARIABLE = "OTTLA_PARENT_PID"

READY = b"+"
"""Byte that a node writes to the pipe of the process that started it, once the node is ready."""

NODE_MODULE = "ottla.cli"

_STARTER = ThreadPoolExecutor(1, "starts-nodes")
"""Permanent thread that starts nodes for other threads. The kernel ends a node when the thread that
forked it ends. Threads of a pool may end earlier than the nodes that they start."""

_FIRST_CHOICE = 10_240
"""Lowest port that is chosen for a local node. The well-known ports of servers, including Kafka's
9092, are lower."""

_FEWEST_CHOICES = 1_000
_TRIES = 100

_CHANCE = random.SystemRandom()
"""Random number generator for choosing ports, seeded by the operating system. Two processes are
therefore unlikely to choose the same port at the same time."""


class NodeProcess(Protocol):
    """Interface of a node's child process, implemented by `subprocess.Popen` and
    `ForkedProcess`."""

    @property
    def pid(self) -> int:
        """Process id of the child process."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the node's process has ended, and return its exit code.

        Raises subprocess.TimeoutExpired after `timeout` seconds.
        """
        ...

    def send_signal(self, number: int, /) -> None:
        """Send a signal to the node's process. Does nothing if the process has ended."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM to the node's process, so that it can shut down cleanly."""
        ...

    def kill(self) -> None:
        """End the node's process at once (SIGKILL)."""
        ...


class NotReadyError(Exception):
    """Raised if a local node ended before it was ready, or was not ready in time. `node` is the
    node that ended, or None."""

    def __init__(self, sentence: str, node: "LocalNode | None" = None) -> None:
        super().__init__(sentence)
        self.node = node


@dataclass(slots=True)
class LocalNode:
    """Process of a node, and the pipe to which the node writes when it is ready. The caller that
    started the node owns the process and the pipe."""

    role: str
    properties: Path
    process: subprocess.Popen[bytes]
    ready_reader: int

    @property
    def pid(self) -> int:
        """Process id of the node's process."""
        return self.process.pid

    def read_readiness(self) -> bool:
        """Read and close the pipe to which the node writes when it is ready. Returns whether the
        node has reported that it is ready."""
        try:
            return os.read(self.ready_reader, 1) == READY
        finally:
            os.close(self.ready_reader)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the node's process, without waiting for the effect."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """End the node's process by SIGKILL, and wait until it has ended."""
        self.process.kill()
        self.process.wait()


def start_node(
    role: str,
    properties: Path,
    *,
    options: Sequence[str] = (),
    output: int | IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
    module: str = NODE_MODULE,
) -> LocalNode:
    """Start a node as a local process, and return it without waiting until it is ready. The caller
    must wait for the node's pipe.

    `output` receives the output of the node (default: the output of this process). `environment`
    replaces the environment of this process. `prefix` is inserted before the command. `module` is
    the Python module to run, which may wrap `ottla`.
    """
    reader, writer = os.pipe()
    try:
        process = _started(
            [*prefix, sys.executable, "-P", "-m", module, role, str(properties), *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(writer,),
            env={
                **(os.environ if environment is None else environment),
                READY_VARIABLE: str(writer),
                PARENT_VARIABLE: str(os.getpid()),
            },
            # Ctrl-C in the terminal then interrupts only this process, which ends the nodes in
            # order.
            start_new_session=True,
        )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return LocalNode(role, properties, process, reader)


def _started(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process from the permanent thread `_STARTER`, and return the process. The kernel ends
    a node when the thread that forked it ends."""
    if threading.current_thread() is threading.main_thread():
        return subprocess.Popen(command, **options)
    return _STARTER.submit(lambda: subprocess.Popen(command, **options)).result()


def wait_until_ready(nodes: Iterable[LocalNode], timeout_s: float) -> None:
    """Wait until all local nodes are ready.

    Raises NotReadyError if a node ends first, or if a node is not ready within `timeout_s` seconds.
    """
    deadline = time.monotonic() + timeout_s
    with DefaultSelector() as selector:
        for node in nodes:
            selector.register(node.ready_reader, EVENT_READ, node)
        while waiting := [key.data for key in selector.get_map().values()]:
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                late = ", ".join(node.properties.stem for node in waiting)
                raise NotReadyError(f"{late} not ready in {timeout_s:g} s")
            for key, _ in ready:
                selector.unregister(key.fd)
                if not key.data.read_readiness():
                    raise NotReadyError(f"{key.data.properties.stem} ended", key.data)


def end_nodes(processes: Sequence[NodeProcess], patience_s: float) -> None:
    """Send SIGTERM to the processes of all nodes, and kill those that are still running after
    `patience_s` seconds."""
    deadline = time.monotonic() + patience_s
    for process in processes:
        process.terminate()
        # A paused process would not handle SIGTERM.
        process.send_signal(signal.SIGCONT)
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port on which no process is listening."""
    return free_ports(1, host)[0]


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return different ports on which no process is listening.

    The result contains no ports that the kernel uses for outgoing connections. Otherwise, an
    outgoing connection would sometimes occupy the port of a node before the node starts or
    restarts.
    """
    choices = listening_ports()
    with ExitStack() as probes:
        found = []
        for _ in range(count):
            probe = probes.enter_context(socket.socket())
            _bind(probe, host, choices)
            found.append(int(probe.getsockname()[1]))
        return found


def listening_ports(given: str | None = None) -> range:
    """Return a range of ports for listeners of local nodes, below the ports that the kernel uses
    for outgoing connections. The range is empty if it would be too small.

    `given` is the kernel's setting net.ipv4.ip_local_port_range as text (default: the setting of
    this machine).
    """
    if given is None:
        try:
            given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
        except OSError:
            return range(0)
    choices = range(_FIRST_CHOICE, int(given.split()[0]))
    return choices if len(choices) >= _FEWEST_CHOICES else range(0)


def _bind(probe: socket.socket, host: str, choices: range) -> None:
    """Bind a socket to a random port in `choices` that is free. If many of these ports are
    occupied, the kernel chooses a port."""
    for _ in range(_TRIES if choices else 0):
        try:
            probe.bind((host, _CHANCE.choice(choices)))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return
    probe.bind((host, 0))
