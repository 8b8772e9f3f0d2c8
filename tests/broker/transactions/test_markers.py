"""Queues of transaction markers: each partition gets its own, and each response has its effect."""

from uuid import UUID

import pytest

from ottla.broker.transactions.markers import MarkerBatch, MarkerOrder, MarkerQueues
from ottla.metadata.image import BrokerRegistration, MetadataImage, PartitionState, Topic
from ottla.metadata.persistent_map import PersistentMap
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, ProducerId, TopicPartition
from ottla.wire.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

E = ErrorCode
ONE, TWO = NodeId(1), NodeId(2)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def image(**leaders: tuple[int, ...]) -> MetadataImage:
    """Return a cluster of brokers 1 and 2; `a=(1, 2)` names the leaders of a-0 and a-1."""
    topics = {}
    for number, (name, nodes) in enumerate(leaders.items()):
        partitions = {
            index: PartitionState(
                replicas=(ONE,), directories=(UUID(int=1),), isr=(ONE,), leader=NodeId(node)
            )
            for index, node in enumerate(nodes)
        }
        topics[UUID(int=500 + number)] = Topic(
            name, UUID(int=500 + number), PersistentMap(partitions)
        )
    brokers = {
        node: BrokerRegistration(
            id=node, epoch=1, incarnation_id=UUID(int=1), endpoints=(), is_fenced=False
        )
        for node in (ONE, TWO)
    }
    return MetadataImage(
        brokers=PersistentMap(brokers),
        topics=PersistentMap(topics),
        topic_ids=PersistentMap({topic.name: topic_id for topic_id, topic in topics.items()}),
    )


def order_of(*partitions: TopicPartition, producer_id: int = 7, epoch: int = 5) -> MarkerOrder:
    return MarkerOrder(
        f"t{producer_id}",
        producer_id=ProducerId(producer_id),
        producer_epoch=epoch,
        is_commit=True,
        transaction_version=2,
        partitions=partitions,
        state_partition=0,
        coordinator_epoch=3,
    )


class QueueBench:
    """The queues of markers, and the completed partitions of each order."""

    def __init__(self) -> None:
        self.marked: list[tuple[str, list[TopicPartition]]] = []
        self.queues = MarkerQueues(
            lambda order, done: self.marked.append((order.transactional_id, sorted(done)))
        )


