"""Requests of transactions for the table of error codes, and producers in each state."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import trio

from ottla.model.ids import ProducerId
from ottla.wire.apis import API, PRODUCE_TOPIC_IDS_FROM
from ottla.wire.batch_builder import RecordToBuild, build_batch
from ottla.wire.codec_types import Message
from ottla.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from ottla.wire.messages.end_txn_request import EndTxnRequest
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.list_transactions_request import ListTransactionsRequest
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

ALL_VERSIONS = "OTTLA_ALL_VERSIONS" in os.environ
TOPIC, ELSEWHERE, STUCK = "error-table", "error-table-elsewhere", "error-table-stuck"
"""The topics that the broker has; into the last one no marker gets."""
ABSENT = "error-table-absent"
NO_NAME = "a b"
OFFSETS, STATE = "__consumer_offsets", "__transaction_state"
WALL_MS = 1_760_000_000_000
TIMEOUT_MAX_MS = 900_000
OTHER = 1 << 40
"""A producer id that no producer has."""


class Producer(NamedTuple):
    """A transactional id in its coordinator's state, and the producer that sends the requests."""

    id: str | None
    producer_id: int = OTHER
    epoch: int = 0
    topic_ids: Mapping[str, UUID] = {}
    sequence: int = 0
    """Sequence number of the next record in the first partition."""


Of = Callable[[Producer], Any]
"""A value that depends on the producer."""


def epoch(by: int) -> Of:
    """Return an epoch beside the current one."""
    return lambda producer: producer.epoch + by


BEFORE, NEXT = epoch(-1), epoch(1)


@dataclass(frozen=True)
class Row:
    """One request, and its expected outcome from each version on."""

    name: str
    build: Callable[..., Message]
    codes: Mapping[int, str]
    until: int
    changes: Mapping[str, Any]

    @property
    def versions(self) -> list[int]:
        """The versions in which it is asked."""
        first = min(self.codes)
        api = API[self.request(Producer("t"), first).API_KEY]
        there = [one for one in api.advertised if api.serves(one) and first <= one <= self.until]
        if ALL_VERSIONS:
            return there
        return [one for one in there if one in self.codes or one in (there[0], there[-1])]

    def request(self, producer: Producer, version: int) -> Message:
        """Return the request: its sender is from the producer, the rest from the row."""
        changes = {
            key: value(producer) if callable(value) else value
            for key, value in self.changes.items()
        }
        who = {key: changes.pop(key) for key in Producer._fields if key in changes}
        return self.build(producer._replace(**who), version, **changes)

    def code(self, version: int) -> str:
        """Return the expected outcome of a version."""
        return self.codes[max(first for first in self.codes if first <= version)]


def row(
    name: str,
    build: Callable[..., Message],
    codes: str | Mapping[int, str],
    *,
    since: int = 0,
    until: int = 99,
    **changes: Any,
) -> Row:
    return Row(name, build, {since: codes} if isinstance(codes, str) else codes, until, changes)


# Requests


def init(t: Producer, version: int, *, timeout_ms: int = 60_000, **changes: Any) -> Message:
    return InitProducerIdRequest(
        transactional_id=t.id, transaction_timeout_ms=timeout_ms, **changes
    )


def init_again(t: Producer, version: int) -> Message:
    """Ask for an epoch in the name of a producer."""
    return init(t, version, producer_id=t.producer_id, producer_epoch=t.epoch)


def add(
    t: Producer, version: int, *, at: tuple[tuple[str, int], ...] = ((TOPIC, 0),), **changes: Any
) -> Message:
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in at]
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=t.id or "",
            v3_and_below_producer_id=t.producer_id,
            v3_and_below_producer_epoch=t.epoch,
            v3_and_below_topics=topics,
        )
    one = AddPartitionsToTxnTransaction(
        transactional_id=t.id or "",
        producer_id=t.producer_id,
        producer_epoch=t.epoch,
        topics=topics,
        **changes,
    )
    return AddPartitionsToTxnRequest(transactions=[one])


