"""Fetch, ListOffsets and DeleteRecords of a tiered partition whose oldest records are only copied.

Records of the object store are read by a fake. The copied segments have offsets 0 to 5, the local
log begins at 6 and ends at 10.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.logs.delete_records import DeleteRecordsApi
from ottla.broker.logs.fetch import FetchApi
from ottla.broker.logs.leader_epochs import LeaderEpochsApi
from ottla.broker.logs.list_offsets import ListOffsetsApi
from ottla.broker.replicas.partition import Partition
from ottla.broker.tier.remote_fetches import RemoteFetches, RemotePorts, first_batches
from ottla.broker.tier.remote_reads import RemoteNotFoundError, RemoteNotReadyError
from ottla.broker.tier.remote_reads_driver import RemoteReadTasks, within
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.model.settings.storage.topic import TopicConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.network.steps import finished
from ottla.storage.segments.timestamp_lookup import TimestampedOffset
from ottla.storage.tier.store_seam import StoreError
from ottla.wire.batch import batches
from ottla.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.delete_records_response import DeleteRecordsResponse
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData
from ottla.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.messages.list_offsets_response import ListOffsetsResponse
from ottla.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse
from tests.broker.tier.fake_remote_reads import FakeRemoteReads

World = Any  # the class of the `world` fixture, in conftest.py

TIERED = TopicConfig(remote_storage_enable=True, local_retention_bytes=0)
LOCAL_START, END = 6, 10


@dataclass
class Tier:
    """A world with tiered partitions, and the reads of their copied segments."""

    world: World
    reads: FakeRemoteReads
    errors: UnexpectedErrors
    waiting: list[Any] = field(default_factory=list)

    async def add(self, topic: str) -> Partition:
        """Add a tiered partition with ten records, of which four are local."""
        partition: Partition = await self.world.add(topic, config=TIERED)
        log = partition.log
        assert log is not None
        copied = []
        for value in range(END):
            batch = self.world.batch(b"%d" % value)
            partition.append(batch, acks=1, now_ms=self.world.clock.wall_ms(), mono_ms=1_000)
            if value < LOCAL_START:
                data = await log.read_bytes(
                    Offset(value), bytes_max=1 << 20, end_offset=log.end_offset
                )
                copied.append((Offset(value + 1), bytes(data)))
            if value % 2:
                await log.roll(now_ms=self.world.clock.wall_ms())
        log.copied_offset = Offset(LOCAL_START - 1)
        await log.delete_local_segments(self.world.clock.wall_ms())
        assert (log.log_start_offset, log.local_start_offset) == (0, LOCAL_START)
        self.reads.batches[partition.key] = copied
        self.reads.highest[partition.key] = OffsetAndEpoch(Offset(LOCAL_START - 1), Epoch(3))
        return partition


@pytest.fixture
async def tier(world: World, nursery: trio.Nursery) -> Tier:
    errors = UnexpectedErrors()
    tasks = RemoteReadTasks(errors)
    nursery.start_soon(tasks.run)
    await trio.testing.wait_all_tasks_blocked()
    reads = FakeRemoteReads()
    found = Tier(world, reads, errors)
    world.fetch_api = FetchApi(
        table=world.table,
        purgatory=world.purgatory,
        sessions=world.sessions,
        fetch_bytes_max=50_000_000,
        bring_in=world.bring_in,
        replication_quota=world.replication_quota,
        remote_fetches=RemoteFetches(reads, tasks.begin, world.purgatory.wake, errors),
    )
    world.list_offsets = ListOffsetsApi(
        table=world.table, remote=RemotePorts(reads, tasks.begin, within), remote_timeout_ms=40
    )
    await found.add("t")
    return found


def ask(
    world: World,
    *asked: tuple[str, int],
    wait_ms: int = 100,
    bytes_max: int = 1 << 20,
    isolation_level: int = 0,
    replica: int = -1,
) -> Any:
    """Begin a fetch of (topic, offset)s."""
    topics = [
        FetchTopic(
            topic_id=world.table.image.topic_ids[topic],
            partitions=[
                FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
            ],
        )
        for topic, offset in asked
    ]
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        session_epoch=-1,
        isolation_level=isolation_level,
        replica_state=ReplicaState(replica_id=replica, replica_epoch=10 if replica > 0 else -1),
        topics=topics,
    )
    return world.fetch(request)


def parts(call: Any) -> list[PartitionData]:
    response: FetchResponse = call.response(FetchResponse)
    return [part for topic in response.responses for part in topic.partitions]


def offsets_in(part: PartitionData) -> list[int]:
    assert part.records is None or isinstance(part.records, bytes | bytearray | memoryview)
    data = memoryview(part.records or b"")
    return [header.base_offset for _, header in batches(data, is_partial_end_allowed=True)]


async def test_records_below_the_local_start_are_read_from_the_object_store(tier: Tier) -> None:
    call = ask(tier.world, ("t", 2))
    assert not call.is_completed, "the event loop does not wait"
    await trio.testing.wait_all_tasks_blocked()

    (part,) = parts(call)
    assert (part.error_code, part.log_start_offset, part.high_watermark) == (0, 0, END)
    assert offsets_in(part) == [2, 3, 4, 5]
    assert tier.world.fetch_api.remote_fetches.kept_bytes == 0

    (local,) = parts(ask(tier.world, ("t", LOCAL_START)))
    assert offsets_in(local)[0] == LOCAL_START


async def test_a_slow_store_ends_the_wait_and_its_records_are_kept(tier: Tier) -> None:
    tier.reads.gate = trio.Event()
    first = ask(tier.world, ("t", 0), wait_ms=0)
    tier.world.pass_time(499)
    assert not first.is_completed
    tier.world.pass_time(1)
    (part,) = parts(first)
    assert (part.error_code, offsets_in(part)) == (0, [])

    await trio.testing.wait_all_tasks_blocked()
    again = ask(tier.world, ("t", 0))
    assert not again.is_completed
    tier.world.pass_time(500)
    tier.reads.gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert tier.world.fetch_api.remote_fetches.kept_bytes > 0

    third = ask(tier.world, ("t", 0))
    assert third.is_completed, "the read went on after the second fetch was answered"
    assert offsets_in(parts(third)[0]) == [0, 1, 2, 3, 4, 5]
    assert len(tier.reads.reads) == 1


async def test_a_kept_result_is_dropped_after_a_while(tier: Tier) -> None:
    ask(tier.world, ("t", 0)).slot.on_abandoned()
    await trio.testing.wait_all_tasks_blocked()
    fetches = tier.world.fetch_api.remote_fetches
    assert fetches.kept_bytes > 0
    tier.world.pass_time(30_000)
    ask(tier.world, ("t", 3))
    assert fetches.kept_bytes == 0


async def test_other_partitions_do_not_wait_for_the_object_store(tier: Tier) -> None:
    tier.reads.gate = trio.Event()
    call = ask(tier.world, ("t", 0), ("t2", 7)) if await tier.add("t2") else None
    assert call is not None
    copied, local = parts(call)
    assert offsets_in(copied) == []
    assert offsets_in(local) == [7]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RemoteNotFoundError("x"), ErrorCode.OFFSET_OUT_OF_RANGE),
        (RemoteNotReadyError("x"), ErrorCode.REPLICA_NOT_AVAILABLE),
        (StoreError("x"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ZeroDivisionError(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_failed_read_is_answered_with_its_code(
    tier: Tier, error: Exception, code: ErrorCode
) -> None:
    tier.reads.error = error
    call = ask(tier.world, ("t", 2))
    await trio.testing.wait_all_tasks_blocked()
    assert parts(call)[0].error_code == code
    assert tier.errors.counts["remote read"] == isinstance(error, ZeroDivisionError)

    tier.reads.error = None
    again = ask(tier.world, ("t", 2))
    await trio.testing.wait_all_tasks_blocked()
    assert offsets_in(parts(again)[0]) == [2, 3, 4, 5]


async def test_bytes_are_bounded_over_all_copied_partitions_of_a_fetch(tier: Tier) -> None:
    await tier.add("t2")
    size = len(tier.reads.batches[next(iter(tier.reads.batches))][0][1])
    call = ask(tier.world, ("t", 0), ("t2", 0), bytes_max=3 * size)
    await trio.testing.wait_all_tasks_blocked()
    first, second = parts(call)
    assert offsets_in(first) == [0, 1, 2]
    assert offsets_in(second) == []
    assert [bytes_max for _, _, bytes_max in tier.reads.reads] == [3 * size]

    one = ask(tier.world, ("t", 4), bytes_max=1)
    await trio.testing.wait_all_tasks_blocked()
    assert offsets_in(parts(one)[0]) == [4], "one batch always comes"


async def test_committed_reads_name_aborted_transactions_of_copied_segments(tier: Tier) -> None:
    tier.reads.aborted = [(7, Offset(3))]
    call = ask(tier.world, ("t", 2), isolation_level=1)
    await trio.testing.wait_all_tasks_blocked()
    (part,) = parts(call)
    assert [(one.producer_id, one.first_offset) for one in part.aborted_transactions or ()] == [
        (7, 3)
    ]


async def test_offsets_below_the_log_start_are_out_of_range(tier: Tier) -> None:
    log = tier.world.table.find("t", 0).log
    await log.raise_log_start_to(Offset(2))
    assert parts(ask(tier.world, ("t", 1)))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    call = ask(tier.world, ("t", 2))
    await trio.testing.wait_all_tasks_blocked()
    assert parts(call)[0].log_start_offset == 2


async def test_a_result_of_another_log_is_not_used(tier: Tier) -> None:
    tier.reads.gate = trio.Event()
    partition = tier.world.table.find("t", 0)
    ask(tier.world, ("t", 0))
    await trio.testing.wait_all_tasks_blocked()
    log, partition.log = partition.log, None
    tier.reads.gate.set()
    await trio.testing.wait_all_tasks_blocked()
    partition.log = log
    assert tier.world.fetch_api.remote_fetches.kept_bytes == 0


async def test_a_follower_gets_the_code_of_a_moved_offset(tier: Tier) -> None:
    partition = tier.world.table.find("t", 0)
    partition.apply(
        tier.world.state(replicas=(1, 2), isr=(1,), leader_epoch=4, partition_epoch=1), TIERED, 1
    )
    call = ask(tier.world, ("t", 3), replica=2)
    assert parts(call)[0].error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    assert tier.reads.reads == []
    assert partition.followers[NodeId(2)].end_offset != 3


async def test_records_are_deleted_in_both_tiers_up_to_the_high_watermark(tier: Tier) -> None:
    api = DeleteRecordsApi(table=tier.world.table, purgatory=tier.world.purgatory)
    log = tier.world.table.find("t", 0).log
    for before, local_start in ((3, LOCAL_START), (8, 8), (END, END)):
        asked = DeleteRecordsPartition(partition_index=0, offset=before)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=[asked])], timeout_ms=1_000
        )
        call = tier.world.call(21, 2)
        await finished(api.handle(call.context, request))
        (part,) = call.response(DeleteRecordsResponse).topics[0].partitions
        assert (part.error_code, part.low_watermark) == (0, before)
        assert (log.log_start_offset, log.local_start_offset) == (before, local_start)


async def test_leader_epochs_of_copied_records_are_known(tier: Tier) -> None:
    log = tier.world.table.find("t", 0).log
    log.assign_epoch(Epoch(5), log.end_offset)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderTopic(
                topic="t", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=3)]
            )
        ],
    )
    api = LeaderEpochsApi(table=tier.world.table)
    response: OffsetForLeaderEpochResponse = await finished(
        api.handle(tier.world.call(23, 4).context, request)
    )
    (part,) = response.topics[0].partitions
    assert (part.leader_epoch, part.end_offset) == (3, END)
    assert log.epochs()[0] == (3, 0), "the epoch of the copied records keeps its start"


async def offset_of(
    tier: Tier, timestamp: int, version: int = 11, *, replica: int = -1
) -> tuple[int, int, int]:
    request = ListOffsetsRequest(
        replica_id=replica,
        topics=[
            ListOffsetsTopic(
                name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
            )
        ],
    )
    call = tier.world.call(2, version)
    response: ListOffsetsResponse = await finished(
        tier.world.list_offsets.handle(call.context, request)
    )
    (part,) = response.topics[0].partitions
    return part.error_code, part.offset, part.leader_epoch


async def test_special_offsets_of_a_tiered_partition_are_those_of_kafka(tier: Tier) -> None:
    assert await offset_of(tier, -2) == (0, 0, 3)
    assert await offset_of(tier, -4) == (0, LOCAL_START, 3)
    assert await offset_of(tier, -5) == (0, LOCAL_START - 1, 3)
    assert await offset_of(tier, -6) == (0, LOCAL_START, 3)
    key = tier.world.table.find("t", 0).key
    for unknown in (None, OffsetAndEpoch(Offset(-1), Epoch(-1))):
        tier.reads.highest[key] = unknown
        assert await offset_of(tier, -5) == (0, -1, -1)
        assert await offset_of(tier, -6) == (0, -1, -1)
    await tier.world.table.find("t", 0).log.raise_log_start_to(Offset(8))
    assert await offset_of(tier, -4) == await offset_of(tier, -6) == (0, 8, 3)


async def test_no_upload_is_pending_for_clients_once_all_records_are_copied(tier: Tier) -> None:
    partition = tier.world.table.find("t", 0)
    tier.reads.highest[partition.key] = OffsetAndEpoch(Offset(END - 1), Epoch(3))
    assert await offset_of(tier, -6) == (0, -1, -1)
    assert await offset_of(tier, -6, replica=2) == (0, END, -1), "a follower begins there"
    log = partition.log
    assert log is not None
    await log.raise_log_start_to(Offset(END))
    assert await offset_of(tier, -6) == (0, -1, -1)
    tier.reads.highest[partition.key] = OffsetAndEpoch(Offset(-1), Epoch(-1))
    assert await offset_of(tier, -6) == (0, -1, -1), "an empty log"


async def test_offsets_by_time_are_looked_up_in_both_tiers(tier: Tier) -> None:
    tier.reads.times = [TimestampedOffset(Offset(4), 50, Epoch(2))]
    assert await offset_of(tier, 20) == (0, 4, 2)
    assert await offset_of(tier, 51) == (0, LOCAL_START, 3), "the local log has later records"
    assert await offset_of(tier, 1 << 50) == (0, -1, -1)
    tier.reads.error = RemoteNotReadyError("x")
    assert await offset_of(tier, 20) == (ErrorCode.REPLICA_NOT_AVAILABLE, -1, -1)


async def test_a_look_up_in_a_slow_store_ends(tier: Tier, autojump_clock: object) -> None:
    tier.reads.gate = trio.Event()
    assert await offset_of(tier, 20) == (ErrorCode.REQUEST_TIMED_OUT, -1, -1)
    assert tier.reads.running_count == 0


def test_batches_are_cut_at_their_ends(world: World) -> None:
    one = bytes(world.batch(b"v"))
    two = one * 2
    assert first_batches(two, len(two), at_least_one=False) == two
    assert first_batches(two, len(two) - 1, at_least_one=False) == one
    assert first_batches(two, 1, at_least_one=True) == one
    assert first_batches(two, 1, at_least_one=False) == b""
