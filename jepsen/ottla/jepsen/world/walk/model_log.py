"""A partition's log in memory, for walks that cannot afford segments: batches in a list.

Epochs and producers are the real ones; only files are missing.  Batches are real too, so that what
reads and writes them need not know the difference.  A batch holds one record, told apart from all
others by its timestamp; what is below the recovery point survives a power cut.
"""

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple
from uuid import UUID

from ottla.jepsen.world.invariants.replication import Held, Record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_PRODUCER_ID, Epoch, Offset, OffsetAndEpoch, ProducerId
from ottla.model.seams import Rng
from ottla.storage.append_info import AppendInfo, AppendOrigin
from ottla.storage.epoch_cache import EpochCache
from ottla.storage.log_config import LogConfig
from ottla.storage.producer_state import Producer, ProducerStates
from ottla.storage.validate import Accepted
from ottla.wire.batch import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    PREFIX_BYTES,
    BatchHeader,
    batches,
    parse_header,
)
from ottla.wire.batch_builder import build_batch

DEFAULT_CONFIG = LogConfig()

NO_RECORD = Record(-1, -1)
"""In place of what is not there any more."""

_prefix = Struct(">qii")


@lru_cache(maxsize=1 << 14)
def batch_of(number: int, producer_id: int = -1, sequence: int = -1) -> bytes:
    """Return the batch of one record as a client sends it."""
    is_idempotent = producer_id >= 0
    return build_batch(
        [(number, None, b"")],
        producer_id=ProducerId(producer_id) if is_idempotent else NO_PRODUCER_ID,
        producer_epoch=0 if is_idempotent else NO_PRODUCER_EPOCH,
        base_sequence=sequence if is_idempotent else NO_SEQUENCE,
    )


def records_in(data: bytes | memoryview) -> list[tuple[int, Record]]:
    """Return (offset, record) of every whole batch in bytes that were fetched."""
    return [
        (header.base_offset, Record(header.partition_leader_epoch, header.max_timestamp))
        for _, header in batches(memoryview(data), is_partial_end_allowed=True)
    ]


