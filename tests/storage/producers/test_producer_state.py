"""Idempotent producers on one partition: duplicates, order, fencing and expiry."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset, ProducerId
from ottla.model.limits import INT32_MAX
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log
from ottla.storage.producers.producer_snapshot import decode_snapshot, encode_snapshot
from ottla.storage.producers.producer_state import ProducerEntry, ProducerStates
from ottla.storage.recovery import recovery
from ottla.storage.segments.append_info import AppendInfo, AppendOrigin
from ottla.storage.segments.files import SNAPSHOT, file_name
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.segments.segment import Segment
from ottla.wire.batch_builder import ControlType, build_batch, build_end_transaction_marker
from tests.storage.log.workbench import NOW_MS, Workbench, append


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    bench = Workbench(RealDisk(), str(tmp_path / "orders-2"))
    yield bench
    bench.let_go()


def produce(
    log: Log,
    sequence: int,
    *,
    count: int = 1,
    epoch: int = 0,
    producer_id: int = 7,
    is_transactional: bool = False,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> AppendInfo:
    batch = build_batch(
        [(NOW_MS, b"k", b"v")] * count,
        producer_id=ProducerId(producer_id),
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    return append(log, batch, origin=origin)


def end(
    log: Log, control_type: ControlType, *, epoch: int = 0, coordinator_epoch: int = 0
) -> AppendInfo:
    marker = build_end_transaction_marker(
        control_type,
        timestamp_ms=NOW_MS,
        producer_id=ProducerId(7),
        producer_epoch=epoch,
        coordinator_epoch=Epoch(coordinator_epoch),
    )
    return append(log, marker, origin=AppendOrigin.COORDINATOR)


OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH

# What was written as (epoch, sequence, count), what comes as the same, what it gets:
# an offset, a duplicate's offset as ("again", offset), or a refusal.
TABLE: dict[
    str,
    tuple[list[tuple[int, int, int]], tuple[int, int, int], int | tuple[str, int] | ErrorCode],
] = {
    "the first begins at zero": ([], (0, 0, 1), 0),
    "a forgotten one goes on anywhere": ([], (3, 40, 1), 0),
    "the next in order": ([(0, 0, 3)], (0, 3, 1), 3),
    "a gap": ([(0, 0, 3)], (0, 4, 1), OUT_OF_ORDER),
    "the last again": ([(0, 0, 3)], (0, 0, 3), ("again", 0)),
    "the last again, but shorter": ([(0, 0, 3)], (0, 0, 2), OUT_OF_ORDER),
    "the last again, but longer": ([(0, 0, 3)], (0, 0, 4), OUT_OF_ORDER),
    "the fifth last again": ([(0, i, 1) for i in range(6)], (0, 1, 1), ("again", 1)),
    "the sixth last again": ([(0, i, 1) for i in range(6)], (0, 0, 1), OUT_OF_ORDER),
    "a new epoch begins at zero": ([(0, 0, 3)], (1, 0, 1), 3),
    "a new epoch that does not": ([(0, 0, 3)], (1, 3, 1), OUT_OF_ORDER),
    "an old epoch": ([(4, 0, 3)], (3, 3, 1), FENCED),
    "a retry from an old epoch": ([(4, 0, 3), (5, 0, 1)], (4, 0, 3), FENCED),
    "sequences wrap": ([(0, INT32_MAX, 1)], (0, 0, 1), 1),
    "sequences wrap within a batch": ([(0, INT32_MAX - 1, 4)], (0, 2, 1), 4),
    "a batch that wrapped again": ([(0, INT32_MAX - 1, 4)], (0, INT32_MAX - 1, 4), ("again", 0)),
    "a gap after the wrap": ([(0, INT32_MAX, 1)], (0, 1, 1), OUT_OF_ORDER),
}


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("case", TABLE)
async def test_a_sequence_gets_what_kafka_gives(
    bench: Workbench, case: str, is_restarted: bool
) -> None:
    written, coming, answer = TABLE[case]
    log = await bench.open(LogConfig())
    for epoch, sequence, count in written:
        produce(log, sequence, count=count, epoch=epoch)
    if is_restarted:
        log = await bench.kill_and_open(log)
    end_offset = log.end_offset

    epoch, sequence, count = coming
    if isinstance(answer, ErrorCode):
        with pytest.raises(RefusedError) as refused:
            produce(log, sequence, count=count, epoch=epoch)
        assert refused.value.code == answer
        assert log.end_offset == end_offset
    elif isinstance(answer, tuple):
        info = produce(log, sequence, count=count, epoch=epoch)
        assert info.is_duplicate
        assert (info.base_offset, info.last_offset) == (answer[1], answer[1] + count - 1)
        assert info.log_append_time_ms == -1
        assert log.end_offset == end_offset
    else:
        info = produce(log, sequence, count=count, epoch=epoch)
        assert (info.base_offset, info.is_duplicate) == (answer, False)


async def test_after_a_clean_restart_the_last_batch_is_still_a_duplicate(bench: Workbench) -> None:
    log = await bench.open(LogConfig())
    produce(log, INT32_MAX - 1, count=4)

    log = await bench.close_and_open(log)

    assert produce(log, INT32_MAX - 1, count=4).is_duplicate
    assert produce(log, 2).base_offset == 4


async def test_a_clean_start_without_snapshots_spares_a_later_kill_the_closed_segments(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await bench.open(LogConfig(segment_bytes=200))
    for number in range(6):
        append(log, build_batch([(NOW_MS, b"k", b"%d" % number * 50)]))
    await log.close()
    for path in Path(bench.directory).glob("*.snapshot"):
        path.unlink()

    log = await bench.open(log.config, is_clean=True, recovery_point=log.recovery_point)

    assert [path.name for path in Path(bench.directory).glob("*.snapshot")] == [
        file_name(log.end_offset, SNAPSHOT)
    ]
    append(log, build_batch([(NOW_MS, b"k", b"last" * 10)]))
    replayed: list[Offset] = []

    async def replay(
        disk: Disk, segment: Segment, producers: ProducerStates, end_offset: Offset
    ) -> None:
        replayed.append(segment.base_offset)

    monkeypatch.setattr(recovery, "_replay_segment", replay)
    log = await bench.kill_and_open(log, recovery_point=log.recovery_point)
    assert (log.end_offset, replayed) == (7, [])


@pytest.mark.parametrize("segment_count", [0, 1])
async def test_a_clean_start_of_one_segment_writes_no_snapshot(
    bench: Workbench, segment_count: int
) -> None:
    log = await bench.open(LogConfig())
    for _ in range(segment_count):
        append(log, build_batch([(NOW_MS, b"k", b"v")]))
    await log.close()
    for path in Path(bench.directory).glob("*.snapshot"):
        path.unlink()

    await bench.open(log.config, is_clean=True, recovery_point=log.recovery_point)

    assert not [*Path(bench.directory).glob("*.snapshot")]


async def test_a_duplicate_under_log_append_time_gets_its_first_time(bench: Workbench) -> None:
    log = await bench.open(LogConfig(is_log_append_time=True))
    produce(log, 0)

    assert produce(log, 0).log_append_time_ms == NOW_MS


async def test_coordinators_have_no_sequences(bench: Workbench) -> None:
    log = await bench.open(LogConfig())
    for _ in range(3):
        produce(log, -1, origin=AppendOrigin.COORDINATOR)
    assert log.end_offset == 3


async def test_a_marker_of_an_old_coordinator_is_fenced(bench: Workbench) -> None:
    log = await bench.open(LogConfig())
    produce(log, 0, is_transactional=True)
    end(log, ControlType.COMMIT, coordinator_epoch=5)

    with pytest.raises(RefusedError, match="TRANSACTION_COORDINATOR_FENCED"):
        end(log, ControlType.ABORT, coordinator_epoch=4)


async def test_an_open_transaction_takes_only_transactional_batches(bench: Workbench) -> None:
    log = await bench.open(LogConfig())
    produce(log, 0, is_transactional=True)

    with pytest.raises(RefusedError, match="INVALID_TXN_STATE"):
        produce(log, 1)


async def test_the_stable_end_waits_for_the_oldest_transaction_and_its_commit(
    bench: Workbench,
) -> None:
    log = await bench.open(LogConfig())
    produce(log, 0, producer_id=1)
    produce(log, 0, is_transactional=True)
    produce(log, 0, producer_id=2)
    log.update_high_watermark(Offset(3))
    assert log.last_stable_offset == 1

    end(log, ControlType.COMMIT)
    assert log.last_stable_offset == 1  # its marker is not committed yet
    log.update_high_watermark(Offset(4))

    assert log.last_stable_offset == 4
    assert log.aborted_transactions(Offset(0), Offset(4)) == []


async def test_idle_producers_are_forgotten_but_not_in_a_transaction(bench: Workbench) -> None:
    log = await bench.open(LogConfig(producer_id_expiration_ms=1000))
    produce(log, 0)
    produce(log, 0, producer_id=8, is_transactional=True)
    assert log.expire_producers(NOW_MS + 999) == 0

    assert log.expire_producers(NOW_MS + 1000) == 1

    assert produce(log, 77).base_offset == 2
    with pytest.raises(RefusedError):
        produce(log, 77, producer_id=8, is_transactional=True)


async def test_truncation_takes_sequences_back(bench: Workbench) -> None:
    log = await bench.open(LogConfig())
    for sequence in range(6):
        produce(log, sequence)
        if sequence == 2:
            await log.roll(now_ms=NOW_MS)

    await log.truncate_to(Offset(4))

    with pytest.raises(RefusedError):
        produce(log, 5)
    assert produce(log, 3).is_duplicate
    assert produce(log, 4).base_offset == 4


@pytest.mark.parametrize("twice", ["producer", "transaction"])
def test_a_snapshot_that_names_something_twice_is_corrupt(twice: str) -> None:
    """Two producers with one open transaction: ending it for the second would find nothing."""
    states = ProducerStates(Offset(10))
    for producer_id in (1, 2):
        producer = ProducerEntry()
        producer.txn_first_offset = Offset(4 if twice == "transaction" else 4 + producer_id)
        states.restore(producer_id, producer)
    data = bytearray(encode_snapshot(states))
    if twice == "producer":
        data[10:18] = (2).to_bytes(8)
        data[2:6] = crc32c(bytes(data[6:])).to_bytes(4)

    with pytest.raises(CorruptDataError, match="comes twice"):
        decode_snapshot(bytes(data), Offset(10))
