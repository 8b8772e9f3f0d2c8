"""A cluster of real processes, with their network addresses and disks, into which faults are
injected.

`open_cluster` allocates addresses, mounts and processes, and releases all of them at the end of the
block, even after an error. Faults that the machine does not allow are left out and reported
(`abilities`).
"""

import os
import shutil
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ottla.jepsen.clients.login import logged_in
from ottla.jepsen.processes.abilities import Abilities, Ability, probe
from ottla.jepsen.processes.clocks import Clocks, compile_shim
from ottla.jepsen.processes.cluster_claim import RUN_VARIABLE, MachineClaim, claimed
from ottla.jepsen.processes.cluster_files import (
    NOT_SECURE,
    format_controllers,
    settings_of,
    write_properties,
)
from ottla.jepsen.processes.cluster_view import (
    NoAnswerError,
    View,
    ViewedPartition,
    ask_all,
    ask_quorum,
    reason_not_full,
)
from ottla.jepsen.processes.disks import ImageDisk, NodeDisk, PlainDisk
from ottla.jepsen.processes.fault_limits import FaultLimits
from ottla.jepsen.processes.network import Network, NetworkFaults, NodeEndpoint
from ottla.jepsen.processes.network_namespaces import open_namespaces
from ottla.jepsen.processes.network_proxies import open_proxies
from ottla.jepsen.processes.nodes import (
    PLANTED_VARIABLE,
    Death,
    NodeError,
    NodeRole,
    ProcessNode,
    ProcessState,
)
from ottla.jepsen.processes.object_store import ObjectStoreServer, open_object_store
from ottla.model.errors import ConfigError, only_error
from ottla.model.install_hint import install_hint

if TYPE_CHECKING:
    from ottla.jepsen.processes.cluster_security import ClusterSecurity

FIRST_CONTROLLER_ID = 101
FIRST_BROKER_ID = 1
HEALTHY_TIMEOUT_S = 60.0
ASK_AGAIN_S = 0.25
"""Seconds between two requests for the state of a cluster that is not healthy yet."""
RESTART_AFTER_S = 1.0
"""Delay in seconds before the harness restarts a node that died by itself."""
RESTARTS_MAX = 20
"""Maximum number of times that the harness restarts a node that keeps dying. After them the node
stays down, and the run has failed."""


