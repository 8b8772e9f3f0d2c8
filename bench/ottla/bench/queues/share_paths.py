"""Code paths of share groups whose CPU instructions the gate counts: ShareFetch and
ShareAcknowledge of one record, through a whole broker core behind one connection."""

from collections.abc import Callable, Iterator
from copy import copy
from functools import cache

from ottla.bench.requests import frame_of
from ottla.broker.coordinators.share_persister import SharePartitionKey
from ottla.jepsen.fuzz.mini_broker import LOCAL, NOW_MS, TOPIC, MiniBroker, cluster, id_of
from ottla.jepsen.in_memory_controller import CountingRng
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode
from ottla.model.internal_topics import SHARE_STATE_TOPIC
from ottla.model.limits import MIB
from ottla.wire.batch_builder import build_batch
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.share_acknowledge_request import (
    AcknowledgementBatch as AcknowledgedBatch,
)
from ottla.wire.messages.share_acknowledge_request import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from ottla.wire.messages.share_fetch_request import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)

SHARE_VERSION = 1
PRODUCE_VERSION = 12
GROUP, MEMBER = "gate", "gate-member-000000000"
ACCEPT = 1
RECORDS = 100
"""Number of records, each in its own batch, that a measured code path can consume. It must exceed
the number of counted runs of a path."""


def share_fetches() -> Callable[[], object]:
    """Return a code path of ShareFetch requests. Each request accepts one record and fetches the
    next record."""
    broker = share_broker()
    broker.exchange_in_turn(frame_of(_fetch(1), SHARE_VERSION))
    epochs = range(2, RECORDS)
    frames = [frame_of(_fetch(epoch, accepted=epoch - 2), SHARE_VERSION) for epoch in epochs]
    return _one_by_one(broker, iter(frames))


def share_acknowledgements() -> Callable[[], object]:
    """Return a code path of ShareAcknowledge requests. Each request accepts one of many records
    that were fetched before."""
    broker = share_broker()
    broker.exchange_in_turn(frame_of(_fetch(1, records_max=RECORDS), SHARE_VERSION))
    epochs = range(2, RECORDS)
    frames = [frame_of(_acknowledge(epoch, offset=epoch - 2), SHARE_VERSION) for epoch in epochs]
    return _one_by_one(broker, iter(frames))


def _one_by_one(broker: MiniBroker, frames: Iterator[bytes]) -> Callable[[], object]:
    return lambda: broker.exchange_in_turn(next(frames))


def share_broker() -> MiniBroker:
    """Return a broker without drivers that has records, and a member's share session in epoch 1."""
    broker = MiniBroker(frame_bytes_max=MIB, image=image_with(((SHARE_STATE_TOPIC, 1),)))
    batch = build_batch([(NOW_MS, b"key", b"v" * 100)])
    data = [PartitionProduceData(index=0, records=batch)]
    produce = ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
    )
    for _ in range(RECORDS):
        broker.exchange(frame_of(produce, PRODUCE_VERSION))
    codes: list[ErrorCode] = []
    turn_end = broker.dispatcher.turn_end
    turn_end.begin()
    broker.core.local_share_persister.initialize(
        SharePartitionKey(GROUP, id_of(TOPIC), 0),
        state_epoch=0,
        start_offset=0,
        on_done=codes.append,
    )
    turn_end.end(broker.dispatcher.errors)
    assert codes == [ErrorCode.NONE]
    broker.exchange_in_turn(frame_of(_fetch(0), SHARE_VERSION))  # It loads the state.
    return broker


@cache
def image_with(topics: tuple[tuple[str, int], ...]) -> MetadataImage:
    """Return the metadata of the simulated broker's cluster, extended by topics. Each topic is
    given as its name and its number of partitions."""
    made = copy(cluster())
    made.rng = CountingRng(drawn=made.rng.drawn)
    for name, count in topics:
        assignments = [
            CreatableReplicaAssignment(partition_index=at, broker_ids=[LOCAL])
            for at in range(count)
        ]
        topic = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        made.forward(CreateTopicsRequest(topics=[topic]))
    return made.image


def _fetch(epoch: int, *, accepted: int | None = None, records_max: int = 1) -> ShareFetchRequest:
    """Return a ShareFetch request for at most `records_max` records. If `accepted` is an offset,
    the request also accepts the record at that offset."""
    asked = FetchPartition(partition_index=0)
    if accepted is not None:
        batch = AcknowledgementBatch(
            first_offset=accepted, last_offset=accepted, acknowledge_types=[ACCEPT]
        )
        asked.acknowledgement_batches = [batch]
    return ShareFetchRequest(
        group_id=GROUP,
        member_id=MEMBER,
        share_session_epoch=epoch,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=MIB,
        max_records=records_max,
        batch_size=records_max,
        topics=[FetchTopic(topic_id=id_of(TOPIC), partitions=[asked])],
    )


def _acknowledge(epoch: int, *, offset: int) -> ShareAcknowledgeRequest:
    batch = AcknowledgedBatch(first_offset=offset, last_offset=offset, acknowledge_types=[ACCEPT])
    partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    return ShareAcknowledgeRequest(
        group_id=GROUP,
        member_id=MEMBER,
        share_session_epoch=epoch,
        topics=[AcknowledgeTopic(topic_id=id_of(TOPIC), partitions=[partition])],
    )
