"""Queues of transaction markers for each broker, and the interpretation of the brokers' responses.
Pure.

A `MarkerOrder` lists the partitions that need the marker of one transaction. It is created when the
transaction's Prepare record is committed. Each partition waits in the queue of its leader. A
partition without a leader waits until it has one. An order is dropped only if a newer coordinator
or producer ends the transaction instead.

Invariants: EveryPartitionIsMarked (an order is done when each of its partitions has its marker or
is deleted), OneOrderPerProducer (a request contains a producer id at most once, because a response
identifies an order only by the producer id).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_NODE, NodeId, ProducerId, TopicPartition
from ottla.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.wire.messages.write_txn_markers_response import WriteTxnMarkersResponse

E = ErrorCode

DROPPED = frozenset((E.UNSUPPORTED_FOR_MESSAGE_FORMAT, E.UNSUPPORTED_VERSION))
"""Error codes of a partition that can never accept a transaction marker. Such a partition is
skipped."""
SUPERSEDED = frozenset((E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED))
"""Error codes of a transaction marker which mean that a newer coordinator or producer ends this
transaction. Any other error is retried."""

PARTITIONS_PER_REQUEST = 2_000
"""Maximum number of partitions for which one request contains transaction markers. A smaller value
sends more requests. A larger value blocks the leader's event loop longer."""


class MarkerOrder:
    """Order to write the markers of one transaction, and the partitions that have not received
    their marker yet."""

    __slots__ = (
        "coordinator_epoch",
        "is_cancelled",
        "is_commit",
        "missing",
        "producer_epoch",
        "producer_id",
        "state_partition",
        "transaction_version",
        "transactional_id",
    )

    def __init__(
        self,
        transactional_id: str,
        *,
        producer_id: ProducerId,
        producer_epoch: int,
        is_commit: bool,
        transaction_version: int,
        partitions: Iterable[TopicPartition],
        state_partition: int,
        coordinator_epoch: int,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.is_commit = is_commit
        self.transaction_version = transaction_version
        self.missing = set(partitions)
        self.state_partition = state_partition
        """Index of the partition of `__transaction_state` whose leader created the marker order."""
        self.coordinator_epoch = coordinator_epoch
        self.is_cancelled = False
        """True if the marker order must be abandoned, because another coordinator or a newer
        producer ends the transaction."""

    def __repr__(self) -> str:
        return f"MarkerOrder({self.transactional_id}, {len(self.missing)} partitions)"


class MarkerBatch(NamedTuple):
    """Batch of transaction markers that one request to a broker contains."""

    parts: dict[MarkerOrder, frozenset[TopicPartition]]

    def request(self) -> WriteTxnMarkersRequest:
        """Return the WriteTxnMarkers request that contains this batch of markers."""
        return WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=order.producer_id,
                    producer_epoch=order.producer_epoch,
                    transaction_result=order.is_commit,
                    topics=_by_topic(partitions),
                    coordinator_epoch=order.coordinator_epoch,
                    transaction_version=order.transaction_version,
                )
                for order, partitions in self.parts.items()
            ]
        )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[WritableTxnMarkerTopic]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    return [
        WritableTxnMarkerTopic(name=name, partition_indexes=by_topic[name]) for name in by_topic
    ]


class MarkerOutcome(NamedTuple):
    """Outcome of a WriteTxnMarkers response: partitions to retry, and marker orders of transactions
    that a newer coordinator or producer ends."""

    retried: list[tuple[MarkerOrder, frozenset[TopicPartition]]]
    superseded: list[MarkerOrder]


