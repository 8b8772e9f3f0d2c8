"""Transaction markers: the response for each, and the records that read_committed returns after."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.logs.list_offsets import ListOffsetsApi
from ottla.broker.logs.write_txn_markers import TransactionEnd, WriteTxnMarkersApi
from ottla.broker.replicas.partition import Partition
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, Offset, ProducerId
from ottla.model.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.node.network.steps import finished
from ottla.storage.producers.verification import UNGUARDED
from ottla.wire.batch import batches
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData
from ottla.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.wire.messages.write_txn_markers_response import WriteTxnMarkersResponse
from ottla.wire.offset_timestamps import LATEST
from ottla.wire.records import scan

World = Any  # the class of the `world` fixture, in conftest.py

PRODUCER = 7
TIMEOUT_MS = 1_000
VERSIONS = (1, 2)


class Offsets:
    """The group coordinator, as far as markers know it."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, TransactionEnd, Callable[[ErrorCode], None]]] = []

    def end_transaction(
        self, index: int, end: TransactionEnd, responder: Callable[[ErrorCode], None]
    ) -> None:
        self.asked.append((index, end, responder))


def write(
    world: World,
    *parts: tuple[str, int],
    producer_id: int = PRODUCER,
    epoch: int = 0,
    is_commit: bool = True,
    coordinator_epoch: int = 3,
    version: int = 2,
    transaction_version: int = 0,
    offsets: Offsets | None = None,
) -> Any:
    api = WriteTxnMarkersApi(
        table=world.table,
        purgatory=world.purgatory,
        clock=world.clock,
        offsets=offsets or Offsets(),
        timeout_ms=TIMEOUT_MS,
    )
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_result=is_commit,
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version,
                topics=[
                    WritableTxnMarkerTopic(name=topic, partition_indexes=[index])
                    for topic, index in parts
                ],
            )
        ]
    )
    return world.run(api.handle, world.call(27, version), request)


def codes(call: Any) -> list[ErrorCode]:
    response: WriteTxnMarkersResponse = call.response(WriteTxnMarkersResponse)
    return [
        ErrorCode(partition.error_code)
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    ]


def begin(world: World, partition: Partition, *, epoch: int = 0, sequence: int = 0) -> None:
    partition.append(
        world.batch(
            b"v",
            producer_id=ProducerId(PRODUCER),
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        ),
        acks=1,
        now_ms=world.clock.wall_ms(),
        mono_ms=world.clock.now_ms,
        guard=UNGUARDED,
    )


def replicate(world: World, partition: Partition, end_offset: int) -> None:
    partition.on_follower_fetch(
        NodeId(2),
        end_offset=Offset(end_offset),
        log_start_offset=Offset(0),
        broker_epoch=10,
        now_ms=world.clock.now_ms,
    )


def fetch(world: World, offset: int, *, wait_ms: int = 0) -> Any:
    topic_id = world.table.image.topic_ids.get("t")
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return world.fetch(
        FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1 if wait_ms else 0,
            isolation_level=1,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic="t", topic_id=topic_id, partitions=[part])],
        )
    )


def fetched(call: Any) -> PartitionData:
    response: FetchResponse = call.response(FetchResponse)
    return response.responses[0].partitions[0]


async def stable_end(world: World) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1,
        topics=[
            ListOffsetsTopic(
                name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)]
            )
        ],
    )
    api = ListOffsetsApi(table=world.table)
    answer = await finished(api.handle(world.call(2, 7).context, request))
    offset: int = answer.topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_marker_ends_the_transaction_and_says_how(
    world: World, version: int, is_commit: bool
) -> None:
    partition = await world.add("t")
    begin(world, partition)
    assert await stable_end(world) == 0
    call = write(world, ("t", 0), is_commit=is_commit, version=version)
    assert codes(call) == [ErrorCode.NONE]
    assert await stable_end(world) == 2
    data = fetched(fetch(world, 0))
    records = bytes(memoryview(data.records))  # type: ignore[arg-type]
    (_, _), (at, marker) = batches(records)
    assert (marker.is_control, marker.is_transactional) == (True, True)
    assert (marker.producer_id, marker.producer_epoch, marker.base_sequence) == (PRODUCER, 0, -1)
    (record,) = scan(records, at, marker)
    assert record.key == bytes((0, 0, 0, int(is_commit)))
    assert record.value == bytes((0, 0, 0, 0, 0, 3))
    aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
    assert aborted == ([] if is_commit else [(PRODUCER, 0)])


