"""Recovery of a log from a partition's directory, after any crash.

The order is Kafka's: temporary files are removed, interrupted swaps are completed, segments are
opened. After an unclean shutdown, every segment from the recovery point on is then checked. The
tail is truncated at the first batch that is incomplete or invalid, segments after a truncation are
removed, and indexes, epochs and producers are rebuilt from the batches. The duration is
proportional to the bytes of the checked segments.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import NO_EPOCH, Epoch, Offset
from ottla.storage.disk.disk_seam import Disk, when_cached
from ottla.storage.producers.producer_batches import add_batches
from ottla.storage.producers.producer_snapshot import decode_snapshot, encode_snapshot
from ottla.storage.producers.producer_state import EndMarker, ProducerStates, read_end_marker
from ottla.storage.recovery.sealed_segments import SealedSegments
from ottla.storage.recovery.segment_split import OffsetOverflowError, split_segment
from ottla.storage.recovery.segment_swap import clean_directory, is_tidy, open_indexes
from ottla.storage.segments.batch_scan import BatchScan, ScannedBlock
from ottla.storage.segments.directory_view import DirectoryView
from ottla.storage.segments.epoch_cache import NO_EPOCHS, EpochCache, decode_epochs
from ottla.storage.segments.files import (
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    PARTITION_METADATA,
    PRODUCER_BATCHES,
    SNAPSHOT,
    SWAP,
    file_name,
    offset_of,
    offsets_of,
)
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.segments.partition_metadata import (
    decode_partition_metadata,
    encode_partition_metadata,
)
from ottla.storage.segments.segment import SEGMENT_OFFSETS_MAX, Segment
from ottla.storage.segments.transaction_index import AbortedTransaction
from ottla.wire.batch import BatchHeader, Buffer
from ottla.wire.records import scan

_LOGGER = logging.getLogger(__name__)

OLDER_EPOCHS = "%s/%s ends with epoch %d, and the log with %d: it is built again from the batches"

Progress = Callable[[int, int], None]
"""Function that receives the number of segments and the number of bytes that recovery has checked
since the last call."""


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """Result of loading a partition's directory: the segments, epochs and producers of its log."""

    segments: list[Segment]
    epochs: EpochCache
    producers: ProducerStates
    log_start_offset: Offset
    end_offset: Offset
    recovery_point: Offset
    hole_offset: Offset | None = None
    """Start of the first range of offsets that is missing because segments were lost. None if no
    such hole is known."""
    snapshots: list[int] | None = None
    """Offsets of the producer snapshots of a log that was closed cleanly. None if the offsets are
    unknown."""
    epochs_data: bytes | None = None
    """Bytes of the `leader-epoch-checkpoint` file of a log that was closed cleanly. None if the
    contents are unknown."""


async def load_topic_id(disk: Disk, directory: str, topic_id: UUID | None) -> UUID | None:
    """Return the topic id stored in the partition's directory, or `topic_id` if the directory has
    no topic id yet.

    Raises RefusedError(INCONSISTENT_TOPIC_ID) if the directory belongs to another topic.
    """
    path = f"{directory}/{PARTITION_METADATA}"
    if disk.exists(path):
        found = decode_partition_metadata(await disk.read_file(path))
        if topic_id is not None and found != topic_id:
            raise RefusedError(
                ErrorCode.INCONSISTENT_TOPIC_ID, f"{directory} belongs to topic id {found}"
            )
        return found
    return topic_id


async def keep_topic_id(disk: Disk, view: DirectoryView, topic_id: UUID | None) -> None:
    """Durably write the topic id of a new directory, if the directory has none. This also makes the
    name of the first segment's file durable.

    Without this, a power failure could lose the first segment's name but not a later segment's. The
    log would then begin at the later segment.
    """
    path = f"{view.path}/{PARTITION_METADATA}"
    if topic_id is not None and not view.has(path):
        await disk.write_atomically(path, encode_partition_metadata(topic_id))