class MarkerQueues:
    """Queues of transaction markers to be sent, one for each broker.

    `on_marked` is called with a marker order (the partitions of one transaction) and the partitions
    that have just received their marker.
    """

    def __init__(self, on_marked: Callable[[MarkerOrder, frozenset[TopicPartition]], None]) -> None:
        self._on_marked = on_marked
        self._by_broker: dict[NodeId, dict[MarkerOrder, set[TopicPartition]]] = {}
        self._unknown: dict[MarkerOrder, set[TopicPartition]] = {}

    @property
    def unknown_count(self) -> int:
        """Number of transactions with at least one partition to mark whose leader is unknown."""
        return len(self._unknown)

    @property
    def waiting_count(self) -> int:
        """Number of transaction markers that wait to be sent."""
        return sum(
            len(parts) for orders in self._by_broker.values() for parts in orders.values()
        ) + sum(map(len, self._unknown.values()))

    def brokers(self) -> Iterator[NodeId]:
        """Yield the ids of brokers for which transaction markers are queued."""
        yield from [node_id for node_id, orders in self._by_broker.items() if orders]

    def add(
        self, order: MarkerOrder, partitions: Iterable[TopicPartition], image: MetadataImage
    ) -> None:
        """Queue the transaction markers of a marker order for the leaders of `partitions`.
        Partitions of a deleted topic count as done."""
        if order.is_cancelled:
            return
        gone = set()
        name, topic = "", None
        # The sets of this order, by leader: one look-up for each partition would cost more than
        # the rest of the loop.
        waiting: dict[int, set[TopicPartition]] = {}
        for partition in sorted(partitions):
            if partition.topic != name:
                name = partition.topic
                topic = image.topic(name)
            state = None if topic is None else topic.partitions.get(partition.partition)
            if state is None:
                gone.add(partition)
                continue
            leader = state.leader
            queued = waiting.get(leader)
            if queued is None:
                queued = waiting[leader] = self._queued(order, leader, image)
            queued.add(partition)
        if gone:
            self._on_marked(order, frozenset(gone))

    def _queued(self, order: MarkerOrder, leader: int, image: MetadataImage) -> set[TopicPartition]:
        """Return the set of an order's partitions that wait for their marker from `leader`, or that
        wait for a leader."""
        if leader == NO_NODE or leader not in image.brokers:
            return self._unknown.setdefault(order, set())
        return self._by_broker.setdefault(NodeId(leader), {}).setdefault(order, set())

    def reroute(self, image: MetadataImage) -> None:
        """Queue transaction markers for partitions that now have a leader, and drop cancelled
        marker orders."""
        unknown, self._unknown = self._unknown, {}
        for order, partitions in unknown.items():
            self.add(order, partitions, image)

    def take(self, node_id: NodeId) -> MarkerBatch | None:
        """Remove and return the next batch of transaction markers for a broker. Returns None if the
        broker's queue is empty."""
        waiting = self._by_broker.get(node_id, {})
        parts: dict[MarkerOrder, frozenset[TopicPartition]] = {}
        producer_ids: set[ProducerId] = set()
        count = 0
        for order, partitions in list(waiting.items()):
            if order.is_cancelled:
                del waiting[order]
            elif order.producer_id not in producer_ids:
                del waiting[order]
                parts[order] = frozenset(partitions)
                producer_ids.add(order.producer_id)
                count += len(partitions)
                if count >= PARTITIONS_PER_REQUEST:
                    break
        if not waiting:
            self._by_broker.pop(node_id, None)
        return MarkerBatch(parts) if parts else None

    def settle(self, batch: MarkerBatch, response: WriteTxnMarkersResponse) -> MarkerOutcome:
        """Apply a broker's response to a batch of transaction markers. Returns the partitions to
        retry: partitions with a temporary error, and partitions that the response omits."""
        codes: dict[tuple[int, str, int], int] = {
            (marker.producer_id, topic.name, partition.partition_index): partition.error_code
            for marker in response.markers
            for topic in marker.topics
            for partition in topic.partitions
        }
        settled = MarkerOutcome([], [])
        for order, partitions in batch.parts.items():
            if order.is_cancelled:
                continue
            done, retried = set(), set()
            for one in partitions:
                code = codes.get((order.producer_id, *one))
                if code == E.NONE or code in DROPPED:
                    done.add(one)
                elif code in SUPERSEDED:
                    order.is_cancelled = True
                else:
                    retried.add(one)
            if order.is_cancelled:
                settled.superseded.append(order)
                continue
            if done:
                self._on_marked(order, frozenset(done))
            if retried:
                settled.retried.append((order, frozenset(retried)))
        return settled
