"""Fetches of a few records are answered in the same bytes as every other fetch is."""

from collections.abc import Callable
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.logs.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, FetchSession
from ottla.broker.logs.single_fetches import SingleFetches
from ottla.broker.logs.write_txn_markers import TransactionEnd, WriteTxnMarkersApi
from ottla.broker.replicas.partition import Partition
from ottla.model.errors import ErrorCode
from ottla.model.ids import Offset
from ottla.storage.slice import FileSlice
from ottla.storage.verification import UNGUARDED
from ottla.wire.apis import FETCH
from ottla.wire.codec_types import ZERO_UUID
from ottla.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

World = Any  # the class of the `world` fixture, in conftest.py

PRODUCER = 7


class NoOffsets:
    """Markers of no group."""

    def end_transaction(
        self, index: int, end: TransactionEnd, asker: Callable[[ErrorCode], None]
    ) -> None:
        raise AssertionError("no offsets are committed here")


def request_of(
    partition: Partition,
    offset: int,
    *,
    bytes_max: int = 1 << 20,
    bytes_min: int = 1,
    isolation: int = 0,
    wait_ms: int = 0,
    session_epoch: int = FINAL_EPOCH,
    topic_id: UUID | None = None,
    **changes: Any,
) -> FetchRequest:
    asked = FetchPartition(
        partition=partition.index, fetch_offset=offset, partition_max_bytes=bytes_max, **changes
    )
    topic_id = topic_id or partition.topic_id
    return FetchRequest(
        replica_state=ReplicaState(),
        max_wait_ms=wait_ms,
        min_bytes=bytes_min,
        max_bytes=1 << 20,
        isolation_level=isolation,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic=partition.topic, topic_id=topic_id, partitions=[asked])],
    )


def append(world: World, partition: Partition, *values: bytes, **changes: Any) -> None:
    partition.append(
        world.batch(*values),
        acks=1,
        now_ms=world.clock.wall_ms(),
        mono_ms=world.clock.monotonic_ms(),
        **changes,
    )


def sent(call: Any) -> bytes | None:
    """Return what left for the client, None while it waits."""
    if not call.is_completed:
        return None
    return b"".join(
        chunk.read() if isinstance(chunk, FileSlice) else bytes(chunk) for chunk in call.slot.chunks
    )


def serve(world: World, request: FetchRequest, small: SingleFetches, *, version: int = 17) -> Any:
    """Serve a request in both ways, and hold the answers to be the same."""
    usual = world.run(world.fetch_api.handle, world.call(FETCH, version), request)
    call = world.run(small.handle, world.call(FETCH, version), request)
    assert sent(call) == sent(usual)
    return call


def is_small(call: Any) -> bool:
    """Return whether the answer was written as one piece, records and all."""
    if not call.is_completed or len(call.slot.chunks) != 1:
        return False
    answer: FetchResponse = call.response(FetchResponse)
    return any(part.records for topic in answer.responses for part in topic.partitions)


@pytest.mark.parametrize("version", range(4, 19))
async def test_both_ways_answer_in_the_same_bytes(world: World, version: int) -> None:
    partition = await world.add("t")
    for values in ((b"a", b"b"), (b"c",), (b"d" * 3_000,), (b"e" * 9_000,), (b"f",)):
        append(world, partition, *values)
    small = SingleFetches(world.fetch_api)
    for offset, bytes_max, bytes_min, isolation, wait_ms in product(
        range(-1, 8), (0, 1, 200, 5_000, 1 << 20), (0, 1, 4_000), (0, 1), (0, 500)
    ):
        request = request_of(
            partition,
            offset,
            bytes_max=bytes_max,
            bytes_min=bytes_min,
            isolation=isolation,
            wait_ms=wait_ms,
        )
        serve(world, request, small, version=version)
    last = serve(world, request_of(partition, 5), small, version=version)
    assert is_small(last) == (version >= 13)


SESSION_ID_AT = slice(15, 19)
"""Where the frame of an answer has the session's id."""


def opened(world: World, partition: Partition, *, isolation: int, version: int) -> FetchSession:
    """Open a session of one partition."""
    request = request_of(partition, 0, session_epoch=INITIAL_EPOCH, isolation=isolation)
    answer = world.fetch(request, version=version).response(FetchResponse)
    session: FetchSession = world.sessions._sessions[answer.session_id]
    return session


def state_of(session: FetchSession) -> Any:
    targets = [
        (target.fetch_offset, target.told_high_watermark, target.told_log_start_offset)
        for target in session.targets.values()
    ]
    return session.epoch, session.last_used_ms, targets, len(session.due), len(session.failed)


