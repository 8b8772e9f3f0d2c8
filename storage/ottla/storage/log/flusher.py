"""Flushes of a log: records, closed segments, epochs, snapshots and names become durable.

Invariant RecoveryPointIsFlushed: all records below the recovery point are durable, together with
all data that their recovery needs. A flush starts again if a truncation or a removal of segments
interferes.
"""

from ottla.model.ids import Offset
from ottla.storage.log.epoch_file import EpochFile
from ottla.storage.log.log_health import LogHealth
from ottla.storage.log.log_state import LogState
from ottla.storage.log.segment_files import SegmentFiles


class LogFlusher:
    """Flusher of one log, which makes the log's files durable."""

    __slots__ = ("_files", "_health", "_names", "_state")

    def __init__(self, state: LogState, health: LogHealth, files: SegmentFiles) -> None:
        self._state = state
        self._health = health
        self._files = files
        self._names = files.names

    async def flush(self, up_to: Offset | None) -> Offset:
        """Make all records below the offset `up_to` durable; None means the whole log. Returns the
        recovery point, below which everything is then durable."""
        state, health = self._state, self._health
        health.check_online()
        end = state.end_offset if up_to is None else min(up_to, state.end_offset)
        since_ms = state.unflushed_since_ms
        if end == state.end_offset:
            state.unflushed_since_ms = None
        try:
            while state.recovery_point < end or state.unsealed:
                generation = state.generation
                await self._flush_segments(end, generation)
                health.check_online()  # files that were closed in the meantime are not flushed
                if generation != state.generation:
                    end = min(end, state.end_offset)
                elif not self._is_sealing_due(end):
                    state.recovery_point = max(state.recovery_point, end)
                    break
        except OSError as error:
            state.unflushed_since_ms = since_ms
            health.refuse(error)
        return state.recovery_point

    def _is_sealing_due(self, end: Offset) -> bool:
        """Return whether the files of a segment below `end` that was closed since the last check
        are not all durable yet."""
        return any(segment.base_offset < end for segment in self._state.unsealed)

    async def _flush_segments(self, end: Offset, generation: int) -> None:
        """Flush the log's records in `[recovery point, end)`, and the data that a recovery of these
        records needs.

        Ends early if a truncation or a removal of segments interferes. The caller then calls this
        method again.
        """
        state, files = self._state, self._files
        if state.recovery_point < end:
            for segment in state.segments[state.index_of(state.recovery_point) :]:
                if segment.base_offset >= end:
                    break
                await files.fsync(segment)
                if segment.abort_count:
                    await segment.transaction_index.flush()
                if generation != state.generation:
                    return
        closed = [segment for segment in state.unsealed if segment.base_offset < end]
        for segment in closed:
            await files.fsync(segment)
            if generation != state.generation:
                return
            await segment.trim()
            if generation != state.generation:
                return
            segment.seal()
        await self._flush_derived()
        if generation == state.generation:
            state.unsealed = tuple(each for each in state.unsealed if each not in closed)

    async def _flush_derived(self) -> None:
        """Make a log's leader epochs, new producer snapshots and new file names durable."""
        producer_files = self._files.producer_files
        await producer_files.sync()
        await producer_files.keep_digests(self._state.segments)
        if not self._state.is_truncating:
            await EpochFile(self._state).write()
        await self._names.sync()

    async def keep(self) -> None:
        """Make the directory of a new log durable. Raises RefusedError if the log is offline or its
        disk fails."""
        self._health.check_online()
        try:
            await self._names.keep()
        except OSError as error:
            self._health.refuse(error)
        self._health.check_online()  # its directory may have failed

    async def write_back(self) -> None:
        """Ask the kernel to start writing the active segment's dirty pages to the disk. Waits first
        until the write-back of the previous call has ended.

        This makes nothing durable, but shortens the next flush.
        """
        self._health.check_online()
        file = self._state.active.file
        try:
            await self._state.disk.write_back(file)
        except OSError as error:
            self._health.fail_disk(f"{file.path}: {error}")
            self._health.refuse(error)

    async def flush_for_close(self) -> None:
        """Flush the log, trim its indexes and write its producer snapshot. A clean shutdown marker
        may be written only afterwards."""
        await self.flush(None)
        await self.keep()  # an empty log has nothing to flush
        state, files, names = self._state, self._files, self._names
        active = state.active
        try:
            if active.end_preallocation():
                await files.fsync(active)
            active.add_last_time_entry()
            if active.size_bytes:
                await active.trim()
                names.change_count += not active.has_index_names
                await names.sync()
            await files.producer_files.write_all(state.producers, state.end_offset, state.segments)
            state.epochs.truncate_from_end(state.end_offset)  # startup drops epochs without records
            await EpochFile(state).write()
        except OSError as error:
            self._health.refuse(error)
