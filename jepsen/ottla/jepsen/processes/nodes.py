"""One node of the cluster: a real `ottla` process with its address, its disk and its log.

The harness starts and stops the process. If the process ends in any other way, its end is recorded
as a `Death`. The output of the process goes to a file of limited size. Invariant OneProcess: a node
never has two processes at a time.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ottla.jepsen.processes.node_log import NodeLog
from ottla.node.local.local_nodes_driver import NODE_MODULE, READY, start_node

if TYPE_CHECKING:
    from ottla.jepsen.processes.disks import NodeDisk
    from ottla.jepsen.processes.network import NodeEndpoint

READY_TIMEOUT_S = 60.0
"""Maximum seconds that the startup of a node may take. This is enough for six nodes that recover at
the same time on two cores after a power cut."""
STOP_TIMEOUT_S = 30.0
WORDS_BYTES = 2_000

PLANTED_VARIABLE = "OTTLA_PLANTED_BUG"
PLANTED_MODULE = "ottla.jepsen.processes.node_main"


class NodeRole(StrEnum):
    """Role of a node: broker or controller."""

    CONTROLLER = "controller"
    BROKER = "broker"


class ProcessState(StrEnum):
    """State of a node's process."""

    STOPPED = "stopped"
    """State of a node without a process: it was never started, or the test harness ended it."""
    STARTING = "starting"
    RUNNING = "running"
    """State of a node whose process has reported that it serves requests."""
    PAUSED = "paused"
    DEAD = "dead"
    """State of a node whose process ended by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """An unplanned end of a node's process, which the test harness did not request."""

    node: str
    time_ns: int
    """Wall-clock time in ns at which the end of the process was detected."""
    code: int | None
    """Exit code of the process, or -N if signal N ended it. None if the process did not end
    although a shutdown was requested."""
    was_expected: bool
    """True if an injected fault, such as a full disk, may have caused the end of the process."""
    last_words: str


class NodeError(Exception):
    """Raised if a node did not start or stop as requested."""


