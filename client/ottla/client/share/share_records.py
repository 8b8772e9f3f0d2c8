"""Records and batches of a share group, as the application receives and acknowledges them.

The broker locks each record for this consumer for the lock duration of the group (30 s by default).
Within that time, the application must settle the record: accept, release or reject it. `renew`
restarts the timeout of the lock. After the lock has ended, the broker delivers the record again,
perhaps to another consumer.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import trio

from ottla.client.fetch.record_batch import ConsumerRecord, RecordBatch
from ottla.client.share.acknowledgement_ranges import AcknowledgeType
from ottla.client.share.share_acknowledgements import RecordsInHand, lock_ended
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.ids import Offset, TopicIdPartition, TopicPartition
from ottla.wire.batch import TimestampType
from ottla.wire.records import RecordHeaders


class PendingAcknowledgement:
    """An acknowledgement in progress. Awaiting it waits for the broker's confirmation.

    The acknowledgement is sent even if the application does not await it. Awaiting it raises
    RefusedError if the broker refuses the acknowledgement. INVALID_RECORD_STATE means that the lock
    had already ended, and that the record is delivered again. After any other error, the broker may
    have stored the acknowledgement.
    """

    __slots__ = ("_error", "_event", "_is_watched", "_left", "_on_awaited", "_on_failure")

    def __init__(
        self, on_failure: Callable[[OttlaError], None], on_awaited: Callable[[], None]
    ) -> None:
        self._left = 0
        self._error: OttlaError | None = None
        self._event = trio.Event()
        self._is_watched = False
        """True if a task awaits, or has awaited, the acknowledgement, so that its error is raised
        in that task."""
        self._on_failure = on_failure
        self._on_awaited = on_awaited

    def __await__(self) -> Generator[Any, Any, None]:
        return self.wait().__await__()

    @property
    def is_settled(self) -> bool:
        """True if the broker has confirmed or refused the acknowledgement."""
        return self._event.is_set()

    @property
    def error(self) -> OttlaError | None:
        """Error of the acknowledgement, or None if it succeeded or is still in progress."""
        return self._error

    async def wait(self) -> None:
        """Wait for the broker's confirmation. Raises the error of the acknowledgement if the broker
        refuses it."""
        self._is_watched = True
        if not self._event.is_set():
            self._on_awaited()
        await self._event.wait()
        if self._error is not None:
            raise self._error

    def _expect(self, count: int) -> None:
        """Record that `count` further results will be received."""
        self._left += count

    def _settle(self, error: OttlaError | None) -> None:
        """Receive one result: an error, or None for success. The first error becomes the error of
        the acknowledgement."""
        self._left -= 1
        if self._error is None:
            self._error = error
        if self._left == 0:
            self._finish()

    def _finish(self) -> None:
        """Wake the tasks that wait for the acknowledgement, because all its results have
        arrived."""
        self._event.set()
        if self._error is not None and not self._is_watched:
            self._on_failure(self._error)


class AcquiredRecords:
    """Records of one partition that were acquired together, and the connection to the broker that
    expects their acknowledgements."""

    __slots__ = (
        "_hand",
        "_on_awaited",
        "_on_failure",
        "_on_work",
        "at",
        "key",
        "requested_s",
        "serial",
    )

    def __init__(
        self,
        hand: RecordsInHand,
        key: TopicIdPartition,
        at: TopicPartition,
        serial: int,
        *,
        requested_s: float,
        on_work: Callable[[], None],
        on_awaited: Callable[[], None],
        on_failure: Callable[[OttlaError], None],
    ) -> None:
        self._hand = hand
        self.key = key
        self.at = at
        self.serial = serial
        self.requested_s = requested_s
        """Time on trio's clock, in seconds, at which the fetch of the records was sent."""
        self._on_work = on_work
        self._on_awaited = on_awaited
        self._on_failure = on_failure

    def unsettled(self, offsets: Sequence[int]) -> list[int]:
        """Return the offsets of records that are still locked and have not been accepted, released
        or rejected yet."""
        return self._hand.unsettled(self.key, offsets, self.serial)

    def settle(self, offsets: Sequence[int], kind: AcknowledgeType) -> PendingAcknowledgement:
        """Acknowledge the records at these ascending offsets, or renew their locks.

        If the lock of one of the records has ended, the returned PendingAcknowledgement fails.
        """
        pending = PendingAcknowledgement(self._on_failure, self._on_awaited)
        found = self.unsettled(offsets)
        pending._expect(1)
        if found:
            self._hand.settle(self.key, found, kind, pending)
            self._on_work()
        lost = None if len(found) == len(offsets) else lock_ended(self.at, offsets[0])
        pending._settle(lost)
        return pending

    def drop(self, offsets: Sequence[int]) -> None:
        """Remove records whose lock has ended, without an acknowledgement."""
        self._hand.drop_held(self.key, offsets, self.serial)


