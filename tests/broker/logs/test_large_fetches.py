"""Fetches of very many partitions: bounded work in each turn, and the same responses."""

from typing import Any

import pytest

from ottla.broker.logs import fetch, fetch_read
from ottla.broker.logs.fetch_session import FAILED_LOOKED_AT
from ottla.broker.replicas.partition import Partition
from ottla.model.errors import ErrorCode
from ottla.wire.messages.fetch_response import FetchResponse
from tests.broker.logs.fetch_requests import (
    World,
    append,
    ask,
    offsets,
    parts,
    session_over,
    unknown,
)


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count how often a partition is looked for, or read."""
    done: list[str] = []
    find, read = fetch_read.find_partition, fetch_read.read_partition

    def find_partition(*arguments: Any) -> Partition:
        done.append("find")
        return find(*arguments)

    def read_partition(*arguments: Any) -> fetch_read.PartitionResult:
        done.append("read")
        return read(*arguments)

    monkeypatch.setattr(fetch, "find_partition", find_partition)
    monkeypatch.setattr(fetch, "read_partition", read_partition)
    return done


async def test_unknown_partitions_cost_a_small_fetch_little(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.add("t")
    call = world.fetch(ask(world, ("t", 0, 0), *unknown(5_000), session=(0, 0)))
    session_id = call.response(FetchResponse).session_id
    assert session_id
    done = count_reads(monkeypatch)
    looked_at: set[int] = set()
    for epoch in range(1, 31):
        call = world.fetch(ask(world, session=(session_id, epoch)))
        assert len(done) <= FAILED_LOOKED_AT + 1
        done.clear()
        looked_at |= {part.partition_index for part in parts(call)}
    assert looked_at == set(range(5_000)), "each is looked at in its turn"


async def test_a_partition_that_comes_is_read_again_in_its_turn(world: World) -> None:
    call = world.fetch(ask(world, ("t", 0, 0), *unknown(3), session=(0, 0)), version=12)
    session_id = call.response(FetchResponse).session_id
    append(world, await world.add("t"), b"a")
    answered = parts(world.fetch(ask(world, session=(session_id, 1)), version=12))
    assert [part.error_code for part in answered].count(0) == 1
    # Once it was read it is no longer among those that failed.
    answered = parts(world.fetch(ask(world, ("t", 0, 1), session=(session_id, 2)), version=12))
    assert len(answered) == 3


async def test_the_number_of_partitions_in_sessions_is_bounded(world: World) -> None:
    await world.add("t")
    world.sessions.partition_count_max = 100
    small = await session_over(world, ("t", 0))
    large = world.fetch(ask(world, *unknown(100), session=(0, 0))).response(FetchResponse)
    assert large.session_id == 0
    assert world.sessions.partition_count == 1
    grown = world.fetch(ask(world, *unknown(100), session=(small, 1))).response(FetchResponse)
    assert grown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert world.sessions.partition_count == 0


async def test_the_count_of_partitions_follows_the_sessions(world: World) -> None:
    await world.add("t")
    session_id = await session_over(world, ("t", 0), ("absent", 1))
    world.fetch(ask(world, ("absent", 2, 0), session=(session_id, 1)))
    assert world.sessions.partition_count == 3
    world.fetch(ask(world, session=(session_id, -1)))
    assert world.sessions.partition_count == 0


@pytest.mark.interpreted_only("counts the reads of fetch by replacing them")
async def test_an_append_looks_at_one_partition_of_each_long_poll(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = [await world.add("t", index=index) for index in range(40)]
    names = [("t", index, 0) for index in range(40)]
    calls = [world.fetch(ask(world, *names, bytes_min=1_000, wait_ms=500)) for _ in range(20)]
    done = count_reads(monkeypatch)
    append(world, partitions[3], b"a")
    assert len(done) == len(calls)
    assert not any(call.is_completed for call in calls)
    append(world, partitions[3], bytes(1_000))
    assert all(call.is_completed for call in calls)
    for call in calls:
        assert [part.partition_index for part in parts(call)] == list(range(40))
        assert offsets(parts(call)[3]) == [0, 1]


async def test_a_long_poll_of_many_partitions_is_answered_in_steps(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun_steps: list[object] = []
    kind = type(world.call(1, 18))
    monkeypatch.setattr(kind, "on_steps", lambda self, slot, steps: begun_steps.append(steps))
    partitions = [await world.add("t", index=index) for index in range(40)]
    call = world.fetch(ask(world, *[("t", index, 0) for index in range(40)], wait_ms=500))
    append(world, partitions[0], b"a")
    assert len(begun_steps) == 1
    assert not call.is_completed
    asked = ask(world, ("t", 0, 1), *[("t", index, 0) for index in range(1, 40)], wait_ms=500)
    expired = world.fetch(asked)
    world.pass_time(500)
    assert len(begun_steps) == 2
    assert not expired.is_completed


@pytest.mark.parametrize("replica", [-1, 2])
async def test_a_fetch_of_very_many_partitions_is_answered_as_any_other(
    world: World, replica: int
) -> None:
    for index in range(3):
        append(world, await world.add("t", index=index, replicas=(1, 2)), b"a")
    names = [*(("t", index, 0) for index in range(3)), *unknown(1_000)]

    def run(names: Any, session: tuple[int, int]) -> FetchResponse:
        asked = ask(world, *names, replica=replica, session=session)
        response: FetchResponse = world.fetch(asked, version=18).response(FetchResponse)
        return response

    few = run(names[:10], (0, 0))
    many = run(names, (0, 0))
    assert many.session_id not in (0, few.session_id)
    (topic, unknown_few), (same, unknown_many) = few.responses, many.responses
    assert (same, unknown_many.topic_id) == (topic, unknown_few.topic_id)
    assert len(unknown_many.partitions) == 1_000
    assert unknown_many.partitions[:7] == unknown_few.partitions
    again = run(names, (many.session_id, 1))
    assert again.error_code == 0
    assert again.session_id == many.session_id
    assert world.sessions.partition_count == 10 + 1_003


async def test_a_strangers_large_fetch_changes_nothing(world: World) -> None:
    await world.add("t", replicas=(1, 2))
    asked = ask(world, ("t", 0, 0), *unknown(1_000), replica=2, session=(0, 0))
    asked.replica_state.replica_epoch = 11
    call = world.fetch(asked, version=18)
    assert {part.error_code for part in parts(call)} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert len(world.sessions) == 0
