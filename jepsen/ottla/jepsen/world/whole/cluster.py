"""A whole simulated cluster: controllers and brokers, each on a separate machine.

The nodes run the real code, from their settings to their responses. Only disk, network and clock
are simulated.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from uuid import UUID

import trio

from ottla.broker.broker_driver import Broker
from ottla.broker.opening_driver import open_broker
from ottla.controller.controller_driver import Controller
from ottla.controller.front.front_seam import OpenFront
from ottla.controller.main_driver import serve_controller
from ottla.jepsen.world.noted_errors import NotedErrors
from ottla.jepsen.world.whole.machine import Machine, SharedWorld
from ottla.jepsen.world.whole.net.front import front_opener, serve_nodes
from ottla.jepsen.world.whole.net.server import server_opener
from ottla.metadata.image import MetadataImage
from ottla.model.ids import NodeId
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.controller import load_controller_config
from ottla.node.identity import CONTROLLER_LISTENER, format_directories
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet
from ottla.storage.directories.meta_properties import uuid_to_text

CONTROLLER_PORT = 9_093
CONTROLLER_KAFKA_PORT = 9_094
"""Port at which a simulated controller serves Kafka's protocol. Its remote procedures have another
port, because a simulated port has one protocol only."""
BROKER_PORT = 9_092
LOG_DIRECTORIES = ("/logs", "/more")
"""Log directories of a simulated broker. Only some runs use the second one."""

METADATA_DIRECTORY = "/metadata"
LISTENER = "PLAINTEXT"


class SimulatedCluster:
    """The controllers and brokers of one simulated run."""

    def __init__(
        self,
        world: SharedWorld,
        *,
        controller_count: int,
        broker_count: int,
        directory_count: int,
        settings: Mapping[str, str],
        drifts_ppm: Mapping[str, int],
        serves_admins: bool = False,
    ) -> None:
        self.world = world
        self.faults: list[tuple[str, BaseException]] = []
        """Unexpected exceptions in the nodes, each with the name of its machine."""
        self.cluster_id = ""
        """Id of the simulated cluster. Empty until `format` sets it."""
        self._controllers: dict[NodeId, tuple[int, Controller]] = {}
        """Controllers by node id, each with the number of starts of its machine."""
        self._opened: dict[NodeId, tuple[int, Broker]] = {}
        """Brokers by node id, each with the number of starts of its machine. A killed broker is not
        removed."""
        self.log_directories = LOG_DIRECTORIES[:directory_count]
        self._settings = dict(settings)
        self._open_front: OpenFront = (
            front_opener(world.ports, CONTROLLER_KAFKA_PORT) if serves_admins else serve_nodes
        )
        self._controller_ids = [NodeId(101 + index) for index in range(controller_count)]
        self._voters = ",".join(
            f"{node}@controller-{node}:{CONTROLLER_PORT}" for node in self._controller_ids
        )
        self.controller_machines = {
            node: self._machine(f"controller-{node}", node, drifts_ppm, is_controller=True)
            for node in self._controller_ids
        }
        self.broker_machines = {
            node: self._machine(f"broker-{node}", node, drifts_ppm, is_controller=False)
            for node in (NodeId(1 + index) for index in range(broker_count))
        }

    @property
    def machines(self) -> list[Machine]:
        """Machines of all nodes, controllers first."""
        return [*self.controller_machines.values(), *self.broker_machines.values()]

    @property
    def brokers(self) -> dict[NodeId, Broker]:
        """Brokers whose process is running, by node id."""
        found = {}
        for node, (start, broker) in self._opened.items():
            machine = self.broker_machines[node]
            if machine.is_running and machine.start_count == start:
                found[node] = broker
        return found

    def controller(self, node: NodeId) -> Controller | None:
        """Return the controller on a node, or None if its process is not running."""
        start, found = self._controllers.get(node, (0, None))
        machine = self.controller_machines[node]
        return found if machine.is_running and machine.start_count == start else None

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """Bootstrap addresses (host and port) of the brokers for clients."""
        return [(machine.name, BROKER_PORT) for machine in self.broker_machines.values()]

    @property
    def controller_bootstrap(self) -> list[tuple[str, int]]:
        """Addresses (host and port) at which controllers serve Kafka's protocol, if the test
        subject has clients of controllers."""
        return [
            (machine.name, CONTROLLER_KAFKA_PORT) for machine in self.controller_machines.values()
        ]

    @property
    def latest_image(self) -> MetadataImage | None:
        """Newest metadata image that a running broker has, or None if no broker has one."""
        images = [broker.member.image for broker in self.brokers.values()]
        return max(images, key=lambda image: image.provenance.offset, default=None)

    def unready(self) -> list[str]:
        """Return descriptions of the nodes that do not serve requests."""
        brokers = self.brokers
        return [
            *(
                machine.name
                for machine in self.controller_machines.values()
                if not machine.is_running
            ),
            *(
                machine.name
                for node, machine in self.broker_machines.items()
                if node not in brokers or not brokers[node].is_ready.is_set()
            ),
        ]

    def out_of_sync(self) -> list[str]:
        """Return the partitions that lack a leader or an in-sync replica, according to the newest
        metadata image of a running broker."""
        image = self.latest_image
        if image is None:
            return ["unknown"]
        found = []
        for topic in image.topics.values():
            for number, state in topic.partitions.items():
                if len(state.isr) < len(state.replicas) or state.leader < 0:
                    found.append(f"{topic.name}-{number}: leader {state.leader}, isr {state.isr}")
        return found

    @property
    def is_in_sync(self) -> bool:
        """True if every broker serves requests and every partition has all its replicas in the
        ISR."""
        return not self.unready() and not self.out_of_sync()

    async def format(self) -> None:
        """Format every controller's metadata directory with the voter set, as `ottla storage
        format` does."""
        chance = self.world.chance.stream("format")
        self.cluster_id = cluster_id = uuid_to_text(chance.uuid())
        ids: dict[NodeId, UUID] = {node: chance.uuid() for node in self._controller_ids}
        voters = VoterSet(
            tuple(
                Voter(
                    id=node,
                    directory_id=ids[node],
                    endpoints=(
                        VoterEndpoint(CONTROLLER_LISTENER, f"controller-{node}", CONTROLLER_PORT),
                    ),
                )
                for node in self._controller_ids
            )
        )
        for node, machine in self.controller_machines.items():
            await machine.disk.makedirs(METADATA_DIRECTORY)
            await format_directories(
                machine.disk,
                {METADATA_DIRECTORY: ids[node]},
                cluster_id=cluster_id,
                node_id=node,
                metadata_log_dir=METADATA_DIRECTORY,
                initial_voters=voters,
            )
        for machine in self.broker_machines.values():
            for path in self.log_directories:
                await machine.disk.makedirs(path)
        for machine in self.machines:
            machine.disk.flush_everything()

    def start(self) -> None:
        """Start every controller and broker."""
        for machine in self.machines:
            machine.start()

    def _machine(
        self, name: str, node: NodeId, drifts_ppm: Mapping[str, int], *, is_controller: bool
    ) -> Machine:
        async def run(machine: Machine, is_stopping: trio.Event) -> None:
            if is_controller:
                await self._run_controller(machine, node, is_stopping)
            else:
                await self._run_broker(machine, node, is_stopping)

        return Machine(self.world, name, run, drift_ppm=drifts_ppm.get(name, 0))

    async def _run_controller(
        self, machine: Machine, node: NodeId, is_stopping: trio.Event
    ) -> None:
        config, _ = load_controller_config(
            {
                "node.id": str(node),
                "controller.quorum.voters": self._voters,
                "listeners": f"CONTROLLER://{machine.name}:{CONTROLLER_PORT}",
                "metadata.log.dir": METADATA_DIRECTORY,
                **self._settings,
            }
        )
        errors = NotedErrors(lambda fault: self.faults.append((machine.name, fault)))
        await serve_controller(
            config,
            ready=_nothing,
            is_stopping=is_stopping,
            seams=machine.seams,
            errors=errors,
            opened=lambda controller: self._note_controller(machine, node, controller),
            open_front=self._open_front,
        )

    def _note_controller(self, machine: Machine, node: NodeId, controller: Controller) -> None:
        self._controllers[node] = (machine.start_count, controller)

    async def _run_broker(self, machine: Machine, node: NodeId, is_stopping: trio.Event) -> None:
        # With several log directories each of them may fail, so the metadata log is in none of
        # them.
        has_several = len(self.log_directories) > 1
        config, _ = load_broker_config(
            {
                **({"metadata.log.dir": METADATA_DIRECTORY} if has_several else {}),
                "node.id": str(node),
                "controller.quorum.voters": self._voters,
                **self._listener_settings(machine.name),
                "log.dirs": ",".join(self.log_directories),
                "ottla.failure.domain.host": machine.name,
                **self._settings,
            }
        )
        open_server = server_opener(self.world.ports, self.world.encryption)
        errors = NotedErrors(lambda fault: self.faults.append((machine.name, fault)))
        async with open_broker(
            config, seams=machine.seams, open_server=open_server, errors=errors
        ) as broker:
            self._opened[node] = (machine.start_count, broker)
            await is_stopping.wait()
            del self._opened[node]
            await broker.leave()

    def _listener_settings(self, host: str) -> dict[str, str]:
        encryption = self.world.encryption
        if encryption is None:
            return {"listeners": f"{LISTENER}://{host}:{BROKER_PORT}"}
        return encryption.broker_settings(host, BROKER_PORT)


def _nothing() -> None:
    pass


@contextmanager
def quiet_nodes() -> Iterator[None]:
    """Return a context in which the nodes write no log lines, since a search would write millions
    of lines."""
    before = logging.root.manager.disable
    if not logging.getLogger("ottla.jepsen.world").isEnabledFor(logging.DEBUG):
        logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
