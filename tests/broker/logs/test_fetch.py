"""Fetch: readable range, size limits, waits and quotas."""

from typing import Any

import pytest

from ottla.broker.logs.fetch import Fetch
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, Offset
from ottla.wire.messages.fetch_request import (
    FetchRequest,
    ReplicaState,
)
from ottla.wire.messages.fetch_response import FetchResponse
from tests.broker.logs.fetch_requests import World, append, ask, offsets, parts


@pytest.mark.parametrize("version", range(4, 19))
async def test_every_version_reads_what_is_committed(world: World, version: int) -> None:
    partition = await world.add("t")
    append(world, partition, b"a", b"b")
    append(world, partition, b"c")
    request = ask(world, ("t", 0, 2))
    if version < 15:
        request.replica_state = ReplicaState()
    (part,) = parts(world.fetch(request, version=version))
    assert part.error_code == 0
    assert part.high_watermark == 3
    assert offsets(part) == [2]


@pytest.mark.parametrize(("value_bytes", "is_slice"), [(1, False), (5_000, True)])
async def test_many_bytes_leave_as_a_slice_of_the_file(
    world: World, value_bytes: int, is_slice: bool
) -> None:
    partition = await world.add("t")
    append(world, partition, b"a" * value_bytes)
    call = world.fetch(ask(world, ("t", 0, 0)))
    assert is_slice == any(type(chunk).__name__ == "FileSlice" for chunk in call.slot.chunks)


async def test_an_offset_within_a_batch_brings_the_whole_batch(world: World) -> None:
    partition = await world.add("t")
    append(world, partition, b"a", b"b", b"c")
    (part,) = parts(world.fetch(ask(world, ("t", 0, 1))))
    assert offsets(part) == [0]


