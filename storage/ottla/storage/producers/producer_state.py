"""Producers of one partition: their sequence numbers, epochs and open transactions (KIP-98).

Pure: the input is a batch header, the output is the position of a duplicate, or a refusal. The
state covers the log up to `end_offset`: `check` never changes the state, and `apply` is called
after a batch was written.

A producer is removed after it has been idle for a time. The time is measured with this process's
own clock, because the timestamps of the producer's records may have any age. Clients can invent
producer ids, so the number of producers is bounded, both in one log and in all logs together. The
producers that wrote least recently are evicted, except those with an open transaction.

Invariants: at most five batches per producer; an open transaction is in `_open` under its first
offset.
"""

from typing import Final, NamedTuple

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import NO_OFFSET, Offset, ProducerId
from ottla.model.limits import (
    INT32_MAX,
    PRODUCER_BATCHES_KEPT,
    PRODUCERS_MAX,
    PRODUCERS_PER_LOG_MAX,
    PRODUCERS_PER_LOG_SURE,
)
from ottla.storage.producers.verification import UNGUARDED, VerificationGuard, Verifications
from ottla.storage.segments.append_info import AppendOrigin
from ottla.wire.batch import (
    CONTROL_FLAG,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)

NO_COORDINATOR_EPOCH: Final = -1
NEVER_SEEN: Final = -1

EPOCH_PER_TRANSACTION_FROM: Final = 2
"""The lowest `transaction.version` with which the transaction coordinator raises the producer epoch
in every marker."""
LAST_PRODUCER_EPOCH: Final = 32_767
"""Highest producer epoch. After a marker with this epoch, the producer continues under another
producer id."""

_new: Final = tuple.__new__

EVICTED_PART = 8
"""Divisor of the number of producers. The quotient is the number of producers that are evicted
together. With a smaller divisor, more producers are evicted than necessary. With a larger one, the
producers are searched more often."""


class SequencedBatch(NamedTuple):
    """One of a producer's last batches, with the fields by which a retry is recognised."""

    base_sequence: int
    last_sequence: int
    base_offset: Offset
    last_offset: Offset
    timestamp_ms: int


class EndMarker(NamedTuple):
    """The end of a transaction (commit or abort), as read from its control record."""

    is_abort: bool
    coordinator_epoch: int


class CompletedTransaction(NamedTuple):
    """A transaction whose marker is in the log. An aborted transaction is added to the transaction
    index."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    is_aborted: bool


class ProducerEntry:
    """The state of one producer in one log: its epoch, its last batches and its open
    transaction."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_seen_ms",
        "last_timestamp_ms",
        "txn_first_offset",
    )

    def __init__(self) -> None:
        self.epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_timestamp_ms = NO_TIMESTAMP
        self.last_seen_ms = NEVER_SEEN
        """Time of the producer's last append to this log, in ms since 1970 on the broker's clock.
        The timestamps of its batches may differ greatly."""
        self.txn_first_offset: Offset = NO_OFFSET
        self.batches: list[SequencedBatch] = []

    def move_to_epoch(self, epoch: int) -> None:
        """Begin a new epoch of the producer, in which its sequence numbers start from 0 again."""
        if self.epoch != epoch:
            self.epoch = epoch
            self.batches.clear()

    def remember(self, batches: list[SequencedBatch]) -> None:
        """Add earlier batches of the producer's current epoch. Batches of other epochs are
        ignored."""
        if [each[:4] for each in batches[-1:]] == [each[:4] for each in self.batches[-1:]]:
            self.batches = batches


class ProducerBudget:
    """Number of producers in all logs of a process, and the maximum of this number."""

    __slots__ = ("count", "count_max")

    def __init__(self, count_max: int = PRODUCERS_MAX) -> None:
        self.count = 0
        self.count_max = count_max


