"""Starts, watches and stops the processes of a local cluster: controllers and brokers on this
machine."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from ottla.cli.cluster.cluster_file import ClusterPlan, ListedNode, properties_of
from ottla.cli.cluster.forked_nodes import StartedNode, spawn_node
from ottla.cli.cluster.server.node_supervisor import NodeSupervisor, SupervisedNode
from ottla.node.local.forked_process_driver import ForkedProcess

READY_TIMEOUT_S = 60.0

BROKERS_STOP_S = 20.0
"""Maximum seconds that the brokers of a local cluster may take to stop before they are killed. A
shorter time would not suffice for a controlled shutdown to transfer all leaderships."""
CONTROLLERS_STOP_S = 10.0


class LocalCluster:
    """The running processes of one local cluster's plan. The constructor's argument `start` is a
    function that is called with the role and the settings file of each node."""

    def __init__(
        self,
        plan: ClusterPlan,
        *,
        restarts: bool = False,
        start: Callable[[str, Path], StartedNode] = spawn_node,
    ) -> None:
        self._plan = plan
        self._start = start
        listed = [("controller", node) for node in plan.controllers]
        listed += [("broker", node) for node in plan.brokers]
        nodes = {f"{role} {node.id}": (role, node) for role, node in listed}
        self._listed = {name: node for name, (_, node) in nodes.items()}
        self._nodes = [self._supervised(name, role, node) for name, (role, node) in nodes.items()]
        self._supervisor = NodeSupervisor(
            self._nodes,
            command="ottla up",
            restarts=restarts,
            on_started=self._note_process,
        )

    def _supervised(self, name: str, role: str, node: ListedNode) -> SupervisedNode:
        properties = properties_of(role, node)
        return SupervisedNode(
            name=name,
            command=f"ottla {role} {properties}",
            start=partial(self._start, role, properties),
        )

    def _note_process(self, node: SupervisedNode) -> None:
        """Write the process id of a started node into cluster.json, the plan's file."""
        assert node.process is not None
        self._listed[node.name].pid = node.process.pid
        self._plan.write()

    def start(self) -> int:
        """Start all nodes of the local cluster, and wait until all of them serve requests. Returns
        an exit code: 0 if all serve requests, 1 if a node refused to start, or 2 if a node is
        unhealthy.

        The cluster is ready when all of its brokers serve requests, because a broker serves
        requests only after the quorum has unfenced it.
        """
        return self._supervisor.start(READY_TIMEOUT_S)

    def watch(self, look_s: float, look: Callable[[], None], rest: Callable[[], None]) -> int:
        """Report each node that ends, and restart it if the user requested restarts. Calls `rest`
        while nothing is to be done, and otherwise `look` at least every `look_s` seconds. Returns
        an exit code when all nodes have ended: 0 if all of them were asked to stop."""
        return self._supervisor.watch(look_s, look, rest)

    @property
    def has_events(self) -> bool:
        """True if a node has ended, and `watch` has not noticed it yet."""
        return self._supervisor.has_events

    def running(self) -> dict[str, list[float]]:
        """Return the state of each running node for `adopt`, by the name of the node."""
        return {
            node.name: [node.process.pid, node.started_at, node.pause_s]
            for node in self._nodes
            if node.process is not None
        }

    def adopt(self, running: Mapping[str, Sequence[float]]) -> None:
        """Supervise running nodes, which this process started before it executed another program.
        `running` is a result of the method of the same name."""
        for node in self._nodes:
            if node.name in running:
                pid, node.started_at, node.pause_s = running[node.name]
                node.process = ForkedProcess(int(pid))
                self._supervisor.adopt(node)

    def stop(self) -> None:
        """Stop the running nodes of the local cluster: brokers first, since their controlled
        shutdown needs the controllers."""
        self._supervisor.stop("broker", BROKERS_STOP_S)
        self._supervisor.stop("controller", CONTROLLERS_STOP_S)
