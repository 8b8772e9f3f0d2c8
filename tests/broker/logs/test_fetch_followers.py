"""Fetches of followers (KIP-903): which requests count as a replica's, and which are refused."""

import pytest

from ottla.broker.logs.fetch import Fetch
from ottla.broker.logs.fetch_read import targets_of
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.node.network.steps import run_through
from ottla.wire.messages.fetch_request import (
    ReplicaState,
)
from ottla.wire.messages.fetch_response import FetchResponse
from tests.broker.logs.fetch_requests import World, append, ask, parts


async def test_a_forged_broker_epoch_does_not_lock_the_real_replica_out(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    forged = ask(world, ("t", 0, 1), replica=2)
    forged.replica_state.replica_epoch = 1 << 62
    (part,) = parts(world.fetch(forged))
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.high_watermark == 0
    assert partition.followers[NodeId(2)].broker_epoch == -1
    (believed,) = parts(world.fetch(ask(world, ("t", 0, 1), replica=2)))
    assert believed.error_code == 0
    assert partition.high_watermark == 1


async def test_reading_for_a_follower_commits_nothing_until_its_position_is_noted(
    world: World,
) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    request = ask(world, ("t", 0, 1), replica=2, high_watermark=0)
    fetch = Fetch(world.fetch_api, world.call(1, 18).context, request)
    fetch.targets = run_through(targets_of(request, True))
    reading = fetch.start_reading()
    fetch.read_some(reading, reading.due)
    assert partition.high_watermark == 0
    fetch.note_positions(reading)
    assert partition.high_watermark == 1
    (data,) = reading.results
    assert data.high_watermark == 1
    assert reading.is_urgent, "the follower learns of the commit at once"


async def test_a_follower_refused_for_its_position_gets_no_records(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    follower = partition.followers[NodeId(2)]
    follower.broker_epoch = 11
    request = ask(world, ("t", 0, 0), replica=2)
    fetch = Fetch(world.fetch_api, world.call(1, 18).context, request)
    fetch.targets = run_through(targets_of(request, True))
    reading = fetch.start_reading()
    fetch.read_some(reading, reading.due)
    assert reading.byte_count > 0
    fetch.note_positions(reading)
    (data,) = reading.results
    assert (data.error_code, data.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
    assert (reading.byte_count, reading.is_urgent) == (0, True)


@pytest.mark.parametrize(
    ("replica", "replica_epoch"), [(2, 9), (2, -1), (7, 10), (7, -1), (2, -(1 << 63))]
)
async def test_only_a_registered_broker_of_its_present_epoch_is_believed(
    world: World, replica: int, replica_epoch: int
) -> None:
    partition = await world.add("t", replicas=(1, 2, 7))
    append(world, partition, b"a")
    request = ask(world, ("t", 0, 1), replica=replica, session=(0, 0), wait_ms=500)
    request.replica_state.replica_epoch = replica_epoch
    world.isrs_due.clear()
    call = world.fetch(request)
    assert [part.error_code for part in parts(call)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert call.response(FetchResponse).session_id == 0
    assert len(world.sessions) == 0
    assert partition.high_watermark == 0
    assert not world.isrs_due


async def test_a_version_without_broker_epochs_is_no_followers(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    request = ask(world, ("t", 0, 1), replica=2)
    request.replica_state = ReplicaState()
    (part,) = parts(world.fetch(request, version=14))
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.high_watermark == 0


async def test_a_registered_broker_without_a_replica_changes_nothing(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    (part,) = parts(world.fetch(ask(world, ("t", 0, 1), replica=3)))
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert set(partition.followers) == {NodeId(2)}
    assert partition.high_watermark == 0


@pytest.mark.parametrize("offset", [-1, 2, 1 << 62])
async def test_a_follower_cannot_be_where_the_log_is_not(world: World, offset: int) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    (part,) = parts(world.fetch(ask(world, ("t", 0, offset), replica=2)))
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.followers[NodeId(2)].end_offset == -1
    assert partition.high_watermark == 0


async def test_a_log_start_above_its_end_is_refused(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    (part,) = parts(world.fetch(ask(world, ("t", 0, 1), replica=2, log_start_offset=1 << 62)))
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.low_watermark == -1
    assert partition.high_watermark == 0


@pytest.mark.parametrize("replica", [-1, 3])
async def test_a_followers_session_cannot_be_continued_by_another_client(
    world: World, replica: int
) -> None:
    await world.add("t", replicas=(1, 2, 3))
    opened = world.fetch(ask(world, ("t", 0, 0), replica=2, session=(0, 0)))
    session_id = opened.response(FetchResponse).session_id
    stolen = world.fetch(ask(world, replica=replica, session=(session_id, 1)))
    assert stolen.response(FetchResponse).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    own = world.fetch(ask(world, replica=2, session=(session_id, 1)))
    assert own.response(FetchResponse).error_code == 0