_NO_PRODUCERS: dict[int, "ProducerEntry"] = {}
_NONE_OPEN: dict[Offset, ProducerId] = {}
_NONE_COMPLETED: dict[Offset, Offset] = {}
_NO_VERIFICATIONS = Verifications()
# Logs without producers or transactions share these objects, which always stay empty: empty ones of
# each log would take 240 bytes. The first entry is added by assigning a new object.


class ProducerStates:
    """The states of all producers of one log, up to the offset `end_offset`."""

    __slots__ = (
        "_budget",
        "_open",
        "completed",
        "end_offset",
        "producers",
        "replayed_ms",
        "verifications",
    )

    def __init__(self, end_offset: Offset = Offset(0)) -> None:  # noqa: B008 - a plain int
        self.end_offset = end_offset
        self.replayed_ms = 0
        """Time in ms since 1970 that is stored as the last-seen time of producers whose batches are
        replayed from the log."""
        self._budget = ProducerBudget()
        self.producers: dict[int, ProducerEntry] = _NO_PRODUCERS
        self._open: dict[Offset, ProducerId] = _NONE_OPEN
        """Producer id of each open transaction, by the transaction's first offset in ascending
        order."""
        self.completed: dict[Offset, Offset] = _NONE_COMPLETED
        """Transactions whose marker is above the high watermark: the marker's offset, by the
        transaction's first offset."""
        self.verifications = _NO_VERIFICATIONS
        """Transactions without a batch in this log that the transaction coordinator is verifying or
        has verified."""

    def begin_verification(
        self, producer_id: int, *, epoch: int, sequence: int, is_bumping: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Return the guard (a token of KIP-890's verification) that permits appending the first
        batch of a transaction.

        Returns None if the transaction is already open in this log. Raises RefusedError if the
        producer epoch is old.
        """
        producer = self.producers.get(producer_id)
        if producer is not None:
            _check_epoch(producer, producer_id, epoch)
            if producer.txn_first_offset != NO_OFFSET and producer.epoch == epoch:
                return None
        if self.verifications is _NO_VERIFICATIONS:
            self.verifications = Verifications()
        return self.verifications.begin(
            producer_id, epoch=epoch, sequence=sequence, is_bumping=is_bumping, now_ms=now_ms
        )

    def check(
        self,
        header: BatchHeader,
        marker: EndMarker | None,
        origin: AppendOrigin,
        guard: VerificationGuard | None = UNGUARDED,
        transaction_version: int = 0,
    ) -> SequencedBatch | None:
        """Check a batch before its append. Returns the stored batch if this batch is a duplicate,
        or None if the batch is new. Raises RefusedError if Kafka would refuse the batch."""
        producer = self.producers.get(header.producer_id)
        if producer is None:
            if header.attributes & TRANSACTIONAL_FLAG and marker is None:
                self._check_transactions()
                self._check_guard(header, guard)
            if self.verifications.by_producer and origin is AppendOrigin.CLIENT:
                self._check_first_sequence(header, is_known=False)
            return None  # evicted or new: any sequence is accepted, as in Kafka
        if origin is AppendOrigin.CLIENT:
            duplicate = find_duplicate(producer, header)
            if duplicate is not None:
                return duplicate
        if marker is not None:
            _check_marker(producer, header, marker, transaction_version)
            return None
        _check_epoch(producer, header.producer_id, header.producer_epoch)
        is_open = producer.txn_first_offset != NO_OFFSET
        if header.attributes & TRANSACTIONAL_FLAG and not (
            is_open and producer.epoch == header.producer_epoch
        ):
            self._check_guard(header, guard)
        if origin is AppendOrigin.CLIENT:
            if self.verifications.by_producer:
                self._check_first_sequence(header, is_known=bool(producer.batches))
            _check_sequence(producer, header)
        if is_open and not header.attributes & TRANSACTIONAL_FLAG:
            raise RefusedError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {header.producer_id}",
            )
        return None

    def _check_guard(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        """Raise RefusedError for a transaction's first batch if the transaction was not verified
        since the producer's previous transaction ended."""
        if guard is UNGUARDED:
            return
        found = self.verifications.get(header.producer_id)
        if guard is None or found is None or found.guard is not guard:
            raise RefusedError(
                ErrorCode.INVALID_TXN_STATE,
                f"Record was not part of an ongoing transaction of producer {header.producer_id}",
            )

    def _check_first_sequence(self, header: BatchHeader, *, is_known: bool) -> None:
        """Raise RefusedError for the first batch of a transaction if an earlier batch of the
        producer has not arrived yet."""
        found = self.verifications.get(header.producer_id)
        if found is None:
            return
        sequence = header.base_sequence
        if sequence > found.lowest_sequence or (found.is_bumping and not is_known and sequence):
            raise RefusedError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {header.producer_id}: {sequence} "
                f"(incoming), {found.lowest_sequence} (earliest seen)",
            )

    def apply(
        self,
        header: BatchHeader,
        base_offset: Offset,
        marker: EndMarker | None,
        now_ms: int = 0,
    ) -> CompletedTransaction | None:
        """Update the producer's state with a batch that was written at `base_offset`. Returns the
        transaction that the batch completes, or None if the batch completes no transaction."""
        if self.verifications.by_producer:
            self.verifications.on_written(header)
        attributes, producer_id = header.attributes, header.producer_id
        producer = self.producers.get(producer_id)
        if producer is None:
            if attributes & CONTROL_FLAG and marker is None:
                return None
            producer = self._add(producer_id)
        producer.last_seen_ms = now_ms
        last_offset = Offset(base_offset + header.last_offset_delta)
        if marker is not None:
            return self._end_transaction(producer, header, last_offset, marker)
        if attributes & CONTROL_FLAG:
            return None  # a marker whose transaction was removed by compaction
        if producer.epoch != header.producer_epoch:
            producer.move_to_epoch(header.producer_epoch)
        batches = producer.batches
        if len(batches) == PRODUCER_BATCHES_KEPT:
            del batches[0]
        timestamp_ms = header.max_timestamp
        # Created without the constructor, which costs twice as much; there is one per batch.
        batch: SequencedBatch = _new(
            SequencedBatch,
            (header.base_sequence, header.last_sequence, base_offset, last_offset, timestamp_ms),
        )
        batches.append(batch)
        producer.last_timestamp_ms = timestamp_ms
        if attributes & TRANSACTIONAL_FLAG and producer.txn_first_offset == NO_OFFSET:
            producer.txn_first_offset = base_offset
            self._note_open(base_offset, producer_id)
        return None

    def _end_transaction(
        self, producer: ProducerEntry, header: BatchHeader, last_offset: Offset, marker: EndMarker
    ) -> CompletedTransaction | None:
        producer.move_to_epoch(header.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp_ms = header.max_timestamp
        first_offset = producer.txn_first_offset
        if first_offset == NO_OFFSET:
            return None
        producer.txn_first_offset = NO_OFFSET
        del self._open[first_offset]
        if self.completed:
            self.completed[first_offset] = last_offset
        else:
            self.completed = {first_offset: last_offset}
        return CompletedTransaction(
            ProducerId(header.producer_id), first_offset, last_offset, marker.is_abort
        )

    def first_unstable_offset(self) -> Offset | None:
        """First offset of the oldest transaction that is open or whose marker is not committed yet.
        None if there is no such transaction."""
        if not (self._open or self.completed):
            return None  # the usual case
        first_open = next(iter(self._open), None)
        if not self.completed:
            return first_open
        first_completed = min(self.completed)
        return first_completed if first_open is None else min(first_open, first_completed)

    @property
    def oldest_open_seen_ms(self) -> int | None:
        """Time of the last batch by the producer of the oldest open transaction, in ms since 1970.
        None if no transaction is open."""
        for producer_id in self._open.values():
            seen_ms = self.producers[producer_id].last_seen_ms
            return seen_ms if seen_ms > 0 else None
        return None

    def last_stable_offset_after(self, completed: CompletedTransaction) -> Offset:
        """Return the last stable offset of the log after the transaction `completed` has ended. The
        caller stores this offset in the entry of the transaction index."""
        first_open = next(iter(self._open), None)
        return Offset(completed.last_offset + 1) if first_open is None else first_open

    def on_high_watermark(self, high_watermark: Offset) -> None:
        """Remove completed transactions whose marker is below the new high watermark, that is,
        committed."""
        if self.completed:
            self.completed = {
                first: last for first, last in self.completed.items() if last >= high_watermark
            }

    def on_log_start(self, log_start_offset: Offset) -> None:
        """Remove completed transactions that are below the new log start offset."""
        self.on_high_watermark(log_start_offset)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers that have been idle for `expiration_ms` and have no open transaction.
        Returns the number of removed producers."""
        self.verifications.expire(now_ms, expiration_ms)
        return self._forget(
            [
                producer_id
                for producer_id, producer in self.producers.items()
                if producer.txn_first_offset == NO_OFFSET
                and now_ms - producer.last_seen_ms >= expiration_ms
            ]
        )

    def _forget(self, producer_ids: list[int]) -> int:
        for producer_id in producer_ids:
            del self.producers[producer_id]
        self._budget.count -= len(producer_ids)
        return len(producer_ids)

    # --- bounds ---

    def _add(self, producer_id: int) -> ProducerEntry:
        count = len(self.producers)
        is_budget_full = self._budget.count >= self._budget.count_max
        if count >= PRODUCERS_PER_LOG_MAX or (is_budget_full and count >= PRODUCERS_PER_LOG_SURE):
            self._forget_longest_unseen(count // EVICTED_PART)
        producer = ProducerEntry()
        self.restore(producer_id, producer)
        return producer

    def _forget_longest_unseen(self, count: int) -> None:
        """Evict the `count` producers of the log whose last batches have the lowest offsets.
        Several are evicted together, because each search examines all producers.

        Producers with an open transaction are not evicted.
        """
        last_offsets = {
            producer_id: producer.batches[-1].last_offset if producer.batches else NO_OFFSET
            for producer_id, producer in self.producers.items()
            if producer.txn_first_offset == NO_OFFSET
        }
        self._forget(sorted(last_offsets, key=last_offsets.__getitem__)[:count])

    def _check_transactions(self) -> None:
        """Raise RefusedError if a transaction may not start because half of the maximum number of
        producers have open transactions.

        Producers with an open transaction cannot be evicted. The other half is reserved for new
        producers.
        """
        if len(self._open) >= PRODUCERS_PER_LOG_MAX // 2:
            raise RefusedError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{len(self._open)} transactions are open in this partition",
            )

    def share_budget(self, budget: ProducerBudget) -> None:
        """Count the producers of this log in `budget`, a bound on the number of producers in
        several logs."""
        self._budget = budget
        budget.count += len(self.producers)

    def leave_budget(self) -> ProducerBudget:
        """Stop counting the producers of this log in the number that several logs share. Returns
        the former budget of this log."""
        budget, self._budget = self._budget, ProducerBudget()
        budget.count -= len(self.producers)
        self._budget.count = len(self.producers)
        return budget

    # --- loading ---

    def note_loaded(self, now_ms: int) -> None:
        """Set unknown last-seen times of producers to `now_ms` (ms since 1970), after the producers
        were loaded."""
        self.replayed_ms = now_ms
        for producer in self.producers.values():
            if producer.last_seen_ms == NEVER_SEEN:
                producer.last_seen_ms = now_ms

    def keep_from(self, older: "ProducerStates") -> None:
        """Copy data from `older`, the producer states before a truncation, as far as the data are
        valid for the remaining log."""
        self.verifications = older.verifications
        for producer_id, producer in self.producers.items():
            known = older.producers.get(producer_id)
            if known is None:
                continue
            producer.last_seen_ms = known.last_seen_ms
            if known.epoch == producer.epoch:
                producer.remember(
                    [each for each in known.batches if each.last_offset < self.end_offset]
                )

    def restore(self, producer_id: int, producer: ProducerEntry) -> None:
        """Add the state of one producer that was loaded from a snapshot."""
        if not self.producers:
            self.producers = {}
        self.producers[producer_id] = producer
        self._budget.count += 1
        if producer.txn_first_offset != NO_OFFSET:
            self._note_open(producer.txn_first_offset, producer_id)
            self._open = dict(sorted(self._open.items()))

    def _note_open(self, first_offset: Offset, producer_id: int) -> None:
        if self._open:
            self._open[first_offset] = ProducerId(producer_id)
        else:
            self._open = {first_offset: ProducerId(producer_id)}


def find_duplicate(producer: ProducerEntry, header: BatchHeader) -> SequencedBatch | None:
    """Return the producer's known batch with exactly the epoch and the sequence numbers of
    `header`. Returns None if no known batch has them."""
    if header.producer_epoch != producer.epoch:
        return None
    base_sequence = header.base_sequence
    for batch in producer.batches:
        if batch.base_sequence == base_sequence and batch.last_sequence == header.last_sequence:
            return batch
    return None


def _check_epoch(producer: ProducerEntry, producer_id: int, epoch: int) -> None:
    if epoch < producer.epoch:
        raise RefusedError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"Epoch of producer {producer_id} is {epoch}, which is smaller than the last seen "
            f"epoch {producer.epoch}",
        )


def _check_marker(
    producer: ProducerEntry, header: BatchHeader, marker: EndMarker, transaction_version: int
) -> None:
    """Raise RefusedError for a transaction marker of an earlier transaction or of an earlier
    coordinator.

    From transaction.version 2 on, the epoch of a marker is above the epoch of its transaction. If
    the epochs are equal and no transaction is open, the marker is accepted, because a newly elected
    coordinator has sent it again.
    """
    epoch = header.producer_epoch
    _check_epoch(producer, header.producer_id, epoch)
    is_stale = (
        transaction_version >= EPOCH_PER_TRANSACTION_FROM
        and epoch == producer.epoch
        and producer.txn_first_offset != NO_OFFSET
        and epoch != LAST_PRODUCER_EPOCH
    )
    if is_stale:
        raise RefusedError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"Epoch {epoch} of a marker of producer {header.producer_id} is that of the open "
            "transaction, not a later one",
        )
    if producer.coordinator_epoch > marker.coordinator_epoch:
        raise RefusedError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)


def _check_sequence(producer: ProducerEntry, header: BatchHeader) -> None:
    sequence = header.base_sequence
    if header.producer_epoch != producer.epoch:
        expected = 0
        is_in_order = sequence == 0 or producer.epoch == NO_PRODUCER_EPOCH
    else:
        last = producer.batches[-1].last_sequence if producer.batches else NO_SEQUENCE
        expected = 0 if last == INT32_MAX else last + 1
        is_in_order = sequence == expected
    if not is_in_order:
        raise RefusedError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {header.producer_id}: {sequence} "
            f"(incoming), {expected} (expected)",
        )


def read_end_marker(key: bytes | None, value: bytes | None) -> EndMarker | None:
    """Return the end of a transaction from the key and value of a control record. Returns None for
    any other control record."""
    if key is None or len(key) < 4 or value is None or len(value) < 6:
        raise CorruptDataError("control record: its key or value is too short")
    control_type = int.from_bytes(key[2:4], "big", signed=True)
    if control_type not in (0, 1):
        return None
    return EndMarker(control_type == 0, int.from_bytes(value[2:6], "big", signed=True))
