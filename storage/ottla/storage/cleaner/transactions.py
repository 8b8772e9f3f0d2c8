"""Transactions in log compaction: the data of aborted transactions, and the transaction markers
that are still needed. No I/O.

Every transaction below the end of the compacted section has ended, so the transaction indexes list
all aborted ones. A marker is needed as long as the log contains a batch of its transaction, even an
empty batch. `OpenTransactionProducers` processes all batches in log order from the first one, and
records which producers have written a batch since their last marker.
"""

from bisect import bisect_right
from collections.abc import Iterable
from struct import Struct

from ottla.model.errors import CorruptDataError
from ottla.storage.segments.transaction_index import AbortedTransaction
from ottla.wire.batch import BatchHeader, Buffer
from ottla.wire.batch_builder import ControlType
from ottla.wire.records import scan

_CONTROL_KEY = Struct(">hh")


class AbortedTransactions:
    """Aborted transactions in the section of the log that is compacted, by producer."""

    def __init__(self, entries: Iterable[AbortedTransaction]) -> None:
        self._by_marker: dict[int, AbortedTransaction] = {}
        self._firsts: dict[int, list[int]] = {}
        self._lasts: dict[int, list[int]] = {}
        for entry in sorted(set(entries), key=lambda one: one.first_offset):
            self._by_marker[entry.last_offset] = entry
            self._firsts.setdefault(entry.producer_id, []).append(entry.first_offset)
            self._lasts.setdefault(entry.producer_id, []).append(entry.last_offset)

    def holds(self, header: BatchHeader) -> bool:
        """Return whether a data batch belongs to an aborted transaction."""
        if not header.is_transactional or header.is_control:
            return False
        firsts = self._firsts.get(header.producer_id)
        if firsts is None:
            return False
        index = bisect_right(firsts, header.base_offset) - 1
        return index >= 0 and header.base_offset <= self._lasts[header.producer_id][index]

    def ended_by(self, marker: BatchHeader) -> AbortedTransaction | None:
        """Return the aborted transaction that a control batch ends, or None if the batch ends no
        aborted transaction."""
        entry = self._by_marker.get(marker.last_offset)
        if entry is None or entry.producer_id != marker.producer_id:
            return None
        return entry


class OpenTransactionProducers:
    """The producers that have written a batch to the log since their last transaction marker."""

    def __init__(self) -> None:
        self._producers: set[int] = set()

    def on_data(self, header: BatchHeader) -> None:
        """Record that the producer of a transaction's data batch has written a batch since its last
        transaction marker. Batches outside transactions are ignored."""
        if header.is_transactional:
            self._producers.add(header.producer_id)

    def on_marker(self, header: BatchHeader) -> bool:
        """Record the transaction marker that ends a producer's transaction. Returns True if the log
        still contains a batch of that transaction."""
        is_seen = header.producer_id in self._producers
        self._producers.discard(header.producer_id)
        return is_seen


def is_end_marker(data: Buffer, at: int, header: BatchHeader) -> bool:
    """Return whether a control batch ends a transaction.

    Raises CorruptDataError if its record is corrupt.
    """
    for record in scan(data, at, header):
        if record.key is None or len(record.key) < _CONTROL_KEY.size:
            raise CorruptDataError(f"control batch at offset {header.base_offset}: a key too short")
        if _CONTROL_KEY.unpack_from(record.key)[1] in (ControlType.ABORT, ControlType.COMMIT):
            return True
    return False
