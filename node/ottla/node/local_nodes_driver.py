"""Nodes as processes of this machine: started, waited for, ended.  All who start nodes use this.

A node is `ottla controller` or `ottla broker` with its file of settings.  It says by a pipe that it
serves (OTTLA_READY_FD) and ends with its parent (OTTLA_PARENT_PID).
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
"""What a node writes to its pipe, once."""

NODE_MODULE = "ottla.cli"

_STARTER = ThreadPoolExecutor(1, "starts-nodes")
"""Starts nodes for threads that may end earlier, as a pool's idle ones do: the kernel ends a node
with the thread that forked it."""

_FIRST_CHOICE = 10_240
"""Above the ports that servers are known by, Kafka's 9092 among them."""

_FEWEST_CHOICES = 1_000
_TRIES = 100

_CHANCE = random.SystemRandom()
"""Of the system: two processes that ask at once rarely come to the same port."""


class NodeProcess(Protocol):
    """A child process: `subprocess.Popen` or `ForkedProcess`."""

    @property
    def pid(self) -> int:
        """Its id."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it ended, and return how.  Raises subprocess.TimeoutExpired."""
        ...

    def send_signal(self, number: int, /) -> None:
        """Send a signal, if it still runs."""
        ...

    def terminate(self) -> None:
        """Ask it to end."""
        ...

    def kill(self) -> None:
        """End it."""
        ...


class NotReadyError(Exception):
    """A node ended before it served, or took too long; `node` is the one that ended, if any did."""

    def __init__(self, sentence: str, node: "LocalNode | None" = None) -> None:
        super().__init__(sentence)
        self.node = node


@dataclass(slots=True)
class LocalNode:
    """A node's process, and the pipe on which it says that it serves; owned by its starter."""

    role: str
    properties: Path
    process: subprocess.Popen[bytes]
    ready_reader: int

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self.process.pid

    def hear_ready(self) -> bool:
        """Read what the pipe has, close it, and return whether the node serves."""
        try:
            return os.read(self.ready_reader, 1) == READY
        finally:
            os.close(self.ready_reader)

    def send(self, number: signal.Signals) -> None:
        """Send a signal and go on."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it by SIGKILL, and wait for that."""
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
    """Start a node and go on; the caller waits for the pipe.

    `output` takes what it prints (None: where ours goes), `environment` replaces ours, `prefix`
    stands before the command, `module` may run something around `ottla`.
    """
    reader, writer = os.pipe()
    try:
        process = _started(
            [*prefix, sys.executable, "-m", module, role, str(properties), *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(writer,),
            env={
                **(os.environ if environment is None else environment),
                READY_VARIABLE: str(writer),
                PARENT_VARIABLE: str(os.getpid()),
            },
            # An interrupt from the terminal reaches the starter alone, which ends nodes in order.
            start_new_session=True,
        )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return LocalNode(role, properties, process, reader)


def _started(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process from a thread that lives as long as this process does."""
    if threading.current_thread() is threading.main_thread():
        return subprocess.Popen(command, **options)
    return _STARTER.submit(lambda: subprocess.Popen(command, **options)).result()


def wait_until_ready(nodes: Iterable[LocalNode], timeout_s: float) -> None:
    """Wait until all nodes serve.  Raises NotReadyError if one ends first or takes too long."""
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
                if not key.data.hear_ready():
                    raise NotReadyError(f"{key.data.properties.stem} ended", key.data)


def end_nodes(processes: Sequence[NodeProcess], patience_s: float) -> None:
    """Ask processes to end, all at once; kill those that still run after `patience_s`."""
    deadline = time.monotonic() + patience_s
    for process in processes:
        process.terminate()
        # One that was paused could not hear us.
        process.send_signal(signal.SIGCONT)
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that can be listened on now."""
    return free_ports(1, host)[0]


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return ports that can be listened on now, no two the same.

    They are none that the kernel gives to outgoing connections: a node that starts, or starts
    again, would sometimes find its port taken by one.
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
    """Return the ports below those of outgoing connections; none where they are too few.

    `given` is the text of net.ipv4.ip_local_port_range (default: this machine's).
    """
    if given is None:
        try:
            given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
        except OSError:
            return range(0)
    choices = range(_FIRST_CHOICE, int(given.split()[0]))
    return choices if len(choices) >= _FEWEST_CHOICES else range(0)


def _bind(probe: socket.socket, host: str, choices: range) -> None:
    """Bind to one of the ports, by chance; where many are taken, to one that the kernel chooses."""
    for _ in range(_TRIES if choices else 0):
        try:
            probe.bind((host, _CHANCE.choice(choices)))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return
    probe.bind((host, 0))