async def test_a_consumer_sees_the_committed_and_a_follower_all(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    (seen,) = parts(world.fetch(ask(world, ("t", 0, 0))))
    assert offsets(seen) == []
    (copied,) = parts(world.fetch(ask(world, ("t", 0, 0), replica=2)))
    assert offsets(copied) == [0]


async def test_a_followers_fetch_commits_and_wakes_the_consumer(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    consumer = world.fetch(ask(world, ("t", 0, 0), wait_ms=500))
    assert not consumer.is_completed
    follower = world.fetch(ask(world, ("t", 0, 1), replica=2, wait_ms=500, high_watermark=0))
    assert offsets(parts(consumer)[0]) == [0]
    # KIP-1166: it is sent the new high watermark at once, though there are no bytes for it.
    assert parts(follower)[0].high_watermark == 1


async def test_a_follower_that_knows_the_high_watermark_waits_for_an_append(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    call = world.fetch(ask(world, ("t", 0, 1), replica=2, wait_ms=500, high_watermark=1))
    assert not call.is_completed
    append(world, partition, b"b")
    assert offsets(parts(call)[0]) == [1]


async def test_an_append_wakes_who_waits(world: World) -> None:
    partition = await world.add("t")
    call = world.fetch(ask(world, ("t", 0, 0), wait_ms=500))
    assert not call.is_completed
    append(world, partition, b"a")
    assert offsets(parts(call)[0]) == [0]


async def test_min_bytes_makes_it_wait_on(world: World) -> None:
    partition = await world.add("t")
    call = world.fetch(ask(world, ("t", 0, 0), wait_ms=500, bytes_min=150))
    append(world, partition, b"a")
    append(world, partition, b"b")
    assert not call.is_completed
    append(world, partition, b"c")
    assert offsets(parts(call)[0]) == [0, 1, 2]


async def test_when_the_wait_is_over_it_answers_with_what_there_is(world: World) -> None:
    partition = await world.add("t")
    call = world.fetch(ask(world, ("t", 0, 0), wait_ms=500, bytes_min=10_000))
    append(world, partition, b"a")
    world.pass_time(501)
    assert offsets(parts(call)[0]) == [0]


async def test_a_closed_connection_leaves_nothing_waiting(world: World) -> None:
    await world.add("t")
    call = world.fetch(ask(world, ("t", 0, 0), wait_ms=500))
    assert world.purgatory.waiting_count == 1
    call.slot.abandon()
    assert world.purgatory.waiting_count == 0


async def test_the_first_batch_comes_whole_however_large_and_the_next_partition_waits(
    world: World,
) -> None:
    for index in (0, 1):
        append(world, await world.add("t", index=index), b"x" * 1_000)
    call = world.fetch(ask(world, ("t", 0, 0), ("t", 1, 0), bytes_max=100))
    first, second = parts(call)
    assert offsets(first) == [0]
    assert second.records is not None
    assert len(second.records) == 0


async def test_the_partition_limit_holds_within_the_total(world: World) -> None:
    partition = await world.add("t")
    for _ in range(10):
        append(world, partition, b"x" * 1_000)
    (part,) = parts(world.fetch(ask(world, ("t", 0, 0), partition_bytes_max=2_500)))
    assert part.records is not None
    assert len(part.records) <= 2_500
    assert offsets(part) == [0, 1]


@pytest.mark.parametrize("offset", [-1, 4, 1 << 40])
async def test_an_offset_outside_the_log_is_out_of_range_at_once(world: World, offset: int) -> None:
    partition = await world.add("t")
    append(world, partition, b"a", b"b", b"c")
    (part,) = parts(world.fetch(ask(world, ("t", 0, offset), wait_ms=500)))
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert part.high_watermark == -1


async def test_below_the_log_start_is_out_of_range(world: World) -> None:
    partition = await world.add("t")
    append(world, partition, b"a")
    append(world, partition, b"b")
    assert partition.log is not None
    await partition.log.delete_records_before(Offset(1))
    gone, there = (parts(world.fetch(ask(world, ("t", 0, offset))))[0] for offset in (0, 1))
    assert gone.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert there.log_start_offset == 1
    assert offsets(there) == [1]


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (3, ErrorCode.NONE),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
async def test_the_leader_epoch_fences(world: World, epoch: int, expected: ErrorCode) -> None:
    append(world, await world.add("t"), b"a")
    (part,) = parts(world.fetch(ask(world, ("t", 0, 0), current_leader_epoch=epoch)))
    assert part.error_code == expected


async def test_a_diverged_client_is_answered_with_the_diverging_epoch(
    world: World,
) -> None:
    partition = await world.add("t")
    append(world, partition, b"a")
    partition.apply(world.state(leader_epoch=6, partition_epoch=1), partition.config, 1_000)
    append(world, partition, b"b")
    (part,) = parts(world.fetch(ask(world, ("t", 0, 3), last_fetched_epoch=5)))
    assert part.error_code == 0
    assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (3, 1)
    (follows,) = parts(world.fetch(ask(world, ("t", 0, 1), last_fetched_epoch=3)))
    assert follows.diverging_epoch.epoch == -1
    assert offsets(follows) == [1]


async def test_a_fetch_that_waits_on_a_deleted_partition_is_answered(world: World) -> None:
    partition = await world.add("t")
    call = world.fetch(ask(world, ("t", 0, 0), wait_ms=500))
    world.table.remove(partition)
    log = partition.remove()
    assert log is not None
    log.abandon()
    assert parts(call)[0].error_code != 0


async def test_not_leader_names_the_leader_from_version_16(world: World) -> None:
    await world.add("t", replicas=(2,), leader=2)
    call = world.fetch(ask(world, ("t", 0, 0)), version=16)
    (part,) = parts(call)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert part.current_leader.leader_id == 2
    assert call.response(FetchResponse).node_endpoints[0].host == "host2"


async def test_a_leader_deposed_while_a_fetch_waits_names_the_next_one(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2, 3))
    call = world.fetch(ask(world, ("t", 0, 0), wait_ms=500))
    state = world.state(replicas=(1, 2, 3), leader=3, leader_epoch=4, partition_epoch=1)
    world.know("t", state)
    partition.apply(state, partition.config, world.clock.now_ms)
    (part,) = parts(call)
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (3, 4)
    (endpoint,) = call.response(FetchResponse).node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (3, "host3", 9093)


async def test_an_unknown_topic_does_not_end_the_wait_for_the_others(world: World) -> None:
    await world.add("t")
    call = world.fetch(ask(world, ("absent", 0, 0), ("t", 0, 0), wait_ms=500))
    assert not call.is_completed
    alone = world.fetch(ask(world, ("absent", 0, 0), wait_ms=500))
    assert parts(alone)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_one_of_three_replicas_down_is_not_waited_for_outside_the_isr(
    world: World,
) -> None:
    partition = await world.add("t", replicas=(1, 2, 3))
    partition.apply(
        world.state(replicas=(1, 2, 3), isr=(1, 2), partition_epoch=1), partition.config, 1_000
    )
    append(world, partition, b"a")
    partition.on_follower_fetch(
        NodeId(2),
        end_offset=Offset(1),
        log_start_offset=Offset(0),
        broker_epoch=10,
        now_ms=world.clock.now_ms,
    )
    assert partition.high_watermark == 1


class Charge:
    """A quota that grants a client a number of bytes at once."""

    def __init__(self, bytes_max: int) -> None:
        self.used_ns = 0
        self.bytes_max = bytes_max
        self.asked: list[int] = []

    def fetch_bytes_max(self, bytes_max: int) -> int:
        return min(bytes_max, 1_000_000)

    def may_give(self, byte_count: int, slot: Any) -> bool:
        self.asked.append(byte_count)
        return byte_count <= self.bytes_max

    def settle(self, slot: Any) -> int:
        return 0


def charged(world: World, charge: Charge, request: FetchRequest) -> Any:
    call = world.call(1, 18)
    call.slot.charge = charge
    return world.run(world.fetch_api.handle, call, request)


async def test_a_client_above_its_quota_gets_an_answer_without_records(world: World) -> None:
    partition = await world.add("t")
    append(world, partition, b"a")
    charge = Charge(10)

    call = charged(world, charge, ask(world, ("t", 0, 0)))

    assert len(charge.asked) == 1
    assert charge.asked[0] > 10
    assert call.response(FetchResponse).responses == []


async def test_a_session_goes_on_after_a_fetch_above_the_quota(world: World) -> None:
    partition = await world.add("t")
    opened = world.fetch(ask(world, ("t", 0, 0), session=(0, 0))).response(FetchResponse)
    append(world, partition, b"a")
    again = FetchRequest(
        session_id=opened.session_id, session_epoch=1, min_bytes=1, max_bytes=1 << 20
    )

    throttled = charged(world, Charge(10), again).response(FetchResponse)
    again.session_epoch = 2
    answer = world.fetch(again).response(FetchResponse)

    assert throttled.session_id == opened.session_id
    assert throttled.responses == []
    assert answer.responses[0].partitions[0].records


async def test_a_client_is_given_no_more_than_its_quota_bears_at_once(world: World) -> None:
    request = ask(world, ("t", 0, 0), bytes_max=50 << 20, bytes_min=2_000_000)
    limits = Fetch(world.fetch_api, *with_charge(world), request)

    assert limits.bytes_max == 1_000_000
    assert limits.bytes_min == 1_000_000


async def test_a_client_with_a_quota_is_given_whole_batches(world: World) -> None:
    """It would be charged again for the part of a batch that it cannot use."""
    partition = await world.add("t")
    append(world, partition, bytes(10_000))
    append(world, partition, bytes(10_000))
    request = ask(world, ("t", 0, 0), bytes_max=15_000)
    charge = Charge(1 << 20)

    charged(world, charge, request)
    unlimited = world.fetch(request).response(FetchResponse)

    assert 10_000 < charge.asked[0] < 11_000
    assert len(unlimited.responses[0].partitions[0].records) == 15_000


async def test_a_follower_is_charged_to_no_client(world: World) -> None:
    (context,) = with_charge(world)

    limits = Fetch(world.fetch_api, context, ask(world, ("t", 0, 0), replica=2))

    assert context.charge.is_exempt, "its time is counted, and no client pays"
    assert not limits.whole_batches


def with_charge(world: World) -> tuple[Any]:
    call = world.call(1, 18)
    call.slot.charge = Charge(10)
    return (call.context,)