def response(batch: MarkerBatch, **codes: ErrorCode) -> WriteTxnMarkersResponse:
    """Answer each partition with its code, `a1=…`; NONE where none is named."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=order.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=one.topic,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=one.partition,
                                error_code=codes.get(f"{one.topic}{one.partition}", E.NONE),
                            )
                        ],
                    )
                    for one in partitions
                ],
            )
            for order, partitions in batch.parts.items()
        ]
    )


def test_each_broker_is_asked_for_what_it_leads() -> None:
    sent = QueueBench()
    order = order_of(A0, A1, B0)
    sent.queues.add(order, order.missing, image(a=(1, 2), b=(1,)))
    assert set(sent.queues.brokers()) == {ONE, TWO}
    batch = sent.queues.take(ONE)
    assert batch is not None
    (marker,) = batch.request().markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 5, 3)
    assert (marker.transaction_result, marker.transaction_version) == (True, 2)
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [
        ("a", [0]),
        ("b", [0]),
    ]
    assert sent.queues.take(ONE) is None
    settled = sent.queues.settle(batch, response(batch))
    assert settled == ([], [])
    assert sent.marked == [("t7", [A0, B0])]


@pytest.mark.parametrize(
    "code",
    [
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.NOT_LEADER_OR_FOLLOWER,
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.REQUEST_TIMED_OUT,
        E.KAFKA_STORAGE_ERROR,
        E.UNKNOWN_SERVER_ERROR,
        E.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_a_marker_that_was_not_written_is_tried_again(code: ErrorCode) -> None:
    sent = QueueBench()
    order = order_of(A0, A1)
    sent.queues.add(order, order.missing, image(a=(1, 1)))
    batch = sent.queues.take(ONE)
    assert batch is not None
    settled = sent.queues.settle(batch, response(batch, a1=code))
    assert settled.retried == [(order, frozenset((A1,)))]
    assert sent.marked == [("t7", [A0])]


@pytest.mark.parametrize("code", [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED])
def test_a_newer_epoch_ends_the_transaction_instead(code: ErrorCode) -> None:
    sent = QueueBench()
    order = order_of(A0, A1)
    sent.queues.add(order, [A0], image(a=(1, 2)))
    sent.queues.add(order, [A1], image(a=(1, 2)))
    batch = sent.queues.take(ONE)
    assert batch is not None
    settled = sent.queues.settle(batch, response(batch, a0=code))
    assert settled.superseded == [order]
    assert order.is_cancelled
    assert sent.marked == []
    assert sent.queues.take(TWO) is None


@pytest.mark.parametrize("code", [E.UNSUPPORTED_FOR_MESSAGE_FORMAT, E.UNSUPPORTED_VERSION])
def test_a_partition_that_takes_no_markers_is_passed_over(code: ErrorCode) -> None:
    sent = QueueBench()
    order = order_of(A0)
    sent.queues.add(order, [A0], image(a=(1,)))
    batch = sent.queues.take(ONE)
    assert batch is not None
    assert sent.queues.settle(batch, response(batch, a0=code)) == ([], [])
    assert sent.marked == [("t7", [A0])]


def test_a_partition_that_the_answer_does_not_name_is_tried_again() -> None:
    sent = QueueBench()
    order = order_of(A0)
    sent.queues.add(order, [A0], image(a=(1,)))
    batch = sent.queues.take(ONE)
    assert batch is not None
    settled = sent.queues.settle(batch, WriteTxnMarkersResponse())
    assert settled.retried == [(order, frozenset((A0,)))]


def test_a_partition_of_a_deleted_topic_needs_no_marker() -> None:
    sent = QueueBench()
    order = order_of(A0, B0)
    sent.queues.add(order, order.missing, image(a=(1,)))
    assert sent.marked == [("t7", [B0])]


def test_a_partition_without_a_leader_waits_until_it_has_one() -> None:
    sent = QueueBench()
    order = order_of(A0, A1)
    sent.queues.add(order, order.missing, image(a=(-1, 9)))
    assert list(sent.queues.brokers()) == []
    assert (sent.queues.unknown_count, sent.queues.waiting_count) == (1, 2)
    sent.queues.reroute(image(a=(1, -1)))
    assert list(sent.queues.brokers()) == [ONE]
    sent.queues.reroute(image())
    assert sent.marked == [("t7", [A1])]
    assert sent.queues.unknown_count == 0


def test_a_request_names_a_producer_id_once() -> None:
    sent = QueueBench()
    cluster = image(a=(1, 1))
    sent.queues.add(order_of(A0, epoch=5), [A0], cluster)
    sent.queues.add(order_of(A1, epoch=6), [A1], cluster)
    sent.queues.add(order_of(A1, producer_id=8), [A1], cluster)
    first, second = sent.queues.take(ONE), sent.queues.take(ONE)
    assert first is not None
    assert second is not None
    assert [(order.producer_id, order.producer_epoch) for order in first.parts] == [(7, 5), (8, 5)]
    assert [(order.producer_id, order.producer_epoch) for order in second.parts] == [(7, 6)]


def test_what_is_cancelled_is_sent_no_longer() -> None:
    sent = QueueBench()
    order = order_of(A0)
    sent.queues.add(order, [A0], image(a=(1,)))
    order.is_cancelled = True
    assert sent.queues.take(ONE) is None
    sent.queues.add(order, [A0], image(a=(1,)))
    assert list(sent.queues.brokers()) == []
