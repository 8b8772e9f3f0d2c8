"""A closed segment of a log, as the source of an upload to an object store.

The segment's `.log` file stays open while the source exists, so that it can be read after the log
has removed the segment. All other reads are refused after the removal, because the copy would be
useless.
"""

import errno
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset
from ottla.storage.disk.slice import FileSlice
from ottla.storage.log.log_state import LogState
from ottla.storage.producers.producer_snapshot import decode_snapshot, encode_snapshot
from ottla.storage.recovery.recovery import load_producers
from ottla.storage.segments.directory_view import DirectoryView
from ottla.storage.segments.entry_file import EntryFile
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.segments.files import SNAPSHOT, file_name
from ottla.storage.segments.segment import Segment


async def producers_at_local_start(state: LogState) -> bytes:
    """Return the producers of a log at the start of its first local segment, as the bytes of a
    producer snapshot (`.snapshot`). The snapshot has no producers if the log has no snapshot at
    that offset.

    If the segment is removed in the meantime, the new first segment is used."""
    while True:
        first = state.segments[0]
        view, offset = DirectoryView(state.disk, state.directory), first.base_offset
        with suppress(FileNotFoundError):
            producers = await load_producers(state.disk, view, [], offset, state.config, now_ms=0)
            if first is state.segments[0]:
                return encode_snapshot(producers)


class LocalSegmentSource:
    """Reader of a closed segment of one log, for an upload (interface `SegmentSource`). The
    segment's indexes are complete only after a flush, so the log is flushed up to the segment's end
    before they are read."""

    def __init__(
        self,
        state: LogState,
        flush: Callable[[Offset], Awaitable[Offset]],
        base_offset: Offset,
    ) -> None:
        """Open the closed segment that begins at `base_offset`. Raises FileNotFoundError if the log
        has no such segment."""
        self._state = state
        self._flush = flush
        index = state.index_of(base_offset)
        segment = state.segments[index]
        if segment.base_offset != base_offset or index + 1 == len(state.segments):
            raise FileNotFoundError(
                errno.ENOENT, f"no closed segment begins at {base_offset}", state.directory
            )
        self._segment = segment
        self.base_offset = base_offset
        """Base offset of the segment."""
        self.end_offset = end_offset = state.segments[index + 1].base_offset
        """End of the segment, exclusive: the base offset of the next segment."""
        self.size_bytes = segment.size_bytes
        """Size of the segment's `.log` file in bytes."""
        self.max_timestamp_ms = segment.max_timestamp_ms
        """Largest timestamp of the segment's records, in ms since 1970, or -1 if they have none."""
        self.epochs: Sequence[EpochEntry] = tuple(
            entry for entry in state.epochs.entries if entry.start_offset < end_offset
        )
        """Leader epochs of the log from its start up to the end of the segment, oldest first."""
        self._pinned = FileSlice(segment.file, 0, segment.size_bytes)

    async def read_log(self, start: int, end: int) -> bytes:
        """Return the bytes `[start, end)` of the `.log` file. Raises OSError if the disk fails, and
        FileNotFoundError if a truncation of the log has removed the bytes."""
        data = await self._state.disk.read(self._pinned.file, start, end - start)
        if len(data) < end - start:
            raise self._gone()
        return data

    async def offset_index(self) -> bytes:
        """Return the entries of the `.index` file."""
        return await self._entries(self._segment.offset_index)

    async def time_index(self) -> bytes:
        """Return the entries of the `.timeindex` file."""
        return await self._entries(self._segment.time_index)

    async def transaction_index(self) -> bytes:
        """Return the content of the `.txnindex` file, empty if no transaction was aborted in the
        segment."""
        return await self._entries(self._segment.transaction_index)

    async def producer_snapshot(self) -> bytes:
        """Return the state of the log's producers at the end of the segment, in the format of a
        `.snapshot` file. The state is computed if the log has no such file, or a corrupt one."""
        await self._settled()
        state, end_offset = self._state, self.end_offset
        view = DirectoryView(state.disk, state.directory)
        with suppress(FileNotFoundError, CorruptDataError):
            data = await view.read_file(file_name(end_offset, SNAPSHOT))
            decode_snapshot(data, end_offset)
            return data
        self._check_here()
        segments = [each for each in state.segments if each.base_offset < end_offset]
        producers = await load_producers(
            state.disk, view, segments, end_offset, state.config, now_ms=0
        )
        self._check_here()
        return encode_snapshot(producers)

    async def _entries(self, index: EntryFile) -> bytes:
        await self._settled()
        size = index.count * index.entry_bytes
        if not size:
            return b""
        data = await self._state.disk.read_file(index.path)
        self._check_here()
        if len(data) < size:
            raise self._gone()
        return data[:size]

    async def _settled(self) -> Segment:
        """Return the segment after its files were flushed."""
        self._check_here()
        await self._flush(self.end_offset)
        self._check_here()
        return self._segment

    def _check_here(self) -> None:
        segments = self._state.segments
        is_closed = self._segment in segments[:-1]
        if not is_closed or self._segment.size_bytes != self.size_bytes:
            raise self._gone()

    def _gone(self) -> FileNotFoundError:
        text = "the log has removed or truncated the segment while it was copied"
        return FileNotFoundError(errno.ENOENT, text, self._segment.file.path)
