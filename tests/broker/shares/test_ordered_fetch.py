"""ShareFetch with delays, back-off, keys and priorities: what each request of a member acquires."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.coordinators.record_batches import RECORD_OVERHEAD_BYTES
from ottla.broker.coordinators.share_persister import SharePartitionKey
from ottla.broker.share_state.share_state_records import record_bytes_of
from ottla.broker.shares import look_ahead, share_partition
from ottla.broker.shares.acquired_ranges import AcquiredRange
from ottla.broker.shares.led_share import LedShare
from ottla.model.errors import ErrorCode
from ottla.model.ids import Offset
from ottla.model.settings.storage.topic import TOPIC_DEFAULTS
from ottla.storage.disk.disk_seam import NotCachedError
from ottla.wire.batch import batches
from ottla.wire.batch_builder import build_batch
from ottla.wire.compression import Codec
from ottla.wire.messages.share_fetch_response import ShareFetchResponse
from tests.broker.shares.conftest import ShareBench, ack_codes, acquired, parts
from tests.broker.shares.test_share_fetch import append_batch, end_transaction

T = ("t", 0)
ACCEPT, RELEASE, REJECT = [1], [2], [3]
RECORD_LOCKS_MAX = 10_000
"""Highest limit of records in flight in a partition."""


def delay(ms: int) -> tuple[tuple[str, bytes], ...]:
    return (("ottla.delay.ms", str(ms).encode()),)


def priority(name: str) -> tuple[tuple[str, bytes], ...]:
    return (("ottla.priority", name.encode()),)


def append(bench: ShareBench, partition: Any, *records: Any, **changes: Any) -> None:
    """Append a batch of (key, headers)."""
    now_ms = bench.world.clock.wall_ms()
    built: list[Any] = [(now_ms, key, b"v", headers) for key, headers in records]
    data = build_batch(built, **changes)
    partition.append(memoryview(bytearray(data)), acks=1, now_ms=now_ms, mono_ms=1_000)


async def delayed(bench: ShareBench, delay_ms: int = 0) -> Any:
    """Return a partition of a topic with delays."""
    partition = await bench.add()
    partition.config = replace(partition.config, share_delay_ms=delay_ms)
    return partition


def use(bench: ShareBench, **changes: Any) -> None:
    bench.settings = replace(bench.settings, **changes)


def led(bench: ShareBench, partition: Any) -> LedShare:
    found = bench.apis.delivery.shares.get(bench.key(partition))
    assert found is not None
    return found


def offsets(call: Any) -> list[int]:
    return [offset for first, last, _ in acquired(call) for offset in range(first, last + 1)]


# ---- delays


async def test_a_waiting_fetch_gets_a_delayed_record_at_its_due_time(bench: ShareBench) -> None:
    partition = await delayed(bench)
    append(bench, partition, (None, delay(500)), (None, ()), (None, delay(200)))
    assert offsets(bench.fetch(T, epoch=0)) == [1]
    call = bench.fetch(epoch=1, max_wait_ms=10_000, acks={T: [(1, 1, ACCEPT)]})
    bench.world.pass_time(199)
    assert not call.is_completed
    bench.world.pass_time(1)
    assert offsets(call) == [2]
    call = bench.fetch(epoch=2, max_wait_ms=10_000)
    bench.world.pass_time(299)
    assert not call.is_completed
    bench.world.pass_time(1)
    assert offsets(call) == [0]


async def test_the_delay_of_a_topic_counts_from_the_timestamp(bench: ShareBench) -> None:
    partition = await delayed(bench, 1_000)
    append(bench, partition, (None, ()))
    bench.world.pass_time(600)
    call = bench.fetch(T, epoch=0, max_wait_ms=10_000)
    bench.world.pass_time(399)
    assert not call.is_completed
    bench.world.pass_time(1)
    assert offsets(call) == [0]


async def test_headers_do_not_delay_records_of_a_topic_without_the_setting(
    bench: ShareBench,
) -> None:
    partition = await bench.add()
    append(bench, partition, (b"k", delay(500)), (b"k", priority("high")))
    assert offsets(bench.fetch(T, epoch=0)) == [0, 1]
    assert led(bench, partition).share.order is None


async def test_delayed_records_take_no_place_of_records_in_flight(bench: ShareBench) -> None:
    partition = await delayed(bench)
    use(bench, partition_max_record_locks=100)
    for _ in range(3):
        append(bench, partition, *[(None, delay(60_000))] * 100)
    append(bench, partition, *[(None, ())] * 150)
    assert offsets(bench.fetch(T, epoch=0)) == list(range(300, 400))
    assert offsets(bench.fetch(epoch=1)) == []
    assert offsets(bench.fetch(epoch=2, acks={T: [(300, 349, ACCEPT)]})) == list(range(400, 450))
    assert bench.persister.states[bench.key(partition)].start_offset == 0


async def test_a_new_leader_delivers_no_record_early_and_loses_none(bench: ShareBench) -> None:
    partition = await delayed(bench)
    append(bench, partition, (None, delay(500)), (None, ()), (None, delay(200)), (None, delay(90)))
    bench.fetch(T, epoch=0)
    bench.fetch(epoch=1, acks={T: [(1, 1, ACCEPT)]})
    led(bench, partition).drop(ErrorCode.NONE)
    bench.world.pass_time(100)
    call = bench.fetch(T, epoch=0)
    assert offsets(call) == [3]
    call = bench.fetch(epoch=1, max_wait_ms=10_000)
    bench.world.pass_time(100)
    assert offsets(call) == [2]
    call = bench.fetch(epoch=2, max_wait_ms=10_000)
    bench.world.pass_time(300)
    assert offsets(call) == [0]


async def test_a_delay_that_is_switched_on_and_off_takes_effect(bench: ShareBench) -> None:
    partition = await bench.add()
    append(bench, partition, (None, delay(500)))
    partition.config = replace(partition.config, share_delay_ms=0)
    assert offsets(bench.fetch(T, epoch=0)) == []
    partition.config = replace(partition.config, share_delay_ms=-1)
    assert offsets(bench.fetch(epoch=1)) == [0]


async def test_scattered_records_share_a_response_with_their_batches_only(
    bench: ShareBench,
) -> None:
    partition = await delayed(bench)
    for wait_ms in (100, 50_000, 100, 50_000, 50_000, 100):
        append(bench, partition, (None, delay(wait_ms)), (None, delay(50_000)))
    bench.world.pass_time(100)
    call = bench.fetch(T, epoch=0)
    assert acquired(call) == [(0, 0, 1), (4, 4, 1), (10, 10, 1)]
    (part,) = parts(call)
    assert isinstance(part.records, bytes | bytearray | memoryview)
    assert [header.base_offset for _, header in batches(part.records)] == [0, 4, 10]


async def test_a_response_never_exceeds_its_bytes_but_for_the_first_batch(
    bench: ShareBench,
) -> None:
    partition = await delayed(bench)
    for _ in range(3):
        append(bench, partition, *[(None, ())] * 10)
        append(bench, partition, *[(None, delay(50_000))])
    assert offsets(bench.fetch(T, epoch=0, max_bytes=1)) == list(range(10))
    assert offsets(bench.fetch(epoch=1, max_bytes=200)) == list(range(11, 21))


async def test_compressed_batches_are_read_for_their_headers(bench: ShareBench) -> None:
    partition = await delayed(bench)
    append(bench, partition, (None, delay(100)), (None, ()), codec=Codec.ZSTD)
    assert offsets(bench.fetch(T, epoch=0)) == [1]


async def test_a_batch_that_unpacks_to_too_much_is_delivered_without_its_headers(
    bench: ShareBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_ahead, "DECOMPRESSED_BYTES_MAX", 10)
    partition = await delayed(bench)
    append(bench, partition, (None, delay(100)), (None, ()), codec=Codec.ZSTD)
    assert offsets(bench.fetch(T, epoch=0)) == [0, 1]


async def test_aborted_records_are_passed(bench: ShareBench) -> None:
    partition = await delayed(bench)
    use(bench, isolation_level="read_committed")
    kinds: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    append_batch(bench, partition, bench.world.batch(b"a", b"b", base_sequence=0, **kinds), 0)
    bench.append(partition, b"plain")
    assert offsets(bench.fetch(T, epoch=0)) == []
    end_transaction(bench, partition, is_committed=False)
    assert offsets(bench.fetch(epoch=1)) == [2]
    bench.fetch(epoch=2, acks={T: [(2, 2, ACCEPT)]})
    assert led(bench, partition).share.window.start_offset == 4


async def test_many_records_are_read_ahead_in_turns_of_the_loop(
    bench: ShareBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_ahead, "RECORDS_PER_TURN", 2)
    partition = await delayed(bench)
    for _ in range(20):
        append(bench, partition, *[(None, delay(60_000))] * 5)
    append(bench, partition, (None, ()))
    call = bench.fetch(T, epoch=0, max_wait_ms=10_000)
    assert not call.is_completed
    for _ in range(20):
        bench.world.pass_time(0)
    assert offsets(call) == [100]


async def test_the_look_ahead_is_bounded(bench: ShareBench) -> None:
    partition = await delayed(bench)
    use(bench, look_ahead_records=1_000)
    for _ in range(30):
        append(bench, partition, *[(None, delay(60_000))] * 50)
    append(bench, partition, (None, ()))
    for epoch in range(5):
        assert offsets(bench.fetch(T, epoch=epoch)) == []
    order = led(bench, partition).share.order
    assert order is not None
    assert order.unsettled_count == 1_000
    bench.world.pass_time(60_000)
    assert len(offsets(bench.fetch(epoch=5))) == 500


async def test_a_window_with_too_many_ranges_delivers_near_its_start_only(
    bench: ShareBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_partition, "STORED_SPANS_MAX", 4)
    partition = await delayed(bench)
    use(bench, partition_max_record_locks=100)
    for _ in range(3):
        append(bench, partition, *[(None, delay(60_000)), (None, ())] * 50)
    first = offsets(bench.fetch(T, epoch=0, max_records=10))
    assert first == list(range(1, 20, 2))
    acks = {T: [(offset, offset, ACCEPT) for offset in first]}
    more = offsets(bench.fetch(epoch=1, acks=acks))
    assert max(more) < 100
    acks = {T: [(offset, offset, ACCEPT) for offset in more]}
    assert offsets(bench.fetch(epoch=2, acks=acks)) == []
    assert led(bench, partition).share.is_spread


def test_the_largest_state_fits_a_record() -> None:
    batch_count = share_partition.STORED_SPANS_MAX + RECORD_LOCKS_MAX
    size = record_bytes_of(SharePartitionKey("g" * 255, UUID(int=1), 0), batch_count)
    assert size <= TOPIC_DEFAULTS.max_message_bytes - RECORD_OVERHEAD_BYTES


async def test_spans_that_are_not_stored_do_not_count_for_the_size_of_the_state(
    bench: ShareBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_partition, "STORED_SPANS_MAX", 4)
    partition = await delayed(bench)
    append(bench, partition, *[(None, delay(60_000)), (None, ())] * 3)
    bench.fetch(T, epoch=0)
    share = led(bench, partition).share
    assert len(share.window.spans) == 6
    assert not share.is_spread


async def test_delayed_records_below_the_log_start_are_dropped(bench: ShareBench) -> None:
    partition = await delayed(bench)
    for _ in range(3):
        append(bench, partition, (None, delay(100)))
    assert offsets(bench.fetch(T, epoch=0)) == []
    await partition.log.delete_records_before(Offset(2))
    bench.world.pass_time(100)
    assert offsets(bench.fetch(epoch=1)) == [2]
    order = led(bench, partition).share.order
    assert order is not None
    assert order.unsettled_count == 1


async def test_nothing_is_acquired_while_bytes_come_from_the_disk(
    bench: ShareBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await delayed(bench)
    append(bench, partition, (None, delay(100)))
    assert offsets(bench.fetch(T, epoch=0)) == []
    file = partition.log.segments[-1].file

    def not_cached(position: int, size: int) -> bytes:
        raise NotCachedError(file, position, size)

    bench.world.pass_time(100)
    with monkeypatch.context() as patches:
        patches.setattr(type(file), "read_cached", lambda self, *where: not_cached(*where))
        call = bench.fetch(epoch=1, max_wait_ms=500)
        assert not call.is_completed
        order = led(bench, partition).share.order
        assert order is not None
        assert (order.ready_count, order.taken_count) == (1, 0)
    (_, done) = bench.world.ranges_due.pop()
    done(None)
    assert offsets(call) == [0]


# ---- back-off


async def test_a_released_record_is_delivered_again_after_its_back_off(bench: ShareBench) -> None:
    partition = await bench.add()
    use(bench, backoff_ms_min=1_000, backoff_ms_max=10_000)
    append(bench, partition, (None, ()), (None, ()))
    assert acquired(bench.fetch(T, epoch=0)) == [(0, 1, 1)]
    call = bench.fetch(epoch=1, max_wait_ms=60_000, acks={T: [(0, 0, RELEASE), (1, 1, ACCEPT)]})
    bench.world.pass_time(999)
    assert not call.is_completed
    bench.world.pass_time(1_001)
    assert acquired(call) == [(0, 0, 2)]


async def test_a_group_without_sessions_keeps_its_back_offs(bench: ShareBench) -> None:
    partition = await bench.add()
    use(bench, backoff_ms_min=1_000, backoff_ms_max=10_000)
    append(bench, partition, (None, ()))
    bench.fetch(T, epoch=0)
    bench.fetch(epoch=-1, acks={T: [(0, 0, RELEASE)]})
    share = led(bench, partition)
    bench.world.pass_time(900)
    bench.fetch(T, epoch=0)
    assert led(bench, partition) is share
    bench.fetch(epoch=-1)
    bench.world.pass_time(1_200)
    assert bench.apis.delivery.shares.get(bench.key(partition)) is None
    assert acquired(bench.fetch(T, epoch=0)) == []  # A new leader begins the back-off again.


async def test_records_in_back_off_take_no_place_of_records_in_flight(bench: ShareBench) -> None:
    partition = await bench.add()
    use(bench, backoff_ms_min=1_000, partition_max_record_locks=100)
    append(bench, partition, *[(None, ())] * 200)
    assert offsets(bench.fetch(T, epoch=0)) == list(range(100))
    assert offsets(bench.fetch(epoch=1, acks={T: [(0, 99, RELEASE)]})) == list(range(100, 200))


# ---- keys and priorities


async def test_records_of_a_key_are_delivered_one_after_the_other(bench: ShareBench) -> None:
    partition = await bench.add()
    use(bench, key_concurrency=1)
    append(bench, partition, (b"a", ()), (b"a", ()), (b"b", ()), (None, ()), (None, ()))
    assert offsets(bench.fetch(T, epoch=0)) == [0, 2, 3, 4]
    assert offsets(bench.fetch(T, epoch=0, member_id="n")) == []
    assert ack_codes(bench.acknowledge({T: [(0, 0, RELEASE)]}, epoch=1)) == [0]
    assert offsets(bench.fetch(epoch=1, member_id="n")) == [0]
    call = bench.fetch(epoch=2, max_wait_ms=1_000)
    bench.acknowledge({T: [(0, 0, ACCEPT)]}, epoch=2, member_id="n")
    assert offsets(call) == [1]


async def test_three_priorities_share_a_poll(bench: ShareBench) -> None:
    partition = await bench.add()
    use(bench, has_priority=True)
    names = ["low"] * 20 + ["normal"] * 20 + ["high"] * 20
    append(bench, partition, *[(None, priority(name)) for name in names])
    found = offsets(bench.fetch(T, epoch=0, max_records=7))
    assert [names[offset] for offset in found] == ["low"] + ["normal"] * 2 + ["high"] * 4


async def test_an_acquisition_that_is_undone_leaves_the_record_ready(bench: ShareBench) -> None:
    partition = await bench.add()
    use(bench, key_concurrency=1)
    append(bench, partition, (b"a", ()), (b"a", ()))
    bench.fetch(T, epoch=0)
    share = led(bench, partition).share
    share.give_back([AcquiredRange(0, 0, 1)])
    assert offsets(bench.fetch(epoch=1)) == [0]


async def test_last_attempts_are_delivered_alone(bench: ShareBench) -> None:
    partition = await bench.add()
    use(bench, has_priority=True, delivery_count_limit=3)
    append(bench, partition, *[(None, ())] * 4)
    bench.fetch(T, epoch=0)
    bench.fetch(epoch=1, max_records=0, acks={T: [(0, 3, RELEASE)]})
    assert acquired(bench.fetch(epoch=2)) == [(0, 3, 2)]
    call = bench.fetch(epoch=3, acks={T: [(0, 3, RELEASE)]})
    assert acquired(call) == [(0, 0, 3)]
    assert call.response(ShareFetchResponse).error_code == 0


async def test_a_new_leader_does_not_decode_settled_records_again(
    bench: ShareBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An early record with a long delay keeps the start offset, however many later ones are done.
    Decoding them all would delay the records that became due during the failover."""
    partition = await delayed(bench)
    append(bench, partition, (None, delay(60_000)))
    for _ in range(50):
        append(bench, partition, (None, ()))
        append(bench, partition, (None, ()), (None, delay(1_000)))
    found = offsets(bench.fetch(T, epoch=0, max_records=1_000))
    settled = [offset for offset in found if offset != 40]
    bench.fetch(epoch=1, acks={T: [(one, one, ACCEPT) for one in settled]})
    led(bench, partition).drop(ErrorCode.NONE)
    decoded: list[int] = []
    original = look_ahead.ahead_records

    def noted(rules: Any, data: Any, from_offset: int) -> Any:
        decoded.append(from_offset)
        return original(rules, data, from_offset)

    monkeypatch.setattr(look_ahead, "ahead_records", noted)
    call = bench.fetch(epoch=2, max_records=1_000, max_wait_ms=90_000)
    assert offsets(call) == [40], "the only record that is ready"
    later = bench.fetch(epoch=3, max_records=1_000, max_wait_ms=90_000)
    bench.world.pass_time(1_000)
    assert offsets(later) == [3 * batch + 3 for batch in range(50)]
    assert decoded == [0, *sorted({*range(3, 151, 3), 40})]
