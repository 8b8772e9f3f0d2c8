"""Fuzz target: a partition's directory in any state that a crash or a person may leave. The log in
it is opened, used, closed, and opened again.

An input has nine parts: flags for the opening, two logs, and the other files. The CRCs of the
batches are corrected unless the first part forbids it.
"""

from collections.abc import Iterator
from random import Random
from uuid import UUID

from crc32c import crc32c

from ottla.jepsen.fuzz.target import FuzzTarget, joined, parts_of
from ottla.jepsen.fuzz.targets.batches import NOW_MS, example_batches, with_right_crcs
from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.rng import SeededRng
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset
from ottla.model.limits import KIB, MIB
from ottla.model.run_now import run_now
from ottla.storage.log.log import Log, open_log
from ottla.storage.segments.epoch_cache import EpochCache, EpochEntry
from ottla.storage.segments.files import (
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
)
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.segments.partition_metadata import encode_partition_metadata
from ottla.wire.batch import HEADER, batches
from ottla.wire.batch_builder import RecordToBuild, build_batch

DIRECTORY = "/data/t-0"
TOPIC_ID = UUID(int=77)
SECOND_BASE = 30
PART_COUNT = 9
BATCH = build_batch([RecordToBuild(NOW_MS, b"k", b"v")])

CLEAN_FLAG, COMPACTED_FLAG, RAW_FLAG, TRUSTED_FLAG = 1, 2, 4, 8
SUFFIXES = (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)


def _config(flags: int) -> LogConfig:
    return LogConfig(
        segment_bytes=64 * KIB,
        segment_index_bytes=240,
        index_interval_bytes=100,
        is_compacted=bool(flags & COMPACTED_FLAG),
    )


def _check(data: bytes) -> None:
    run_now(_live(data))


async def _live(data: bytes) -> None:
    opening, first, second, *beside = parts_of(data, PART_COUNT)
    flags = opening[0] if opening else 0
    disk = SimulatedDisk(SeededRng(1))
    await disk.makedirs(DIRECTORY)
    if not flags & RAW_FLAG:
        first, second = with_right_crcs(first), with_right_crcs(second)
    *indexes, producers, epochs, metadata = beside
    _put(disk, file_name(0, LOG), first)
    if second:
        _put(disk, file_name(SECOND_BASE, LOG), second)
    for suffix, content in zip(SUFFIXES, indexes, strict=True):
        if content:
            _put(disk, file_name(0, suffix), content)
    if producers:
        fixed = producers[:2] + crc32c(producers[6:]).to_bytes(4) + producers[6:]
        _put(disk, file_name(SECOND_BASE, SNAPSHOT), fixed)
    if epochs:
        _put(disk, LEADER_EPOCH_CHECKPOINT, epochs)
    _put(disk, PARTITION_METADATA, metadata or encode_partition_metadata(TOPIC_ID))
    config = _config(flags)
    recovery_point = SECOND_BASE if flags & TRUSTED_FLAG else 0
    try:
        log = await _open(disk, config, is_clean=bool(flags & CLEAN_FLAG), at=recovery_point)
    except RefusedError as refusal:
        assert refusal.code is ErrorCode.INCONSISTENT_TOPIC_ID
        return
    try:
        # For trusted data the only guarantee is that reading it ends.
        await _use(log, is_whole=not flags & (CLEAN_FLAG | TRUSTED_FLAG))
    finally:
        log.abandon()
    if not flags & CLEAN_FLAG:
        await _come_again(disk, config, log.end_offset, at=recovery_point)


def _put(disk: SimulatedDisk, name: str, content: bytes) -> None:
    file = disk.open(f"{DIRECTORY}/{name}", create=True)
    file.pwrite(0, [content])
    file.close()


async def _open(disk: SimulatedDisk, config: LogConfig, *, is_clean: bool, at: int) -> Log:
    return await open_log(
        disk,
        DIRECTORY,
        config=config,
        topic_id=TOPIC_ID,
        is_clean=is_clean,
        recovery_point=Offset(at),
        log_start_offset=Offset(0),
        now_ms=NOW_MS,
    )