class LogLoader:
    """Loader of one partition's log from its directory, which also recovers the log after a
    crash."""

    def __init__(
        self,
        disk: Disk,
        view: DirectoryView,
        config: LogConfig,
        *,
        now_ms: int,
        progress: Progress | None = None,
    ) -> None:
        self._disk = disk
        self._view = view
        self._directory = view.path
        self._config = config
        self._now_ms = now_ms
        self._progress = progress
        self._unsplit: set[Offset] = set()
        """Base offsets of segments in which invalid bytes look like offsets too far from the base
        offset. These segments are not split; the bytes are truncated like other damage."""
        self._sealed = SealedSegments(disk, view)
        self._last_epoch = NO_EPOCH
        """Leader epoch of the last batch of a log that was closed cleanly."""

    async def load(
        self, *, is_clean: bool, recovery_point: Offset, log_start_offset: Offset
    ) -> LoadedLog:
        """Load the log from its directory, and return it. With `is_clean`, nothing is checked,
        because `Log.close` wrote the complete log."""
        while True:
            names = await self._view.names()
            if not is_tidy(names):
                self._sealed.has_swaps |= any(name.endswith(SWAP) for name in names)
                self._view.forget()
                await clean_directory(self._disk, self._directory)
                names = await self._view.names()
            segments = [self._open_segment(Offset(base)) for base in offsets_of(names, LOG)]
            opened = list(segments)
            try:
                return await self._load(segments, is_clean, recovery_point, log_start_offset)
            except OffsetOverflowError as error:
                for segment in opened:
                    segment.close()
                base_offset = error.base_offset
                self._view.forget()
                if await split_segment(self._disk, self._directory, base_offset) == 1:
                    self._unsplit.add(Offset(base_offset))

    async def _load(
        self,
        segments: list[Segment],
        is_clean: bool,
        recovery_point: Offset,
        log_start_offset: Offset,
    ) -> LoadedLog:
        epochs = await self._load_epochs()
        snapshots: list[int] | None = None
        epochs_data: bytes | None = None
        first_checked = len(segments)
        if not is_clean:
            first_checked = _floor(segments, recovery_point)
        await self._sealed.load(segments, log_start_offset, is_clean=is_clean)
        first_checked = await self._repair_sealed(segments, first_checked)
        producers, end_offset = ProducerStates(log_start_offset), log_start_offset
        if segments and first_checked == len(segments):
            clean_end = await self._open_active(segments[-1])
            if clean_end is None:
                first_checked -= 1  # the clean shutdown marker was wrong
            elif self._last_epoch > epochs.latest:
                first_checked = self._first_of_unknown_epochs(segments, epochs)
            else:
                producers, end_offset = await self._clean_producers(segments, clean_end), clean_end
        if first_checked < len(segments):
            is_clean = False
            producers, end_offset = await self._recover(segments, first_checked, epochs)
        if not segments or log_start_offset > end_offset:
            # No record below the checkpointed offset is left: start empty there (as Kafka does).
            await self._remove(segments, 0)
            if epochs.entries:
                epochs.clear()
            await self._remove_derived()
            producers, end_offset = ProducerStates(log_start_offset), log_start_offset
            segments.append(self._new_segment(log_start_offset))
        first_offset = segments[0].base_offset
        if self._config.is_tiered:  # the object store may have the records before the first segment
            first_offset = min(first_offset, log_start_offset)
        log_start_offset = max(log_start_offset, first_offset)
        epochs.truncate_from_start(first_offset)
        epochs.truncate_from_end(end_offset)  # last, because an epoch without a record is dropped
        await remove_stray_snapshots(self._disk, self._view, segments, end_offset)
        if is_clean:
            snapshots = offsets_of(await self._view.names(), SNAPSHOT)
            epochs_data = await self._epochs_data()
        if not is_clean:
            await self._settle(segments[-1])
        return LoadedLog(
            segments=segments,
            epochs=epochs,
            producers=producers,
            log_start_offset=log_start_offset,
            end_offset=end_offset,
            recovery_point=end_offset if is_clean else min(recovery_point, end_offset),
            hole_offset=self._sealed.hole_offset,
            snapshots=snapshots,
            epochs_data=epochs_data,
        )

    async def _remove_derived(self) -> None:
        """Remove the leader epoch checkpoint and the producer snapshots of the log, whose batches
        no longer exist. The next start must not use them."""
        for name in await self._view.names():
            if name == LEADER_EPOCH_CHECKPOINT or offset_of(name, SNAPSHOT) is not None:
                self._view.forget()
                await self._disk.unlink(f"{self._directory}/{name}")

    async def _settle(self, active: Segment) -> None:
        """Make removals and truncations by the previous broker process durable. That process may
        have ended before it flushed them.

        The page cache outlives a process: data that seems to be removed may reappear at the next
        power failure, behind later appends.
        """
        await self._disk.fsync(active.file)
        if active.abort_count:
            # Rebuilt, perhaps from below the recovery point.
            await active.transaction_index.flush()
        await self._disk.fsync_directory(self._directory)

    def _new_segment(self, base_offset: Offset) -> Segment:
        segment = self._open_segment(base_offset)
        segment.begin(self._config)
        return segment

    def _open_segment(self, base_offset: Offset) -> Segment:
        size = self._view.size_of(f"{self._directory}/{file_name(base_offset, LOG)}")
        segment = Segment(
            self._disk,
            self._directory,
            base_offset,
            self._config,
            now_ms=self._now_ms,
            known_bytes=size,
        )
        segment.size_bytes = segment.file.size_bytes if size is None else size
        return segment

    async def _load_epochs(self) -> EpochCache:
        """Return the leader epochs in the `leader-epoch-checkpoint` file. A corrupt file is
        ignored, because batches contain their epochs."""
        with suppress(CorruptDataError):
            return decode_epochs(await self._epochs_data())
        return EpochCache()

    async def _epochs_data(self) -> bytes:
        try:
            return await self._view.read_file(LEADER_EPOCH_CHECKPOINT)
        except FileNotFoundError:
            return NO_EPOCHS

    async def _repair_sealed(self, segments: list[Segment], first_checked: int) -> int:
        """Open the index files of the segments before position `first_checked` in the list. If an
        index file is missing or does not match its segment, rebuild the segment's index files.

        Returns the position in the list of the first segment to recover: the first damaged one, or
        `first_checked` if no segment before it is damaged.
        """
        for index, segment in enumerate(segments[:first_checked]):
            if self._sealed.is_changed(segment):
                return index
            if segment is not segments[-1] and await self._sealed.accept_unopened(segment):
                segment.is_sealed = True
                continue
            is_sound = await when_cached(
                self._disk, partial(open_indexes, self._disk, segment, self._view)
            )
            if (
                is_sound
                and await _has_valid_max_timestamp(segment)
                and self._sealed.has_its_aborts(segment)
            ):
                segment.is_sealed = True
                continue
            following = segments[index + 1].base_offset if index + 1 < len(segments) else None
            if not await self._rebuild_indexes(segments, index) or following is None:
                return index
        return first_checked

    async def _rebuild_indexes(self, segments: list[Segment], index: int) -> bool:
        """Rebuild the indexes of a closed segment. Returns False if the segment is corrupt."""
        self._view.forget()
        segment = segments[index]
        producers = await self._producers_at(segments[:index], segment.base_offset)
        file_size = segment.size_bytes
        segment.restart(self._config)
        found = self._scan(segment, position=0, end=file_size)
        while (block := await found.next_block()) is not None:
            for at, header in block.batches:
                note(segment, header, self._config)
                if header.producer_id >= 0:
                    replay(producers, segment, block.data, at, header)
        if found.is_overflow and segment.base_offset not in self._unsplit:
            raise OffsetOverflowError(segment.base_offset)
        if found.problem is not None:
            segment.size_bytes = file_size
            return False
        segment.add_last_time_entry()
        await segment.trim()
        segment.seal()
        return True

    async def _open_active(self, segment: Segment) -> Offset | None:
        """Make the last segment of a cleanly closed log active. Returns the log's end offset, or
        None if the segment is corrupt and must be recovered."""
        await when_cached(self._disk, lambda: segment.activate(self._config))
        file_size = segment.size_bytes
        last_offset, position = segment.offset_index.last_entry
        if position < 0:
            return None
        end_offset = segment.base_offset
        found = self._scan(segment, position=position, end=file_size)
        while (block := await found.next_block()) is not None:
            end_offset = block.batches[-1][1].end_offset
            self._last_epoch = Epoch(block.batches[-1][1].partition_leader_epoch)
        if found.problem is not None or (segment.offset_index.count and end_offset <= last_offset):
            return None
        await segment.load_first_timestamp()
        return end_offset if await _has_valid_max_timestamp(segment) else None

    def _first_of_unknown_epochs(self, segments: list[Segment], epochs: EpochCache) -> int:
        """Return the index of the first segment that may contain leader epochs missing from the
        `leader-epoch-checkpoint` file.

        The file may be missing or out of date; an old file is correct up to its last epoch. The
        later epochs must be read from the batches. Otherwise, the log would seem to diverge from a
        leader's log after the last epoch in the file.
        """
        _LOGGER.error(
            OLDER_EPOCHS, self._directory, LEADER_EPOCH_CHECKPOINT, epochs.latest, self._last_epoch
        )
        return _floor(segments, epochs.entries[-1].start_offset) if epochs.entries else 0

    async def _clean_producers(self, segments: list[Segment], end_offset: Offset) -> ProducerStates:
        """Return the producer states of a cleanly closed log. A log without any snapshot has no
        producers.

        For such a log, an empty snapshot is written, as in Kafka. Without a snapshot, startup after
        a kill would read all closed segments for their producers. A log of one segment needs no
        snapshot, because startup after a kill always reads that segment.
        """
        if offsets_of(await self._view.names(), SNAPSHOT):
            return await self._producers_at(segments, end_offset)
        producers = ProducerStates(end_offset)
        if len(segments) > 1:
            path = f"{self._directory}/{file_name(end_offset, SNAPSHOT)}"
            await self._disk.write_atomically(path, encode_snapshot(producers))
            self._view.forget()
        return producers

    async def _producers_at(self, segments: list[Segment], end_offset: Offset) -> ProducerStates:
        return await load_producers(
            self._disk, self._view, segments, end_offset, self._config, now_ms=self._now_ms
        )

    async def _recover(
        self, segments: list[Segment], first: int, epochs: EpochCache
    ) -> tuple[ProducerStates, Offset]:
        """Check the segments from index `first` on, and rebuild all data that are derived from
        these segments. Returns the producer states and the end offset of the log."""
        base_offset = segments[first].base_offset
        epochs.truncate_from_end(base_offset)
        producers = await self._producers_at(segments[:first], base_offset)
        await self._remove_snapshots(above=base_offset)  # they may be of an earlier log
        index = first
        while index < len(segments):
            segment = segments[index]
            is_cut = await self._recover_segment(segment, epochs, producers)
            if self._progress is not None:
                self._progress(1, 0)
            if is_cut or not self._is_followed(segments, index, producers.end_offset):
                await self._remove(segments, index + 1)
                break
            index += 1
            if index < len(segments):
                segment.add_last_time_entry()
                await self._disk.fsync(segment.file)  # a killed process may not have flushed it
                await segment.trim()
                segment.seal()
                producers.end_offset = segments[index].base_offset
                if producers.producers:
                    self._view.forget()
                    path = f"{self._directory}/{file_name(producers.end_offset, SNAPSHOT)}"
                    await self._disk.write_atomically(path, encode_snapshot(producers))
        return producers, producers.end_offset

    async def _remove_snapshots(self, *, above: Offset) -> None:
        for offset in offsets_of(await self._view.names(), SNAPSHOT):
            if offset > above:
                self._view.forget()
                await self._disk.unlink(f"{self._directory}/{file_name(offset, SNAPSHOT)}")

    def _is_followed(self, segments: list[Segment], index: int, end_offset: Offset) -> bool:
        """Return whether the next segment may be kept: it must begin where the segment at `index`
        ends.

        After a power failure, each unflushed file survives independently. A tail may therefore be
        lost exactly at a batch's end while the next segment survives. Compaction cannot be the
        cause of such a gap, because compacted segments are flushed and below the recovery point. A
        gap is accepted only if it is wider than a segment can span, because a lost tail cannot
        cause so wide a gap (`SegmentFiles.base_of_next`).
        """
        if index + 1 == len(segments):
            return True
        next_offset = segments[index + 1].base_offset
        return (
            next_offset == end_offset
            or next_offset - segments[index].base_offset > SEGMENT_OFFSETS_MAX
        )

    async def _recover_segment(
        self, segment: Segment, epochs: EpochCache, producers: ProducerStates
    ) -> bool:
        """Check the batches of one segment and rebuild its indexes. Returns True if the segment's
        tail was truncated."""
        file_size = segment.size_bytes
        segment.restart(self._config)
        await self._disk.forget_flushed(segment.file)  # its last fsync may have failed
        found = self._scan(segment, position=0, end=file_size)
        while (block := await found.next_block()) is not None:
            for at, header in block.batches:
                note(segment, header, self._config)
                if header.partition_leader_epoch > epochs.latest:
                    epochs.assign(Epoch(header.partition_leader_epoch), header.base_offset)
                if header.producer_id >= 0:
                    replay(producers, segment, block.data, at, header)
            producers.end_offset = block.batches[-1][1].end_offset
            if self._progress is not None:
                self._progress(0, block.size_bytes)
        if found.is_overflow and segment.base_offset not in self._unsplit:
            raise OffsetOverflowError(segment.base_offset)
        segment.write_indexes()
        # Even if no byte is removed: after a failed fsync a past truncation may exist in memory
        # only. Only a change makes the next fsync write it, or report that the file system is
        # read-only.
        await self._disk.truncate(segment.file, found.valid_end)
        if found.valid_end < file_size:
            await self._disk.fsync(segment.file)  # otherwise old bytes could return behind new ones
            return True
        return False

    def _scan(self, segment: Segment, *, position: int, end: int) -> BatchScan:
        return BatchScan(
            self._disk,
            segment.file,
            position=position,
            end=end,
            first_offset=segment.base_offset,
            base_offset=segment.base_offset,
            is_crc_checked=True,
        )

    async def _remove(self, segments: list[Segment], first: int) -> None:
        """Durably remove the segments from index `first` on, newest first. With this order, a crash
        neither leaves nor restores a gap."""
        while len(segments) > first:
            self._view.forget()
            await segments.pop().remove()
            await self._disk.fsync_directory(self._directory)


