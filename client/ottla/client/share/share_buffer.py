"""Buffer of records that a share consumer has acquired and the application has not received yet."""

from ottla.client.share.acknowledgement_ranges import AcknowledgeType
from ottla.client.share.share_acknowledgements import RecordsInHand
from ottla.client.share.share_fetched import ShareFetched
from ottla.client.share.share_records import AcquiredRecords, ShareBatch
from ottla.model.errors import CorruptDataError


class BufferedRecords:
    """Acquired records of one partition in a response, until the application has received all of
    them.

    Acquired offsets without a record are acknowledged as gaps. Corrupt batches are rejected.
    """

    def __init__(
        self, fetched: ShareFetched, acquired: AcquiredRecords, hand: RecordsInHand, now_ms: int
    ) -> None:
        self._fetched = fetched
        self._acquired = acquired
        self._hand = hand
        self._acquired_ms = now_ms

    @property
    def is_drained(self) -> bool:
        """True if no buffered records are left."""
        return self._fetched.is_drained

    def take(self, count: int, now_ms: int) -> ShareBatch | None:
        """Return the next records, at most `count`, or None if no records are left.

        Records whose lock has ended or was lost are omitted. A corrupt batch is rejected, and
        CorruptDataError is raised with topic, partition and offset.
        """
        acquired = self._acquired
        while not self.is_drained:
            try:
                taken = self._fetched.take(count)
            except CorruptDataError:
                corrupt, behind = self._fetched.skip_corrupt()
                self._settle(corrupt, AcknowledgeType.REJECT)
                self._settle(behind, AcknowledgeType.RELEASE)
                raise
            self._settle(taken.gaps, AcknowledgeType.GAP)
            self._settle(taken.missing, AcknowledgeType.RELEASE)
            if taken.records is None:
                continue
            batch = ShareBatch(taken.records, taken.delivery_count, acquired)
            locked_ms = self._hand.locked_ms(acquired.key, taken.records.offsets, acquired.serial)
            if locked_ms is None:
                continue  # all are lost
            if locked_ms + self._hand.lock_ms <= now_ms:
                batch._drop()
                continue
            return batch
        return None

    def release(self) -> None:
        """Release all buffered records that the application has not received."""
        if not self.is_drained:
            left = self._fetched.left()
            self._fetched.clear()
            self._settle(left, AcknowledgeType.RELEASE)

    def _settle(self, ranges: list[tuple[int, int]], kind: AcknowledgeType) -> None:
        offsets = [one for first, last in ranges for one in range(first, last + 1)]
        held = self._acquired.unsettled(offsets)
        if held:
            self._acquired.settle(held, kind)
