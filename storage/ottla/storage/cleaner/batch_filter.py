"""Pass 2 of a log compaction: determines the part of each batch that is retained, in log order from
the first batch. No I/O.

Invariants:

- LastValueKept, OffsetsKept: see `record_work`.
- TombstonesSeen: a tombstone is retained until the delete horizon of its batch has passed. A
  cleaning sets a horizon only if it makes the whole batch clean; the older values of the batch's
  keys are then gone.
- ProducersKept: the last batch of an active producer is retained, if necessary empty.
- MarkersLast: a marker is retained while a batch of its transaction is in the log, and until its
  own horizon has passed.
- EndsKept: a new segment ends at the end offset of its last source. If the broker starts after a
  half-finished swap, this offset shows which segments the new one replaces.
"""

from typing import NamedTuple

from ottla.storage.cleaner.batch_bodies import RunBounds, body_of
from ottla.storage.cleaner.batch_rewrite import (
    HORIZON_MS_MAX,
    emptied_batch,
    rewritten_batch,
    stamped_control_batch,
)
from ottla.storage.cleaner.cleaning_task import CleaningTask
from ottla.storage.cleaner.key_index import bytes_of_block
from ottla.storage.cleaner.legacy_entries import filtered_entry
from ottla.storage.cleaner.record_work import KeepRule, KeptRecords, RecordWork
from ottla.storage.cleaner.transactions import (
    AbortedTransactions,
    OpenTransactionProducers,
    is_end_marker,
)
from ottla.storage.disk.disk_seam import Chunk
from ottla.storage.segments.batch_scan import ScannedBlock
from ottla.storage.segments.transaction_index import AbortedTransaction
from ottla.wire.batch import LOG_APPEND_TIME_FLAG, MAGIC, NO_TIMESTAMP, BatchHeader
from ottla.wire.legacy import entry_header
from ottla.wire.records import Body


class KeptBatch(NamedTuple):
    """One batch that a compaction keeps, and its new bytes if the compaction has changed the
    batch."""

    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    size_bytes: int
    at: int
    """Position in bytes of the batch in its scanned block."""
    changed: bytes | None
    """New bytes of a batch that compaction changed, or None if the batch is kept unchanged."""


class FilteredBlock(NamedTuple):
    """The batches of a scanned block that pass 2 of a compaction keeps."""

    data: bytes
    batches: list[KeptBatch]
    is_changed: bool
    """True if the compaction changed or dropped a batch of this block."""
    aborted: list[AbortedTransaction]
    """Aborted transactions whose abort marker is in the block and still needed."""

    def chunks(self) -> list[Chunk]:
        """Return the bytes of all batches that are kept from this block. Adjacent unchanged batches
        form one chunk."""
        view = memoryview(self.data)
        chunks: list[Chunk] = []
        run_start = run_end = -1
        for batch in self.batches:
            if batch.changed is not None:
                chunks.append(batch.changed)
                run_end = -1
                continue
            if batch.at == run_end:
                chunks[-1] = view[run_start : batch.at + batch.size_bytes]
            else:
                run_start = batch.at
                chunks.append(view[run_start : run_start + batch.size_bytes])
            run_end = batch.at + batch.size_bytes
        return chunks


class FilterCounts:
    """Numbers of records that pass 2 of a compaction has read and written, and of records that it
    has dropped because they have no key."""

    __slots__ = ("keyless_record_count", "read_record_count", "written_record_count")

    def __init__(self) -> None:
        self.read_record_count = 0
        self.written_record_count = 0
        self.keyless_record_count = 0


