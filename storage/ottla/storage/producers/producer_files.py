"""Writer of the producer files of a log: its producer snapshots, and the files that accompany the
newest snapshot."""

from collections.abc import Sequence
from contextlib import suppress

from ottla.model.ids import Offset
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.producers.producer_batches import encode_batches
from ottla.storage.producers.producer_snapshot import encode_snapshot
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.segments.abort_digests import ABORT_DIGESTS, format_digests
from ottla.storage.segments.files import PRODUCER_BATCHES, SNAPSHOT, file_name, offsets_of
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_list import CLOSED_SEGMENTS, ClosedSegment, format_segments

NO_DIGESTS = format_digests({})

NO_OFFSETS: frozenset[int] = frozenset()

PRODUCERS_WRITTEN_AT_ROLL = 1_000
"""Maximum number of producers whose last batches are written to `producer-batches` when a segment
rolls. This blocks the event loop for about 2 ms. With more producers, the loop is blocked for
longer. With fewer, the last batches of the remaining producers, except for the newest, are unknown
after a kill."""


class ProducerFiles:
    """Writer and remover of the producer files of one log."""

    __slots__ = ("_digested", "_digests", "_directory", "_disk", "_known", "_unsynced")

    def __init__(self, disk: Disk, directory: str, snapshots: list[int] | None) -> None:
        """Create the object for a log's producer files. `snapshots` are the offsets of the valid
        producer snapshots, or None if they are not known."""
        self._known: frozenset[int] | None = None
        """Offsets of the valid producer snapshots, or None if the offsets are not known."""
        if snapshots is not None:
            # Most logs have no snapshot; they share one empty set.
            self._known = frozenset(snapshots) if snapshots else NO_OFFSETS
        self._disk = disk
        self._directory = directory
        self._unsynced: tuple[str, ...] = ()
        self._digested: tuple[int, ...] = ()
        """Number and bounds of the log's segments when the digests of the aborted transactions in
        closed segments were last written."""
        self._digests: bytes | None = None
        """Bytes of the log's `abort-digests` file, or None if the contents are not known."""

    def write(self, states: ProducerStates, offset: Offset) -> None:
        """Write a snapshot of the producer states at an offset, without waiting; `sync` makes the
        snapshot durable."""
        snapshot = encode_snapshot(states)
        self._write_unsynced(file_name(offset, SNAPSHOT), snapshot)
        self._note(offset)
        if 0 < len(states.producers) <= PRODUCERS_WRITTEN_AT_ROLL:
            self._write_unsynced(PRODUCER_BATCHES, encode_batches(states, snapshot))

    def _write_unsynced(self, name: str, data: bytes) -> None:
        path = f"{self._directory}/{name}"
        file = self._disk.open(path, create=True)
        try:
            file.set_size(0)
            file.pwrite(0, [data])
        finally:
            file.close()
        self._unsynced = (*self._unsynced, path)

    async def sync(self) -> None:
        """Make all previous writes of producer files durable, by an fsync of each changed file.

        Files that another call is still flushing are not durable yet. Each call therefore flushes
        all files that are not known to be durable.
        """
        for path in self._unsynced:
            if self._disk.exists(path):
                file = self._disk.open(path)
                try:
                    await self._disk.fsync(file)
                finally:
                    file.close()
            left = list(self._unsynced)
            if path in left:
                left.remove(path)  # once: another call may have written the file again
            self._unsynced = tuple(left)

    async def keep_digests(self, segments: Sequence[Segment], *, is_cleaned: bool = False) -> None:
        """Make the digests of aborted transactions in sealed segments durable, if they have
        changed.

        Without `is_cleaned`, nothing is done if the number and the bounds of the segments are those
        of the last call. `is_cleaned` means that a segment was compacted. Its aborted transactions
        may then have changed although its bounds are the same.
        """
        if is_cleaned:
            self._digested = ()
        bounds = len(segments), segments[0].base_offset, segments[-1].base_offset
        if bounds == self._digested:
            return  # the usual case: nothing was closed since the last flush
        sealed = [segment for segment in segments[:-1] if segment.is_sealed]
        if sealed:
            await self._write_digests(sealed)
        if len(sealed) == len(segments) - 1:
            self._digested = bounds

    async def _write_digests(self, segments: Sequence[Segment]) -> None:
        data = format_digests(
            {each.base_offset: each.abort_digest for each in segments if each.abort_count}
        )
        path = f"{self._directory}/{ABORT_DIGESTS}"
        if self._digests is None and data == NO_DIGESTS and not self._disk.exists(path):
            self._digests = NO_DIGESTS
        if data != self._digests:
            self._digests = None
            await self._disk.write_atomically(path, data)
            self._digests = data

    async def _write_list(self, closed: Sequence[Segment]) -> None:
        """Durably write the `closed-segments` file, which a clean start needs. Does nothing if the
        file already has this content."""
        path = f"{self._directory}/{CLOSED_SEGMENTS}"
        before = await self._disk.read_file(path) if self._disk.exists(path) else None
        data = format_segments(closed_segment_of(each) for each in closed if each.is_sealed)
        if data != before and (closed or before is not None):
            await self._disk.write_atomically(path, data)

    async def write_all(
        self, states: ProducerStates, end_offset: Offset, segments: Sequence[Segment]
    ) -> None:
        """Durably write all producer files of the log that are not up to date, for a clean
        shutdown."""
        await self._write_digests(segments)
        await self._write_list(segments[:-1])
        is_there = self._known is not None and end_offset in self._known
        if is_there or (self._known == NO_OFFSETS and not states.producers):
            return
        snapshot = encode_snapshot(states)
        await self._disk.write_atomically(
            f"{self._directory}/{file_name(end_offset, SNAPSHOT)}", snapshot
        )
        if states.producers:
            await self._disk.write_atomically(
                f"{self._directory}/{PRODUCER_BATCHES}", encode_batches(states, snapshot)
            )

    def _note(self, offset: int) -> None:
        if self._known is not None:
            self._known |= {offset}

    def forget(self) -> None:
        """Treat all existing producer snapshots as invalid, because the producer states were
        replaced."""
        self._known = None

    async def remove_above(self, end_offset: Offset) -> None:
        """Remove the producer snapshots above the end offset of the log."""
        self.forget()
        for offset in offsets_of(await self._disk.listdir(self._directory), SNAPSHOT):
            if offset > end_offset:
                await self.remove(offset)

    async def remove(self, offset: int) -> None:
        """Remove the producer snapshot at an offset, if it exists. Another task may have removed
        the snapshot before."""
        path = f"{self._directory}/{file_name(offset, SNAPSHOT)}"
        if self._known is not None:
            self._known -= {offset}
        if self._disk.exists(path):
            with suppress(FileNotFoundError):
                await self._disk.unlink(path)


def closed_segment_of(segment: Segment) -> ClosedSegment:
    """Return the entry of a closed segment in the `closed-segments` file, which a clean start
    reads."""
    return ClosedSegment(
        base_offset=segment.base_offset,
        size_bytes=segment.size_bytes,
        offset_entry_count=segment.offset_index.count,
        time_entry_count=segment.time_index.count,
        abort_count=segment.abort_count,
        max_timestamp_ms=segment.max_timestamp_ms,
        max_timestamp_offset=segment.max_timestamp_offset,
    )