class ProcessCluster:
    """A running cluster of real processes, created by `open_cluster`."""

    def __init__(
        self,
        nodes: Mapping[str, ProcessNode],
        network: Network,
        abilities: Abilities,
        clocks: Clocks,
        *,
        flush: bool,
        security: "ClusterSecurity | None" = None,
        store: ObjectStoreServer | None = None,
    ) -> None:
        self.nodes = nodes
        self.security = security
        """Certificates and users of a secure cluster. None if the cluster is not secure."""
        self.store = store
        """Object store of tiered topics. None if the cluster has no tiered storage."""
        self.network = NetworkFaults(network)
        self.abilities = abilities
        self.clocks = clocks
        self.fault_limits = FaultLimits(self, flush=flush)

    @property
    def brokers(self) -> list[ProcessNode]:
        """All brokers of the cluster."""
        return [node for node in self.nodes.values() if node.role is NodeRole.BROKER]

    @property
    def controllers(self) -> list[ProcessNode]:
        """All controllers of the cluster."""
        return [node for node in self.nodes.values() if node.role is NodeRole.CONTROLLER]

    @property
    def bootstrap(self) -> str:
        """Bootstrap addresses for clients: host:port of every broker."""
        return ",".join(node.address for node in self.brokers)

    @property
    def deaths(self) -> list[Death]:
        """Unplanned ends of the nodes' processes so far, in order."""
        found = [death for node in self.nodes.values() for death in node.deaths]
        return sorted(found, key=lambda death: death.time_ns)

    async def start(self, *names: str, wait: bool = True) -> None:
        """Start the nodes `names` at the same time, or all nodes if `names` is empty. If `wait` is
        True, returns when each of them serves requests."""
        nodes = [self.nodes[name] for name in names or self.nodes]
        for node in nodes:
            node.start()
        if wait:
            for node in nodes:
                await node.wait_ready()

    async def kill(self, *names: str) -> None:
        """Kill the named nodes at the same moment, and wait until their processes have ended."""
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(self.nodes[name].kill)

    async def stop(self, *names: str) -> None:
        """Shut nodes down one after the other, in the order of `names`."""
        for name in names:
            await self.nodes[name].stop()

    async def stop_all(self) -> list[str]:
        """Shut all nodes of the cluster down, brokers first, since their shutdown needs a
        controller. Returns a message for each node that did not stop."""
        wrong: list[str] = []

        async def stop(node: ProcessNode) -> None:
            try:
                await node.stop()
            except NodeError as error:
                wrong.append(str(error))

        for nodes in (self.brokers, self.controllers):
            async with trio.open_nursery() as nursery:
                for node in nodes:
                    nursery.start_soon(stop, node)
        return wrong

    async def cut_power(self, *names: str) -> None:
        """Cut the power of the named nodes at the same moment: data that was not flushed is
        lost."""
        await self.kill(*names)
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(self.nodes[name].disk.cut_power)

    async def active_controller(self) -> ProcessNode | None:
        """Return the leader of the controller quorum. Returns None if there is no leader or no node
        answers."""
        try:
            quorum = await ask_quorum(self._addresses())
        except NoAnswerError:
            return None
        return next((node for node in self.controllers if node.id == quorum.leader), None)

    async def views(self) -> dict[str, View]:
        """Return the metadata that each broker reports, by the broker's name. Brokers that do not
        answer are left out."""
        found = await ask_all(self._addresses())
        return {node.name: found[node.address] for node in self.brokers if node.address in found}

    async def partitions(self) -> dict[str, ViewedPartition]:
        """Return all partitions by key ("topic-partition"), as reported by a broker that agrees
        with most other brokers."""
        views = list((await self.views()).values())
        if not views:
            return {}
        return max((view.partitions for view in views), key=lambda one: _agreeing(one, views))

    async def leader_of(self, key: str) -> ProcessNode | None:
        """Return the broker that leads a partition, or None if there is no leader or no broker
        answers. `key` is "topic-partition"."""
        partition = (await self.partitions()).get(key)
        return None if partition is None else self.broker(partition.leader)

    def broker(self, id_: int) -> ProcessNode | None:
        """Return the broker with the node id `id_`, or None if the cluster has no such broker."""
        return next((node for node in self.brokers if node.id == id_), None)

    async def is_isr_full(self) -> bool:
        """Return whether all replicas of all partitions are known to be in the ISR."""
        return await self.reason_not_full() is None

    async def reason_not_full(self) -> str | None:
        """Return the reason why not all replicas are known to be in the ISR, or None if they
        are."""
        absent = [node.name for node in self.brokers if node.state is not ProcessState.RUNNING]
        if absent:
            return f"{', '.join(absent)} is not running"
        try:
            quorum = await ask_quorum(self._addresses())
        except NoAnswerError as error:
            return str(error)
        views = list((await self.views()).values())
        return reason_not_full(quorum, views, [node.id for node in self.brokers])

    async def wait_healthy(self, timeout_s: float = HEALTHY_TIMEOUT_S) -> float:
        """Wait until all nodes run and all replicas are in sync. Returns the waiting time in
        seconds. Raises NodeError with the reason after `timeout_s` seconds."""
        began_s = trio.current_time()
        reason: str | None = "no node was asked yet"
        with trio.move_on_after(timeout_s):
            while True:
                absent = [
                    one.name for one in self.nodes.values() if one.state is not ProcessState.RUNNING
                ]
                reason = f"{absent} do not run" if absent else await self.reason_not_full()
                if reason is None:
                    return trio.current_time() - began_s
                await trio.sleep(ASK_AGAIN_S)
        raise NodeError(f"the cluster is not healthy after {timeout_s:g} s: {reason}")

    async def watch(self) -> None:
        """Restart nodes that died by themselves, as an operator would."""
        async with trio.open_nursery() as nursery:
            for node in self.nodes.values():
                nursery.start_soon(self._watch_one, node)

    async def _watch_one(self, node: ProcessNode) -> None:
        while node.starts <= RESTARTS_MAX or not node.deaths:
            await node.wait_death()
            await trio.sleep(RESTART_AFTER_S)
            if node.state is ProcessState.DEAD and node.held_by is None:
                node.start()

    def collect_logs(self, to: Path) -> list[Path]:
        """Copy the log files of every node (NAME.log and its older part) into a directory. Returns
        the paths of the copies."""
        to.mkdir(parents=True, exist_ok=True)
        parts = [part for node in self.nodes.values() for part in node.log.parts]
        return [Path(shutil.copy(part, to / part.name)) for part in parts]

    def _addresses(self) -> list[str]:
        return [node.address for node in self.brokers]


def _agreeing(partitions: Mapping[str, ViewedPartition], views: Iterable[View]) -> int:
    return sum(view.partitions == partitions for view in views)


@dataclass(frozen=True, slots=True)
class _Site:
    """Properties of a cluster that its nodes need when they are created."""

    directory: Path
    claim: MachineClaim
    network: Network
    clocks: Clocks
    settings: Mapping[str, str]
    planted: str | None
    security: "ClusterSecurity | None"
    nursery: trio.Nursery

    def node(self, name: str, disk: NodeDisk) -> ProcessNode:
        """Return a new node of the cluster. The caller starts it."""
        role, id_ = _identity(name)
        endpoint = self.network.endpoints[name]
        properties = self.directory / f"{name}.properties"
        write_properties(
            properties,
            role=role,
            id_=id_,
            endpoint=endpoint,
            data=disk.data,
            voters={
                _identity(one)[1]: place
                for one, place in self.network.endpoints.items()
                if _identity(one)[0] is NodeRole.CONTROLLER
            },
            settings=self.settings,
            security=self.security.settings_of(role, id_) if self.security else NOT_SECURE,
        )
        environment = {
            **os.environ,
            **self.clocks.environment(name),
            RUN_VARIABLE: self.claim.run_id,
            **({} if self.planted is None else {PLANTED_VARIABLE: self.planted}),
        }
        return ProcessNode(
            name,
            role=role,
            id_=id_,
            endpoint=endpoint,
            disk=disk,
            properties=properties,
            log=self.directory / f"{name}.log",
            environment=environment,
            nursery=self.nursery,
        )


