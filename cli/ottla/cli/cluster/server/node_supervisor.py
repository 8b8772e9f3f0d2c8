"""Starts, watches, restarts and stops the processes of several nodes.

One event loop waits for all events: a pipe from each node reports that the node is ready, and a
process descriptor reports the end of the process.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from selectors import EVENT_READ, DefaultSelector

from ottla.cli.cluster.forked_nodes import StartedNode
from ottla.cli.terminal import draw, is_watched, note
from ottla.node.local.local_nodes_driver import READY, NodeProcess, end_nodes

LOOK_S = 0.1
"""Interval, in seconds, at which the progress of the nodes' startup is redrawn."""

RESTART_PAUSE_S = 1.0
RESTART_PAUSE_S_MAX = 30.0
"""Maximum pause, in seconds, before a node is restarted. The pause doubles up to this value, so
that a node that repeatedly ends at once does not keep the machine busy."""
STEADY_AFTER_S = 60.0
"""Run time of a node in seconds after which its next restart counts as the first one, with the
shortest pause."""

REFUSED = 1
UNHEALTHY = 2


@dataclass(slots=True, kw_only=True)
class SupervisedNode:
    """One node that the supervisor starts and watches, and its process."""

    name: str
    """Name of the supervised node in messages, such as `broker 1`."""
    command: str
    """Command with which a user can start this node by hand."""
    start: Callable[[], StartedNode]
    process: NodeProcess | None = None
    started_at: float = 0.0
    is_ready: bool = False
    pause_s: float = RESTART_PAUSE_S
    restart_at: float | None = None


