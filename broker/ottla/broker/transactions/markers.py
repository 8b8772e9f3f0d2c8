"""Markers on their way: which broker writes which, and what its answer means.  Pure.

One `MarkerOrder` is the end of one transaction, asked for when its Prepare record is committed.
Its partitions wait in the queue of the broker that leads them; where none does, until the metadata
names one.  Nothing is given up but for a newer coordinator or producer, which ends it itself.

Invariants: EveryPartitionIsMarked (an order is done when each of its partitions has its marker or
is deleted), OneOrderPerProducer (a request names a producer id once: answers name nothing else).
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
"""Answers of a partition that takes no marker, ever: it is passed over."""
SUPERSEDED = frozenset((E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED))
"""Answers by which somebody newer ends this transaction.  Any other error is tried again."""

PARTITIONS_PER_REQUEST = 2_000
"""Fewer ask more often, many more hold the leader's loop for longer."""


class MarkerOrder:
    """The markers of one transaction, and which of its partitions have none yet."""

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
        """The partition of `__transaction_state` by whose leadership it was asked for."""
        self.coordinator_epoch = coordinator_epoch
        self.is_cancelled = False
        """Whether this broker no longer coordinates the transaction, or somebody newer ends it."""

    def __repr__(self) -> str:
        return f"MarkerOrder({self.transactional_id}, {len(self.missing)} partitions)"


class MarkerBatch(NamedTuple):
    """What one request to one broker asks for."""

    parts: dict[MarkerOrder, frozenset[TopicPartition]]

    def request(self) -> WriteTxnMarkersRequest:
        """Return the request."""
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


class Settled(NamedTuple):
    """What an answer came to."""

    retried: list[tuple[MarkerOrder, frozenset[TopicPartition]]]
    superseded: list[MarkerOrder]


class MarkerQueues:
    """What waits for each broker; `on_marked` is called with partitions that are settled."""

    def __init__(self, on_marked: Callable[[MarkerOrder, frozenset[TopicPartition]], None]) -> None:
        self._on_marked = on_marked
        self._by_broker: dict[NodeId, dict[MarkerOrder, set[TopicPartition]]] = {}
        self._unknown: dict[MarkerOrder, set[TopicPartition]] = {}

    @property
    def unknown_count(self) -> int:
        """Number of transactions with partitions that have no leader."""
        return len(self._unknown)

    @property
    def waiting_count(self) -> int:
        """Number of markers that wait for a broker."""
        return sum(
            len(parts) for orders in self._by_broker.values() for parts in orders.values()
        ) + sum(map(len, self._unknown.values()))

    def brokers(self) -> Iterator[NodeId]:
        """Yield the brokers that markers wait for."""
        yield from [node_id for node_id, orders in self._by_broker.items() if orders]

    def add(
        self, order: MarkerOrder, partitions: Iterable[TopicPartition], image: MetadataImage
    ) -> None:
        """Queue partitions for their leaders; those of a deleted topic are settled."""
        if order.is_cancelled:
            return
        gone = set()
        for partition in sorted(partitions):
            topic = image.topic(partition.topic)
            state = None if topic is None else topic.partitions.get(partition.partition)
            if state is None:
                gone.add(partition)
            elif state.leader == NO_NODE or state.leader not in image.brokers:
                self._unknown.setdefault(order, set()).add(partition)
            else:
                waiting = self._by_broker.setdefault(NodeId(state.leader), {})
                waiting.setdefault(order, set()).add(partition)
        if gone:
            self._on_marked(order, frozenset(gone))

    def reroute(self, image: MetadataImage) -> None:
        """Queue for its leader what had none; forget what was cancelled."""
        unknown, self._unknown = self._unknown, {}
        for order, partitions in unknown.items():
            self.add(order, partitions, image)

    def take(self, node_id: NodeId) -> MarkerBatch | None:
        """Return what to ask a broker for next; None where nothing waits for it."""
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

    def settle(self, batch: MarkerBatch, response: WriteTxnMarkersResponse) -> Settled:
        """Note which partitions have their marker; return what is to be tried again.

        A partition that the answer does not name is tried again too.
        """
        codes: dict[tuple[int, str, int], int] = {
            (marker.producer_id, topic.name, partition.partition_index): partition.error_code
            for marker in response.markers
            for topic in marker.topics
            for partition in topic.partitions
        }
        settled = Settled([], [])
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
