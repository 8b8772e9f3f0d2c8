"""Appends to a log, as leader and as follower.

No method awaits, so no other task runs between a check and its write. The bytes of a batch are not
copied, and its records are examined only if the topic's settings require it. Invariant
NoTornAppend: a failed write is undone before its request is answered; if the undo also fails, the
log goes offline.
"""

from typing import NoReturn

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset
from ottla.storage.disk.disk_errors import is_unopened
from ottla.storage.disk.disk_seam import Chunk
from ottla.storage.log.log_health import LogHealth
from ottla.storage.log.log_state import LogState
from ottla.storage.log.segment_files import SegmentFiles
from ottla.storage.log.validate import Accepted, accepted, gather
from ottla.storage.producers.producer_state import EndMarker
from ottla.storage.producers.verification import VerificationGuard
from ottla.storage.recovery.recovery import end_marker_of
from ottla.storage.segments.append_info import AppendInfo, AppendOrigin
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.transaction_index import AbortedTransaction
from ottla.wire.batch import (
    CONTROL_FLAG,
    LENGTH_END,
    LOG_APPEND_TIME_FLAG,
    NO_TIMESTAMP,
    BatchHeader,
    header_of,
)
from ottla.wire.legacy import batches_of_any_format, is_crc_right

PlacedBatch = tuple[Offset, int, Epoch, int, int, BatchHeader | None, EndMarker | None]
"""A batch that is about to be written to a log: its base offset, last offset and leader epoch in
the log, its maximum timestamp in ms and its size. It has a header only if it has a producer id, and
a marker only if it ends a transaction."""