@asynccontextmanager
async def open_cluster(
    directory: Path,
    *,
    controllers: int = 3,
    brokers: int = 3,
    settings: Mapping[str, str] | None = None,
    planted: str | None = None,
    flush: bool = False,
    secure: bool = False,
    has_store: bool = False,
    abilities: Abilities | None = None,
) -> AsyncIterator[ProcessCluster]:
    """Start a new cluster in a directory, and yield it when it is healthy. Everything is removed at
    the end.

    If the cluster is `secure`, every client in the block logs in as the user of the workloads.
    `planted` is the name of a deliberate bug to put into the nodes, or None. With `flush`, brokers
    flush before they acknowledge. With `has_store`, they have tiered storage. `abilities` limits
    the abilities that are used; None uses all that the machine has.
    """
    directory.mkdir(parents=True, exist_ok=True)
    directory = directory.resolve()
    if abilities is None:
        abilities = await probe(directory)
    names = [f"c{at + 1}" for at in range(controllers)] + [f"b{at + 1}" for at in range(brokers)]
    try:
        async with AsyncExitStack() as stack:
            claim = stack.enter_context(claimed(directory))
            network = await stack.enter_async_context(_open_network(claim, names, abilities))
            extra = dict(settings or {})
            store: ObjectStoreServer | None = None
            if has_store:
                opening = open_object_store(claim, network.harness_host, directory / "store")
                store = await stack.enter_async_context(opening)
                extra |= store.settings(brokers)
            shared = settings_of(brokers, flush=flush, extra=extra)
            disks = await _open_disks(directory, names, abilities)
            clocks = await _open_clocks(directory, names, abilities)
            security = _make_secure(directory, network) if secure else None
            if security is not None:
                stack.enter_context(logged_in(security.client))
            nursery = await stack.enter_async_context(trio.open_nursery())
            site = _Site(directory, claim, network, clocks, shared, planted, security, nursery)
            nodes = {name: site.node(name, disk) for name, disk in disks.items()}
            network.find_pid = lambda name: nodes[name].pid
            cluster = ProcessCluster(
                nodes, network, abilities, clocks, flush=flush, security=security, store=store
            )
            async with _at_work(cluster):
                nursery.start_soon(cluster.watch)
                try:
                    yield cluster
                finally:
                    # Stop the watcher before nodes are killed, so that it does not restart them.
                    nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise only_error(group) from None


@asynccontextmanager
async def _at_work(cluster: ProcessCluster) -> AsyncIterator[None]:
    """Run a cluster: format the controller quorum, start all nodes, and yield when the cluster is
    healthy. Processes that still run at the end are killed."""
    await format_controllers(
        ((node.id, node.endpoint, node.disk.data) for node in cluster.controllers),
        cluster.security.first_records() if cluster.security else (),
    )
    try:
        await cluster.start()
        await cluster.wait_healthy()
        yield
    finally:
        with trio.CancelScope(shield=True):
            await cluster.kill(*cluster.nodes)


def _make_secure(directory: Path, network: Network) -> "ClusterSecurity":
    try:
        from ottla.jepsen.processes.cluster_security import ClusterSecurity
    except ImportError:
        hint = install_hint("secure")
        raise ConfigError(
            "--secure", f"needs cryptography, which is not installed; install it with: {hint}"
        ) from None
    endpoints: dict[tuple[str, int], NodeEndpoint] = {
        _identity(name): endpoint for name, endpoint in network.endpoints.items()
    }
    return ClusterSecurity(directory, endpoints)


def _identity(name: str) -> tuple[NodeRole, int]:
    number = int(name[1:]) - 1
    if name.startswith("c"):
        return NodeRole.CONTROLLER, FIRST_CONTROLLER_ID + number
    return NodeRole.BROKER, FIRST_BROKER_ID + number


def _open_network(
    claim: MachineClaim, names: Sequence[str], abilities: Abilities
) -> AbstractAsyncContextManager[Network]:
    return (open_namespaces if Ability.NAMESPACES in abilities else open_proxies)(claim, names)


async def _open_disks(
    directory: Path, names: Sequence[str], abilities: Abilities
) -> dict[str, NodeDisk]:
    kind = ImageDisk if Ability.IMAGES in abilities else PlainDisk
    disks: dict[str, NodeDisk] = {name: kind(directory, name) for name in names}
    async with trio.open_nursery() as nursery:
        for disk in disks.values():
            nursery.start_soon(disk.open)
    return disks


async def _open_clocks(directory: Path, names: Sequence[str], abilities: Abilities) -> Clocks:
    library = await compile_shim(directory) if Ability.CLOCKS in abilities else None
    return Clocks(directory, names, library=library)
