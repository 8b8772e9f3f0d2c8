"""Producers that a log remembers: for how long, after which deaths, and how many."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.rng import SeededRng
from ottla.model import limits
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Offset, ProducerId
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log
from ottla.storage.producers import producer_state
from ottla.storage.producers.producer_batches import add_batches, encode_batches
from ottla.storage.producers.producer_snapshot import decode_snapshot, encode_snapshot
from ottla.storage.producers.producer_state import (
    ProducerBudget,
    ProducerEntry,
    ProducerStates,
    SequencedBatch,
)
from ottla.storage.segments.append_info import AppendInfo
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch
from tests.storage.log.workbench import NOW_MS, Workbench, append

DAY_MS = 86_400_000
LONG_AGO_MS = NOW_MS - 400 * DAY_MS
CONFIG = LogConfig(producer_id_expiration_ms=DAY_MS, message_timestamp_after_max_ms=500 * DAY_MS)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    bench = Workbench(RealDisk(), str(tmp_path / "orders-2"))
    yield bench
    bench.let_go()


def produce(
    log: Log,
    sequence: int,
    *,
    producer_id: int = 7,
    time_ms: int = NOW_MS,
    now_ms: int = NOW_MS,
    is_transactional: bool = False,
) -> AppendInfo:
    batch = build_batch(
        [(time_ms, None, b"v")],
        producer_id=ProducerId(producer_id),
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    return append(log, batch, now_ms=now_ms)


# ---- for how long


async def test_a_producer_of_old_records_is_remembered_from_its_last_append_on(
    bench: Workbench,
) -> None:
    log = await bench.open(CONFIG)
    produce(log, 0, time_ms=LONG_AGO_MS, now_ms=NOW_MS)

    assert log.expire_producers(NOW_MS + DAY_MS - 1) == 0
    assert produce(log, 0, time_ms=LONG_AGO_MS).is_duplicate
    assert log.expire_producers(NOW_MS + DAY_MS) == 1


async def test_a_producer_of_records_of_the_future_is_forgotten_in_time(bench: Workbench) -> None:
    log = await bench.open(CONFIG)
    produce(log, 0, time_ms=NOW_MS + 400 * DAY_MS)
    assert log.expire_producers(NOW_MS + DAY_MS) == 1


@pytest.mark.parametrize("is_clean", [False, True])
async def test_a_producer_of_old_records_is_remembered_after_a_start(
    bench: Workbench, is_clean: bool
) -> None:
    log = await bench.open(CONFIG)
    produce(log, 0, time_ms=LONG_AGO_MS)
    again = bench.close_and_open if is_clean else bench.kill_and_open

    log = await again(log)

    assert log.expire_producers(NOW_MS + DAY_MS - 1) == 0
    assert produce(log, 0, time_ms=LONG_AGO_MS).is_duplicate
    assert log.expire_producers(NOW_MS + DAY_MS) == 1


async def test_a_start_does_not_lengthen_a_producers_time(bench: Workbench) -> None:
    log = await bench.open(CONFIG)
    produce(log, 0, time_ms=LONG_AGO_MS, now_ms=NOW_MS - DAY_MS + 1)

    log = await bench.close_and_open(log)

    assert log.expire_producers(NOW_MS) == 0
    assert log.expire_producers(NOW_MS + 1) == 1


async def test_a_truncation_does_not_change_when_a_producer_was_seen(bench: Workbench) -> None:
    log = await bench.open(CONFIG)
    for sequence in range(3):
        produce(log, sequence, time_ms=LONG_AGO_MS)

    await log.truncate_to(Offset(2))

    assert log.expire_producers(NOW_MS + DAY_MS - 1) == 0
    assert produce(log, 1, time_ms=LONG_AGO_MS).is_duplicate


# ---- how many batches


async def test_after_a_clean_stop_all_five_last_batches_are_duplicates(bench: Workbench) -> None:
    log = await bench.open(CONFIG)
    for sequence in range(9):
        produce(log, sequence)
        produce(log, sequence, producer_id=8, time_ms=LONG_AGO_MS)
        if sequence == 6:
            await log.roll(now_ms=NOW_MS)

    log = await bench.close_and_open(log)

    for sequence in range(4, 9):
        assert produce(log, sequence).base_offset == 2 * sequence
        assert produce(log, sequence, producer_id=8, time_ms=LONG_AGO_MS).is_duplicate
    with pytest.raises(RefusedError):
        produce(log, 3)
    assert produce(log, 9).base_offset == 18


async def test_after_a_kill_behind_a_roll_all_five_last_batches_are_duplicates(
    bench: Workbench,
) -> None:
    log = await bench.open(CONFIG)
    for sequence in range(9):
        produce(log, sequence)
    await log.roll(now_ms=NOW_MS)

    log = await bench.kill_and_open(log, recovery_point=log.recovery_point)

    for sequence in range(4, 9):
        assert produce(log, sequence).is_duplicate


async def test_after_a_truncation_below_a_roll_the_batches_that_are_left_are_duplicates(
    bench: Workbench,
) -> None:
    log = await bench.open(CONFIG)
    for sequence in range(3):
        produce(log, sequence)
    await log.roll(now_ms=NOW_MS)
    for sequence in range(3, 6):
        produce(log, sequence)

    await log.truncate_to(Offset(4))

    for sequence in range(1, 4):
        assert produce(log, sequence).is_duplicate
    assert produce(log, 4).base_offset == 4


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "empty", "of another snapshot"])
async def test_a_snapshot_alone_is_still_read(bench: Workbench, damage: str) -> None:
    log = await bench.open(CONFIG)
    for sequence in range(9):
        produce(log, sequence)
    await log.close()
    path = Path(bench.directory, "producer-batches")
    data = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    else:
        if damage == "cut":
            del data[-1]
        elif damage == "empty":
            data.clear()
        else:
            data[20 if damage == "flipped" else 6] ^= 1
        path.write_bytes(data)

    log = await bench.open(CONFIG, is_clean=True, recovery_point=9)

    assert produce(log, 8).is_duplicate
    with pytest.raises(RefusedError):
        produce(log, 7)
    assert produce(log, 9).base_offset == 9


@pytest.mark.parametrize("seed", range(20))
async def test_a_power_cut_leaves_no_batches_beside_a_snapshot_that_is_not_theirs(
    seed: int,
) -> None:
    disk = SimulatedDisk(SeededRng(seed))
    await disk.makedirs("/data/orders-2")
    disk.flush_everything()
    bench = Workbench(disk, "/data/orders-2")
    log = await bench.open(CONFIG)
    for sequence in range(12):
        produce(log, sequence)
        if sequence in (3, 7, 9):
            log._files.roll(log.end_offset, NOW_MS)
        if sequence == 5:
            await log.flush()
    log.abandon()
    disk.crash()

    log = await bench.open(CONFIG, recovery_point=6)

    batches = log.active_producers[7].batches
    assert batches[-1].last_offset == log.end_offset - 1
    assert [each.base_sequence for each in batches] == [each.base_offset for each in batches]
    assert produce(log, log.end_offset).base_offset == log.end_offset - 1


def test_batches_of_one_snapshot_say_nothing_beside_another() -> None:
    states = ProducerStates(Offset(10))
    producer = ProducerEntry()
    producer.batches = [SequencedBatch(n, n, Offset(n), Offset(n), NOW_MS) for n in range(3)]
    states.restore(7, producer)
    snapshot = encode_snapshot(states)
    data = encode_batches(states, snapshot)
    read = decode_snapshot(snapshot, Offset(10))
    add_batches(read, data, snapshot)
    assert read.producers[7].batches == producer.batches

    producer.batches = producer.batches[:2]
    other = encode_snapshot(states)
    with pytest.raises(CorruptDataError):
        add_batches(decode_snapshot(other, Offset(10)), data, other)


# ---- how many producers


@pytest.mark.interpreted_only("sets a constant")
async def test_invented_ids_push_out_the_longest_unseen_and_no_open_transaction(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_PER_LOG_MAX", 100)
    log = await bench.open(CONFIG)
    produce(log, 0, producer_id=1, is_transactional=True)
    produce(log, 0, producer_id=2)
    for number in range(1_000):
        produce(log, 0, producer_id=1_000 + number, now_ms=NOW_MS + number)
        produce(log, 1 + number, producer_id=2, now_ms=NOW_MS + number)
        assert len(log.active_producers) <= 100

    assert log.active_producers[1].txn_first_offset == 0
    assert produce(log, 1_000, producer_id=2).is_duplicate
    assert produce(log, 0, producer_id=1_999).is_duplicate
    assert 1_000 not in log.active_producers


@pytest.mark.interpreted_only("sets a constant")
async def test_invented_ids_in_a_log_that_is_recovered_are_bounded_too(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await bench.open(CONFIG)
    for number in range(300):
        produce(log, 0, producer_id=number)
    monkeypatch.setattr(producer_state, "PRODUCERS_PER_LOG_MAX", 100)

    log = await bench.kill_and_open(log)

    assert len(log.active_producers) <= 100
    assert produce(log, 0, producer_id=299).is_duplicate


@pytest.mark.interpreted_only("sets a constant")
async def test_transactions_of_invented_ids_are_refused_at_the_bound(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them can be forgotten, so further producers are refused."""
    monkeypatch.setattr(producer_state, "PRODUCERS_PER_LOG_MAX", 20)
    log = await bench.open(CONFIG)
    for number in range(10):
        produce(log, 0, producer_id=number, is_transactional=True)

    with pytest.raises(RefusedError) as refused:
        produce(log, 0, producer_id=10, is_transactional=True)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert produce(log, 1, producer_id=3, is_transactional=True).base_offset == 10
    for number in range(100):
        produce(log, 0, producer_id=100 + number)
    assert len(log.active_producers) <= 20


@pytest.mark.interpreted_only("sets a constant")
async def test_all_logs_together_remember_a_bounded_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_PER_LOG_SURE", 8)
    room = ProducerBudget(100)
    logs = []
    for name in range(4):
        log = await Workbench(RealDisk(), str(tmp_path / f"t-{name}")).open(CONFIG)
        log.share_producer_budget(room)
        logs.append(log)
    for number in range(400):
        produce(logs[number % 3], 0, producer_id=number, now_ms=NOW_MS + number)
    for number in range(8):
        produce(logs[3], 0, producer_id=number)
    assert len(logs[3].active_producers) == 8
    assert room.count == sum(len(log.active_producers) for log in logs) <= 108

    await logs[3].truncate_to(Offset(4))
    await logs[2].truncate_fully_and_start_at(Offset(4))
    logs[1].expire_producers(NOW_MS + DAY_MS + 200)
    assert room.count == sum(len(log.active_producers) for log in logs)
    for log in logs:
        log.abandon()
        log.abandon()
    assert room.count == 0


def test_the_bounds_leave_room_for_many_partitions() -> None:
    assert limits.PRODUCERS_PER_LOG_SURE < limits.PRODUCERS_PER_LOG_MAX < limits.PRODUCERS_MAX
