"""Reader of records for a redrive: records of a partition up to an offset, and single records to
which dead letters refer."""

import trio

from ottla.client.admin import Admin
from ottla.client.fetch.position_reads import ReadPosition, fetch_once
from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.client.fetch.record_decoder import RecordDecoder
from ottla.client.network.cluster import raise_for
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.wire.offset_timestamps import EARLIEST, LATEST

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
OPEN_TRANSACTIONS_S = 90.0
"""Maximum seconds that a redrive waits until no transaction is open in a partition. It is longer
than the timeout of a transaction, after which the cluster ends the transaction."""
LOOK_AGAIN_S = 0.1
FAILURES_MAX = 100
"""Number of consecutive fetches without a record after which reading a partition fails."""


class PartitionReader:
    """Reader of the records of a partition from a start offset to an end offset, which is
    exclusive."""

    def __init__(
        self, admin: Admin, at: TopicPartition, begin: int, end: int, isolation_level: str
    ) -> None:
        self._admin = admin
        self._level = isolation_level
        self._begin, self._end = begin, end
        self._position = ReadPosition(at.topic, at.partition, begin, end)
        self._decoder = RecordDecoder()

    async def read(self) -> list[ConsumerRecord]:
        """Return the next records of the partition: at least one, or none at the end offset. Raises
        RefusedError if the records were deleted or cannot be read."""
        position, failures = self._position, 0
        while position.offset < self._end:
            before = position.offset
            found, stale = await fetch_once(
                self._admin.cluster, [position], self._level, self._decoder
            )
            records = found[0][1] if found else []
            if records:
                position.offset = records[-1].offset + 1
                # A fetch returns whole batches.
                wanted = [one for one in records if self._begin <= one.offset < self._end]
                if wanted:
                    return wanted
            failures = 0 if position.offset > before else failures + 1
            if stale:
                self._admin.cluster.forget_leaders()
            if failures > FAILURES_MAX:
                raise_for(stale or ErrorCode.REQUEST_TIMED_OUT)
            if failures:
                await trio.sleep(LOOK_AGAIN_S)
        return []


class SourceRecords:
    """Reader of the original records of dead letters that contain no copy. It keeps the result of
    the last fetch, because letters are in the order of their records."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._ends: dict[TopicPartition, int] = {}
        self._at: TopicPartition | None = None
        self._records: list[ConsumerRecord] = []
        """Records of the last fetch, which came from the partition `_at`."""

    async def get(self, at: TopicPartition, offset: int) -> ConsumerRecord | None:
        """Return the record at an offset of the partition `at`, or None if it is no longer in its
        partition."""
        if at not in self._ends:
            self._ends[at] = await end_offset(self._admin, at, UNCOMMITTED)
        if offset >= self._ends[at]:
            return None
        last = self._records[-1].offset if self._records else -1
        if at != self._at or not self._records or not self._records[0].offset <= offset <= last:
            self._records = await self._read(at, offset)
            self._at = at
        return next((one for one in self._records if one.offset == offset), None)

    async def _read(self, at: TopicPartition, offset: int) -> list[ConsumerRecord]:
        try:
            return await PartitionReader(
                self._admin, at, offset, self._ends[at], UNCOMMITTED
            ).read()
        except RefusedError as refusal:
            if refusal.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return []


async def begin_offset(admin: Admin, at: TopicPartition) -> int:
    """Return the log start offset of a partition: the offset of its first record."""
    return int((await admin.list_offsets({at: EARLIEST}))[at].offset)


async def end_offset(admin: Admin, at: TopicPartition, isolation_level: str) -> int:
    """Return the end offset of a partition that readers with the given isolation level get."""
    found = await admin.list_offsets({at: LATEST}, isolation_level=isolation_level)
    return int(found[at].offset)


async def stable_end_offset(admin: Admin, at: TopicPartition) -> int:
    """Wait until no transaction is open in a partition, and return its end offset. Raises
    RefusedError if that takes longer than `OPEN_TRANSACTIONS_S` seconds."""
    present = await end_offset(admin, at, UNCOMMITTED)
    with trio.move_on_after(OPEN_TRANSACTIONS_S):
        while True:
            stable = await end_offset(admin, at, COMMITTED)
            if stable >= present:
                return stable
            await trio.sleep(LOOK_AGAIN_S)
    raise RefusedError(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        f"a transaction is open in {at} for {OPEN_TRANSACTIONS_S:g} s; see 'ottla txn producers'",
    )
