"""Benchmark of tiered storage without a broker: the upload of two segments into a directory, and
reads by a consumer. The consumer reads the two segments alternately, as if each continued the
other.

The object store has the latency of a store in the same region. Its bandwidth is limited to 100
MB/s, or not limited. The cache in memory is smaller than a segment, and there is no cache on disk,
so that every byte is read from the store.
"""

import resource
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import trio

from ottla.bench.load import Progress
from ottla.bench.tier.held_loop import HeldLoop
from ottla.bench.tier.limited_store import LimitedStore
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.producers.producer_snapshot import encode_snapshot
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.segments.indexes import OffsetIndex, TimeIndex
from ottla.storage.tier.counted_store import CountedStore, RequestKind, StoreTraffic
from ottla.storage.tier.obstore_driver import PART_BYTES, open_object_store
from ottla.storage.tier.reads.reader_limits import ReaderLimits
from ottla.storage.tier.reads.remote_reader_driver import RemoteReader, open_remote_reader
from ottla.storage.tier.remote_segment import RemoteSegment
from ottla.storage.tier.segment_upload_driver import SegmentUpload, upload_segment
from ottla.storage.tier.store_seam import ObjectStore
from ottla.storage.tier.store_settings import StoreSettings
from ottla.wire.batch import PREFIX
from ottla.wire.batch_builder import build_batch

Figures = dict[str, Any]

MB = 1_000_000
SEGMENT_BYTES = 500 * MB
READ_BYTES = 1 << 20
"""Maximum number of bytes that one read returns: the default of max.partition.fetch.bytes."""
LIMIT_BYTES_PER_S = 100 * MB
LATENCY_S = 0.02
RECORDS_PER_BATCH = 16
RECORD_BYTES = 1000
INDEX_INTERVAL_BYTES = 4096
TOPIC = "bench"
CLUSTER = "bench"


