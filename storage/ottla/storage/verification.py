"""What stands between a transaction coordinator's word and the append it allows (KIP-890).

Pure.  A leader asks the coordinator whether a transaction has this partition, and appends when the
answer is yes.  Between the two a marker may end that transaction, so the append has to show the
guard that was given out before the question: it is gone with the first batch of the transaction and
with the marker that ends it.  Guards live in memory; who lost one asks again.
"""

from collections.abc import Iterator

from ottla.wire.batch import BatchHeader

VERIFICATIONS_MAX = 10_000
"""Guards of one log.  Each is held between a question and its append; fewer take guards away from
producers that wait for an answer, more let invented producer ids take memory."""


class VerificationGuard:
    """A token that equals itself only: an append that shows it was verified since."""

    __slots__ = ()


UNGUARDED = VerificationGuard()
"""What is shown where verification is off (`transaction.partition.verification.enable=false`)."""


class Verification:
    """One producer's transaction that is not yet in the log."""

    __slots__ = ("begun_ms", "epoch", "guard", "is_bumping", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, begun_ms: int) -> None:
        self.guard = VerificationGuard()
        self.epoch = epoch
        self.lowest_sequence = sequence
        """Lowest sequence asked for: what comes first in the log may not be a later batch."""
        self.is_bumping = False
        """Whether the producer's epoch rises with every transaction (transaction.version 2)."""
        self.begun_ms = begun_ms


class Verifications:
    """The transactions of one log that wait for their first batch."""

    __slots__ = ("by_producer",)

    def __init__(self) -> None:
        self.by_producer: dict[int, Verification] = {}
        """The transactions by producer."""

    def __len__(self) -> int:
        """Return the number of transactions that wait."""
        return len(self.by_producer)

    def __iter__(self) -> Iterator[int]:
        """Yield the producers that wait."""
        return iter(self.by_producer)

    def get(self, producer_id: int) -> Verification | None:
        """Return a producer's verification, None if it needs none or has not asked."""
        return self.by_producer.get(producer_id)

    def begin(
        self, producer_id: int, *, epoch: int, sequence: int, is_bumping: bool, now_ms: int
    ) -> VerificationGuard:
        """Return the guard of a transaction: the one that is out for it, or a new one.

        The longest waiting gives way where there are too many.
        """
        found = self.by_producer.get(producer_id)
        if found is None:
            if len(self.by_producer) >= VERIFICATIONS_MAX:
                del self.by_producer[next(iter(self.by_producer))]
            found = self.by_producer[producer_id] = Verification(epoch, sequence, now_ms)
        elif epoch > found.epoch:
            found.epoch = epoch
            found.lowest_sequence = sequence
        elif epoch == found.epoch and sequence < found.lowest_sequence:
            found.lowest_sequence = sequence
        found.is_bumping |= is_bumping
        return found.guard

    def on_written(self, header: BatchHeader) -> None:
        """Take back the guard of a producer whose transactional batch or marker is written.

        It stays where the marker ended the transaction before: its epoch, raised by the
        coordinator, is the one in which the producer has begun its next transaction.
        """
        found = self.by_producer.get(header.producer_id)
        if found is None or not header.is_transactional:
            return
        is_next = found.is_bumping and header.is_control and header.producer_epoch == found.epoch
        if not is_next:
            del self.by_producer[header.producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Take back the guards of those who never appended."""
        for producer_id, found in list(self.by_producer.items()):
            if now_ms - found.begun_ms < expiration_ms:
                break  # in the order in which they were begun
            del self.by_producer[producer_id]
