"""TxnOffsetCommit over real logs: written, held back, counted or forgotten at the end."""

from typing import Any
from uuid import UUID

import pytest
import trio.testing

from ottla.broker.coordinators.shard_coordinator_driver import CoordinatorDriver
from ottla.broker.logs.verification_requests import TransactionOperation
from ottla.broker.logs.write_txn_markers import TransactionEnd
from ottla.broker.replicas.partition import Partition
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, NodeId, Offset, ProducerId
from ottla.model.internal_topics import OFFSETS_TOPIC
from ottla.wire.batch import batches
from ottla.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse
from ottla.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.messages.txn_offset_commit_response import TxnOffsetCommitResponse

PRODUCER = 7
NONE = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


def request(
    world: Any,
    offset: int,
    *,
    producer_id: int = PRODUCER,
    epoch: int = 0,
    topic: str = "orders",
    index: int = 0,
    member_id: str = "",
    generation_id: int = -1,
    group_id: str = "g",
) -> TxnOffsetCommitRequest:
    part = TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
    return TxnOffsetCommitRequest(
        transactional_id="pay",
        group_id=group_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                topic_id=world.table.image.topic_ids.get(topic, NOWHERE),
                partitions=[part],
            )
        ],
    )


NOWHERE = UUID(int=99)


async def commit(groups: Any, offset: int, *, version: int = 5, **more: Any) -> Any:
    return await groups.ask(request(groups.world, offset, **more), version)


def code(call: Any) -> ErrorCode:
    ((part,),) = [topic.partitions for topic in call.response(TxnOffsetCommitResponse).topics]
    return ErrorCode(part.error_code)


async def end(
    groups: Any, *, is_commit: bool = True, producer_id: int = PRODUCER, epoch: int = 0
) -> list[ErrorCode]:
    found: list[ErrorCode] = []
    marker = TransactionEnd(ProducerId(producer_id), epoch, is_commit, Epoch(0), 0)
    groups.coordinator.end_transaction(0, marker, found.append)
    await trio.testing.wait_all_tasks_blocked()
    return found


async def stable(groups: Any, *, version: int = 9) -> tuple[ErrorCode, int]:
    """Ask for the offset as a reader of committed records does."""
    asked = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id="g",
                topics=[OffsetFetchRequestTopics(name="orders", partition_indexes=[0])],
            )
        ],
        require_stable=True,
    )
    call = await groups.ask(asked, version)
    ((part,),) = [topic.partitions for topic in call.response(OffsetFetchResponse).groups[0].topics]
    return ErrorCode(part.error_code), part.committed_offset


def replicate(led: Partition) -> None:
    assert led.log is not None
    led.on_follower_fetch(
        NodeId(2),
        end_offset=led.log.end_offset,
        log_start_offset=Offset(0),
        broker_epoch=10,
        now_ms=2_000,
    )


@pytest.mark.parametrize("is_at_once", [False, True])
@pytest.mark.parametrize("version", range(7))
async def test_an_offset_counts_when_its_transaction_is_committed(
    world: Any, coordinated: Any, version: int, is_at_once: bool
) -> None:
    world.coordinators.is_at_once = is_at_once
    async with coordinated(world) as (groups, led):
        await groups.commit(1)
        assert code(await commit(groups, 42, version=version)) is NONE
        assert await groups.fetched() == (NONE, 1)
        assert await stable(groups) == (UNSTABLE, -1)
        assert await end(groups) == [NONE]
        assert await stable(groups) == (NONE, 42)
        read = led.log.read(
            Offset(0), bytes_max=1 << 20, end_offset=led.log.end_offset, at_least_one=True
        )
        kinds = [
            (header.is_transactional, header.is_control, header.producer_id)
            for _, header in batches(read.slice.read())
        ]
        assert kinds == [(False, False, -1), (True, False, 7), (True, True, 7)]