async def _use(log: Log, *, is_whole: bool) -> None:
    """Use a partition's log as a broker would. If `is_whole` is True, reads must reach the end of
    the log."""
    assert 0 <= log.log_start_offset <= log.high_watermark <= log.end_offset
    end_offset = log.end_offset
    _read_all(log, is_whole=is_whole)
    try:
        await log.offset_for_timestamp(NOW_MS, end_offset=end_offset)
    except RefusedError as refusal:
        assert refusal.code is ErrorCode.CORRUPT_MESSAGE
    try:
        info = log.append_as_leader(
            memoryview(BATCH), leader_epoch=Epoch(max(0, log.last_epoch)), now_ms=NOW_MS
        )
    except RefusedError:
        return  # for example, no offset is left in the log
    assert info.base_offset == end_offset
    log.update_high_watermark(log.end_offset)
    _read_all(log, is_whole=is_whole)
    await log.flush()


def _read_all(log: Log, *, is_whole: bool) -> None:
    at = log.log_start_offset
    while at < log.end_offset:
        data = run_now(log.read_bytes(at, bytes_max=KIB, end_offset=log.end_offset))
        if not data:
            break
        before = at
        for _, header in batches(data, is_partial_end_allowed=True):
            at = header.end_offset
        if at <= before:
            assert not is_whole, "a read that never comes to the end"
            break


async def _come_again(
    disk: SimulatedDisk, config: LogConfig, end_offset: Offset, *, at: int
) -> None:
    """Recover a partition's log that was already recovered and flushed. Raises AssertionError if
    this changes its content."""
    again = await _open(disk, config, is_clean=False, at=at)
    assert again.end_offset == end_offset
    again.abandon()


def _seeds(random: Random) -> Iterator[bytes]:
    first, second = _log_of(random, 0, SECOND_BASE), _log_of(random, SECOND_BASE, 60)
    epochs = EpochCache((EpochEntry(Epoch(1), Offset(0)), EpochEntry(Epoch(2), Offset(9)))).encode()
    metadata = encode_partition_metadata(TOPIC_ID)
    producers = _snapshot_of(first)
    indexes = _indexes_of(first)
    for flags in range(16):
        yield joined(bytes([flags]), first, second, *indexes, producers, epochs, metadata)
        yield joined(bytes([flags]), first, b"", *indexes, b"", epochs, metadata)
        yield joined(bytes([flags]), first[:-5], second, b"", b"", b"", b"", b"", b"")
    yield joined(b"", b"", b"", b"", b"", b"", b"", b"", b"")


def _log_of(random: Random, base_offset: int, end_offset: int) -> bytes:
    """Return record batches of various kinds, which together cover a range of offsets."""
    found: list[bytes] = []
    kinds = [data for data in example_batches(random) if len(data) < 200]
    while base_offset < end_offset:
        batch = bytearray(random.choice(kinds))
        (*_, last_offset_delta, _, _, _, _, _, _) = HEADER.unpack_from(batch)
        batch[:8] = base_offset.to_bytes(8)
        batch[12:16] = (1 + base_offset // 10).to_bytes(4)
        base_offset += last_offset_delta + 1
        if base_offset <= end_offset:
            found.append(bytes(batch))
    return b"".join(found)


def _indexes_of(log: bytes) -> tuple[bytes, bytes, bytes]:
    offsets, times = b"", b""
    for number, (at, header) in enumerate(batches(log)):
        if at:
            offsets += header.last_offset.to_bytes(4) + at.to_bytes(4)
        times += (NOW_MS - 10_000 + number).to_bytes(8) + header.last_offset.to_bytes(4)
    aborted = bytes(2) + b"".join(number.to_bytes(8) for number in (9, 3, 8, 9))
    return offsets, times, aborted


def _snapshot_of(log: bytes) -> bytes:
    from ottla.storage.producers.producer_snapshot import encode_snapshot
    from ottla.storage.producers.producer_state import ProducerStates

    states = ProducerStates()
    for _, header in batches(log):
        if header.producer_id >= 0 and not header.is_control:
            states.apply(header, header.base_offset, None)
    return encode_snapshot(states)


RECOVERY = FuzzTarget(
    name="recovery",
    sentence="a partition's directory: segments, indexes, epochs, producers; used and opened again",
    check=_check,
    seeds=_seeds,
    refusals=(CorruptDataError,),
    allocation_free_bytes=2 * MIB,  # the simulated disk holds every byte three times
)