class BatchFilter:
    """Pass 2 of one log compaction, which decides the part of each batch that is kept. It must
    receive the blocks of all segments in order."""

    def __init__(
        self,
        task: CleaningTask,
        clean_to: int,
        work: RecordWork,
        aborted: AbortedTransactions,
    ) -> None:
        self._task = task
        self._clean_to = clean_to
        self._rule = KeepRule(task.log_start_offset, clean_to, task.now_ms)
        self._horizon_ms = min(task.now_ms + task.delete_retention_ms, HORIZON_MS_MAX)
        self._work = work
        self._aborted = aborted
        self._open_producers = OpenTransactionProducers()
        self._group_end: int | None = None
        self._data = b""
        self._kept: list[KeptBatch] = []
        self._needed_aborts: list[AbortedTransaction] = []
        self._is_changed = False
        self._waiting: list[KeptBatch | tuple[int, Body]] = []
        """Kept batches of the current block, in order. A batch that is still undecided is stored as
        its position in the block and its body (decompressed records)."""
        self.counts = FilterCounts()

    def filter(
        self, block: ScannedBlock, *, end_at: int | None, are_old_tombstones_kept: bool
    ) -> FilteredBlock:
        """Return the part of a block of scanned batches that the compaction keeps.

        `end_at` is the position at which the last source segment of a new segment ends, or None if
        the block belongs to an earlier source. Tombstones in the message formats v0 and v1 are kept
        only if `are_old_tombstones_kept`. Raises CorruptDataError if the data is corrupt.
        """
        is_last_block = block.position + block.size_bytes == end_at
        self._group_end = block.batches[-1][1].end_offset if is_last_block else None
        self._data = bytes_of_block(block)
        self._kept, self._needed_aborts, self._is_changed = [], [], False
        bounds = RunBounds()
        for at, header in block.batches:
            self.counts.read_record_count += header.record_count
            if header.base_offset >= self._clean_to and header.magic != MAGIC:
                self._keep(self._same(at, header))
            elif header.magic != MAGIC:
                self._decide_entry(at, header, are_old_tombstones_kept)
            elif header.is_control:
                self._decide_control(at, header)
            else:
                body = self._begin_data(at, header)
                if body is not None and bounds.is_full_after(body):
                    self._decide_waiting()
        self._decide_waiting()
        return FilteredBlock(self._data, self._kept, self._is_changed, self._needed_aborts)

    def _begin_data(self, at: int, header: BatchHeader) -> Body | None:
        """Decide from its header whether a data batch is retained. Returns None if the header
        decides, or the body of the batch if the decision depends on its records."""
        self._open_producers.on_data(header)
        is_clean = header.last_offset < self._clean_to
        if header.base_offset >= self._clean_to:
            self._keep(self._same(at, header))
        elif header.record_count == 0 or self._aborted.holds(header):
            if not is_clean or (header.record_count == 0 and self._must_stay(header)):
                self._keep(self._same(at, header))
            else:
                self._keep(self._emptied(header))
        else:
            body = body_of(self._data, at, header)
            self._waiting.append((at, body))
            return body
        return None

    def _decide_control(self, at: int, header: BatchHeader) -> None:
        is_clean = header.last_offset < self._clean_to
        if header.record_count == 0:
            if is_clean and not self._must_stay(header):
                self._is_changed = True
            else:
                self._keep(self._same(at, header))
            return
        if not is_end_marker(self._data, at, header):
            self._keep(self._same(at, header))
            return
        is_needed = self._open_producers.on_marker(header) or not is_clean
        if is_needed:
            aborted = self._aborted.ended_by(header)
            if aborted is not None:
                self._needed_aborts.append(aborted)
        horizon_ms = header.delete_horizon_ms
        if is_needed or (horizon_ms is not None and horizon_ms > self._task.now_ms):
            self._keep(self._same(at, header))
        elif horizon_ms is None:
            body = body_of(self._data, at, header)
            stamped = stamped_control_batch(body, self._horizon_ms)
            self._keep(
                self._changed(
                    header,
                    stamped,
                    record_count=header.record_count,
                    max_timestamp_ms=header.max_timestamp,
                )
            )
        else:
            self._keep(self._emptied(header))

    def _decide_entry(self, at: int, header: BatchHeader, are_old_tombstones_kept: bool) -> None:
        """Decide whether a message or wrapper of the formats v0 and v1 is kept unchanged,
        rewritten, or replaced by an empty batch."""
        entry = self._data[at : at + header.size_bytes]
        filtered = filtered_entry(
            entry, self._work.map, self._rule, are_tombstones_kept=are_old_tombstones_kept
        )
        self.counts.keyless_record_count += filtered.keyless_count
        if filtered.entry is None:
            self._keep(self._emptied(header))
        elif filtered.entry == entry:
            self._keep(self._same(at, header))
        else:
            changed = entry_header(filtered.entry, 0)
            self._keep(
                self._changed(
                    changed,
                    filtered.entry,
                    record_count=1,
                    max_timestamp_ms=changed.max_timestamp,
                )
            )
            if changed.end_offset < header.end_offset:
                self._keep(self._emptied(header))

    def _decide_waiting(self) -> None:
        """Decide which records of the undecided batch bodies are retained, and append the remaining
        batches to the result in log order."""
        waiting, self._waiting = self._waiting, []
        bodies = [each[1] for each in waiting if not isinstance(each, KeptBatch)]
        verdicts = iter(self._work.select_kept(bodies, self._rule) if bodies else ())
        for each in waiting:
            kept = each if isinstance(each, KeptBatch) else self._decided(*each, next(verdicts))
            if kept is not None:
                self._kept.append(kept)

    def _decided(self, at: int, body: Body, verdict: KeptRecords) -> KeptBatch | None:
        header = body.header
        self.counts.keyless_record_count += verdict.keyless_count
        is_stamped = (
            verdict.has_tombstone
            and header.delete_horizon_ms is None
            and header.last_offset < self._clean_to
        )
        if verdict.kept_count == 0:
            return self._emptied(header)
        if verdict.kept_count == header.record_count and not is_stamped:
            return self._same(at, header)
        horizon_ms = self._horizon_ms if is_stamped else None
        return self._changed(
            header,
            rewritten_batch(body, verdict, horizon_ms=horizon_ms),
            record_count=verdict.kept_count,
            max_timestamp_ms=verdict.max_timestamp_ms,
        )

    def _must_stay(self, header: BatchHeader) -> bool:
        """Return whether compaction must keep a batch although all its records are dropped, for
        example for the state of its producer."""
        if header.end_offset in (
            self._group_end,
            self._task.end_offset,
            self._task.high_watermark,
        ):
            return True
        last = self._task.producers.get(header.producer_id)
        if last is None:
            return False
        if last.data_offset >= 0:
            return header.last_offset == last.data_offset
        return header.is_control and header.producer_epoch == last.epoch

    def _emptied(self, header: BatchHeader) -> KeptBatch | None:
        """Return the empty batch that replaces a batch whose records are all dropped, or None if no
        empty batch is needed."""
        self._is_changed = True
        if not self._must_stay(header):
            return None
        return self._changed(
            header,
            emptied_batch(header),
            record_count=0,
            max_timestamp_ms=NO_TIMESTAMP,
        )

    def _same(self, at: int, header: BatchHeader) -> KeptBatch:
        self.counts.written_record_count += header.record_count
        size = header.size_bytes
        return KeptBatch(
            header.base_offset, header.last_offset, header.max_timestamp, size, at, None
        )

    def _changed(
        self, header: BatchHeader, batch: bytes, *, record_count: int, max_timestamp_ms: int
    ) -> KeptBatch:
        self._is_changed = True
        self.counts.written_record_count += record_count
        if record_count and header.attributes & LOG_APPEND_TIME_FLAG:
            max_timestamp_ms = header.max_timestamp
        return KeptBatch(
            header.base_offset, header.last_offset, max_timestamp_ms, len(batch), 0, batch
        )

    def _keep(self, kept: KeptBatch | None) -> None:
        if kept is not None:
            self._waiting.append(kept)
