"""Mutants (deliberate bugs that the simulation must find) in a partition's log: durability,
recovery, derived state."""

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from ottla.jepsen.world.bugs.mutant import Mutant, Plant, patched
from ottla.jepsen.world.disk import SimulatedDisk
from ottla.model.ids import Epoch, Offset
from ottla.storage.log.appender import Appender
from ottla.storage.log.epoch_file import EpochFile
from ottla.storage.log.log_state import LogState
from ottla.storage.log.segment_files import SegmentFiles
from ottla.storage.log.segment_remover import SegmentRemover
from ottla.storage.log.truncator import Truncator
from ottla.storage.producers import producer_files
from ottla.storage.producers.producer_snapshot import encode_snapshot
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.recovery import recovery, segment_swap
from ottla.storage.recovery.recovery import LogLoader
from ottla.storage.segments.batch_scan import BatchScan
from ottla.storage.segments.epoch_cache import EpochCache
from ottla.storage.segments.indexes import OffsetIndex, TimeIndex
from ottla.storage.segments.segment import Segment

# --- durability -----------------------------------------------------------------------------------


async def _nothing(*arguments: Any, **more: Any) -> None:
    """Do nothing. A mutant installs this function in place of a function of the code under test."""


def _count_written_as_flushed() -> Any:
    return patched(SegmentFiles, fsync=_nothing)


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
    async def remove(self: SegmentFiles, segment: Segment) -> None:
        await segment.remove()

    return patched(SegmentFiles, remove=remove)


def _leave_unlinked_names() -> Any:
    return patched(LogLoader, _settle=_nothing)


def _remove_unflushed() -> Any:
    return patched(SegmentRemover, _flush_unsealed=_nothing)


def _trust_unsealed() -> Any:
    return patched(LogState, recovery_checkpoint=property(lambda state: state.recovery_point))


def _skip_epochs() -> Any:
    return patched(EpochFile, write=_nothing)


def _keep_torn_append() -> Any:
    def take_back(self: Appender, segment: Segment, error: OSError) -> NoReturn:
        segment.size_bytes = segment.file.size_bytes
        self._health.refuse(error)

    return patched(Appender, _take_back=take_back)


# --- recovery -------------------------------------------------------------------------------------


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


# --- derived state --------------------------------------------------------------------------------


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


def _snapshot_without_producers() -> Any:
    def encode(states: ProducerStates) -> bytes:
        return encode_snapshot(ProducerStates(states.end_offset))

    return patched(producer_files, encode_snapshot=encode)


def _recover_no_producers() -> Any:
    def replay(*arguments: Any) -> None:
        pass

    return patched(recovery, replay=replay)


def _keep_producers_of_the_tail() -> Any:
    return patched(Truncator, _reload_producers=_nothing)


def _forget_aborts() -> Any:
    return patched(Segment, note_aborted=lambda self, aborted: None)


def _take_any_guard() -> Any:
    return patched(ProducerStates, _check_guard=lambda self, header, guard: None)


def _stable_at_the_high_watermark() -> Any:
    return patched(LogState, last_stable_offset=property(lambda self: self.high_watermark))


@contextmanager
def _recover_no_aborts() -> Iterator[None]:
    original = recovery.replay

    def replay(producers: Any, segment: Any, data: Any, at: int, header: Any) -> None:
        original(producers, None, data, at, header)

    with patched(recovery, replay=replay):
        yield


SEQUENCES_COUNT = 200
"""Number of seeds within which the subject `log-sequences` (random sequences of log operations)
finds a mutant, a deliberate bug. In searches that began at the seeds 0, 1000 and 2000, the slowest
mutant took 92 seeds."""


def _row(
    name: str, sentence: str, plant: Plant, seed_count: int = 2_000, *, subject: str = "log"
) -> Mutant:
    return Mutant(
        name=f"log-{name}",
        sentence=sentence,
        engine="walk",
        subject=subject,
        plant=plant,
        seed_count=seed_count,
        is_quick=seed_count <= 2_000,
    )


MUTANTS = (
    _row("unflushed", "a flush reports written data as flushed", _count_written_as_flushed),
    _row("rename-unflushed", "a file replaces another one unflushed", _rename_before_flush),
    _row(
        "unlink-unflushed",
        "a truncation continues before its removal of segments is durable",
        _remove_in_memory_only,
        SEQUENCES_COUNT,
        subject="log-sequences",
    ),
    _row(
        "unlinked-returns",
        "a start does not make the removals of the previous process durable",
        _leave_unlinked_names,
        20_000,
    ),
    _row(
        "leaving-unflushed",
        "a removed segment may return torn, before flushed data",
        _remove_unflushed,
        SEQUENCES_COUNT,
        subject="log-sequences",
    ),
    _row(
        "unsealed-trusted",
        "a start trusts the indexes of a segment that ends at the recovery point",
        _trust_unsealed,
        SEQUENCES_COUNT,
        subject="log-sequences",
    ),
    _row(
        "epochs-unwritten",
        "the recovery point advances beyond epochs that are in no file",
        _skip_epochs,
    ),
    _row("torn-append", "the remains of a failed write are not removed", _keep_torn_append),
    _row("no-crc", "recovery accepts a torn batch", _believe_torn_batches),
    _row("last-only", "recovery checks only the last segment", _check_last_segment_only),
    _row("any-index", "recovery trusts an index that was never finished", _believe_any_index),
    _row("gap", "recovery accepts a gap between segments", _skip_gaps),
    _row(
        "hollow",
        "the remains of a failed roll count as the end of the log",
        _keep_hollow,
        SEQUENCES_COUNT,
        subject="log-sequences",
    ),
    _row("index-offset", "an index entry is off by one", _index_off_by_one),
    _row("index-position", "an index entry points after its batch", _index_next_batch),
    _row("time-index", "the time index accepts every timestamp", _index_every_timestamp),
    _row(
        "epochs-kept",
        "a truncation keeps the epochs of the removed records",
        _keep_epochs_of_the_tail,
    ),
    _row("epoch-late", "an epoch begins one offset late", _epoch_one_late),
    _row(
        "snapshot-empty",
        "a producer snapshot misses the last producer",
        _snapshot_without_producers,
    ),
    _row("producers-lost", "recovery replays no producers", _recover_no_producers),
    _row(
        "producers-kept",
        "a truncation keeps the producer states unchanged",
        _keep_producers_of_the_tail,
    ),
    _row("aborts-lost", "aborted transactions are not listed", _forget_aborts),
    _row("aborts-unrecovered", "recovery lists no aborted transactions", _recover_no_aborts),
    _row("guard-skipped", "an unverified transaction begins", _take_any_guard),
    _row(
        "stable-early",
        "read_committed consumers see records of open transactions",
        _stable_at_the_high_watermark,
    ),
)
