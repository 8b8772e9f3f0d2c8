"""Reads a coordinator's partition back into its shard.  Pure but for the reads.

Whatever cannot be read is skipped, counted, and reported once: a record, a batch, or the bytes up
to the next batch that can be found.  One record that lies, be it from a client of long ago, from a
bad disk or from a coordinator of another make, costs what it said itself, never the groups beside
it.  A disk that does not answer (OSError, RefusedError) is no such thing and ends the load.
"""

import logging

from ottla.broker.groups.led_shard import ReplayedShard
from ottla.broker.groups.shard import GroupShard
from ottla.model.errors import CorruptDataError
from ottla.model.ids import NO_PRODUCER_ID, Offset
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.log import Log
from ottla.storage.recovery import end_marker_of
from ottla.wire.batch import BatchHeader, batches, check_crc
from ottla.wire.records import scan

logger = logging.getLogger("ottla.broker.groups")

LOAD_BYTES = 64 * 1024
"""How much of a log is replayed before other tasks have their turn: some milliseconds' work."""


class LogReplay:
    """One log on its way into a shard; owns the position and the count of what was skipped."""

    def __init__(self, log: Log, shard: ReplayedShard, errors: UnexpectedErrors) -> None:
        self._log = log
        self._shard = shard
        self._errors = errors
        self._offset = log.log_start_offset
        self._end_offset = log.end_offset
        self._jump = 1
        self.skipped_count = 0
        """Number of records and batches that could not be read."""

    @property
    def is_done(self) -> bool:
        """Whether the log's end is reached."""
        return self._offset >= self._end_offset

    async def replay_part(self) -> None:
        """Replay the next part.  Raises OSError or RefusedError if the disk does not answer."""
        begins_at = self._offset
        try:
            await self._replay_from(begins_at)
        except CorruptDataError as error:
            if self._offset > begins_at:
                return  # the next part begins with what could not be read
            # Where the next batch begins is known from the index alone, entry by entry.
            if self._jump == 1:
                self._skip(begins_at, error)
            self._offset = Offset(begins_at + self._jump)
            self._jump *= 2
        else:
            self._jump = 1

    async def _replay_from(self, begins_at: Offset) -> None:
        data = await self._log.read_bytes(
            begins_at, bytes_max=LOAD_BYTES, end_offset=self._end_offset
        )
        if not data:
            self._offset = self._end_offset
            return
        for at, header in batches(data, is_partial_end_allowed=True):
            if not check_crc(data, at, header) or header.end_offset <= self._offset:
                # Where it ends is not to be believed either: the next one says where it begins.
                self._skip(self._offset, CorruptDataError("a batch does not match its CRC"))
                continue
            if header.is_control:
                self._replay_control(data, at, header)
            else:
                self._replay_batch(data, at, header)
            self._offset = header.end_offset
        if self._offset <= begins_at:
            raise CorruptDataError(f"no batch at offset {begins_at}")

    def _replay_batch(self, data: bytes | bytearray, at: int, header: BatchHeader) -> None:
        try:
            records = list(scan(data, at, header))
        except CorruptDataError as error:
            self._skip(header.base_offset, error)
            return
        for record in records:
            try:
                self._replay_record(record.key, record.value, header)
            except CorruptDataError as error:
                self._skip(record.offset, error)
            except Exception as error:
                self._errors.note("record", f"{self._log.directory} at {record.offset}", error)
                self._skip(record.offset, error)

    def _replay_record(self, key: bytes | None, value: bytes | None, header: BatchHeader) -> None:
        self._shard.replay(key, value)

    def _replay_control(self, data: bytes | bytearray, at: int, header: BatchHeader) -> None:
        """Pass a control batch over: only groups have transactions of others in their log."""

    def _skip(self, offset: Offset, error: Exception) -> None:
        self.skipped_count += 1
        if self.skipped_count == 1:
            logger.error(
                "a record of %s is skipped, as are more that cannot be read: offset %d: %s",
                self._log.directory,
                offset,
                error,
            )


class GroupReplay(LogReplay):
    """The log of groups, in which offsets may belong to transactions."""

    def __init__(self, log: Log, shard: GroupShard, errors: UnexpectedErrors) -> None:
        super().__init__(log, shard, errors)
        self._groups = shard

    def _replay_record(self, key: bytes | None, value: bytes | None, header: BatchHeader) -> None:
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        self._groups.replay(key, value, producer_id)

    def _replay_control(self, data: bytes | bytearray, at: int, header: BatchHeader) -> None:
        try:
            marker = end_marker_of(data, at, header)
        except CorruptDataError as error:
            self._skip(header.base_offset, error)
            return
        if marker is not None:
            self._groups.store.end_transaction(header.producer_id, is_commit=not marker.is_abort)