class Appender:
    """Writer of batches at the end of one log, as leader and as follower."""

    __slots__ = ("_files", "_health", "_names", "_state")

    def __init__(self, state: LogState, health: LogHealth, files: SegmentFiles) -> None:
        self._state = state
        self._health = health
        self._files = files
        self._names = files.names

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: Epoch,
        now_ms: int,
        origin: AppendOrigin,
        first: Accepted | None,
        guard: VerificationGuard | None,
        transaction_version: int,
    ) -> AppendInfo:
        """Check batches, assign their offsets and write them. Returns the offsets of the records,
        for a duplicate those of the first copy. Raises RefusedError with Kafka's code.

        A client appends one batch; Raft and coordinators may append several in one write.
        `first` is the first batch if the caller has checked it, or None. `guard` is the result of
        the verification before a transaction's first batch (KIP-890), `transaction_version` that of
        a marker. Offsets and leader epoch are set in `records` itself if that memory is writable.
        """
        state = self._state
        if self._health.failure is not None:
            self._health.check_online()
        config = state.config
        log_append_time_ms = now_ms if config.is_log_append_time else NO_TIMESTAMP
        base_offset = next_offset = state.end_offset
        max_timestamp = NO_TIMESTAMP
        placed: list[PlacedBatch] = []
        chunks: list[Chunk] = []
        size = 0
        while True:
            if first is None:
                fields, batch, taken_bytes = accepted(records, origin, config, now_ms)
            else:
                (fields, batch, taken_bytes), first = first, None
            _, batch_length, _, _, _, _, last_delta, _, latest_ms, producer_id, _, _, count = fields
            header: BatchHeader | None = None
            marker: EndMarker | None = None
            if producer_id >= 0:
                header = header_of(fields)
                if header.attributes & CONTROL_FLAG:
                    marker = end_marker_of(batch, 0, header)
                duplicate = self._duplicate_of(header, marker, origin, guard, transaction_version)
                if duplicate is not None:
                    return duplicate
            batch_bytes = batch_length + LENGTH_END
            gather(chunks, batch, batch_bytes, next_offset, leader_epoch, log_append_time_ms)
            if log_append_time_ms != NO_TIMESTAMP:
                latest_ms = now_ms
                if header is not None:
                    attributes = header.attributes | LOG_APPEND_TIME_FLAG
                    header = header._replace(attributes=attributes, max_timestamp=now_ms)
            placed.append(
                (next_offset, next_offset + last_delta, leader_epoch, latest_ms, batch_bytes,
                 header, marker)
            )  # fmt: skip
            if latest_ms > max_timestamp:
                max_timestamp = latest_ms
            size += batch_bytes
            if len(records) == taken_bytes:
                break
            next_offset = Offset(next_offset + count)
            records = records[taken_bytes:]
        self._write(placed, chunks, size, max_timestamp, now_ms)
        return AppendInfo(
            base_offset,
            state.end_offset,
            log_append_time_ms,
            state.log_start_offset,
            False,
            max_timestamp,
        )

    def append_as_follower(self, records: memoryview, now_ms: int) -> AppendInfo:
        """Write batches that were fetched from the leader, unchanged. An incomplete batch at the
        end is dropped. Returns the offsets of the written records.

        In an empty log, the first batch may contain the log start offset, because records may be
        deleted up to any offset. The log start offset does not change. Raises
        RefusedError(CORRUPT_MESSAGE), and writes nothing, if a batch is damaged or offsets
        decrease.
        """
        state = self._state
        self._health.check_online()
        base_offset = next_offset = state.end_offset
        is_empty = state.is_empty
        max_timestamp = NO_TIMESTAMP
        found: list[tuple[int, BatchHeader]] = []
        try:
            for at, header in batches_of_any_format(records):
                is_first = is_empty and not found and header.end_offset > next_offset
                is_back = header.base_offset < next_offset and not is_first
                if is_back or header.last_offset_delta < 0:
                    raise CorruptDataError(f"offset {header.base_offset} after {next_offset - 1}")
                if not is_crc_right(records, at, header):
                    raise CorruptDataError(f"CRC of the batch at offset {header.base_offset}")
                found.append((at, header))
                next_offset = header.end_offset
                max_timestamp = max(max_timestamp, header.max_timestamp)
        except CorruptDataError as error:
            raise RefusedError(ErrorCode.CORRUPT_MESSAGE, error.where) from None
        if found and found[0][1].base_offset < base_offset:
            self._begin_before_start(found[0][1].base_offset, now_ms)
        self._write_run(records, found, now_ms)
        if found:
            base_offset = found[0][1].base_offset
        return AppendInfo(
            base_offset,
            next_offset,
            NO_TIMESTAMP,
            state.log_start_offset,
            False,
            max_timestamp,
        )

    def _begin_before_start(self, base_offset: Offset, now_ms: int) -> None:
        """Begin the empty log of a follower at a batch that contains the log start offset. The
        batch may begin before the log start offset (KAFKA-6975)."""
        state = self._state
        old = state.active
        if base_offset == old.base_offset:
            return
        state.generation += 1
        try:
            state.segments[0] = self._files.create(base_offset, now_ms)
        except OSError as error:
            self._health.refuse(error)
        state.note_local_start()
        self._files.discard(old)
        self._health.check_online()

    def _duplicate_of(
        self,
        header: BatchHeader,
        marker: EndMarker | None,
        origin: AppendOrigin,
        guard: VerificationGuard | None,
        transaction_version: int,
    ) -> AppendInfo | None:
        """Return the result of the first append of a duplicate batch, or None if the batch is new.

        Raises RefusedError if the batch's sequence number does not follow the producer's last
        sequence number.
        """
        state = self._state
        first = state.producers.check(header, marker, origin, guard, transaction_version)
        if first is None:
            return None
        append_time_ms = first.timestamp_ms if state.config.is_log_append_time else NO_TIMESTAMP
        return AppendInfo(
            first.base_offset,
            Offset(first.last_offset + 1),
            append_time_ms,
            state.log_start_offset,
            True,
            first.timestamp_ms,
        )

    def _write_run(
        self, records: memoryview, found: list[tuple[int, BatchHeader]], now_ms: int
    ) -> None:
        """Write batches whose offsets are assigned, in as few write calls as the size limits of
        segments permit."""
        state = self._state
        run: list[PlacedBatch] = []
        chunks: list[Chunk] = []
        run_bytes = 0
        run_timestamp = NO_TIMESTAMP
        for at, header in found:
            batch = records[at : at + header.size_bytes]
            room_bytes = state.config.segment_bytes - run_bytes
            if (
                run
                and state.active.should_roll(
                    state.config,
                    run_bytes + len(batch),
                    max(run_timestamp, header.max_timestamp),
                    header.last_offset,
                    now_ms,
                )
            ) or len(batch) > room_bytes:
                self._write(run, chunks, run_bytes, run_timestamp, now_ms)
                run, chunks, run_bytes, run_timestamp = [], [], 0, NO_TIMESTAMP
            has_producer = header.producer_id >= 0
            ends = has_producer and header.attributes & CONTROL_FLAG
            run.append(
                (
                    header.base_offset, header.last_offset, header.partition_leader_epoch,
                    header.max_timestamp, len(batch), header if has_producer else None,
                    end_marker_of(batch, 0, header) if ends else None,
                )
            )  # fmt: skip
            chunks.append(batch)
            run_bytes += len(batch)
            run_timestamp = max(run_timestamp, header.max_timestamp)
        self._write(run, chunks, run_bytes, run_timestamp, now_ms)

    def _write(
        self,
        placed: list[PlacedBatch],
        chunks: list[Chunk],
        size: int,
        max_timestamp: int,
        now_ms: int,
    ) -> None:
        """Write batches to the active segment with one call, and update the log's state. A failed
        write is undone completely."""
        state = self._state
        if not placed:
            return
        config = state.config
        if size > config.segment_bytes:
            raise RefusedError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size} bytes of batches exceed the segment size {config.segment_bytes}",
            )
        last_offset = placed[-1][1]
        segment = state.segments[-1]
        if segment.should_roll(config, size, max_timestamp, last_offset, now_ms) and (
            not self._names.is_new or segment.has_no_room(size=size, last_offset=last_offset)
        ):
            segment = self._files.roll(self._files.base_of_next(placed[0][0], last_offset), now_ms)
        try:
            segment.file.pwrite(segment.size_bytes, chunks)
        except OSError as error:
            self._take_back(segment, error)
        is_indexed = False
        epochs = state.epochs
        for base_offset, batch_end, leader_epoch, latest_ms, batch_bytes, header, marker in placed:
            if segment.note_batch(
                base_offset, batch_end, latest_ms, batch_bytes, config.index_interval_bytes
            ):
                is_indexed = True
            if leader_epoch > epochs.latest:
                epochs.assign(leader_epoch, base_offset)
            if header is not None:
                self._note_produced(segment, header, base_offset, marker, now_ms)
        # A call of `Offset` would cost as much as `should_roll`.
        state.end_offset = last_offset + 1  # type: ignore[assignment]  # an Offset all the same
        if state.unflushed_since_ms is None:
            state.unflushed_since_ms = now_ms
        if is_indexed:
            self._files.write_indexes(segment)

    def _note_produced(
        self,
        segment: Segment,
        header: BatchHeader,
        base_offset: Offset,
        marker: EndMarker | None,
        now_ms: int,
    ) -> None:
        """Update the state of a batch's producer and the transaction index after the batch was
        written."""
        state = self._state
        completed = state.producers.apply(header, base_offset, marker, now_ms)
        if completed is not None and completed.is_aborted:
            stable = state.producers.last_stable_offset_after(completed)
            try:
                segment.note_aborted(AbortedTransaction(*completed[:3], stable))
            except OSError as error:
                self._health.fail_by(error, segment.transaction_index.path)

    def _take_back(self, segment: Segment, error: OSError) -> NoReturn:
        """Undo a failed append by truncating the log file to its last complete batch. Raises the
        refusal that corresponds to `error`."""
        try:
            segment.file.set_size(segment.size_bytes)
        except OSError as second:
            if is_unopened(second):
                self._health.refuse(error)  # nothing was written, or it would be open
            self._health.fail_by(second, f"{segment.file.path}: {error}, and its tail stays")
        self._health.refuse(error)
