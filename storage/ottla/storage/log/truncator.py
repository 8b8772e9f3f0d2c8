"""Truncation of a log: all records from an offset on are removed durably.

The caller must not append while a truncation runs.
"""

from collections.abc import Sequence

from ottla.model.ids import NO_OFFSET, Offset
from ottla.storage.disk.disk_seam import when_cached
from ottla.storage.log.epoch_file import EpochFile
from ottla.storage.log.log_health import LogHealth
from ottla.storage.log.log_state import LogState
from ottla.storage.log.segment_files import SegmentFiles
from ottla.storage.producers.producer_snapshot import decode_snapshot
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.recovery.recovery import load_producers
from ottla.storage.segments.directory_view import DirectoryView
from ottla.storage.segments.epoch_cache import EpochCache, EpochEntry
from ottla.storage.segments.segment import Segment


class Truncator:
    """Truncator of one log: removes records from the end of the log."""

    __slots__ = ("_files", "_health", "_state")

    def __init__(
        self,
        state: LogState,
        health: LogHealth,
        files: SegmentFiles,
    ) -> None:
        self._state = state
        self._health = health
        self._files = files

    async def truncate_to(self, offset: Offset) -> bool:
        """Remove all records of the log from `offset` on, durably. Returns True if any were
        removed.

        A batch that contains `offset` is removed completely. The log then ends at the start of that
        batch, because after a crash a gap would be mistaken for lost records. If that start is
        below the log start offset, the log becomes empty. It then begins at the log start offset,
        or at `offset` if that is lower. If `offset` is below the local start of a tiered log, the
        local log becomes empty and begins at `offset`, and the log start stays.

        A leader epoch that begins at `offset` is removed even if nothing was written in it, because
        the leader may not have this epoch (KIP-279).
        """
        state = self._state
        self._health.check_online()
        if offset >= state.end_offset:
            state.epochs.truncate_from_end(offset)
            return False
        try:
            # The batch that contains `offset` begins in that segment.
            segment = state.segments[state.index_of(offset)]
            await self._end_cleaning(segment.base_offset)
            return await self._truncate_to(offset)
        finally:
            state.note_hole(state.hole_offset)
            self._state.owner.after_truncation()

    async def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Remove all records of the log durably. It is then empty, and begins and ends at
        `offset`."""
        self._health.check_online()
        try:
            await self._end_cleaning(min(offset, self._state.log_start_offset))
            await self._begin_again_at(offset)
        finally:
            self._state.owner.after_truncation()

    async def begin_at(
        self,
        offset: Offset,
        log_start_offset: Offset,
        epochs: Sequence[EpochEntry],
        snapshot: bytes,
        now_ms: int,
    ) -> None:
        """Remove all records of the local log durably. The local log then begins and ends at
        `offset`. Its log start offset, leader epochs and producers (`snapshot`) are those of the
        arguments."""
        assert log_start_offset <= offset
        producers = decode_snapshot(snapshot, offset)
        producers.note_loaded(now_ms)
        known = EpochCache()
        for entry in epochs:
            known.assign(entry.epoch, entry.start_offset)
        known.truncate_from_end(offset)
        known.truncate_from_start(log_start_offset)
        self._health.check_online()
        try:
            await self._end_cleaning(min(log_start_offset, self._state.log_start_offset))
            await self._begin_again_at(offset, log_start_offset, known, producers)
            await self._state.owner.on_log_start_raised()
        except OSError as error:
            self._health.refuse(error)
        finally:
            self._state.owner.after_truncation()

    async def _end_cleaning(self, offset: Offset) -> None:
        try:
            await self._state.owner.before_truncation(offset)
        except OSError as error:
            self._health.refuse(error)
        self._health.check_online()
        self._state.first_dirty_offset = min(self._state.first_dirty_offset, offset)

    async def _truncate_to(self, offset: Offset) -> bool:
        state, health = self._state, self._health
        try:
            await EpochFile(state).write()  # no epoch is written during the truncation
            place = await when_cached(
                state.disk, lambda: state.segments[state.index_of(offset)].place_to_cut(offset)
            )
        except OSError as error:
            health.fail_by(error, state.directory)
            health.refuse(error)
        end_offset = offset if place is None else min(offset, Offset(place[1]))
        if state.log_start_offset <= offset < state.segments[0].base_offset:
            epochs = EpochCache(state.epochs.entries)
            epochs.truncate_from_end(offset)
            await self._begin_again_at(offset, state.log_start_offset, epochs)
            return True
        if end_offset < state.log_start_offset:
            await self._begin_again_at(min(offset, state.log_start_offset))
            return True
        state.generation += 1
        before = state.recovery_checkpoint, state.high_watermark
        kept = state.index_of(offset) + 1
        removed = state.segments[kept:]
        del state.segments[kept:]
        active = state.active
        state.unsealed = tuple(
            each for each in state.unsealed if each not in removed and each is not active
        )
        state.is_truncating = True
        try:
            active.activate(state.config)
            position = active.size_bytes if place is None else place[0]
            active.cut(position=position, end_offset=end_offset)
            state.end_offset = end_offset
            self._state.on_truncated(end_offset)
            state.high_watermark = min(state.high_watermark, end_offset)
            state.recovery_point = min(state.recovery_point, end_offset)
            state.epochs.truncate_from_end(end_offset)
            await self._remove_files(active, position, removed)
            await self._reload_producers()
            await self._report_decrease(*before)
        except OSError as error:
            health.fail_by(error, state.directory)  # half truncated: writes must be refused
            health.refuse(error)
        finally:
            state.is_truncating = False
        return True

    async def _remove_files(self, active: Segment, position: int, removed: list[Segment]) -> None:
        """Durably remove the files of `removed` segments, and truncate the active segment's file to
        `position` in bytes."""
        state = self._state
        for segment in reversed(removed):
            await self._files.remove(segment)
        await state.disk.truncate(active.file, position)
        await self._files.fsync(active)  # otherwise old bytes could return behind new ones
        self._health.check_online()  # its directory may have failed
        active.cut_index_files()  # not earlier: until then startup may trust this segment
        await EpochFile(state).write()
        await active.load_timestamps()

    async def _reload_producers(self) -> None:
        """Set the producer states to those at the log's end offset, after a truncation."""
        state = self._state
        await self._files.producer_files.remove_above(state.end_offset)
        reloaded = await load_producers(
            state.disk,
            DirectoryView(state.disk, state.directory),
            state.segments,
            state.end_offset,
            state.config,
            now_ms=0,
        )
        reloaded.keep_from(state.producers)
        reloaded.on_high_watermark(state.high_watermark)
        self._files.replace_producers(reloaded)

    async def _begin_again_at(
        self,
        offset: Offset,
        log_start_offset: Offset | None = None,
        epochs: EpochCache | None = None,
        producers: ProducerStates | None = None,
    ) -> None:
        """Remove all segments, and begin the local log at `offset`. The log start offset becomes
        `log_start_offset` or, by default, `offset`. By default, leader epochs and producers are
        unknown."""
        state, health, files = self._state, self._health, self._files
        state.generation += 1
        before = state.recovery_checkpoint, state.high_watermark
        state.end_offset = state.high_watermark = state.local_start_offset = offset
        state.log_start_offset = offset if log_start_offset is None else log_start_offset
        state.recovery_point, state.hole_offset = offset, None
        state.copied_offset = NO_OFFSET
        self._state.on_truncated(Offset(0))
        state.replace_epochs(EpochCache() if epochs is None else epochs)
        state.unsealed = ()
        state.is_truncating = True
        # Segments that another task is removing are removed here as well; only its oldest one is
        # left to that task. A remaining segment would form a gap before all later appends.
        doomed = [*state.passed, *state.segments]
        state.passed = state.passed[: 1 if state.is_removing else 0]
        try:
            for segment in reversed(doomed):
                await files.remove(segment)
            await files.producer_files.remove_above(Offset(-1))
            health.check_online()  # its directory may have failed
            # A start drops the epochs and producers of a log without segments: they come first.
            await EpochFile(state).write()
            files.replace_producers(ProducerStates(offset) if producers is None else producers)
            if producers is not None:
                producers.on_high_watermark(offset)
                files.producer_files.write(producers, offset)
                await files.producer_files.sync()
            new = Segment(state.disk, state.directory, offset, state.config, now_ms=0)
            new.begin(state.config)
            state.segments[:] = [new]
            files.names.change_count += 1
            await files.names.sync()  # otherwise only a later segment's name may survive
            await self._report_decrease(*before)
        except OSError as error:
            health.fail_by(error, state.directory)
            health.refuse(error)
        finally:
            state.is_truncating = False

    async def _report_decrease(self, checkpoint: Offset, high_watermark: Offset) -> None:
        """Call the log's owner if a truncation lowered the recovery checkpoint or the high
        watermark below their earlier values `checkpoint` and `high_watermark`."""
        state = self._state
        if state.recovery_checkpoint < checkpoint or state.high_watermark < high_watermark:
            await self._state.owner.on_offsets_decreased()