class NodeSupervisor:
    """Supervisor of the running processes of several nodes."""

    def __init__(
        self,
        nodes: Sequence[SupervisedNode],
        *,
        command: str,
        restarts: bool,
        on_started: Callable[[SupervisedNode], None] = lambda node: None,
    ) -> None:
        """Create the supervisor of several nodes, which starts nothing yet. `command` is the name
        of the supervising command in messages. `on_started` is called after each start of a
        process."""
        self._nodes = list(nodes)
        self._command = command
        self._restarts = restarts
        self._on_started = on_started
        self._selector = DefaultSelector()

    def start(self, timeout_s: float | None = None) -> int:
        """Start all nodes and wait until all of them serve requests. Returns an exit code: 0 if all
        nodes serve requests, 1 if a node refused to start, or 2 if a node is unhealthy.

        With `timeout_s`, the start fails if any node ends or is not ready within that many seconds.
        Without `timeout_s`, the start fails only if a node refused to start. Other nodes that end
        are restarted if the supervisor restarts nodes.
        """
        began_at = time.monotonic()
        for node in self._nodes:
            self._spawn(node)
        while waiting := [node.name for node in self._nodes if not node.is_ready]:
            waited_s = time.monotonic() - began_at
            _draw(f"starting {', '.join(waiting)} … {waited_s:.1f} s")
            for ended in self._events(LOOK_S):
                code = _code(ended)
                if timeout_s is None and self._restarts and code != REFUSED:
                    self._on_ended(ended)
                    continue
                _draw("")
                note(
                    f"{self._command}: {ended.name} ended before it was ready; its reason is above"
                )
                return REFUSED if code == REFUSED else UNHEALTHY
            self._restart_due()
            if timeout_s is not None and waited_s > timeout_s:
                _draw("")
                note(f"{self._command}: {', '.join(waiting)} not ready in {timeout_s:g} s")
                return UNHEALTHY
        _draw("")
        return 0

    @property
    def has_events(self) -> bool:
        """True if a node has ended or reported that it is ready, and `watch` has not noticed it
        yet."""
        return bool(self._selector.select(0))

    @property
    def is_settled(self) -> bool:
        """True if every node that runs is ready, and no node is to be restarted."""
        return all(
            node.restart_at is None and (node.process is None or node.is_ready)
            for node in self._nodes
        )

    def adopt(self, node: SupervisedNode) -> None:
        """Supervise the running process of a node, which is a ready child of this process."""
        assert node.process is not None
        node.is_ready = True
        self._selector.register(os.pidfd_open(node.process.pid), EVENT_READ, (True, node))

    def watch(
        self,
        look_s: float | None = None,
        look: Callable[[], None] = lambda: None,
        rest: Callable[[], None] = lambda: None,
    ) -> int:
        """Report each node that ends, and restart it if the supervisor restarts nodes. Calls the
        function `look` about every `look_s` seconds, and the function `rest` before each wait of
        unknown length. Returns when all nodes have ended.

        Returns the exit code 0 if every node was asked to stop.
        """
        code = 0
        while any(node.process or node.restart_at for node in self._nodes):
            if self.is_settled:
                rest()
            for ended in self._events(self._pause_s(look_s)):
                code = self._on_ended(ended)
            self._restart_due()
            look()
        return code

    def stop(self, names: str, patience_s: float) -> None:
        """Stop all running nodes whose name begins with `names`, in parallel. Nodes that still run
        after `patience_s` seconds are killed."""
        running = [
            node.process
            for node in self._nodes
            if node.name.startswith(names) and node.process is not None
        ]
        end_nodes(running, patience_s)

    # ---- one node

    def _spawn(self, node: SupervisedNode) -> None:
        started = node.start()
        node.process = started.process
        node.started_at = time.monotonic()
        node.is_ready = False
        self._selector.register(started.ready_reader, EVENT_READ, (False, node))
        self._selector.register(os.pidfd_open(node.process.pid), EVENT_READ, (True, node))
        self._on_started(node)

    def _restart_due(self) -> None:
        for node in self._nodes:
            if node.restart_at is not None and node.restart_at <= time.monotonic():
                node.restart_at = None
                self._spawn(node)

    def _events(self, timeout_s: float | None) -> Iterator[SupervisedNode]:
        """Wait for the next events of the supervised processes, at most `timeout_s` seconds. Yields
        the nodes that ended."""
        for key, _ in self._selector.select(timeout_s):
            is_end, node = key.data
            if is_end:
                assert node.process is not None
                node.process.wait()
                yield node
            else:
                node.is_ready = os.read(key.fd, 1) == READY
                if node.is_ready and node.pause_s > RESTART_PAUSE_S:
                    note(f"{node.name} serves again")
            self._selector.unregister(key.fd)
            os.close(key.fd)

    def _pause_s(self, look_s: float | None) -> float | None:
        due = [node.restart_at for node in self._nodes if node.restart_at is not None]
        pauses = [max(0.0, min(due) - time.monotonic())] if due else []
        if look_s is not None:
            pauses.append(look_s)
        return min(pauses, default=None)

    def _on_ended(self, node: SupervisedNode) -> int:
        """Report that a node ended, and schedule its restart if restarts were requested. Returns
        the exit code 0 if the node was asked to stop, otherwise UNHEALTHY."""
        code = _code(node)
        node.process = None
        if code == 0:
            note(f"{node.name} was asked to stop, and stopped")
            return 0
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        if not self._restarts:
            note(f"{node.name} {how}; start it again with: {node.command}")
            return UNHEALTHY
        lived_s = time.monotonic() - node.started_at
        pause_s = RESTART_PAUSE_S if lived_s >= STEADY_AFTER_S else node.pause_s
        node.pause_s = min(2 * pause_s, RESTART_PAUSE_S_MAX)
        node.restart_at = time.monotonic() + pause_s
        note(f"{node.name} {how}; it is started again in {pause_s:g} s")
        return UNHEALTHY


def _code(node: SupervisedNode) -> int:
    assert node.process is not None
    return node.process.wait()


def _draw(line: str) -> None:
    """Redraw the progress line of the startup if the output is a terminal."""
    if is_watched():
        draw(line)
