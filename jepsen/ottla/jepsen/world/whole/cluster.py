"""A whole cluster of the world: controllers and brokers, each on a machine of its own.

They are the real ones, from their settings to their last answer, on the seams of their machines.
"""

from collections.abc import Mapping
from uuid import UUID

import trio

from ottla.broker.broker_driver import Broker
from ottla.broker.opening_driver import open_broker
from ottla.controller.main_driver import serve_controller
from ottla.jepsen.world.noted_errors import NotedErrors
from ottla.jepsen.world.whole.machine import Machine, SharedWorld
from ottla.jepsen.world.whole.server import server_opener
from ottla.metadata.image import MetadataImage
from ottla.model.ids import NodeId
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.controller import load_controller_config
from ottla.node.identity import CONTROLLER_LISTENER, format_directories
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet
from ottla.storage.meta_properties import uuid_to_text

CONTROLLER_PORT = 9_093
BROKER_PORT = 9_092
LOG_DIRECTORIES = ("/logs", "/more")
"""Of a broker; the second in some runs only."""

METADATA_DIRECTORY = "/metadata"
LISTENER = "PLAINTEXT"


class SimulatedCluster:
    """The nodes of one run."""

    def __init__(
        self,
        world: SharedWorld,
        *,
        controller_count: int,
        broker_count: int,
        directory_count: int,
        settings: Mapping[str, str],
        drifts_ppm: Mapping[str, int],
    ) -> None:
        self.world = world
        self.faults: list[tuple[str, BaseException]] = []
        """What a broker's handlers raised that they should not."""
        self._opened: dict[NodeId, tuple[int, Broker]] = {}
        """With which start of its machine it is; one that was killed stays here."""
        self.log_directories = LOG_DIRECTORIES[:directory_count]
        self._settings = dict(settings)
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
        """Return all nodes' machines, controllers first."""
        return [*self.controller_machines.values(), *self.broker_machines.values()]

    @property
    def brokers(self) -> dict[NodeId, Broker]:
        """Return those whose process runs now."""
        found = {}
        for node, (start, broker) in self._opened.items():
            machine = self.broker_machines[node]
            if machine.is_running and machine.start_count == start:
                found[node] = broker
        return found

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """Return where clients ask first."""
        return [(machine.name, BROKER_PORT) for machine in self.broker_machines.values()]

    @property
    def latest_image(self) -> MetadataImage | None:
        """Return the newest image that a running broker has."""
        images = [broker.member.image for broker in self.brokers.values()]
        return max(images, key=lambda image: image.provenance.offset, default=None)

    def unready(self) -> list[str]:
        """Return the nodes that do not serve."""
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
        """Return the partitions that lack a leader or an in-sync replica, as far as is known."""
        image = self.latest_image
        if image is None:
            return ["nobody knows"]
        found = []
        for topic in image.topics.values():
            for number, state in topic.partitions.items():
                if len(state.isr) < len(state.replicas) or state.leader < 0:
                    found.append(f"{topic.name}-{number}: leader {state.leader}, isr {state.isr}")
        return found

    @property
    def is_in_sync(self) -> bool:
        """Whether every broker serves and every in-sync set is full."""
        return not self.unready() and not self.out_of_sync()

    async def format(self) -> None:
        """Give every controller its directory and its vote, as `ottla storage format` does."""
        chance = self.world.chance.stream("format")
        cluster_id = uuid_to_text(chance.uuid())
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
        """Start every node."""
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
            config, ready=_nothing, is_stopping=is_stopping, seams=machine.seams, errors=errors
        )

    async def _run_broker(self, machine: Machine, node: NodeId, is_stopping: trio.Event) -> None:
        # With several directories each of them may fail, so the metadata lie in none of them.
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
