"""Computes one client's view of the cluster: live brokers with their addresses on the client's
listener, and the brokers to contact.

Pure. Shared by Metadata, DescribeCluster and DescribeTopicPartitions.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from ottla.metadata.image import BrokerRegistration, MetadataImage, PartitionState
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_NODE, NodeId
from ottla.model.limits import TOPIC_NAME_LENGTH_MAX
from ottla.model.settings.broker import BrokerConfig
from ottla.node.network.dispatch import Peer

LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class BrokerAddress(NamedTuple):
    """A broker's id and rack, with its host and port on the listener that the client uses."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None
    is_fenced: bool


def is_legal_topic_name(name: str) -> bool:
    """Return whether a text is a valid topic name by Kafka's rules."""
    return (
        name not in (".", "..")
        and len(name) <= TOPIC_NAME_LENGTH_MAX
        and LEGAL_TOPIC_NAME.fullmatch(name) is not None
    )


class ClusterView:
    """The cluster according to one metadata image, as seen by clients of one listener."""

    def __init__(self, image: MetadataImage, config: BrokerConfig, peer: Peer) -> None:
        self.image = image
        self._config = config
        self._peer = peer
        # Cached, since it is read for each of thousands of partitions.
        self._leaders: dict[NodeId, tuple[ErrorCode, NodeId]] = {}
        self._are_live: dict[NodeId, bool] = {}
        self._live_brokers: list[BrokerAddress] | None = None
        self._is_address_known = any(
            endpoint.name == peer.listener_name and endpoint.host
            for endpoint in (*config.advertised_listeners, *config.listeners)
        )

    def brokers(self, *, with_fenced: bool = False) -> Iterator[BrokerAddress]:
        """Yield the live brokers that have an endpoint on the client's listener, ordered by id.
        With `with_fenced`, fenced brokers are included."""
        for broker in self.image.brokers.values():
            address = self._address(broker)
            if address is not None and (with_fenced or not broker.is_fenced):
                yield address

    def contacts(self) -> list[BrokerAddress]:
        """Return the brokers that a client may contact: the live brokers with an endpoint on its
        listener. If no live broker has such an endpoint, return this broker.

        If every broker is fenced (all brokers are stopping, or no controller answers), this broker
        is returned, although it leads no partition. Otherwise librdkafka (2.13, 2.16) drops all
        brokers that the response lacks, and never queries them again (its issue 5301).
        """
        live = self._live()
        if live:
            return live
        fenced = self.brokers(with_fenced=True)
        return [broker for broker in fenced if broker.node_id == self._config.node_id]

    @property
    def controller_id(self) -> NodeId:
        """Id of the broker to which clients should send admin requests. It is the id of this
        broker, because every broker forwards such requests to the controller.

        If this broker is not live, it is the id of the first live broker, or NO_NODE if no broker
        is live.
        """
        local_id = self._config.node_id
        live = [broker.node_id for broker in self._live()]
        return local_id if local_id in live else next(iter(live), NO_NODE)

    def _live(self) -> list[BrokerAddress]:
        """Return the brokers that `brokers` yields. A response reads them twice: for its contacts
        and for the controller id."""
        if self._live_brokers is None:
            self._live_brokers = list(self.brokers())
        return self._live_brokers

    def leader_of(self, partition: PartitionState) -> tuple[ErrorCode, NodeId]:
        """Return the error code NONE and the node id of a partition's leader. If the partition has
        no leader, or the leader has no endpoint on the client's listener, return the error code for
        the client and NO_NODE."""
        found = self._leaders.get(partition.leader)
        if found is None:
            found = self._leaders[partition.leader] = self._leader(partition.leader)
        return found

    def _leader(self, node_id: NodeId) -> tuple[ErrorCode, NodeId]:
        broker = self.image.brokers.get(node_id)
        if broker is None:
            return ErrorCode.LEADER_NOT_AVAILABLE, NO_NODE
        if broker.endpoint(self._peer.listener_name) is None:
            return ErrorCode.LISTENER_NOT_FOUND, NO_NODE
        return ErrorCode.NONE, node_id

    def offline_replicas(self, partition: PartitionState) -> list[int]:
        """Return the broker ids of a partition's offline replicas: their broker is fenced, or has
        no endpoint on the client's listener."""
        return [replica for replica in partition.replicas if not self._is_live(replica)]

    def _is_live(self, node_id: NodeId) -> bool:
        is_live = self._are_live.get(node_id)
        if is_live is None:
            broker = self.image.brokers.get(node_id)
            is_live = self._are_live[node_id] = (
                broker is not None
                and not broker.is_fenced
                and broker.endpoint(self._peer.listener_name) is not None
            )
        return is_live

    def _address(self, broker: BrokerRegistration) -> BrokerAddress | None:
        endpoint = broker.endpoint(self._peer.listener_name)
        if endpoint is None:
            return None
        host, port = endpoint.host or self._peer.local_host, endpoint.port
        if broker.id == self._config.node_id and not self._is_address_known:
            # The listener binds every interface.  The address to which the client connected works
            # for it.
            host, port = self._peer.local_host, self._peer.local_port
        return BrokerAddress(broker.id, host, port, broker.rack, broker.is_fenced)