async def test_a_marker_is_answered_when_it_is_committed_and_wakes_who_waits_for_it(
    world: World,
) -> None:
    partition = await world.add("t", replicas=(1, 2))
    begin(world, partition)
    replicate(world, partition, 1)
    reader = fetch(world, 0, wait_ms=5_000)
    call = write(world, ("t", 0))
    assert not call.is_completed
    assert not reader.is_completed
    assert await stable_end(world) == 0
    replicate(world, partition, 2)
    assert codes(call) == [ErrorCode.NONE]
    assert fetched(reader).last_stable_offset == 2
    assert await stable_end(world) == 2


async def test_read_committed_waits_below_an_open_transaction(world: World) -> None:
    partition = await world.add("t")
    world.produce(_plain(world))
    begin(world, partition)
    data = fetched(fetch(world, 0))
    assert (data.high_watermark, data.last_stable_offset) == (2, 1)
    assert len(list(batches(bytes(memoryview(data.records))))) == 1  # type: ignore[arg-type]
    reader = fetch(world, 1, wait_ms=500)
    assert not reader.is_completed
    world.pass_time(501)
    assert fetched(reader).last_stable_offset == 1


def _plain(world: World) -> Any:
    return ProduceRequest(
        acks=1,
        timeout_ms=1_000,
        topic_data=[
            TopicProduceData(
                name="t",
                topic_id=world.table.image.topic_ids["t"],
                partition_data=[PartitionProduceData(index=0, records=world.batch(b"plain"))],
            )
        ],
    )


async def test_a_marker_without_replicas_times_out_and_may_come_again(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    begin(world, partition)
    call = write(world, ("t", 0))
    world.pass_time(TIMEOUT_MS + 1)
    assert codes(call) == [ErrorCode.REQUEST_TIMED_OUT]
    again = write(world, ("t", 0))
    replicate(world, partition, 3)
    assert codes(again) == [ErrorCode.NONE]
    assert await stable_end(world) == 3


async def test_each_partition_has_a_code_of_its_own(world: World) -> None:
    partition = await world.add("t")
    await world.add("elsewhere", replicas=(2, 3), leader=2)
    await world.add(TRANSACTIONS_TOPIC)
    begin(world, partition, epoch=4)
    call = write(
        world,
        ("t", 0),
        ("t", 9),
        ("elsewhere", 0),
        ("nowhere", 0),
        (TRANSACTIONS_TOPIC, 0),
        epoch=4,
    )
    assert codes(call) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert codes(write(world, ("t", 0), epoch=3)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert codes(write(world, ("t", 0), epoch=4, coordinator_epoch=2)) == [
        ErrorCode.TRANSACTION_COORDINATOR_FENCED
    ]


async def test_the_epoch_of_an_open_transaction_ends_it_under_old_versions_only(
    world: World,
) -> None:
    partition = await world.add("t")
    begin(world, partition, epoch=4)
    stale = write(world, ("t", 0), epoch=4, transaction_version=2)
    assert codes(stale) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert await stable_end(world) == 0
    assert codes(write(world, ("t", 0), epoch=5, transaction_version=2)) == [ErrorCode.NONE]
    assert codes(write(world, ("t", 0), epoch=5, transaction_version=2)) == [ErrorCode.NONE]


async def test_offsets_are_the_group_coordinator_s(world: World) -> None:
    partition = await world.add("t")
    begin(world, partition)
    offsets = Offsets()
    call = write(world, (OFFSETS_TOPIC, 4), ("t", 0), is_commit=False, offsets=offsets)
    assert not call.is_completed
    ((index, end, responder),) = offsets.asked
    assert (index, end.producer_id, end.is_commit) == (4, PRODUCER, False)
    responder(ErrorCode.NONE)
    assert codes(call) == [ErrorCode.NONE, ErrorCode.NONE]
    call = write(world, (OFFSETS_TOPIC, 4), offsets=offsets)
    offsets.asked[-1][-1](ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert codes(call) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (PRODUCER, -1)])
async def test_a_marker_of_no_producer_is_written_nowhere(
    world: World, producer_id: int, epoch: int
) -> None:
    partition = await world.add("t")
    await world.add(OFFSETS_TOPIC)
    offsets = Offsets()
    parts = ("t", 0), (OFFSETS_TOPIC, 0), ("lost", 0)
    call = write(world, *parts, producer_id=producer_id, epoch=epoch, offsets=offsets)
    assert codes(call) == [
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert offsets.asked == []
    assert partition.log is not None
    assert partition.log.end_offset == 0


async def test_nothing_asked_is_answered(world: World) -> None:
    assert codes(write(world)) == []
