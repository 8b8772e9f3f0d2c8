"""Creation, flushes and removal of the files of a log's segments, and their renaming to `.deleted`.

Invariant: if a write fails and cannot be undone, the log goes offline, with the reason.
"""

from contextlib import suppress

from ottla.model.ids import Offset
from ottla.model.seams import Rng
from ottla.storage.log.log_health import LogHealth
from ottla.storage.log.log_names import LogNames
from ottla.storage.log.log_state import LogState
from ottla.storage.producers.producer_files import ProducerFiles
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.segments.segment import SEGMENT_OFFSETS_MAX, Segment


class SegmentFiles:
    """Creator and remover of the files of one log's segments."""

    __slots__ = ("_health", "_rng", "_state", "names", "producer_files")

    def __init__(
        self,
        state: LogState,
        health: LogHealth,
        names: LogNames,
        producer_files: ProducerFiles,
        rng: Rng | None,
    ) -> None:
        self._state = state
        self._health = health
        self._rng = rng
        self.names = names
        self.producer_files = producer_files
        state.active.jitter_ms = self._next_jitter_ms()

    def base_of_next(self, first_offset: Offset, last_offset: int) -> Offset:
        """Return the base offset for a new segment whose first batch spans `first_offset` to
        `last_offset`. The base offset is the end offset of the log, even if the batch starts at a
        higher offset.

        If the tail of a segment is lost later, a gap remains between segments, by which the next
        start recognises the loss. There is one exception: if a compacted leader left a gap that is
        wider than a segment, the base offset is that of the first batch.
        """
        end_offset = self._state.end_offset
        return end_offset if last_offset - end_offset < SEGMENT_OFFSETS_MAX else first_offset

    def roll(self, base_offset: Offset, now_ms: int) -> Segment:
        """Create and return a new active segment. An empty active segment with the same base offset
        is reused (KAFKA-6388)."""
        state = self._state
        old = state.active
        try:
            if base_offset == old.base_offset:
                old.begin(state.config)
                return old
            self.producer_files.write(state.producers, base_offset)
            old.end_preallocation()
            new = self.create(base_offset, now_ms)
        except OSError as error:
            self._health.refuse(error)
        new.jitter_ms = self._next_jitter_ms()
        old.add_last_time_entry()
        state.segments.append(new)
        state.unsealed = (*state.unsealed, old)
        self.write_indexes(old)
        self._state.owner.on_roll()
        return new

    def create(self, base_offset: Offset, now_ms: int) -> Segment:
        """Create a segment and return it. Either all its files are created or none, because the
        next start would mistake an incomplete set of files for the end of the log."""
        self.names.change_count += 1
        state = self._state
        new = Segment(state.disk, state.directory, base_offset, state.config, now_ms=now_ms)
        try:
            new.begin(state.config)
        except OSError:
            self.discard(new)
            raise
        return new

    def discard(self, segment: Segment) -> None:
        """Remove an empty segment's files without waiting. The log goes offline if a file cannot be
        removed."""
        try:
            segment.discard()
        except OSError as error:
            self._health.fail_by(error, f"{segment.file.path} is no segment's, and stays")

    def write_indexes(self, segment: Segment) -> None:
        """Write the pending entries of a segment's indexes to their files. A full disk only delays
        them."""
        try:
            segment.write_indexes()
        except OSError as error:
            self._health.refuse(error)

    def replace_producers(self, states: ProducerStates) -> None:
        """Replace the log's present producer states by `states`."""
        self.producer_files.forget()
        states.share_budget(self._state.producers.leave_budget())
        self._state.producers = states

    async def fsync(self, segment: Segment) -> None:
        """Flush a segment's log file. A failure takes the log offline, because the kernel forgets
        which pages it could not write."""
        try:
            await self._state.disk.fsync(segment.file)
        except OSError as error:
            self._health.fail_disk(f"{segment.file.path}: {error}")
            raise

    async def remove(self, segment: Segment) -> None:
        """Remove a segment's files, and make the removal durable. Without durability, an older
        segment could reappear after a crash without the newer one after it."""
        await segment.remove()
        await self._state.disk.fsync_directory(self._state.directory)

    async def rename_to_deleted(self, segment: Segment) -> None:
        """Durably rename a segment's files to `.deleted`. The renamed files are removed after
        file.delete.delay.ms."""
        state = self._state
        paths = await segment.rename_to_deleted()
        await state.disk.fsync_directory(state.directory)
        if self._state.owner.remove_later(paths, state.config.file_delete_delay_ms):
            return
        for path in paths:
            with suppress(FileNotFoundError):
                await state.disk.unlink(path)

    def _next_jitter_ms(self) -> int:
        config = self._state.config
        if not config.segment_jitter_ms or self._rng is None:
            return 0
        return self._rng.below(min(config.segment_jitter_ms, config.segment_ms))
