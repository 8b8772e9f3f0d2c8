"""Which fetched batches belong to aborted transactions (read_committed).  Pure."""

from collections.abc import Iterable

from ottla.wire.batch import BatchHeader, Buffer
from ottla.wire.batch_builder import ControlType
from ottla.wire.records import scan

ABORT_TYPE = int(ControlType.ABORT).to_bytes(2, "big")


class AbortedProducers:
    """The producers in an aborted transaction, at one place of an answer's batches.

    Every batch of the answer is shown in order: data to `is_aborted`, control to `on_control`.
    """

    __slots__ = ("_ahead", "_here")

    def __init__(self, aborted: Iterable[tuple[int, int]] | None) -> None:
        """`aborted` are (producer id, first offset), in any order; None to read all."""
        self._ahead = sorted(aborted or (), key=lambda one: -one[1])
        self._here: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether a batch of data is part of an aborted transaction."""
        if not header.is_transactional or not (self._ahead or self._here):
            return False
        self._move_to(header)
        return header.producer_id in self._here

    def on_control(self, data: Buffer, at: int, header: BatchHeader) -> None:
        """Note the end of a transaction, if the control batch is one.

        An answer may begin with it, and then has none of the data before.
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
