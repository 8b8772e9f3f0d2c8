"""A closed segment in memory, as an upload reads it, with indexes that follow Kafka's rules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from uuid import UUID

from ottla.model.ids import Epoch, NodeId, Offset
from ottla.storage.producers.producer_snapshot import encode_snapshot
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.segments.transaction_index import AbortedTransaction
from ottla.storage.tier.segment_upload_driver import SegmentUpload
from ottla.wire.batch_builder import build_batch
from tests.storage.tier.segments import NAMES, SEGMENT_ID, TOPIC_ID

INDEX_INTERVAL = 4096
OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
ABORT_ENTRY = Struct(">hqqqq")


@dataclass
class SegmentInMemory:
    """A segment in memory. It implements the protocol `SegmentSource`."""

    base_offset: Offset
    end_offset: Offset
    log: bytes
    max_timestamp_ms: int
    epochs: Sequence[EpochEntry]
    offsets: bytes
    times: bytes
    aborts: bytes = b""
    reads: list[tuple[int, int]] = field(default_factory=list)
    batches: list[tuple[Offset, Offset, int, int]] = field(default_factory=list)
    """Base offset, last offset, position and end of each batch."""

    @property
    def size_bytes(self) -> int:
        return len(self.log)

    async def read_log(self, start: int, end: int) -> bytes:
        assert 0 <= start < end <= len(self.log)
        self.reads.append((start, end))
        return self.log[start:end]

    async def offset_index(self) -> bytes:
        return self.offsets

    async def time_index(self) -> bytes:
        return self.times

    async def transaction_index(self) -> bytes:
        return self.aborts

    async def producer_snapshot(self) -> bytes:
        return encode_snapshot(ProducerStates(self.end_offset))


def segment_in_memory(
    base: int,
    epochs: dict[int, int],
    batches: Sequence[tuple[int, int]],
    *,
    aborts: Sequence[AbortedTransaction] = (),
    fill: Callable[[int], bytes] = lambda offset: b"%020d" % offset,
    timestamp_of: Callable[[int], int] = lambda offset: 1_000_000 + offset,
    gap: int = 0,
) -> SegmentInMemory:
    """Return a segment with batches of (number of records, bytes of each value). Each batch is
    followed by `gap` offsets without a record, as after a compaction."""
    log, offsets, times = bytearray(), bytearray(), bytearray()
    placed = []
    at, since_entry, largest, largest_at = base, 0, -1, base
    entries = tuple(EpochEntry(Epoch(epoch), Offset(start)) for epoch, start in epochs.items())
    for count, size in batches:
        epoch = max((entry for entry in entries if entry.start_offset <= at), default=None)
        batch = build_batch(
            [
                (timestamp_of(offset), None, (fill(offset) * (size // 20 + 1))[:size])
                for offset in range(at, at + count)
            ],
            base_offset=Offset(at),
            leader_epoch=Epoch(-1) if epoch is None else epoch.epoch,
        )
        for offset in range(at, at + count):
            if timestamp_of(offset) > largest:
                largest, largest_at = timestamp_of(offset), offset
        if since_entry > INDEX_INTERVAL:
            offsets += OFFSET_ENTRY.pack(at + count - 1 - base, len(log))
            times += TIME_ENTRY.pack(largest, largest_at - base)
            since_entry = 0
        begin = len(log)
        log += batch
        placed.append((Offset(at), Offset(at + count - 1), begin, len(log)))
        since_entry += len(batch)
        at += count + gap
    if not times or largest > TIME_ENTRY.unpack(times[-12:])[0]:
        times += TIME_ENTRY.pack(largest, largest_at - base)
    return SegmentInMemory(
        base_offset=Offset(base),
        end_offset=Offset(at),
        log=bytes(log),
        max_timestamp_ms=largest,
        epochs=entries,
        offsets=bytes(offsets),
        times=bytes(times),
        aborts=b"".join(ABORT_ENTRY.pack(0, *abort) for abort in aborts),
        batches=placed,
    )


def upload_of(number: int = 0, *, partition: int = 7) -> SegmentUpload:
    """Return an upload. Uploads with other numbers have other segment ids."""
    return SegmentUpload(
        cluster_id=NAMES.cluster_id,
        topic=NAMES.topic,
        topic_id=TOPIC_ID,
        partition=partition,
        segment_id=UUID(int=number) if number else SEGMENT_ID,
        partition_count=8,
        topic_settings={"remote.storage.enable": "true"},
        broker_id=NodeId(3),
        event_timestamp_ms=1_795_000_000_123,
    )
