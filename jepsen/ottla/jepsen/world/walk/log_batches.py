"""Generates record batches for random walks on a log, without I/O: plain, idempotent and
transactional batches, and control batches.

Most timestamps grow. Some repeat or go back, as the timestamps of real producers do.
"""

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.walk.log_model import LogModel, UnplacedBatch
from ottla.model.ids import Epoch, ProducerId
from ottla.wire.batch import parse_header
from ottla.wire.batch_builder import ControlType, build_batch, build_end_transaction_marker
from ottla.wire.records import scan

NOW_MS = 1_700_000_000_000
PRODUCERS = (1, 2)
TRANSACTIONAL = (11, 12)
FILLER = b"ottla in the deterministic world "


class BatchMaker:
    """Generator of random record batches for a log. It tracks the epoch and next sequence number of
    every producer."""

    def __init__(self, chance: Chance) -> None:
        self.span_ms = 0
        """Time in ms by which the timestamps of generated batches have advanced beyond NOW_MS."""
        self._chance = chance
        self._count = 0
        self._epochs: dict[int, int] = {}
        self._sequences: dict[int, int] = {}

    def next(self, model: LogModel) -> UnplacedBatch:
        """Return a random batch that a leader with the log `model` must accept."""
        kind = self._chance.below(8)
        if kind < 4:
            return self.plain()
        if kind < 6:
            return self._produced(self._chance.pick(PRODUCERS), is_transactional=False)
        producer_id = self._chance.pick(TRANSACTIONAL)
        producer = model.producers.get(producer_id)
        if producer is not None and producer.txn_first_offset >= 0 and kind == 7:
            return self._marker(producer_id)
        return self._produced(producer_id, is_transactional=True)

    def plain(self) -> UnplacedBatch:
        """Return a random batch without a producer id."""
        records = self._records()
        return UnplacedBatch(
            build_batch([(at_ms, None, value) for at_ms, value in records]), records
        )

    def begin_epoch(self, producer_id: int) -> None:
        """Start a new epoch of a producer, as a producer does after one of its batches was
        refused."""
        self._epochs[producer_id] = self._epochs.get(producer_id, 0) + 1
        self._sequences[producer_id] = 0

    def forget(self, model: LogModel) -> None:
        """Reset the generated producers to their state in the log `model`, so that lost batches are
        sent again."""
        self._sequences.clear()
        for producer_id, producer in model.producers.items():
            if producer.epoch < 0:
                continue
            self._epochs[producer_id] = max(producer.epoch, self._epochs.get(producer_id, 0))
            if self._epochs[producer_id] == producer.epoch and producer.batches:
                last = producer.batches[-1].made
                self._sequences[producer_id] = last.base_sequence + len(last.records)

    def _produced(self, producer_id: int, *, is_transactional: bool) -> UnplacedBatch:
        if self._chance.below(16) == 1 and not is_transactional:
            self.begin_epoch(producer_id)
        records = self._records()
        epoch = self._epochs.setdefault(producer_id, 0)
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + len(records)
        data = build_batch(
            [(at_ms, None, value) for at_ms, value in records],
            producer_id=ProducerId(producer_id),
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        return UnplacedBatch(data, records, producer_id, epoch, sequence, is_transactional)

    def _marker(self, producer_id: int) -> UnplacedBatch:
        is_abort = self._chance.below(2) == 1
        at_ms = self._timestamp()
        epoch = self._epochs.get(producer_id, 0)
        data = build_end_transaction_marker(
            ControlType.ABORT if is_abort else ControlType.COMMIT,
            timestamp_ms=at_ms,
            producer_id=ProducerId(producer_id),
            producer_epoch=epoch,
            coordinator_epoch=Epoch(0),
        )
        (record,) = scan(data, 0, parse_header(data))
        assert record.value is not None
        return UnplacedBatch(
            data, ((at_ms, bytes(record.value)),), producer_id, epoch, -1, True, is_abort
        )

    def _records(self) -> tuple[tuple[int, bytes], ...]:
        count = 1 + self._chance.below(3)
        size = 8 + self._chance.below(24)
        first = self._count
        self._count += count
        return tuple(
            (self._timestamp(), (b"%d " % number + FILLER)[:size])
            for number in range(first, first + count)
        )

    def _timestamp(self) -> int:
        drift_ms = self._chance.below(8)
        self.span_ms += drift_ms % 4
        return NOW_MS + self.span_ms - (20 if drift_ms == 7 else 0)
