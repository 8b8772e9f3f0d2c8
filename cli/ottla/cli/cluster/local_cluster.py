"""The processes of one cluster plan. They are started together, watched, restarted if requested,
and stopped in order.

One loop waits for all events: a pipe of each node reports when the node serves, and a process
descriptor reports when the process ended.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

from ottla.cli.cluster.cluster_file import ClusterPlan, ListedNode, properties_of
from ottla.cli.cluster.forked_nodes import StartedNode, spawn_node
from ottla.cli.terminal import draw, is_watched, note
from ottla.node.local.local_nodes_driver import READY, NodeProcess, end_nodes

READY_TIMEOUT_S = 60.0
LOOK_S = 0.1
"""Interval, in seconds, at which the progress of the cluster's startup is drawn."""

BROKERS_STOP_S = 20.0
"""Longest time, in seconds, that brokers may take to stop before they are killed. With a shorter
time, controlled shutdown could not hand over all leaderships."""
CONTROLLERS_STOP_S = 10.0

RESTART_PAUSE_S = 1.0
RESTART_PAUSE_S_MAX = 30.0
"""Longest pause, in seconds, before a restart.  The pause doubles up to this value, so that a node
that ends at once does not keep the machine busy."""
STEADY_AFTER_S = 60.0
"""Run time of a node, in seconds, after which the pause before its next restart is short again."""

REFUSED = 1
UNHEALTHY = 2


@dataclass(slots=True)
class Member:
    """One node of the cluster, and the process that it owns."""

    role: str
    node: ListedNode
    process: NodeProcess | None = None
    started_at: float = 0.0
    is_ready: bool = False
    pause_s: float = RESTART_PAUSE_S
    restart_at: float | None = None

    @property
    def name(self) -> str:
        """Name of the node in messages."""
        return f"{self.role} {self.node.id}"

    @property
    def command(self) -> str:
        """Command that starts the node by hand."""
        return f"ottla {self.role} {properties_of(self.role, self.node)}"


class LocalCluster:
    """The running processes of one cluster plan. The constructor's function `start` is called with
    the role and the settings file of each node."""

    def __init__(
        self,
        plan: ClusterPlan,
        *,
        restarts: bool = False,
        start: Callable[[str, Path], StartedNode] = spawn_node,
    ) -> None:
        self._plan = plan
        self._start = start
        self._restarts = restarts
        self._members = [Member("controller", node) for node in plan.controllers]
        self._members += [Member("broker", node) for node in plan.brokers]
        self._selector = DefaultSelector()

    def start(self) -> int:
        """Start all nodes and wait until all serve.  Returns 0, 1 if a node was refused, or 2 if a
        node is unhealthy.

        A broker serves once the quorum has unfenced it, so the cluster serves when all its brokers
        do.
        """
        began_at = time.monotonic()
        for member in self._members:
            self._spawn(member)
        self._plan.write()
        while waiting := [member.name for member in self._members if not member.is_ready]:
            waited_s = time.monotonic() - began_at
            _draw(f"starting {', '.join(waiting)} … {waited_s:.1f} s")
            for ended in self._events(LOOK_S):
                _draw("")
                note(f"ottla up: {ended.name} ended before it was ready; its reason is above")
                return REFUSED if _code(ended) == REFUSED else UNHEALTHY
            if waited_s > READY_TIMEOUT_S:
                _draw("")
                note(f"ottla up: {', '.join(waiting)} not ready in {READY_TIMEOUT_S:g} s")
                return UNHEALTHY
        _draw("")
        return 0

    def watch(self) -> int:
        """Report each node that ends, and restart it if that was requested.  Returns when all have
        ended.

        Returns 0 if every node was asked to stop.
        """
        code = 0
        while any(member.process or member.restart_at for member in self._members):
            for ended in self._events(self._pause_s()):
                code = self._on_ended(ended)
            for member in self._members:
                if member.restart_at is not None and member.restart_at <= time.monotonic():
                    member.restart_at = None
                    self._spawn(member)
                    self._plan.write()
        return code

    def stop(self) -> None:
        """Stop the running nodes: brokers first, since their controlled shutdown needs the
        controllers."""
        for role, patience_s in (("broker", BROKERS_STOP_S), ("controller", CONTROLLERS_STOP_S)):
            running = [
                member.process
                for member in self._members
                if member.role == role and member.process is not None
            ]
            end_nodes(running, patience_s)

    # ---- one node

    def _spawn(self, member: Member) -> None:
        started = self._start(member.role, properties_of(member.role, member.node))
        member.process = started.process
        member.node.pid = started.process.pid
        member.started_at = time.monotonic()
        member.is_ready = False
        self._selector.register(started.ready_reader, EVENT_READ, (False, member))
        self._selector.register(os.pidfd_open(member.process.pid), EVENT_READ, (True, member))

    def _events(self, timeout_s: float | None) -> Iterator[Member]:
        """Wait for the next events; yield the nodes that ended."""
        for key, _ in self._selector.select(timeout_s):
            is_end, member = key.data
            if is_end:
                assert member.process is not None
                member.process.wait()
                yield member
            else:
                member.is_ready = os.read(key.fd, 1) == READY
                if member.is_ready and member.pause_s > RESTART_PAUSE_S:
                    note(f"{member.name} serves again")
            self._selector.unregister(key.fd)
            os.close(key.fd)

    def _pause_s(self) -> float | None:
        due = [member.restart_at for member in self._members if member.restart_at is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _on_ended(self, member: Member) -> int:
        """Report that a node ended, and schedule its restart if restarts were requested. Returns 0
        if the node was asked to stop, otherwise UNHEALTHY."""
        code = _code(member)
        member.process = None
        if code == 0:
            note(f"{member.name} was asked to stop, and stopped")
            return 0
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        if not self._restarts:
            note(f"{member.name} {how}; start it again with: {member.command}")
            return UNHEALTHY
        lived_s = time.monotonic() - member.started_at
        pause_s = RESTART_PAUSE_S if lived_s >= STEADY_AFTER_S else member.pause_s
        member.pause_s = min(2 * pause_s, RESTART_PAUSE_S_MAX)
        member.restart_at = time.monotonic() + pause_s
        note(f"{member.name} {how}; it is started again in {pause_s:g} s")
        return UNHEALTHY


def _code(member: Member) -> int:
    assert member.process is not None
    return member.process.wait()


def _draw(line: str) -> None:
    """Redraw the progress line if the output is a terminal."""
    if is_watched():
        draw(line)