async def test_an_offset_of_an_aborted_transaction_is_forgotten(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world) as (groups, _):
        await groups.commit(1)
        await commit(groups, 42)
        assert await end(groups, is_commit=False) == [NONE]
        assert await stable(groups) == (NONE, 1)


@pytest.mark.parametrize(
    ("version", "operation"),
    [
        (0, TransactionOperation.VERIFY_FOR_OLD),
        (3, TransactionOperation.VERIFY_FOR_OLD),
        (4, TransactionOperation.VERIFY),
        (5, TransactionOperation.ADD),
    ],
)
async def test_the_transaction_s_coordinator_is_asked_once(
    world: Any, coordinated: Any, version: int, operation: TransactionOperation
) -> None:
    async with coordinated(world) as (groups, _):
        await commit(groups, 1, version=version)
        await commit(groups, 2, version=version)
        place = [(OFFSETS_TOPIC, 0)]
        assert world.coordinators.asked == [("pay", PRODUCER, 0, operation, place, 700)]


@pytest.mark.parametrize(
    ("said", "version", "expected"),
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 5, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NETWORK_EXCEPTION, 3, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 4, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.PRODUCER_FENCED, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 5, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
async def test_the_coordinators_error_is_returned_and_nothing_is_written(
    world: Any, coordinated: Any, said: ErrorCode, version: int, expected: ErrorCode
) -> None:
    async with coordinated(world) as (groups, led):
        world.coordinators.codes[OFFSETS_TOPIC, 0] = said
        assert code(await commit(groups, 42, version=version)) is expected
        assert led.log.end_offset == 0
        assert await stable(groups) == (NONE, -1)


@pytest.mark.parametrize(
    ("where", "version", "expected"),
    [
        ({"topic": "lost"}, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "lost", "group_id": ""}, 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "lost"}, 6, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"index": 9}, 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_of_what_is_not_there_no_coordinator_hears(
    world: Any, coordinated: Any, where: dict[str, Any], version: int, expected: ErrorCode
) -> None:
    async with coordinated(world) as (groups, _):
        world.coordinators.codes[OFFSETS_TOPIC, 0] = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert code(await commit(groups, 42, version=version, **where)) is expected
        assert world.coordinators.asked == []


async def test_a_marker_that_overtakes_the_answer_keeps_the_offset_out(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world) as (groups, led):
        marker = TransactionEnd(ProducerId(PRODUCER), 0, False, Epoch(0), 0)
        found: list[ErrorCode] = []
        world.coordinators.on_asked = lambda: groups.coordinator.end_transaction(
            0, marker, found.append
        )
        assert code(await commit(groups, 42, version=4)) is ErrorCode.INVALID_TXN_STATE
        assert led.log.end_offset == 1
        assert await stable(groups) == (NONE, -1)


async def test_an_old_producer_is_fenced(world: Any, coordinated: Any) -> None:
    async with coordinated(world) as (groups, _):
        await end(groups, epoch=4)
        assert code(await commit(groups, 42, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_another_coordinator_knows_what_waits(
    world: Any, coordinated: Any, make_coordinator: Any
) -> None:
    async with coordinated(world) as (groups, _):
        await groups.commit(1)
        await commit(groups, 42)
        await commit(groups, 43, producer_id=8)
        await end(groups, producer_id=8)
        async with trio.open_nursery() as nursery:
            other = make_coordinator(world)
            nursery.start_soon(CoordinatorDriver(other.coordinator).run)
            await other.publish()
            assert await stable(other) == (UNSTABLE, -1)
            assert await other.fetched() == (NONE, 43)
            assert await end(other) == [NONE]
            assert await stable(other) == (NONE, 43), "written later, it counts"
            nursery.cancel_scope.cancel()


async def test_a_marker_of_offsets_is_answered_when_it_is_committed(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world, replicas=(1, 2)) as (groups, led):
        call = await commit(groups, 42)
        assert not call.is_completed
        replicate(led)
        assert code(call) is NONE
        expected: list[ErrorCode] = []
        marker = TransactionEnd(ProducerId(PRODUCER), 0, True, Epoch(0), 0)
        groups.coordinator.end_transaction(0, marker, expected.append)
        assert expected == []
        replicate(led)
        assert expected == [NONE]
        assert await stable(groups) == (NONE, 42)


async def test_markers_for_what_is_not_led_or_there_are_refused(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world, replicas=(1, 2)) as (groups, led):
        marker = TransactionEnd(ProducerId(PRODUCER), 0, True, Epoch(0), 0)
        expected: list[ErrorCode] = []
        groups.coordinator.end_transaction(5, marker, expected.append)
        state = world.state(leader=2, replicas=(1, 2), leader_epoch=4, partition_epoch=1)
        world.know(OFFSETS_TOPIC, state)
        led.apply(state, led.config, 1_000)
        await groups.publish()
        groups.coordinator.end_transaction(0, marker, expected.append)
        assert expected == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_COORDINATOR]


async def test_what_waits_is_deleted_with_its_group_and_by_itself(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world) as (groups, _):
        await commit(groups, 42)
        topic = OffsetDeleteRequestTopic(
            name="orders", partitions=[OffsetDeleteRequestPartition(partition_index=0)]
        )
        await groups.ask(OffsetDeleteRequest(group_id="g", topics=[topic]))
        await end(groups)
        assert await stable(groups) == (NONE, -1)
        await commit(groups, 43, epoch=1)
        await groups.ask(DeleteGroupsRequest(groups_names=["g"]))
        await end(groups, epoch=1)
        assert await stable(groups) == (NONE, -1)


async def test_offsets_that_wait_keep_their_group(world: Any, coordinated: Any) -> None:
    async with coordinated(world) as (groups, _):
        await groups.commit(1)
        await commit(groups, 42)
        (shard,) = groups.coordinator.shards()
        world.clock.now_ms += 400 * 86_400_000
        shard.expire_offsets(groups.coordinator._now())
        while shard.has_work:
            shard.work(groups.coordinator._now())
        assert "g" in shard.groups
        assert await groups.fetched() == (NONE, 1)
        await end(groups, is_commit=False)
        shard.expire_offsets(groups.coordinator._now())
        while shard.has_work:
            shard.work(groups.coordinator._now())
        assert "g" not in shard.groups


@pytest.mark.parametrize(
    ("more", "version", "expected"),
    [
        ({"generation_id": 3}, 5, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 3}, 6, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"group_id": ""}, 5, ErrorCode.INVALID_GROUP_ID),
        ({"topic": "nowhere"}, 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "nowhere"}, 6, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"index": 7}, 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({}, 5, NONE),
    ],
)
async def test_who_may_commit_in_a_transaction(
    world: Any, coordinated: Any, more: dict[str, Any], version: int, expected: ErrorCode
) -> None:
    async with coordinated(world) as (groups, _):
        assert code(await commit(groups, 42, version=version, **more)) is expected


async def test_members_of_a_group_are_held_against_it(world: Any, coordinated: Any) -> None:
    async with coordinated(world) as (groups, _):
        member_id, epoch = "m", (await groups.consumer_heartbeat("m", 0)).member_epoch
        named = {"member_id": member_id, "generation_id": epoch}
        assert code(await commit(groups, 1, **named)) is NONE
        assert code(await commit(groups, 1)) is NONE, "clients of old name no member"
        stale = {"member_id": member_id, "generation_id": epoch + 1}
        assert code(await commit(groups, 1, **stale)) is ErrorCode.ILLEGAL_GENERATION
        own = await commit(groups, 1, version=6, **stale)
        assert code(own) is ErrorCode.STALE_MEMBER_EPOCH
        other = await commit(groups, 1, member_id="who", generation_id=epoch)
        assert code(other) is ErrorCode.UNKNOWN_MEMBER_ID
