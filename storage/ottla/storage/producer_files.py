"""The files in which a log keeps its producers: snapshots, and what goes beside the newest."""

from collections.abc import Sequence
from contextlib import suppress

from ottla.model.ids import Offset
from ottla.storage.abort_digests import ABORT_DIGESTS, format_digests
from ottla.storage.disk_seam import Disk
from ottla.storage.files import PRODUCER_BATCHES, SNAPSHOT, file_name, offsets_of
from ottla.storage.producer_batches import encode_batches
from ottla.storage.producer_snapshot import encode_snapshot
from ottla.storage.producer_state import ProducerStates
from ottla.storage.segment import Segment
from ottla.storage.segment_list import CLOSED_SEGMENTS, ClosedSegment, format_segments

NO_DIGESTS = format_digests({})

PRODUCERS_WRITTEN_AT_ROLL = 1_000
"""Producers whose last batches a roll writes down, on the loop, in some 2 ms.  More hold the loop
for longer; with fewer, after a kill, more producers are known by the last batch alone."""


class ProducerFiles:
    """One log's."""

    def __init__(self, disk: Disk, directory: str, snapshots: list[int] | None) -> None:
        """`snapshots` are the offsets of those that hold true; None where that is not known."""
        self._known = None if snapshots is None else set(snapshots)
        self._disk = disk
        self._directory = directory
        self._unsynced: list[str] = []
        self._digested: tuple[int, ...] = ()
        """Count and bounds of the segments when the digests of all closed ones were written."""
        self._digests: bytes | None = None
        """Contents of `abort-digests`; None if not known."""

    def write(self, states: ProducerStates, offset: Offset) -> None:
        """Write the states at an offset, at once; `sync` makes them durable."""
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
        self._unsynced.append(path)

    async def sync(self) -> None:
        """Make durable what was written before.

        Calls overlap: what another one has begun is not durable yet, so each does what is not known
        to be done.
        """
        for path in list(self._unsynced):
            if self._disk.exists(path):
                file = self._disk.open(path)
                try:
                    await self._disk.fsync(file)
                finally:
                    file.close()
            if path in self._unsynced:
                self._unsynced.remove(path)

    async def keep_digests(self, segments: Sequence[Segment], *, is_cleaned: bool = False) -> None:
        """Make durable which aborts the sealed segments have, if there are others than before.

        `is_cleaned` says that a segment was compacted, which shows in no base offset.
        """
        if is_cleaned:
            self._digested = ()
        bounds = len(segments), segments[0].base_offset, segments[-1].base_offset
        if bounds == self._digested:
            return  # as with most flushes: nothing was closed since the last one
        sealed = [segment for segment in segments[:-1] if segment.is_sealed]
        if sealed:
            await self._write_digests(sealed)
        if len(sealed) == len(segments) - 1:
            self._digested = bounds

    async def _write_digests(self, segments: Sequence[Segment]) -> None:
        found = {segment.base_offset: segment.transaction_index.digest for segment in segments}
        data = format_digests({base: one for base, one in found.items() if one.entry_count})
        path = f"{self._directory}/{ABORT_DIGESTS}"
        if self._digests is None and data == NO_DIGESTS and not self._disk.exists(path):
            self._digests = NO_DIGESTS
        if data != self._digests:
            self._digests = None
            await self._disk.write_atomically(path, data)
            self._digests = data

    async def _write_list(self, closed: Sequence[Segment]) -> None:
        """Write what a clean start asks of the closed segments, if it is not there."""
        path = f"{self._directory}/{CLOSED_SEGMENTS}"
        before = await self._disk.read_file(path) if self._disk.exists(path) else None
        data = format_segments(closed_segment_of(each) for each in closed if each.is_sealed)
        if data != before and (closed or before is not None):
            await self._disk.write_atomically(path, data)

    async def write_all(
        self, states: ProducerStates, end_offset: Offset, segments: Sequence[Segment]
    ) -> None:
        """Write durably what a log is closed with, unless the files there say the same."""
        await self._write_digests(segments)
        await self._write_list(segments[:-1])
        is_there = self._known is not None and end_offset in self._known
        if is_there or (self._known == set() and not states.producers):
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
            self._known.add(offset)

    def forget(self) -> None:
        """Rely on no snapshot that is there: the states were replaced."""
        self._known = None

    async def remove_above(self, end_offset: Offset) -> None:
        """Remove the snapshots of what is no longer in the log."""
        self.forget()
        for offset in offsets_of(await self._disk.listdir(self._directory), SNAPSHOT):
            if offset > end_offset:
                await self.remove(offset)

    async def remove(self, offset: int) -> None:
        """Remove a snapshot if it is there; another task that removes it may be first."""
        path = f"{self._directory}/{file_name(offset, SNAPSHOT)}"
        if self._known is not None:
            self._known.discard(offset)
        if self._disk.exists(path):
            with suppress(FileNotFoundError):
                await self._disk.unlink(path)


def closed_segment_of(segment: Segment) -> ClosedSegment:
    """Return the facts of a closed segment that a clean start needs."""
    return ClosedSegment(
        base_offset=segment.base_offset,
        size_bytes=segment.size_bytes,
        offset_entry_count=segment.offset_index.count,
        time_entry_count=segment.time_index.count,
        abort_count=segment.transaction_index.count,
        max_timestamp_ms=segment.max_timestamp_ms,
        max_timestamp_offset=segment.max_timestamp_offset,
    )
