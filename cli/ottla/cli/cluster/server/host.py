"""Runs the brokers of a host as processes of one command, which systemd runs as one unit.

If a broker dies, only this broker is restarted. SIGTERM stops all brokers at once, each with a
controlled shutdown. Replicas of a partition are on different hosts, so leaderships move to other
hosts. If the number of brokers was reduced, a surplus broker runs for as long as it has replicas,
and accepts no new ones.
"""

import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ottla.cli.cluster.forked_nodes import fork_node, preload
from ottla.cli.cluster.node_process import WARNED_VARIABLE, report_ready
from ottla.cli.cluster.server.host_brokers import HostBroker
from ottla.cli.cluster.server.node_supervisor import NodeSupervisor, SupervisedNode
from ottla.cli.terminal import note
from ottla.node.local.interrupts_driver import lasting_interrupts

STOP_S = 40.0
"""Maximum seconds that the brokers of a host may take to stop before they are killed. The systemd
unit waits for 45 s."""
LOOK_S = 2.0
"""Seconds between two checks of the replica count of a surplus broker (a broker beyond the
configured number)."""
NOTIFY_VARIABLE = "NOTIFY_SOCKET"


class HostSupervisor:
    """Supervisor of the broker processes that run on one host."""

    def __init__(
        self, path: Path, brokers: Sequence[HostBroker], given: Sequence[str] = ()
    ) -> None:
        """Create the supervisor of a host's brokers, without starting them. `given` contains
        settings KEY=VALUE from the command line."""
        self._given = [f"--set={text}" for text in given]
        self._brokers = {broker.name: broker for broker in brokers}
        self._stopping: set[str] = set()
        self._nodes = {broker.name: self._supervised(path, broker) for broker in brokers}
        self._supervisor = NodeSupervisor(
            list(self._nodes.values()), command="ottla server", restarts=True
        )

    def _supervised(self, path: Path, broker: HostBroker) -> SupervisedNode:
        count, options = len(self._brokers), [*self._given, *broker.options]
        return SupervisedNode(
            name=broker.name,
            command=" ".join(["ottla broker", str(path), *options]),
            start=partial(fork_node, "broker", path, count=count, options=options),
        )

    def run(self) -> int:
        """Run the host's brokers until SIGTERM or SIGINT, or until all have been asked to stop.
        Returns the exit code."""
        # Only this process reports to systemd: the unit is ready once every broker is.
        notify = os.environ.pop(NOTIFY_VARIABLE, None)
        os.environ[WARNED_VARIABLE] = "yes"
        preload("broker")
        code = 0
        try:
            with lasting_interrupts() as check:
                code = self._supervisor.start()
                check()
                if code == 0:
                    if notify is not None:
                        os.environ[NOTIFY_VARIABLE] = notify
                    report_ready()
                    code = self._supervisor.watch(LOOK_S, partial(self._look, check))
        except KeyboardInterrupt:
            note("stopping …")
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            self._supervisor.stop("broker", STOP_S)
        return code

    def _look(self, check: Callable[[], None]) -> None:
        """Stop surplus brokers (beyond the configured number) whose replicas have all been moved
        away."""
        check()
        for name, broker in self._brokers.items():
            process = self._nodes[name].process
            if not broker.is_surplus or process is None or name in self._stopping:
                continue
            # It accepts no new replicas, so the number only decreases.
            if not broker.replica_count:
                self._stopping.add(name)
                note(
                    f"{name} has no replica left and is stopped; remove it from the cluster with"
                    f" 'ottla broker unregister {broker.id}'"
                )
                process.terminate()