def note(segment: Segment, header: BatchHeader, config: LogConfig) -> None:
    """Update the segment's state with a batch that was found in its file."""
    segment.note_batch(
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        header.size_bytes,
        config.index_interval_bytes,
    )


def replay(
    producers: ProducerStates,
    segment: Segment | None,
    data: Buffer,
    at: int,
    header: BatchHeader,
) -> None:
    """Update producer states with one batch that is stored in the log. With `segment`, an aborted
    transaction is added to the segment's transaction index."""
    marker = end_marker_of(data, at, header)
    completed = producers.apply(header, header.base_offset, marker, producers.replayed_ms)
    if completed is not None and completed.is_aborted and segment is not None:
        stable = producers.last_stable_offset_after(completed)
        segment.note_aborted(AbortedTransaction(*completed[:3], stable))


def end_marker_of(data: Buffer, at: int, header: BatchHeader) -> EndMarker | None:
    """Return the end of the transaction that a control batch ends, or None for any other batch."""
    if not header.is_control:
        return None
    for record in scan(data, at, header):
        return read_end_marker(record.key, record.value)
    return None


async def load_producers(
    disk: Disk,
    view: DirectoryView,
    segments: list[Segment],
    end_offset: Offset,
    config: LogConfig,
    *,
    now_ms: int,
) -> ProducerStates:
    """Return the states of the log's producers at `end_offset`. The states are loaded from the
    newest snapshot below this offset, and later batches are replayed.

    A corrupt snapshot is removed, and the previous one is used. Snapshots from before the first
    segment are not used, because the batches between the snapshot and the segment were deleted.
    """
    names = await view.names()
    start_offset = segments[0].base_offset if segments else end_offset
    producers = ProducerStates(start_offset)
    for offset in reversed(offsets_of(names, SNAPSHOT)):
        if not start_offset <= offset <= end_offset:
            continue
        name = file_name(offset, SNAPSHOT)
        try:
            snapshot = await view.read_file(name)
            producers = decode_snapshot(snapshot, Offset(offset))
        except CorruptDataError:
            view.forget()
            await disk.unlink(f"{view.path}/{name}")
            continue
        if producers.producers:
            with suppress(FileNotFoundError, CorruptDataError):
                data = await view.read_file(PRODUCER_BATCHES)
                add_batches(producers, data, snapshot)
        break
    producers.note_loaded(now_ms)
    producers.expire(now_ms, config.producer_id_expiration_ms)
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        if following > producers.end_offset and segment.base_offset < end_offset:
            await _replay_segment(disk, segment, producers, end_offset)
    producers.end_offset = end_offset
    return producers


