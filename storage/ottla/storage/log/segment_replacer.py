"""Replacement of some of a log's segments by one segment that compaction has written.

Readers that have opened old segments can finish reading them. After a crash, the directory contains
either the old segments or the new one.
"""

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.storage.log.log_health import LogHealth
from ottla.storage.log.log_state import LogState
from ottla.storage.log.segment_files import SegmentFiles
from ottla.storage.recovery.segment_swap import (
    CleanedFiles,
    decide_swap,
    end_offset_of,
    finish_swap,
    is_swap_decided,
    open_cleaned,
)
from ottla.storage.segments.segment import Segment


class SegmentReplacer:
    """Replacer of segments of one log by compacted segments."""

    __slots__ = ("_files", "_health", "_state")

    def __init__(self, state: LogState, health: LogHealth, files: SegmentFiles) -> None:
        self._state = state
        self._health = health
        self._files = files

    async def replace(self, cleaned: CleanedFiles) -> None:
        """Durably replace segments of the log by a compacted segment, `cleaned`.

        Raises CorruptDataError if the files of the compacted segment do not match its description.
        Raises RefusedError, and leaves the old segments unchanged, if old segments are missing or
        the disk fails.
        """
        state, health, files = self._state, self._health, self._files
        health.check_online()
        assert state.is_being_cleaned
        olds = self._sources_of(cleaned)
        base_offset, directory = cleaned.base_offset, state.directory
        try:
            new = await open_cleaned(
                state.disk, directory, cleaned, state.config, now_ms=olds[0].created_ms
            )
            try:
                ends = [await end_offset_of(state.disk, each) for each in (olds[-1], new)]
                if ends[0] != ends[1]:
                    raise CorruptDataError(f"{new.file.path} ends at {ends[1]}, not at {ends[0]}")
                health.check_online()
                await decide_swap(state.disk, directory, base_offset)
                self._read_from(new, olds)
            finally:
                if new not in state.segments:
                    new.close()
            for old in olds:  # oldest first: the rest hides no later tombstone
                await files.rename_to_deleted(old)
                health.check_online()
            await finish_swap(state.disk, directory, base_offset)
            await files.producer_files.keep_digests(state.segments, is_cleaned=True)
            for old in olds[1:]:
                await files.producer_files.remove(old.base_offset)
        except OSError as error:
            if is_swap_decided(state.disk, directory, base_offset):
                health.fail_by(error, directory)  # only startup can find out the state on disk
            health.refuse(error)

    def _sources_of(self, cleaned: CleanedFiles) -> list[Segment]:
        """Return the adjacent segments that `cleaned`, a compacted segment, replaces.

        Raises RefusedError if one of these segments is missing, active or not flushed.
        """
        state = self._state
        first = state.index_of(Offset(cleaned.base_offset))
        found = state.segments[first : first + len(cleaned.sources)]
        is_there = cleaned.sources == tuple(each.base_offset for each in found)
        if not is_there or cleaned.base_offset != found[0].base_offset or state.active in found:
            raise RefusedError(
                ErrorCode.KAFKA_STORAGE_ERROR, "the cleaned segments no longer exist"
            )
        if not all(each.is_sealed for each in found):
            raise RefusedError(
                ErrorCode.KAFKA_STORAGE_ERROR, "the cleaned segments are not flushed"
            )
        return found

    def _read_from(self, new: Segment, olds: list[Segment]) -> None:
        """Replace old segments in the log's list by the compacted segment. Later reads use the
        compacted segment."""
        self._health.check_online()
        segments = self._state.segments
        at = segments.index(olds[0])
        assert segments[at : at + len(olds)] == olds
        segments[at : at + len(olds)] = [new]
        self._state.generation += 1
        new.use_final_names()
