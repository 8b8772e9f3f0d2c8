"""Replays the log of a coordinator's partition into the coordinator's shard (its state for that
partition). Pure except for reading the log.

Records, batches and bytes that cannot be decoded are skipped. Old clients, faulty disks and
coordinators of other implementations can cause them. A corrupt record affects only its own group.
The number of skipped items is reported once. A disk error (OSError, RefusedError) ends the load.
"""

import logging

from ottla.broker.coordinators.led_shard import ReplayedShard
from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.log.log import Log
from ottla.wire.batch import BatchHeader, batches, check_crc
from ottla.wire.records import Record, scan

logger = logging.getLogger("ottla.broker.groups")

LOAD_BYTES = 64 * 1024
"""Number of bytes of a coordinator's log that are replayed before other tasks run. This takes a few
milliseconds."""


class LogReplay:
    """Replay of one log into a coordinator's shard: its position, and the number of skipped
    records."""

    def __init__(self, log: Log, shard: ReplayedShard, errors: UnexpectedErrors) -> None:
        self._log = log
        self._shard = shard
        self._errors = errors
        self._offset = log.log_start_offset
        self._end_offset = log.end_offset
        self._jump = 1
        self.skipped_count = 0
        """Number of records and batches that the replay skipped because they could not be read."""

    @property
    def is_done(self) -> bool:
        """True if the replay has reached the end of the coordinator's log."""
        return self._offset >= self._end_offset

    async def replay_part(self) -> None:
        """Replay the next LOAD_BYTES of the coordinator's log. Raises OSError or RefusedError after
        a disk error."""
        begins_at = self._offset
        try:
            await self._replay_from(begins_at)
        except CorruptDataError as error:
            if self._offset > begins_at:
                return  # The next part begins with the unreadable bytes.
            # Only the index has the start of the next batch, entry by entry.
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
                # Its end cannot be trusted either, so search for the start of the next batch.
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
                self._replay_record(record, header)
            except CorruptDataError as error:
                self._skip(record.offset, error)
            except Exception as error:
                self._errors.note("record", f"{self._log.directory} at {record.offset}", error)
                self._skip(record.offset, error)

    def _replay_record(self, record: Record, header: BatchHeader) -> None:
        self._shard.replay(record.key, record.value)

    def _replay_control(self, data: bytes | bytearray, at: int, header: BatchHeader) -> None:
        """Skip a control batch of a coordinator's log. Only the replay of a group coordinator's log
        applies control batches, because other logs contain no transaction markers."""

    def _skip(self, offset: Offset, error: Exception) -> None:
        self.skipped_count += 1
        if self.skipped_count == 1:
            logger.error(
                "a record of %s is skipped, as are more that cannot be read: offset %d: %s",
                self._log.directory,
                offset,
                error,
            )