class _Slice:
    """Batches on their way to whoever fetched them; reads as a file's slice does."""

    __slots__ = ("_data", "file", "position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.file = self
        self.position = 0

    def __len__(self) -> int:
        return len(self._data)

    def read(self) -> bytes:
        return self._data

    def pread(self, position: int, size: int) -> bytes:
        return self._data[position : position + size]


class _Read(NamedTuple):
    slice: _Slice | None
    base_offset: Offset


class ModelLog:
    """Stands in for `ottla.storage.log.Log`."""

    failure: str | None = None
    directory = "/model"
    is_online = True

    def __init__(self, config: LogConfig = DEFAULT_CONFIG) -> None:
        self.config = config
        self.records: list[Record] = []
        self.log_start_offset = Offset(0)
        self.high_watermark = Offset(0)
        self.recovery_point = Offset(0)
        self.cut_count = 0
        """How often its end went back."""
        self._headers: list[BatchHeader | None] = []
        self._batches: list[bytes] = []
        self._epochs = EpochCache()
        self._producers = ProducerStates()

    # --- what it holds ---

    @property
    def end_offset(self) -> Offset:
        """The offset after the last record."""
        return Offset(len(self.records))

    @property
    def last_epoch(self) -> Epoch:
        """The newest leader epoch, -1 for none."""
        return self._epochs.latest

    @property
    def last_stable_offset(self) -> Offset:
        """The high watermark: there are no transactions here."""
        return self.high_watermark

    @property
    def active_producers(self) -> Mapping[int, Producer]:
        """The producers it remembers, by id."""
        return self._producers.producers

    @property
    def is_flush_due(self) -> bool:
        """Say whether flush.messages records wait for a flush."""
        return self.end_offset - self.recovery_point >= self.config.flush_messages

    def end_offset_for_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        """Return the largest epoch up to the asked one and where it ends."""
        return self._epochs.end_offset_for(epoch, self.end_offset)

    def update_high_watermark(self, offset: Offset) -> bool:
        """Move the high watermark forward, at most to the end; say whether it moved."""
        offset = min(offset, self.end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    # --- appending and reading ---

    def assign_epoch(self, epoch: Epoch, start_offset: Offset) -> None:
        """Note that a leadership begins at an offset."""
        self._epochs.assign(epoch, start_offset)

    def append_as_leader(
        self,
        records: memoryview,
        *,
        leader_epoch: Epoch,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        first: Accepted | None = None,
    ) -> AppendInfo:
        """Append one batch, unless its producer sent it before; nothing of it is checked."""
        header = parse_header(records)
        if header.producer_id >= 0:
            sent = self._producers.check(header, None, origin)
            if sent is not None:
                return AppendInfo(
                    sent.base_offset,
                    sent.last_offset,
                    NO_TIMESTAMP,
                    self.log_start_offset,
                    True,
                    sent.timestamp_ms,
                )
        offset = self.end_offset
        prefix = _prefix.pack(offset, header.batch_length, leader_epoch)
        self._take(
            header._replace(base_offset=offset, partition_leader_epoch=leader_epoch),
            prefix + records[PREFIX_BYTES:],
        )
        return AppendInfo(
            offset, offset, NO_TIMESTAMP, self.log_start_offset, False, header.max_timestamp
        )

    def append_as_follower(self, records: memoryview, *, now_ms: int) -> AppendInfo:
        """Append what a leader sent."""
        base_offset = self.end_offset
        for at, header in batches(records, is_partial_end_allowed=True):
            if header.base_offset != self.end_offset:
                raise RefusedError(
                    ErrorCode.CORRUPT_MESSAGE, f"{header.base_offset} after {self.end_offset}"
                )
            self._take(header, bytes(records[at : at + header.size_bytes]))
        return AppendInfo(
            base_offset,
            Offset(self.end_offset - 1),
            NO_TIMESTAMP,
            self.log_start_offset,
            False,
            NO_TIMESTAMP,
        )

    def _take(self, header: BatchHeader, batch: bytes) -> None:
        offset, epoch = header.base_offset, header.partition_leader_epoch
        self.records.append(Record(epoch, header.max_timestamp))
        self._headers.append(header)
        self._batches.append(batch)
        if epoch > self._epochs.latest:
            self._epochs.assign(epoch, offset)
        if header.producer_id >= 0:
            self._producers.apply(header, offset, None)

    def read(
        self, offset: Offset, *, bytes_max: int, end_offset: Offset, at_least_one: bool
    ) -> _Read:
        """Return whole batches from an offset on, below `end_offset`."""
        if not self.log_start_offset <= offset <= self.end_offset:
            raise RefusedError(ErrorCode.OFFSET_OUT_OF_RANGE)
        chosen: list[bytes] = []
        for batch in self._batches[offset : min(end_offset, self.end_offset)]:
            bytes_max -= len(batch)
            if bytes_max < 0 and (chosen or not at_least_one):
                break
            chosen.append(batch)
        return _Read(_Slice(b"".join(chosen)) if chosen else None, offset)

    # --- making durable, and cutting ---

    async def flush(self, up_to: Offset | None = None) -> Offset:
        """Make everything below `up_to` (default: the end) durable."""
        end = self.end_offset if up_to is None else min(up_to, self.end_offset)
        self.recovery_point = max(self.recovery_point, end)
        return self.recovery_point

    async def truncate_to(self, offset: Offset) -> bool:
        """Remove all from `offset` on."""
        if offset < self.end_offset:
            self._cut(offset)
            return True
        self._epochs.truncate_from_end(offset)
        return False

    async def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Remove everything; the log is empty and begins and ends at `offset`."""
        self.records = [NO_RECORD] * offset
        self._headers = [None] * offset
        self._batches = [b""] * offset
        self.log_start_offset = self.high_watermark = self.recovery_point = offset
        self._epochs.clear()
        self._producers = ProducerStates()
        self.cut_count += 1

    async def delete_records_before(self, offset: Offset) -> None:
        """Raise the log start; OFFSET_OUT_OF_RANGE beyond the high watermark.

        The records stay, as those of an active segment do.
        """
        if offset > self.high_watermark:
            raise RefusedError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not committed")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._epochs.truncate_from_start(offset)

    def _cut(self, end_offset: int) -> None:
        end_offset = Offset(end_offset)
        del self.records[end_offset:], self._headers[end_offset:], self._batches[end_offset:]
        self.high_watermark = min(self.high_watermark, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)
        self._epochs.truncate_from_end(end_offset)
        self._producers = ProducerStates()
        for header in self._headers:
            if header is not None and header.producer_id >= 0:
                self._producers.apply(header, header.base_offset, None)
        self.cut_count += 1

    # --- what the world does to it ---

    def end_process(self, rng: Rng | None, *, is_power_cut: bool) -> bool:
        """Leave what a new process finds: an old high watermark, and perhaps a log cut short.

        Without `rng`: it ends cleanly.  Says whether the log is shorter now.  A leadership without
        a record was never written down.
        """
        end = kept = self.end_offset
        if rng is not None:
            high_watermark = Offset(rng.below(self.high_watermark + 1))
            if is_power_cut:
                kept = Offset(self.recovery_point + rng.below(end - self.recovery_point + 1))
                kept = max(kept, self.log_start_offset)
            self.high_watermark = max(high_watermark, self.log_start_offset)
        self._cut(kept)
        return kept < end


class ModelStore:
    """A machine's logs in memory."""

    def __init__(self) -> None:
        self._logs: dict[int, ModelLog] = {}

    def held(self, index: int) -> Held | None:
        """Return what a judge may see of a replica; None where there is none."""
        return self._logs.get(index)

    def open(self, index: int, topic_id: UUID, config: LogConfig) -> Any:
        """Return a replica's log, made when it is not there."""
        log = self._logs.get(index)
        if log is None:
            log = self._logs[index] = ModelLog()
        log.config = config
        return log

    def delete(self, index: int) -> None:
        """Remove a replica."""
        self._logs.pop(index, None)

    def indexes(self) -> list[int]:
        """Return the partitions it has logs of."""
        return sorted(self._logs)

    def end_process(self, rng: Rng, *, is_power_cut: bool) -> bool:
        """Let the process end, perhaps the power too; say whether a log is shorter now."""
        is_shorter = False
        for index in self.indexes():
            is_shorter |= self._logs[index].end_process(rng, is_power_cut=is_power_cut)
        return is_shorter

    def stop_cleanly(self) -> None:
        """Flush everything, as a shutdown does."""
        for index in self.indexes():
            log = self._logs[index]
            log.end_process(None, is_power_cut=False)
            log.recovery_point = log.end_offset