def verify(t: Producer, version: int, **changes: Any) -> Message:
    return add(t, version, verify_only=True, **changes)


def add_offsets(t: Producer, version: int, *, group_id: str = "g") -> Message:
    return AddOffsetsToTxnRequest(
        transactional_id=t.id or "",
        producer_id=t.producer_id,
        producer_epoch=t.epoch,
        group_id=group_id,
    )


def end(t: Producer, version: int, *, committed: bool) -> Message:
    return EndTxnRequest(
        transactional_id=t.id or "",
        producer_id=t.producer_id,
        producer_epoch=t.epoch,
        committed=committed,
    )


def commit(t: Producer, version: int) -> Message:
    return end(t, version, committed=True)


def abort(t: Producer, version: int) -> Message:
    return end(t, version, committed=False)


def commit_offsets(
    t: Producer,
    version: int,
    *,
    group_id: str = "g",
    topic: str = TOPIC,
    index: int = 0,
    text: str = "",
    **changes: Any,
) -> Message:
    position = TxnOffsetCommitRequestPartition(
        partition_index=index, committed_offset=1, committed_metadata=text
    )
    named = TxnOffsetCommitRequestTopic(name=topic, partitions=[position])
    if version >= 6:
        topic_id = t.topic_ids.get(topic, UUID(int=77))
        named = TxnOffsetCommitRequestTopic(topic_id=topic_id, partitions=[position])
    return TxnOffsetCommitRequest(
        transactional_id=t.id or "",
        group_id=group_id,
        producer_id=t.producer_id,
        producer_epoch=t.epoch,
        **{"topics": [named], **changes},
    )


def batch(t: Producer, *, is_transactional: bool = True) -> bytes:
    """Return a batch of one record."""
    return build_batch(
        [RecordToBuild(WALL_MS, None, b"x")],
        producer_id=ProducerId(t.producer_id),
        producer_epoch=t.epoch,
        base_sequence=t.sequence,
        is_transactional=is_transactional,
    )


def produce_batches(
    t: Producer, version: int, batches: Mapping[tuple[str, int], bytes], acks: int = -1
) -> Message:
    topics = []
    for (name, index), records in batches.items():
        data = [PartitionProduceData(index=index, records=records)]
        if version >= PRODUCE_TOPIC_IDS_FROM:
            topic_id = t.topic_ids.get(name, UUID(int=77))
            topics.append(TopicProduceData(topic_id=topic_id, partition_data=data))
        else:
            topics.append(TopicProduceData(name=name, partition_data=data))
    return ProduceRequest(transactional_id=t.id, acks=acks, timeout_ms=10_000, topic_data=topics)


def produce(
    t: Producer,
    version: int,
    *,
    at: tuple[str, int] = (TOPIC, 0),
    is_transactional: bool = True,
    acks: int = -1,
) -> Message:
    records = batch(t, is_transactional=is_transactional)
    return produce_batches(t, version, {at: records}, acks)


def produce_of_two(t: Producer, version: int) -> Message:
    """Produce batches of two producers in one request."""
    other = t._replace(producer_id=OTHER)
    batches = {(TOPIC, 0): batch(t), (ELSEWHERE, 0): batch(other)}
    return produce_batches(t, version, batches)


def produce_in_two(t: Producer, version: int) -> Message:
    """Produce into the first partition, and into one that was not added to the transaction."""
    batches = {(TOPIC, 0): batch(t), (ELSEWHERE, 0): batch(t._replace(sequence=0))}
    return produce_batches(t, version, batches)


