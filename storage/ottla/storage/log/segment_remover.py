"""Removal of a log's oldest segments, by retention or because records were deleted.

A removal has two phases: the segments are removed from the log in memory, then their files are
renamed to `.deleted`, the oldest first. While the log is being compacted, the files are kept; the
cleaner removes them at the end of the compaction.
"""

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.storage.disk.disk_errors import is_disk_failure
from ottla.storage.log.log_health import LogHealth
from ottla.storage.log.log_hooks import LogHooks
from ottla.storage.log.log_state import LogState
from ottla.storage.log.segment_files import SegmentFiles
from ottla.storage.segments.retention import deletable_count
from ottla.storage.segments.segment import Segment


class SegmentRemover:
    """Remover of the oldest segments of one log."""

    __slots__ = ("_files", "_health", "_hooks", "_state")

    def __init__(
        self, state: LogState, health: LogHealth, hooks: LogHooks, files: SegmentFiles
    ) -> None:
        self._state = state
        self._health = health
        self._hooks = hooks
        self._files = files

    async def delete_records_before(self, offset: Offset) -> None:
        """Raise the log start offset to `offset` durably, and remove the segments below it.

        Raises RefusedError(OFFSET_OUT_OF_RANGE) if the offset is above the high watermark. A full
        disk also causes a refusal, because the records could reappear if the process is killed. The
        segments are removed nevertheless.
        """
        self.raise_log_start(offset)
        is_full = False
        try:
            await self._hooks.on_log_start_raised()
        except OSError as error:
            if is_disk_failure(error):
                self._health.refuse(error)
            is_full = True
        await self._remove_passed()
        if is_full:
            try:
                await self._hooks.on_log_start_raised()
            except OSError as second:
                self._health.refuse(second)

    def raise_log_start(self, offset: Offset) -> None:
        """Raise the log start offset to `offset` in memory; `delete_records_before` makes it
        durable."""
        state = self._state
        self._health.check_online()
        if offset > state.high_watermark:
            raise RefusedError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot delete up to {offset}: the high watermark is {state.high_watermark}",
            )
        if offset > state.log_start_offset:
            state.raise_log_start(offset)

    async def delete_old_segments(self, now_ms: int) -> int:
        """Remove segments that exceed retention or are below the log start offset. Returns the
        number of removed segments.

        Returns 0 while the log is being truncated or compacted, or is new. The next retention check
        removes the segments.
        """
        state = self._state
        self._health.check_online()
        if state.is_truncating or state.is_being_cleaned or self._files.names.is_new:
            return 0
        count = deletable_count(
            state.segments,
            state.config,
            log_start_offset=state.log_start_offset,
            high_watermark=state.high_watermark,
            end_offset=state.end_offset,
            now_ms=now_ms,
        )
        if count == len(state.segments):
            self._files.roll(state.end_offset, now_ms)
        if count:
            state.raise_log_start(state.segments[count].base_offset)
        await self._remove_passed()
        return count

    async def _remove_passed(self) -> None:
        """Remove the log's segments that are completely below the log start offset.

        Unflushed segments are flushed first. Otherwise a power failure may bring back a torn
        segment, and the next start would drop everything after it.
        """
        state = self._state
        if state.is_being_cleaned:
            return
        doomed = state.segments[: state.index_of(state.log_start_offset)]
        try:
            await self._flush_unsealed(doomed)
            if not state.is_truncating:  # a truncation reads them; the next round removes them
                self._pass(doomed)
            if not state.is_removing:  # one caller removes for all: no gap is left
                await self._remove_files()
        except OSError as error:
            self._health.refuse(error)

    async def _flush_unsealed(self, doomed: list[Segment]) -> None:
        for segment in doomed:
            if not segment.is_sealed and segment in self._state.segments:
                await self._files.fsync(segment)

    def _pass(self, doomed: list[Segment]) -> None:
        """Move the segments `doomed` from the log's segments to `passed` (segments whose files are
        still to be removed), as long as they are the log's oldest segments."""
        state = self._state
        below = state.segments[: state.index_of(state.log_start_offset)]
        found = [segment for segment in below if segment in doomed]
        if found:
            state.generation += 1
            del state.segments[: len(found)]
            state.unsealed = [segment for segment in state.unsealed if segment not in found]
            state.passed += found

    async def _remove_files(self) -> None:
        state, files = self._state, self._files
        state.is_removing = True
        try:
            await files.names.sync()  # new segments' names must be durable first
            while state.passed:
                self._health.check_online()
                segment = state.passed[0]
                await files.rename_to_deleted(segment)
                await files.producer_files.remove(segment.base_offset)
                del state.passed[0]
            # Epochs are truncated only now, and not up to the log start offset, whose checkpoint a
            # kill may lose. If the log had records of epochs that it does not know, it would answer
            # followers that their logs do not diverge.
            state.epochs.truncate_from_start(state.segments[0].base_offset)
        finally:
            state.is_removing = False
