"""Removal of a log's oldest segments, by retention or because records were deleted.

A removal has two phases. The segments are removed from the log in memory; then their files are
renamed to `.deleted`, the oldest first. While the log is being compacted, the files stay, and the
cleaner removes them at the end of the compaction.

A tiered log removes its oldest segments once they are copied to the object store. The log start
offset then stays unchanged. The leader epochs from there on also stay, because they select the
valid copies.
"""

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.storage.disk.disk_errors import is_disk_failure
from ottla.storage.log.log_health import LogHealth
from ottla.storage.log.log_state import LogState
from ottla.storage.log.segment_files import SegmentFiles
from ottla.storage.segments.retention import deletable_count
from ottla.storage.segments.segment import Segment
from ottla.storage.tier.local_plan import plan_local_deletion


class SegmentRemover:
    """Remover of the oldest segments of one log."""

    __slots__ = ("_files", "_health", "_state")

    def __init__(self, state: LogState, health: LogHealth, files: SegmentFiles) -> None:
        self._state = state
        self._health = health
        self._files = files

    async def delete_records_before(self, offset: Offset) -> None:
        """Raise the log start offset to `offset` durably, and remove the segments below it.

        Raises RefusedError(OFFSET_OUT_OF_RANGE) if the offset is above the high watermark. On a
        full disk, the segments are removed, but the request is refused, because the records could
        reappear if the process is killed.
        """
        self.raise_log_start(offset)
        await self._remove_durably(self._state.log_start_offset)

    async def _remove_durably(self, offset: Offset) -> None:
        """Make the raised log start offset durable, then remove the segments below `offset`. If the
        disk is full, the segments are removed first, and the log start offset is written again."""
        is_full = False
        try:
            await self._keep_log_start()
        except OSError as error:
            if is_disk_failure(error):
                self._health.refuse(error)
            is_full = True
        await self._remove_below(offset)
        if is_full:
            try:
                await self._keep_log_start()
            except OSError as second:
                self._health.refuse(second)

    async def _keep_log_start(self) -> None:
        offset = self._state.log_start_offset
        await self._state.owner.on_log_start_raised()
        state = self._state
        state.durable_start_offset = max(state.durable_start_offset, offset)

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

        Returns 0 while the log is being truncated or compacted, or is new. In these cases, the next
        retention check removes the segments.
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
        await self._remove_below(state.log_start_offset)
        return count

    async def delete_local_segments(self, now_ms: int) -> int:
        """Remove segments of a tiered log that are copied and exceed local retention, or are below
        the log start offset. Returns the number of removed segments.

        If the topic is no longer copied, segments that exceed the topic's retention are removed,
        and the log start offset is raised accordingly. Returns 0 in the same cases as
        `delete_old_segments`.
        """
        state, config = self._state, self._state.config
        self._health.check_online()
        if state.is_truncating or state.is_being_cleaned or self._files.names.is_new:
            return 0
        plan = plan_local_deletion(
            state.local_segments(),
            copied_offset=state.copied_offset,
            log_start_offset=state.log_start_offset,
            high_watermark=state.high_watermark,
            retention_ms=config.effective_local_retention_ms,
            retention_bytes=config.effective_local_retention_bytes,
            is_copied=config.is_copied,
            now_ms=now_ms,
        )
        if plan.is_roll_due:
            self._files.roll(state.end_offset, now_ms)
        offset = state.segments[plan.segment_count].base_offset
        if plan.moves_log_start:
            state.raise_log_start(offset)
        await self._remove_local(offset)
        return plan.segment_count

    async def delete_copied_segments(self, end_offset: Offset) -> int:
        """Remove the segments of a tiered log that are copied and completely below `end_offset`,
        even if local retention would not remove them. The log start offset stays unchanged. Returns
        the number of removed segments, and 0 in the same cases as `delete_old_segments`."""
        state = self._state
        self._health.check_online()
        if state.is_truncating or state.is_being_cleaned or self._files.names.is_new:
            return 0
        offset = Offset(min(end_offset, state.copied_offset + 1, state.high_watermark))
        count = state.index_of(offset)
        if count:
            await self._remove_local(state.segments[count].base_offset)
        return count

    async def _remove_local(self, offset: Offset) -> None:
        """Remove the segments of a tiered log that are below `offset` or below its log start
        offset."""
        state = self._state
        if state.log_start_offset > state.durable_start_offset:
            # Otherwise a kill would lower the log start again, and nothing has the records.
            await self._remove_durably(max(offset, state.log_start_offset))
        else:
            await self._remove_below(max(offset, state.log_start_offset))

    async def _remove_below(self, offset: Offset) -> None:
        """Remove the log's segments that are completely below `offset`.

        Unflushed segments are flushed first. Otherwise a torn segment may reappear after a power
        failure, and the next start would drop all later segments.
        """
        state = self._state
        if state.is_being_cleaned:
            return
        doomed = state.segments[: state.index_of(offset)]
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
        """Move the oldest segments of the log to the list `passed`, up to the first one that is not
        in `doomed`. The files of these segments are removed later."""
        state = self._state
        found: list[Segment] = []
        for segment in state.segments[:-1]:
            if segment not in doomed:
                break
            found.append(segment)
        if found:
            state.generation += 1
            del state.segments[: len(found)]
            state.unsealed = tuple(each for each in state.unsealed if each not in found)
            state.passed = (*state.passed, *found)
            state.note_local_start()

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
                state.passed = state.passed[1:]
            # Epochs are truncated only now, and not up to the log start offset, whose checkpoint a
            # kill may lose. If the log had records of epochs that it does not know, it would answer
            # followers that their logs do not diverge. A tiered log has copied records below its
            # first segment.
            first = state.segments[0].base_offset
            state.epochs.truncate_from_start(
                min(first, state.durable_start_offset) if state.config.is_tiered else first
            )
        finally:
            state.is_removing = False
