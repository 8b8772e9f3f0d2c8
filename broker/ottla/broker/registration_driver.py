"""Recovery of the logs of a starting broker, and its registration at the controller. Both happen
after the broker has read the metadata and before its first heartbeat."""

import logging
import socket
from pathlib import Path

from ottla.broker.cluster.membership.lifecycle_driver import LifecycleDriver
from ottla.broker.cluster.membership.registration import (
    advertised_endpoints,
    failure_domain_warnings,
    registration_request,
    registrations_with_losses,
)
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import TOPIC_RESOURCE
from ottla.model.errors import ConfigError
from ottla.model.ids import Offset
from ottla.model.log_events import event
from ottla.model.seams import Rng
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.storage.tier import STORE_URI, SYSTEM_ENABLE, TierConfig
from ottla.model.settings.storage.tiered_topics import TIERED_TOPICS_LEFT, is_tiered_text
from ottla.model.settings.storage.topic import REMOTE_STORAGE_ENABLE
from ottla.node.network.server.server_seam import Server
from ottla.node.quorum.quorum_driver import QuorumMember
from ottla.proto import controller_pb2 as pb
from ottla.storage.manager.log_manager_driver import LogManager

MACHINE_ID_FILE = Path("/etc/machine-id")
NO_MACHINE_ID = "uninitialized"
"""Content of the file /etc/machine-id in an operating system image whose machine has not booted yet
(machine-id(5))."""

_LOGGER = logging.getLogger("ottla.broker")


def check_tiered_topics(image: MetadataImage, config: TierConfig) -> None:
    """Raise ConfigError if a topic is tiered although tiered storage is off, as in Kafka. Otherwise
    consumers would skip the records that only the object store has."""
    if config.is_enabled:
        return
    for (kind, name), texts in image.configs.items():
        if kind == TOPIC_RESOURCE and is_tiered_text(texts.get(REMOTE_STORAGE_ENABLE)):
            raise ConfigError(
                SYSTEM_ENABLE,
                f"is false, and topic {name} is tiered. {TIERED_TOPICS_LEFT}; or set it to true, "
                f"with {STORE_URI}",
            )


class Registration:
    """One incarnation (process run) of a broker: the recovery of its logs, and its registration at
    the controller."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        cluster_id: str,
        rng: Rng,
        server: Server,
        member: QuorumMember,
        logs: LogManager,
        replicas: ReplicaManager,
        lifecycle: LifecycleDriver,
    ) -> None:
        self._config = config
        self._cluster_id = cluster_id
        self._rng = rng
        self._server = server
        self._member = member
        self._logs = logs
        self._replicas = replicas
        self._lifecycle = lifecycle
        self._request = pb.RegisterRequest()
        self._known_losses = set(logs.losses)
        self._machine_id = _machine_id()

    async def register(self) -> Offset:
        """Recover the logs and register the broker at the controller. Returns the end offset of the
        registration's record in the metadata log."""
        self._lifecycle.lifecycle.on_caught_up()
        image, logs, replicas = self._member.image, self._logs, self._replicas
        check_tiered_topics(image, self._config.tier)
        # Before the registration, since from then on a replica that lost records must not be
        # elected.
        await logs.open_logs(
            lambda partition: replicas.log_config_of(image, partition),
            await replicas.placements_of(image),
        )
        self._request, self._known_losses = self._new_request(), set(logs.losses)
        if self._config.failure_domain_host is None:
            self._warn_of_failure_domain(image)
        requests = registrations_with_losses(self._request, self._known_losses)
        return Offset(await self._lifecycle.register(requests) + 1)

    def _warn_of_failure_domain(self, image: MetadataImage) -> None:
        has_machine_id = bool(self._machine_id)
        others = image.brokers.values()
        for warning in failure_domain_warnings(
            self._request, others, has_machine_id=has_machine_id
        ):
            _LOGGER.warning("%s", warning, extra=event("host.unclear"))

    async def settle(self, registered: Offset) -> None:
        """Compare the logs on disk with the metadata image that contains the registration.
        `registered` is the end offset of the registration's record.

        Logs that belong to no replica of this broker are taken out of use. Replicas whose lost
        records only this image reveals are reported to the controller."""
        # Publishers start at our registration, from which the image's content about us is valid.
        await self._member.wait_applied(registered)
        image, logs, replicas = self._member.image, self._logs, self._replicas
        await logs.settle(
            lambda at, topic_id: replicas.is_stray(image, at, topic_id),
            lambda at: replicas.directory_id_of(image, at),
            await replicas.placements_of(image),
        )
        if missed := logs.losses.keys() - self._known_losses:  # Found with the new image.
            await self._lifecycle.amend(registrations_with_losses(self._request, missed))

    def _new_request(self) -> pb.RegisterRequest:
        hostname = socket.gethostname()
        ports = {name: address[1] for name, address in self._server.addresses.items()}
        return registration_request(
            self._config,
            cluster_id=self._cluster_id,
            incarnation_id=self._rng.uuid(),
            endpoints=advertised_endpoints(self._config, ports, hostname),
            host=self._machine_id or hostname,
            directory_ids=[
                directory.directory_id
                for directory in self._logs.directories
                if directory.is_live and directory.directory_id is not None
            ],
            cordoned_ids=self._lifecycle.lifecycle.cordoned_directories,
            previous_broker_epoch=self._logs.previous_broker_epoch,
        )


def _machine_id() -> str:
    """Return the operating system's id of the machine, or an empty text if the machine has no id.
    The id identifies a failure domain."""
    try:
        found = MACHINE_ID_FILE.read_text().strip()
    except OSError:
        return ""
    return "" if found == NO_MACHINE_ID else found
