"""Detection of fetched batches that belong to aborted transactions, which read_committed consumers
skip. Pure."""

from collections.abc import Iterable

from ottla.wire.batch import BatchHeader, Buffer
from ottla.wire.batch_builder import ControlType
from ottla.wire.records import scan

ABORT_TYPE = int(ControlType.ABORT).to_bytes(2, "big")


class AbortedProducers:
    """Set of the producers whose transaction is aborted, at the current position in a fetch
    response.

    The caller passes every batch in order: data batches to `is_aborted`, control batches to
    `on_control`.
    """

    __slots__ = ("_ahead", "_here")

    def __init__(self, aborted: Iterable[tuple[int, int]] | None) -> None:
        """Initialise for the start of a fetch response, with the aborted transactions that the
        response lists.

        `aborted` contains pairs of producer id and first offset, in any order. With None, no batch
        counts as aborted, as for read_uncommitted consumers.
        """
        self._ahead = sorted(aborted or (), key=lambda one: -one[1])
        self._here: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether a data batch belongs to an aborted transaction."""
        if not header.is_transactional or not (self._ahead or self._here):
            return False
        self._move_to(header)
        return header.producer_id in self._here

    def on_control(self, data: Buffer, at: int, header: BatchHeader) -> None:
        """Process a control batch, which may end a transaction.

        A fetch response may start with the end marker of a transaction whose records were before
        the response.
        """
        self._move_to(header)
        if header.producer_id not in self._here:
            return
        for record in scan(data, at, header):
            if record.key is not None and record.key[2:4] == ABORT_TYPE:
                self._here.discard(header.producer_id)

    def _move_to(self, header: BatchHeader) -> None:
        while self._ahead and self._ahead[-1][1] <= header.last_offset:
            self._here.add(self._ahead.pop()[0])
