"""Guards: tokens that connect a transaction coordinator's confirmation with the append that follows
it (KIP-890).

Pure. Before a leader appends the first batch of a transaction, it asks the coordinator whether the
transaction contains this partition. A marker may end that transaction before the response arrives.
Therefore the append requires a guard that was created before the request to the coordinator. The
guard is removed by the first batch of the transaction, and by the marker that ends it. Guards exist
only in memory; a leader without a guard repeats the request.
"""

from collections.abc import Iterator

from ottla.wire.batch import BatchHeader

VERIFICATIONS_MAX = 10_000
"""Maximum number of verification guards of one log. A guard exists from a verification request to
the append that it permits. With a smaller number, guards of producers that wait for a response are
removed. With a larger one, invented producer ids may use more memory."""


class VerificationGuard:
    """Token that is equal only to itself. It proves that no marker has ended the transaction since
    the token was created."""

    __slots__ = ()


UNGUARDED = VerificationGuard()
"""Guard that is used if the verification of transactions is off
(`transaction.partition.verification.enable=false`)."""


class Verification:
    """The verification of one producer's transaction by the coordinator. The transaction has no
    batch in the log yet."""

    __slots__ = ("begun_ms", "epoch", "guard", "is_bumping", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, begun_ms: int) -> None:
        self.guard = VerificationGuard()
        self.epoch = epoch
        self.lowest_sequence = sequence
        """Lowest sequence number for which the verification of the transaction was requested. The
        transaction's first batch in the log must not have a higher one."""
        self.is_bumping = False
        """True if the coordinator raises the producer's epoch with every transaction
        (transaction.version 2)."""
        self.begun_ms = begun_ms


class Verifications:
    """Transactions of one log that have no batch in the log yet, with their verification guards
    (tokens that permit the first append)."""

    __slots__ = ("by_producer",)

    def __init__(self) -> None:
        self.by_producer: dict[int, Verification] = {}
        """Transactions that wait for their first batch in the log, by producer id."""

    def __len__(self) -> int:
        """Return the number of transactions that wait for their first batch in the log."""
        return len(self.by_producer)

    def __iter__(self) -> Iterator[int]:
        """Yield the producer ids of the transactions that wait for their first batch in the log."""
        return iter(self.by_producer)

    def get(self, producer_id: int) -> Verification | None:
        """Return the verification of a producer's transaction, or None if the transaction is not
        being verified."""
        return self.by_producer.get(producer_id)

    def begin(
        self, producer_id: int, *, epoch: int, sequence: int, is_bumping: bool, now_ms: int
    ) -> VerificationGuard:
        """Return the verification guard of a producer's transaction: the existing guard, or a new
        one.

        If there are too many guards, the oldest guard is removed. `is_bumping` means that the
        producer's epoch is raised with every transaction.
        """
        found = self.by_producer.get(producer_id)
        if found is None:
            if len(self.by_producer) >= VERIFICATIONS_MAX:
                del self.by_producer[next(iter(self.by_producer))]
            found = Verification(epoch, sequence, now_ms)
            self.by_producer[producer_id] = found
        elif epoch > found.epoch:
            found.epoch = epoch
            found.lowest_sequence = sequence
        elif epoch == found.epoch and sequence < found.lowest_sequence:
            found.lowest_sequence = sequence
        found.is_bumping |= is_bumping
        return found.guard

    def on_written(self, header: BatchHeader) -> None:
        """Remove the verification guard of a producer after its transactional batch or marker was
        written.

        The guard remains if the marker ended the previous transaction. In this case, the
        coordinator raised the marker's epoch, and the producer has begun its next transaction in
        that epoch.
        """
        found = self.by_producer.get(header.producer_id)
        if found is None or not header.is_transactional:
            return
        is_next = found.is_bumping and header.is_control and header.producer_epoch == found.epoch
        if not is_next:
            del self.by_producer[header.producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove the verification guards older than `expiration_ms`, whose producers never
        appended."""
        for producer_id, found in list(self.by_producer.items()):
            if now_ms - found.begun_ms < expiration_ms:
                break  # the rest is younger: guards are in order of creation
            del self.by_producer[producer_id]