class ShareRecord:
    """One record of a share group. The application must accept, release or reject it once.

    Each of these methods returns at once. Await its result to wait for the broker's confirmation.
    """

    __slots__ = ("_acquired", "_settled_as", "data", "delivery_count")

    def __init__(
        self, data: ConsumerRecord, delivery_count: int, acquired: AcquiredRecords
    ) -> None:
        self.data = data
        """The record's content, as a ConsumerRecord."""
        self.delivery_count = delivery_count
        """Number of deliveries of the record, including the present delivery."""
        self._acquired = acquired
        self._settled_as: AcknowledgeType | None = None

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self.data.topic

    @property
    def partition(self) -> int:
        """Number of the partition."""
        return self.data.partition

    @property
    def offset(self) -> Offset:
        """Offset of the record."""
        return self.data.offset

    @property
    def timestamp_ms(self) -> int:
        """Timestamp of the record, in ms since 1970."""
        return self.data.timestamp_ms

    @property
    def timestamp_type(self) -> TimestampType:
        """Origin of the timestamp: the producer (CreateTime) or the broker (LogAppendTime)."""
        return self.data.timestamp_type

    @property
    def key(self) -> bytes | None:
        """Key of the record, or None."""
        return self.data.key

    @property
    def value(self) -> bytes | None:
        """Value of the record.  None for a tombstone."""
        return self.data.value

    @property
    def headers(self) -> RecordHeaders:
        """Headers of the record: pairs of name and bytes."""
        return self.data.headers

    @property
    def is_settled(self) -> bool:
        """True if the application has accepted, released or rejected the record, or if its
        acquisition lock has ended."""
        return self._settled_as is not None or not self._acquired.unsettled((self.offset,))

    def accept(self) -> PendingAcknowledgement:
        """Acknowledge that the application has processed the record. Returns the acknowledgement in
        progress, which may be awaited.

        Raises RefusedError if the record was already accepted, released or rejected.
        """
        return self._settle(AcknowledgeType.ACCEPT)

    def release(self) -> PendingAcknowledgement:
        """Release the record, so that the broker delivers it again at once, perhaps to another
        consumer.

        After the group's maximum number of deliveries (5 by default), the broker archives the
        record instead. Raises RefusedError if the record was already accepted, released or
        rejected.
        """
        return self._settle(AcknowledgeType.RELEASE)

    def reject(self) -> PendingAcknowledgement:
        """Reject the record because it can never be processed. The broker archives it and does not
        deliver it again.

        If the group has a dead letter topic, the broker writes the record to that topic. Raises
        RefusedError if the record was already accepted, released or rejected.
        """
        return self._settle(AcknowledgeType.REJECT)

    def renew(self) -> PendingAcknowledgement:
        """Restart the timeout of the record's acquisition lock (KIP-1222, brokers from Kafka 4.2
        on).

        Raises RefusedError if the record was already accepted, released or rejected.
        """
        self._check()
        return self._acquired.settle((self.offset,), AcknowledgeType.RENEW)

    def _first_unsettled(self) -> str:
        return f"{self._acquired.at} at offset {self.offset}"

    def _settle(self, kind: AcknowledgeType) -> PendingAcknowledgement:
        self._check()
        self._settled_as = kind
        return self._acquired.settle((self.offset,), kind)

    def _check(self) -> None:
        if self._settled_as is not None:
            raise RefusedError(
                ErrorCode.INVALID_RECORD_STATE,
                f"{self._first_unsettled()} was settled before: {self._settled_as.name.lower()}",
            )

    def __repr__(self) -> str:
        return f"<ShareRecord {self._first_unsettled()}>"


class ShareBatch:
    """Records of one partition with the same delivery count, readable as columns or one by one.

    `accept`, `release`, `reject` and `renew` apply to the records of the batch that the application
    has not yet accepted, released or rejected one by one.
    """

    __slots__ = ("_acquired", "delivery_count", "records")

    def __init__(
        self, records: RecordBatch, delivery_count: int, acquired: AcquiredRecords
    ) -> None:
        self.records = records
        """The records as a RecordBatch. It also provides their columns: `for value in
        batch.records.values`."""
        self.delivery_count = delivery_count
        """Number of deliveries of each record, including the present delivery."""
        self._acquired = acquired

    @property
    def at(self) -> TopicPartition:
        """Topic and partition of the records."""
        return self._acquired.at

    @property
    def is_settled(self) -> bool:
        """True if each record was accepted, released or rejected, or its acquisition lock has
        ended."""
        return not self._acquired.unsettled(self.records.offsets)

    def accept(self) -> PendingAcknowledgement:
        """Acknowledge that the application has processed the records. Returns the acknowledgement
        in progress, which may be awaited."""
        return self._settle(AcknowledgeType.ACCEPT)

    def release(self) -> PendingAcknowledgement:
        """Release the records, so that the broker delivers them again at once."""
        return self._settle(AcknowledgeType.RELEASE)

    def reject(self) -> PendingAcknowledgement:
        """Reject the records because they can never be processed. The broker archives them."""
        return self._settle(AcknowledgeType.REJECT)

    def renew(self) -> PendingAcknowledgement:
        """Restart the timeout of the records' acquisition locks (KIP-1222)."""
        return self._settle(AcknowledgeType.RENEW)

    def _settle(self, kind: AcknowledgeType) -> PendingAcknowledgement:
        return self._acquired.settle(self._acquired.unsettled(self.records.offsets), kind)

    def _first_unsettled(self) -> str:
        offsets = self._acquired.unsettled(self.records.offsets)
        return f"{self.at} at offset {offsets[0] if offsets else self.records.base_offset}"

    def _drop(self) -> None:
        self._acquired.drop(self.records.offsets)

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[ShareRecord]:
        count, acquired = self.delivery_count, self._acquired
        return (ShareRecord(one, count, acquired) for one in self.records)

    def __repr__(self) -> str:
        return f"<ShareBatch {self.at}: {len(self)} records from offset {self.records.base_offset}>"