class RepeatedBatches:
    """A segment that repeats one batch with increasing offsets. Implements the protocol
    `SegmentSource` without a file."""

    def __init__(self, base_offset: int) -> None:
        self._batch = build_batch(
            [(1_700_000_000_000, None, b"x" * RECORD_BYTES)] * RECORDS_PER_BATCH,
            leader_epoch=Epoch(0),
        )
        self._count = SEGMENT_BYTES // len(self._batch)
        self.base_offset = Offset(base_offset)
        self.end_offset = Offset(base_offset + self._count * RECORDS_PER_BATCH)
        self.size_bytes = self._count * len(self._batch)
        self.max_timestamp_ms = 1_700_000_000_000
        self.epochs: Sequence[EpochEntry] = (EpochEntry(Epoch(0), Offset(0)),)

    async def read_log(self, start: int, end: int) -> bytes:
        """Return the bytes `[start, end)` of the batches."""
        await trio.lowlevel.checkpoint()
        size = len(self._batch)
        first = start // size
        batches = bytearray()
        for at in range(first, (end - 1) // size + 1):
            prefix = PREFIX.pack(self.base_offset + at * RECORDS_PER_BATCH, size - 12, 0)
            batches += prefix + self._batch[PREFIX.size :]
        return bytes(batches[start - first * size : end - first * size])

    async def offset_index(self) -> bytes:
        """Return an offset index in Kafka's format, with one entry about every INDEX_INTERVAL_BYTES
        bytes."""
        entry = OffsetIndex.entry_bytes // 2
        size = len(self._batch)
        every = INDEX_INTERVAL_BYTES // size + 1
        return b"".join(
            (at * RECORDS_PER_BATCH + RECORDS_PER_BATCH - 1).to_bytes(entry, "big")
            + (at * size).to_bytes(entry, "big")
            for at in range(every, self._count, every)
        )

    async def time_index(self) -> bytes:
        """Return a time index in Kafka's format with a single entry."""
        return self.max_timestamp_ms.to_bytes(8, "big") + bytes(TimeIndex.entry_bytes - 8)

    async def transaction_index(self) -> bytes:
        """Return an empty transaction index, because no transaction is aborted."""
        return b""

    async def producer_snapshot(self) -> bytes:
        """Return a producer snapshot without producers."""
        return encode_snapshot(ProducerStates(self.end_offset))


def tier_transfer(rounds: int, progress: Progress) -> Figures:
    """Measure uploads and sequential reads of segments. Returns the measured values by name.

    Each of the `rounds` reads one segment of 500 MB. All rounds run first with the limited
    bandwidth, then without a limit."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        return trio.run(partial(_measured, Path(directory), rounds, progress))


async def _measured(directory: Path, rounds: int, progress: Progress) -> Figures:
    (directory / "store").mkdir()
    settings = StoreSettings(uri=f"file://{directory}/store")
    figures: Figures = {"limit_mb_per_s": LIMIT_BYTES_PER_S // MB, "latency_ms": LATENCY_S * 1000}
    async with open_object_store(settings) as store:
        held = HeldLoop()
        trio.lowlevel.add_instrument(held)
        began_at, cpu_at_start = time.monotonic(), time.process_time()
        first = RepeatedBatches(0)
        second = RepeatedBatches(first.end_offset)
        traffic = StoreTraffic()
        counted = CountedStore(store, traffic, part_bytes=PART_BYTES)
        segments = [await _uploaded(counted, source) for source in (first, second)]
        size = sum(segment.size_bytes for segment in segments)
        gigabytes = size / 1000 / MB
        figures["upload_puts_per_gb"] = round(traffic.requests[RequestKind.PUT] / gigabytes)
        figures["upload_heads_per_gb"] = round(traffic.requests[RequestKind.HEAD] / gigabytes)
        figures["stored_ratio"] = round(traffic.sent_bytes / size, 5)
        figures["upload_mb_per_s"] = round(size / MB / (time.monotonic() - began_at))
        cpu_s = time.process_time() - cpu_at_start
        figures["upload_cpu_s_per_gb"] = round(cpu_s * 1000 * MB / size, 2)
        figures["upload_longest_hold_ms"] = round(held.longest_s * 1000, 1)
        for name, limit in (("limited", LIMIT_BYTES_PER_S), ("unlimited", None)):
            held.longest_s = 0.0
            limited = LimitedStore(store, bytes_per_s=limit, latency_s=LATENCY_S)
            figures |= await _reads(directory, name, limited, segments, rounds, progress)
            figures[f"{name}_longest_hold_ms"] = round(held.longest_s * 1000, 1)
        figures["limited_ratio"] = round(figures["limited_mb_per_s"] * MB / LIMIT_BYTES_PER_S, 3)
    figures["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return figures


async def _uploaded(store: ObjectStore, source: RepeatedBatches) -> RemoteSegment:
    upload = SegmentUpload(
        cluster_id=CLUSTER,
        topic=TOPIC,
        topic_id=UUID(int=1),
        partition=0,
        segment_id=UUID(int=1 + source.base_offset),
        partition_count=1,
        topic_settings={},
        broker_id=NodeId(1),
        event_timestamp_ms=0,
    )
    return (await upload_segment(store, source, upload)).remote_segment


async def _reads(
    directory: Path,
    name: str,
    store: ObjectStore,
    segments: Sequence[RemoteSegment],
    rounds: int,
    progress: Progress,
) -> Figures:
    async with open_remote_reader(
        store,
        RealDisk([str(directory)]),
        f"{directory}/cache-{name}",
        cluster_id=CLUSTER,
        limits=ReaderLimits(chunk_file_bytes=0),
        errors=UnexpectedErrors(),
    ) as reader:
        began_at, began_cpu = time.monotonic(), time.process_time()
        read_bytes = 0
        for index in range(rounds):
            at = index % len(segments)
            following = segments[(index + 1) % len(segments)]
            read_bytes += await _read(reader, segments[at], following)
            progress(index + 1)
        seconds = time.monotonic() - began_at
        cpu_s = time.process_time() - began_cpu
        return {
            f"{name}_read_mb": read_bytes // MB,
            f"{name}_mb_per_s": round(read_bytes / MB / seconds, 1),
            f"{name}_cpu_s_per_gb": round(cpu_s * 1000 * MB / read_bytes, 2),
            f"{name}_requests_per_gb": round(reader.counts.gets * 1000 * MB / read_bytes),
            f"{name}_fetched_ratio": round(reader.counts.fetched_bytes / read_bytes, 3),
        }


async def _read(reader: RemoteReader, segment: RemoteSegment, following: RemoteSegment) -> int:
    """Read all records of a segment, and return the number of bytes."""
    read_bytes, offset = 0, segment.start_offset
    while offset <= segment.end_offset:
        found = await reader.read(
            TOPIC,
            segment,
            offset,
            end_offset=Offset(segment.end_offset + 1),
            bytes_max=READ_BYTES,
            following=following,
        )
        read_bytes += len(found.records)
        offset = found.end_offset
    return read_bytes
