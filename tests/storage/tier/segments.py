"""Segments of tiered storage for tests."""

from uuid import UUID

from ottla.model.ids import Epoch, NodeId, Offset
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.tier.manifest import IndexKind, IndexSection, SegmentManifest
from ottla.storage.tier.object_names import CLUSTER_ID_CHARS_MAX, PARTITION_MAX, SegmentNames

TOPIC_ID = UUID("0f0e0d0c-0b0a-4908-8706-050403020100")
SEGMENT_ID = UUID("ffeeddcc-bbaa-4988-b766-554433221100")
NAMES = SegmentNames(
    cluster_id="rVyN6nEfTFCY4mGkyA7S8w",
    topic="orders",
    topic_id=TOPIC_ID,
    partition=7,
    start_offset=Offset(1200),
    segment_id=SEGMENT_ID,
)
LONGEST_NAMES = SegmentNames(
    cluster_id="c" * CLUSTER_ID_CHARS_MAX,
    topic="t" * 249,
    topic_id=TOPIC_ID,
    partition=PARTITION_MAX,
    start_offset=Offset((1 << 63) - 1),
    segment_id=SEGMENT_ID,
)
MANIFEST = SegmentManifest(
    cluster_id=NAMES.cluster_id,
    topic=NAMES.topic,
    partition_count=8,
    topic_settings={"retention.ms": "604800000", "remote.storage.enable": "true"},
    topic_id=TOPIC_ID,
    partition=NAMES.partition,
    segment_id=SEGMENT_ID,
    start_offset=NAMES.start_offset,
    end_offset=Offset(1999),
    broker_id=NodeId(3),
    max_timestamp_ms=1_795_000_000_000,
    event_timestamp_ms=1_795_000_000_123,
    size_bytes=1 << 20,
    log_crc=0xDEADBEEF,
    leader_epochs=(EpochEntry(Epoch(4), Offset(1200)), EpochEntry(Epoch(6), Offset(1500))),
    custom_metadata=b"\0\1\2",
    has_empty_transaction_index=True,
    index_sections=(
        IndexSection(IndexKind.CHECKSUMS, 0, 4, 5),
        IndexSection(IndexKind.OFFSETS, 4, 84, 1),
        IndexSection(IndexKind.TIMES, 84, 204, 2),
        IndexSection(IndexKind.PRODUCERS, 204, 214, 3),
        IndexSection(IndexKind.EPOCHS, 214, 244, 4),
    ),
)