@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("version", [12, 13, 16, 18])
async def test_a_session_goes_on_in_the_same_bytes_both_ways(
    world: World, version: int, isolation: int
) -> None:
    partition, other = await world.add("t"), await world.add("t", index=1)
    for values in ((b"a", b"b"), (b"c",), (b"d" * 3_000,), (b"e" * 9_000,), (b"f",)):
        append(world, partition, *values)
    append(world, other, b"other")
    single = SingleFetches(world.fetch_api)
    first = opened(world, partition, isolation=isolation, version=version)
    second = opened(world, partition, isolation=isolation, version=version)
    small_count = 0

    def go_on(request: FetchRequest, *, ahead: int = 0) -> None:
        nonlocal small_count
        answers = []
        for session, handle in ((first, world.fetch_api.handle), (second, single.handle)):
            request.session_id = session.session_id
            request.session_epoch = session.epoch + ahead
            call = world.run(handle, world.call(FETCH, version), request)
            answer = bytearray(sent(call) or b"")
            assert session is first or answer[SESSION_ID_AT] in (b"", bytes(4), id_of(session))
            answer[SESSION_ID_AT] = b""
            answers.append(answer)
        small_count += is_small(call)
        assert answers[0] == answers[1]
        assert state_of(first) == state_of(second)

    for offset, bytes_max, bytes_min in product(range(-1, 8), (0, 200, 1 << 20), (0, 4_000)):
        world.pass_time(7)
        go_on(
            request_of(
                partition,
                offset,
                bytes_max=bytes_max,
                bytes_min=bytes_min,
                isolation=isolation,
            )
        )
    assert (small_count > 0) == (version >= 13)
    append(world, partition, b"g")
    nothing_new = request_of(partition, 0, isolation=isolation)
    nothing_new.topics.clear()
    go_on(nothing_new)
    go_on(request_of(partition, 0, isolation=isolation), ahead=1)
    go_on(request_of(partition, 6, isolation=isolation))
    go_on(request_of(partition, 7, isolation=isolation, current_leader_epoch=9))
    go_on(request_of(partition, 7, isolation=isolation))
    go_on(request_of(other, 0, isolation=isolation))
    go_on(request_of(partition, 6, isolation=isolation))


def id_of(session: FetchSession) -> bytes:
    return session.session_id.to_bytes(4, "big")


async def test_a_batch_is_read_once_for_all_who_follow(world: World) -> None:
    partition = await world.add("t")
    append(world, partition, b"a")
    small = SingleFetches(world.fetch_api)
    log = partition.log
    assert log is not None
    first = serve(world, request_of(partition, 0), small)
    kept = log.read_single(Offset(0), bytes_max=1_000, end_offset=Offset(1), now_ms=0)
    assert kept is not None
    assert bytes(kept) in (sent(first) or b"")
    assert log.read_single(Offset(0), bytes_max=1_000, end_offset=Offset(1), now_ms=0) is kept


async def test_what_was_cut_off_is_not_served_again(world: World) -> None:
    partition = await world.add("t")
    log = partition.log
    assert log is not None
    append(world, partition, b"old")
    append(world, partition, b"old")
    small = SingleFetches(world.fetch_api)
    assert is_small(serve(world, request_of(partition, 1), small))
    await log.truncate_to(Offset(1))
    append(world, partition, b"new")
    answer = sent(serve(world, request_of(partition, 1), small))
    assert answer is not None
    assert b"new" in answer
    assert b"old" not in answer


async def test_a_partition_that_is_gone_is_found_no_longer(world: World) -> None:
    partition = await world.add("t")
    append(world, partition, b"a")
    small = SingleFetches(world.fetch_api)
    request = request_of(partition, 0)
    assert is_small(serve(world, request, small))
    world.table.remove(partition)
    log = partition.remove()
    assert log is not None
    log.abandon()
    assert not is_small(serve(world, request, small))


async def test_what_is_not_plain_is_left_to_the_other_way(world: World) -> None:
    partition, other = await world.add("t"), await world.add("t", index=1)
    append(world, partition, b"a")
    append(world, other, b"b")
    small = SingleFetches(world.fetch_api)
    two = request_of(partition, 0)
    two.topics[0].partitions.append(FetchPartition(partition=1, partition_max_bytes=1 << 20))
    for request in (
        two,
        request_of(partition, 0, topic_id=UUID(int=99)),
        request_of(partition, 0, topic_id=ZERO_UUID),
        request_of(partition, 0, current_leader_epoch=1),
        request_of(partition, 0, last_fetched_epoch=9),
    ):
        assert not is_small(serve(world, request, small))
    session = world.run(
        small.handle,
        world.call(FETCH, 17),
        request_of(partition, 0, session_epoch=INITIAL_EPOCH),
    )
    assert not is_small(session)


async def test_aborted_transactions_are_named(world: World) -> None:
    partition = await world.add("t")
    small = SingleFetches(world.fetch_api)
    append(world, partition, b"plain")
    assert is_small(serve(world, request_of(partition, 0, isolation=1), small))
    batch = world.batch(
        b"a", producer_id=PRODUCER, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    now_ms = world.clock.wall_ms()
    partition.append(batch, acks=1, now_ms=now_ms, mono_ms=1, guard=UNGUARDED)
    assert is_small(serve(world, request_of(partition, 0, isolation=1), small))
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=[0])
    marker = WritableTxnMarker(
        producer_id=PRODUCER, producer_epoch=0, transaction_result=False, topics=[topic]
    )
    api = WriteTxnMarkersApi(
        table=world.table,
        purgatory=world.purgatory,
        clock=world.clock,
        offsets=NoOffsets(),
        timeout_ms=1_000,
    )
    world.run(api.handle, world.call(27, 1), WriteTxnMarkersRequest(markers=[marker]))
    committed = serve(world, request_of(partition, 0, isolation=1), small)
    assert not is_small(committed)
    assert is_small(serve(world, request_of(partition, 0), small))
