"""Mutants of a partition's log: what is durable, what recovery believes, what is derived."""

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from ottla.jepsen.world.bugs.mutant import Mutant, Plant, patched
from ottla.jepsen.world.disk import SimulatedDisk
from ottla.model.ids import Epoch, Offset
from ottla.storage import producer_files, recovery, segment_swap
from ottla.storage.batch_scan import BatchScan
from ottla.storage.epoch_cache import EpochCache
from ottla.storage.epoch_file import EpochFile
from ottla.storage.indexes import OffsetIndex, TimeIndex
from ottla.storage.local_log import LocalLog
from ottla.storage.log_reads import ReadableLog
from ottla.storage.producer_snapshot import encode_snapshot
from ottla.storage.producer_state import ProducerStates
from ottla.storage.recovery import LogLoader
from ottla.storage.segment import Segment

# --- what is durable ------------------------------------------------------------------------------


async def _nothing(*arguments: Any, **more: Any) -> None:
    """Stand in for what is left out."""


def _count_written_as_flushed() -> Any:
    return patched(LocalLog, _fsync=_nothing)


def _rename_before_flush() -> Any:
    async def write(self: SimulatedDisk, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.set_size(0)
        file.pwrite(0, [data])
        file.close()
        await self.rename(temporary, path)
        await self.fsync_directory(posixpath.dirname(path))

    return patched(SimulatedDisk, write_atomically=write)


def _remove_in_memory_only() -> Any:
    async def remove(self: LocalLog, segment: Segment) -> None:
        await segment.remove()

    return patched(LocalLog, _remove_segment=remove)


def _leave_unlinked_names() -> Any:
    return patched(LogLoader, _settle=_nothing)


def _remove_unflushed() -> Any:
    return patched(LocalLog, _flush_unsealed=_nothing)


def _trust_unsealed() -> Any:
    return patched(LocalLog, recovery_checkpoint=property(lambda log: log.recovery_point))


def _skip_epochs() -> Any:
    return patched(EpochFile, write=_nothing)


def _keep_torn_append() -> Any:
    def take_back(self: LocalLog, segment: Segment, error: OSError) -> NoReturn:
        segment.size_bytes = segment.file.size_bytes
        self._refuse(error)

    return patched(LocalLog, _take_back=take_back)


# --- what recovery believes -----------------------------------------------------------------------


def _believe_torn_batches() -> Any:
    def scan(self: LogLoader, segment: Segment, *, position: int, end: int) -> BatchScan:
        return BatchScan(
            self._disk,
            segment.file,
            position=position,
            end=end,
            first_offset=segment.base_offset,
            base_offset=segment.base_offset,
            is_crc_checked=False,
        )

    return patched(LogLoader, _scan=scan)


def _check_last_segment_only() -> Any:
    return patched(recovery, _floor=lambda segments, offset: max(0, len(segments) - 1))


def _believe_any_index() -> Any:
    original = segment_swap.open_indexes

    def open_indexes(disk: Any, segment: Segment) -> bool:
        if original(disk, segment):
            return True
        paths = (segment.offset_index.path, segment.time_index.path)
        return all(bool(disk.exists(path)) for path in paths)

    return patched(recovery, open_indexes=open_indexes)


def _skip_gaps() -> Any:
    return patched(LogLoader, _is_followed=lambda self, segments, index, end_offset: True)


def _keep_hollow() -> Any:
    return patched(Segment, discard=Segment.close)


# --- what is derived ------------------------------------------------------------------------------


@contextmanager
def _index_off_by_one() -> Iterator[None]:
    original = OffsetIndex.append

    def append(self: OffsetIndex, offset: int, position: int) -> None:
        original(self, offset - 1 if offset > self.last_entry[0] + 1 else offset, position)

    with patched(OffsetIndex, append=append):
        yield


@contextmanager
def _index_next_batch() -> Iterator[None]:
    original = Segment.note_batch

    def note_batch(
        self: Segment,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        size: int,
        interval_bytes: int,
    ) -> bool:
        count = self.offset_index.count
        is_indexed = original(self, base_offset, last_offset, max_timestamp, size, interval_bytes)
        if self.offset_index.count > count:
            offset, position = self.offset_index.last_entry
            self.offset_index.keep_first(count)
            self.offset_index.append(offset, position + size)
        return is_indexed

    with patched(Segment, note_batch=note_batch):
        yield


def _index_every_timestamp() -> Any:
    def append(self: TimeIndex, timestamp_ms: int, offset: int) -> None:
        self.add(
            timestamp_ms.to_bytes(8, "big", signed=True)
            + (offset - self.base_offset).to_bytes(4, "big")
        )

    return patched(TimeIndex, append_if_later=append)


def _keep_epochs_of_the_tail() -> Any:
    def keep(self: EpochCache, end_offset: Offset) -> None:
        pass

    return patched(EpochCache, truncate_from_end=keep)


@contextmanager
def _epoch_one_late() -> Iterator[None]:
    original = EpochCache.assign

    def assign(self: EpochCache, epoch: Epoch, start_offset: Offset) -> None:
        original(self, epoch, Offset(start_offset + 1))

    with patched(EpochCache, assign=assign):
        yield


def _snapshot_of_nobody() -> Any:
    def encode(states: ProducerStates) -> bytes:
        return encode_snapshot(ProducerStates(states.end_offset))

    return patched(producer_files, encode_snapshot=encode)


def _recover_no_producers() -> Any:
    def replay(*arguments: Any) -> None:
        pass

    return patched(recovery, replay=replay)


def _keep_producers_of_the_tail() -> Any:
    return patched(LocalLog, _reload_producers=_nothing)


def _forget_aborts() -> Any:
    return patched(Segment, note_aborted=lambda self, aborted: None)


def _take_any_guard() -> Any:
    return patched(ProducerStates, _check_guard=lambda self, header, guard: None)


def _stable_at_the_high_watermark() -> Any:
    return patched(ReadableLog, last_stable_offset=property(lambda self: self.high_watermark))


@contextmanager
def _recover_no_aborts() -> Iterator[None]:
    original = recovery.replay

    def replay(producers: Any, segment: Any, data: Any, at: int, header: Any) -> None:
        original(producers, None, data, at, header)

    with patched(recovery, replay=replay):
        yield


def _row(name: str, sentence: str, plant: Plant, seed_count: int = 2_000) -> Mutant:
    return Mutant(
        name=f"log-{name}",
        sentence=sentence,
        engine="walk",
        subject="log",
        plant=plant,
        seed_count=seed_count,
        is_quick=seed_count <= 2_000,
    )


MUTANTS = (
    _row("unflushed", "a flush answers for what is only written", _count_written_as_flushed),
    _row("rename-unflushed", "a file takes another's place unflushed", _rename_before_flush),
    _row(
        "unlink-unflushed",
        "a truncation goes on before the segments it removed are gone from the disk",
        _remove_in_memory_only,
        20_000,
    ),
    _row(
        "unlinked-returns",
        "a start does not make durable what the process before it removed",
        _leave_unlinked_names,
        20_000,
    ),
    _row(
        "leaving-unflushed",
        "a segment that is removed may come back torn, before what was flushed",
        _remove_unflushed,
        20_000,
    ),
    _row(
        "unsealed-trusted",
        "a start trusts the indexes of a segment that ends at the recovery point",
        _trust_unsealed,
        20_000,
    ),
    _row("epochs-unwritten", "the recovery point passes epochs that no file has", _skip_epochs),
    _row("torn-append", "what a failed write left is not taken back", _keep_torn_append),
    _row("no-crc", "recovery takes a torn batch for whole", _believe_torn_batches),
    _row("last-only", "recovery looks at the last segment only", _check_last_segment_only),
    _row("any-index", "recovery trusts an index that was never finished", _believe_any_index),
    _row("gap", "recovery passes over a gap between segments", _skip_gaps),
    _row("hollow", "what a failed roll left is taken for the end of the log", _keep_hollow, 20_000),
    _row("index-offset", "an index entry is off by one", _index_off_by_one),
    _row("index-position", "an index entry points behind its batch", _index_next_batch),
    _row("time-index", "the time index takes every timestamp", _index_every_timestamp),
    _row("epochs-kept", "a truncation leaves the epochs of what it cut", _keep_epochs_of_the_tail),
    _row("epoch-late", "an epoch begins one offset late", _epoch_one_late),
    _row("snapshot-empty", "a producer snapshot misses who wrote last", _snapshot_of_nobody),
    _row("producers-lost", "recovery replays no producers", _recover_no_producers),
    _row(
        "producers-kept",
        "a truncation leaves the producers as they were",
        _keep_producers_of_the_tail,
    ),
    _row("aborts-lost", "aborted transactions are not listed", _forget_aborts),
    _row("aborts-unrecovered", "recovery lists no aborted transactions", _recover_no_aborts),
    _row("guard-skipped", "a transaction begins that nothing verified", _take_any_guard),
    _row(
        "stable-early",
        "read_committed sees what open transactions wrote",
        _stable_at_the_high_watermark,
    ),
)