def mark(
    t: Producer,
    version: int,
    *,
    at: tuple[tuple[str, int], ...] = ((TOPIC, 0),),
    is_commit: bool = False,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> Message:
    topics = [WritableTxnMarkerTopic(name=name, partition_indexes=[index]) for name, index in at]
    marker = WritableTxnMarker(
        producer_id=t.producer_id,
        producer_epoch=t.epoch,
        transaction_result=is_commit,
        topics=topics,
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version if version >= 2 else 0,
    )
    return WriteTxnMarkersRequest(markers=[marker])


def describe(t: Producer, version: int) -> Message:
    return DescribeTransactionsRequest(transactional_ids=[t.id or ""])


def list_all(t: Producer, version: int, **changes: Any) -> Message:
    return ListTransactionsRequest(**changes)


def describe_producers(t: Producer, version: int, *, topic: str = TOPIC, index: int = 0) -> Message:
    asked = TopicRequest(name=topic, partition_indexes=[index])
    return DescribeProducersRequest(topics=[asked])


def find(t: Producer, version: int, *, key_type: int = 1) -> Message:
    if version >= 4:
        return FindCoordinatorRequest(key_type=key_type, coordinator_keys=[t.id or ""])
    return FindCoordinatorRequest(key=t.id or "", key_type=key_type)


# Producers in each state


async def unknown_producer(broker: Any) -> Producer:
    """Return a transactional id and a producer id that no producer has."""
    names = (TOPIC, ELSEWHERE, STUCK)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    topics = (await broker.ask(request)).topics
    name = uuid4()
    return Producer(
        f"t-{name}",
        OTHER + name.int % OTHER,
        topic_ids={one.name or "": one.topic_id for one in topics},
    )


async def empty(broker: Any) -> Producer:
    """Return a producer that has begun nothing; its epoch has been bumped once."""
    producer = await unknown_producer(broker)
    for _ in range(2):
        answer = await broker.accepted(init(producer, 5))
    return producer._replace(producer_id=answer.producer_id, epoch=answer.producer_epoch)


async def initialised_again(broker: Any) -> Producer:
    """Return a producer that asked for its last epoch by the one before."""
    producer = await empty(broker)
    answer = await broker.accepted(init_again(producer, 5))
    return producer._replace(epoch=answer.producer_epoch)


async def ongoing(broker: Any) -> Producer:
    """Return a producer with one record and a group's offsets in an open transaction."""
    producer = await empty(broker)
    await broker.accepted_in(add(producer, 3), 3)
    await broker.accepted_in(add_offsets(producer, 3), 3)
    await broker.accepted_in(produce(producer, 11), 11)
    return producer._replace(sequence=1)


async def ended(broker: Any, version: int, *, is_commit: bool) -> Producer:
    """Return a producer whose transaction has ended, by the protocol of the version."""
    producer = await ongoing(broker)
    answer = await broker.accepted_in(end(producer, version, committed=is_commit), version)
    with trio.fail_after(60):
        while (await state_of(broker, producer)).startswith("Prepare"):
            await trio.sleep(0.01)
    if version < 5:
        return producer
    return producer._replace(epoch=answer.producer_epoch, sequence=0)


async def state_of(broker: Any, producer: Producer) -> str:
    answer = await broker.ask(describe(producer, 0))
    return str(answer.transaction_states[0].transaction_state)


async def committed(broker: Any) -> Producer:
    return await ended(broker, 4, is_commit=True)


async def aborted(broker: Any) -> Producer:
    return await ended(broker, 4, is_commit=False)


async def committed_with_bump(broker: Any) -> Producer:
    return await ended(broker, 5, is_commit=True)


async def aborted_with_bump(broker: Any) -> Producer:
    return await ended(broker, 5, is_commit=False)


async def prepared(broker: Any, version: int, *, is_commit: bool) -> Producer:
    """Return a producer whose transaction is decided, and cannot be completed."""
    producer = await empty(broker)
    await broker.accepted_in(add(producer, 3, at=((STUCK, 0),)), 3)
    answer = await broker.accepted_in(end(producer, version, committed=is_commit), version)
    return producer if version < 5 else producer._replace(epoch=answer.producer_epoch)


async def committing(broker: Any) -> Producer:
    return await prepared(broker, 4, is_commit=True)


async def aborting(broker: Any) -> Producer:
    return await prepared(broker, 4, is_commit=False)


async def committing_with_bump(broker: Any) -> Producer:
    return await prepared(broker, 5, is_commit=True)