class ProcessNode:
    """One node of a cluster, which is a real process. Owns the process and its log."""

    def __init__(
        self,
        name: str,
        *,
        role: NodeRole,
        id_: int,
        endpoint: "NodeEndpoint",
        disk: "NodeDisk",
        properties: Path,
        log: Path,
        environment: Mapping[str, str],
        nursery: trio.Nursery,
    ) -> None:
        self.name = name
        self.role = role
        self.id = id_
        self.endpoint = endpoint
        self.disk = disk
        self.properties = properties
        self.state = ProcessState.STOPPED
        self.held_by: str | None = None
        """Name of the nemesis (source of faults) that has reserved the node, or None. Other nemeses
        do not choose this node."""
        self.may_die = False
        """True if an injected fault may end the node's process, so that an unplanned end is not an
        error."""
        self.deaths: list[Death] = []
        self.starts = 0
        self.log = NodeLog(log)
        self._environment = environment
        self._nursery = nursery
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ending = False
        self._ready = trio.Event()
        self._ended = trio.Event()
        self._ended.set()
        self._awaiting_death = trio.lowlevel.ParkingLot()

    @property
    def address(self) -> str:
        """Address (host:port) at which clients and other nodes reach this node."""
        return self.endpoint.advertised

    @property
    def pid(self) -> int | None:
        """Process id of the node, or None if it has no process."""
        return None if self._process is None else self._process.pid

    @property
    def is_up(self) -> bool:
        """True if the node has a process that serves requests or is starting."""
        return self.state in (ProcessState.RUNNING, ProcessState.STARTING)

    def start(self) -> None:
        """Start the node's process without waiting; `wait_ready` waits until it serves requests."""
        assert self._process is None, f"{self.name} runs already"
        output_reader, output_writer = os.pipe()
        try:
            started = start_node(
                self.role,
                self.properties,
                output=output_writer,
                environment=self._environment,
                prefix=self.endpoint.command_prefix,
                module=PLANTED_MODULE if PLANTED_VARIABLE in self._environment else NODE_MODULE,
            )
        finally:
            os.close(output_writer)
        self.starts += 1
        self._process = started.process
        self._is_ending = False
        self._ready, self._ended = trio.Event(), trio.Event()
        self.state = ProcessState.STARTING
        self._nursery.start_soon(
            self._look_after, started.process, started.ready_reader, output_reader
        )

    async def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until the node's process serves requests. Raises NodeError if it ends first or takes
        longer than `timeout_s`."""
        with trio.move_on_after(timeout_s):
            await self._ready.wait()
            if self.state is ProcessState.RUNNING or self.state is ProcessState.PAUSED:
                return
            raise NodeError(f"{self.name} ended at its start: {self.log.tail(WORDS_BYTES)}")
        raise NodeError(
            f"{self.name} does not serve after {timeout_s:g} s: {self.log.tail(WORDS_BYTES)}"
        )

    async def wait_death(self) -> None:
        """Wait until the node's process dies by itself."""
        while self.state is not ProcessState.DEAD:
            await self._awaiting_death.park()

    async def kill(self) -> None:
        """Kill the node's process and wait for its end. Does nothing if there is no process."""
        await self._end(signal.SIGKILL, STOP_TIMEOUT_S)

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Request a controlled shutdown of the node and wait for it. If the process hangs, kill it
        and raise NodeError."""
        if self.state is ProcessState.PAUSED:
            self.resume()
        await self._end(signal.SIGTERM, timeout_s)

    def pause(self) -> None:
        """Pause the node's process (SIGSTOP). The kernel still accepts data for it."""
        assert self.is_up
        self._signal(signal.SIGSTOP)
        self.state = ProcessState.PAUSED

    def resume(self) -> None:
        """Resume the node's process. Does nothing if it is not paused."""
        if self.state is ProcessState.PAUSED:
            self._signal(signal.SIGCONT)
            self.state = ProcessState.RUNNING if self._ready.is_set() else ProcessState.STARTING

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        # No other code waits for the process, so its id cannot be reused before this.
        if self._process.returncode is None:
            os.kill(self._process.pid, number)

    async def _end(self, number: signal.Signals, timeout_s: float) -> None:
        if self._process is None:
            return
        self._is_ending = True
        self._signal(number)
        with trio.move_on_after(timeout_s):
            await self._ended.wait()
            return
        with trio.CancelScope(shield=True):
            self._signal(signal.SIGKILL)
            await self._ended.wait()
        if number is not signal.SIGKILL:
            self._note_death(None)
        raise NodeError(f"{self.name} did not stop within {timeout_s:g} s and was killed")

    async def _look_after(
        self, process: subprocess.Popen[bytes], ready_reader: int, output_reader: int
    ) -> None:
        """Read the output of the node's process, and wait until it ends. Records the end if the
        harness did not request it."""
        with trio.CancelScope(shield=True):
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._read_readiness, ready_reader)
                    nursery.start_soon(self.log.copy, output_reader)
                    code = await _exit_code(process)
                    # A child of the node could still keep the pipes open.
                    nursery.cancel_scope.deadline = trio.current_time() + 1
            finally:
                process.kill()
                process.wait()
            self._process = None
            is_ordered = self._is_ending
            self.state = ProcessState.STOPPED if is_ordered else ProcessState.DEAD
            if not is_ordered or code not in (0, -signal.SIGKILL, -signal.SIGTERM):
                self._note_death(code)
            self._ready.set()
            self._ended.set()
            if self.state is ProcessState.DEAD:
                self._awaiting_death.unpark_all()

    async def _read_readiness(self, reader: int) -> None:
        async with trio.lowlevel.FdStream(reader) as stream:
            if await stream.receive_some(1) == READY:
                if self.state is ProcessState.STARTING:
                    self.state = ProcessState.RUNNING
                self._ready.set()

    def _note_death(self, code: int | None) -> None:
        self.deaths.append(
            Death(
                node=self.name,
                time_ns=time.time_ns(),
                code=code,
                was_expected=self.may_die,
                last_words=self.log.tail(WORDS_BYTES),
            )
        )


async def _exit_code(process: subprocess.Popen[bytes]) -> int:
    descriptor = os.pidfd_open(process.pid)
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)
    return process.wait()