async def _replay_segment(
    disk: Disk, segment: Segment, producers: ProducerStates, end_offset: Offset
) -> None:
    start = None
    if producers.end_offset > segment.base_offset:
        start = await when_cached(disk, lambda: segment.find(producers.end_offset))
    found = BatchScan(
        disk,
        segment.file,
        position=0 if start is None else start[0],
        end=segment.size_bytes,
        first_offset=segment.base_offset,
        base_offset=None,
        is_crc_checked=False,
    )
    while (block := await found.next_block()) is not None:
        _replay_block(block, producers, end_offset)


def _replay_block(block: ScannedBlock, producers: ProducerStates, end_offset: Offset) -> None:
    for at, header in block.batches:
        if producers.end_offset <= header.base_offset < end_offset and header.producer_id >= 0:
            replay(producers, None, block.data, at, header)


async def remove_stray_snapshots(
    disk: Disk, view: DirectoryView, segments: list[Segment], end_offset: Offset
) -> None:
    """Remove producer snapshots above the log's end. Also remove those that belong to no segment,
    except for the newest snapshot."""
    offsets = offsets_of(await view.names(), SNAPSHOT)
    bases = {segment.base_offset for segment in segments}
    kept = [offset for offset in offsets if offset <= end_offset]
    for offset in offsets:
        if offset > end_offset or (offset not in bases and offset != kept[-1]):
            view.forget()
            await disk.unlink(f"{view.path}/{file_name(offset, SNAPSHOT)}")


def _floor(segments: list[Segment], offset: Offset) -> int:
    """Return the index of the segment that contains an offset, or 0 if all segments begin after the
    offset."""
    index = 0
    while index + 1 < len(segments) and segments[index + 1].base_offset <= offset:
        index += 1
    return index


async def _has_valid_max_timestamp(segment: Segment) -> bool:
    """Load a segment's largest timestamp. Returns False if the segment's indexes lead to invalid
    batches."""
    try:
        await segment.load_max_timestamp()
    except CorruptDataError:
        return False
    return True
