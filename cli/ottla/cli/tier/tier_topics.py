"""`ottla tier topics`: lists the topics whose segments are in a bucket."""

import argparse
from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.cli.common import counted, print_json, run_async
from ottla.cli.main import OK, UNHEALTHY
from ottla.cli.tables import ByteCount, Identifier, Moment, print_table
from ottla.cli.terminal import note
from ottla.cli.tier.progress_line import BucketProgress
from ottla.cli.tier.store_options import Bucket, open_bucket
from ottla.model.amounts import amount
from ottla.model.ids import uuid_text
from ottla.storage.tier.bucket_driver import read_manifests, scan_bucket
from ottla.storage.tier.bucket_scan import BucketScan, ListedSegment
from ottla.storage.tier.manifest import SegmentManifest
from ottla.storage.tier.stored_partition import newest_segment

COLUMNS = ("TOPIC", "ID", "PARTITIONS", "SEGMENTS", "SIZE", "RECORDS", "UPLOADED")


class BucketTopic(NamedTuple):
    """A topic with segments in a bucket, and the number and size of these segments."""

    topic: str
    topic_id: str
    partition_count: int
    segment_count: int
    size_bytes: int
    offset_count: int
    """Sum over all partitions of the number of offsets from the first to the last uploaded
    offset."""
    uploaded_ms: int
    """Time of the last upload by the broker's clock, in ms since the Unix epoch."""
    settings: Mapping[str, str]
    """Settings of the topic at the time of the last upload."""


def run(arguments: argparse.Namespace) -> int:
    """`ottla tier topics`: print the topics in a bucket. Returns the exit code, which is 2 if a
    manifest is damaged."""

    async def body() -> int:
        async with open_bucket(arguments) as bucket:
            return await _list(bucket, arguments)

    return run_async(body)


async def _list(bucket: Bucket, arguments: argparse.Namespace) -> int:
    with BucketProgress("listing the bucket", "objects") as line:
        scan = await scan_bucket(bucket.store, bucket.cluster_id, on_object=line.advance)
    topics = scan.by_topic()
    last = [
        one for partitions in topics.values() for own in partitions.values() for one in _last(own)
    ]
    with BucketProgress("reading manifests", "manifests", len(last)) as line:
        manifests, flaws = await read_manifests(bucket.store, last, on_manifest=line.advance)
    rows = _rows(scan, manifests)
    if arguments.format == "json":
        print_json([_as_json(row) for row in rows])
    else:
        print_table(COLUMNS, [_cells(row) for row in rows])
    for flaw in flaws[:10]:
        note(f"ottla tier: {flaw.problem}")
    for text in notes_of(scan):
        note(text)
    return UNHEALTHY if flaws else OK


def notes_of(scan: BucketScan) -> list[str]:
    """Return sentences about the objects in a bucket that are not part of a complete upload."""
    notes = []
    if incomplete := scan.incomplete():
        size = amount(sum(one.size_bytes for one in incomplete))
        notes.append(
            f"{counted(len(incomplete), 'upload')} of {size} without a manifest: under way, or "
            "interrupted"
        )
    if scan.unknown_count:
        sample = ", ".join(scan.unknown_sample)
        notes.append(f"{counted(scan.unknown_count, 'object')} of no segment, such as {sample}")
    return notes


def _last(segments: list[ListedSegment]) -> list[ListedSegment]:
    """Return the segments with the highest start offset in a partition. One of these segments is
    the end of the partition's log."""
    highest = segments[-1].names.start_offset
    return [one for one in segments if one.names.start_offset == highest]


def _rows(scan: BucketScan, manifests: list[SegmentManifest]) -> list[BucketTopic]:
    newest: dict[tuple[str, str], dict[int, list[SegmentManifest]]] = {}
    for one in manifests:
        own = newest.setdefault((one.topic, str(one.topic_id)), {})
        own.setdefault(one.partition, []).append(one)
    rows = []
    for key, partitions in scan.by_topic().items():
        ends = {partition: newest_segment(own) for partition, own in newest.get(key, {}).items()}
        if not ends:
            continue
        latest = max(ends.values(), key=lambda one: (one.event_timestamp_ms, one.segment_id))
        rows.append(
            BucketTopic(
                topic=latest.topic,
                topic_id=uuid_text(latest.topic_id),
                partition_count=max(one.partition_count for one in ends.values()),
                segment_count=sum(map(len, partitions.values())),
                size_bytes=sum(one.log_bytes for own in partitions.values() for one in own),
                offset_count=sum(
                    end.end_offset + 1 - partitions[partition][0].names.start_offset
                    for partition, end in ends.items()
                ),
                uploaded_ms=latest.event_timestamp_ms,
                settings=latest.topic_settings,
            )
        )
    return rows


def _cells(row: BucketTopic) -> tuple[object, ...]:
    return (
        row.topic,
        Identifier(row.topic_id),
        row.partition_count,
        row.segment_count,
        ByteCount(row.size_bytes),
        row.offset_count,
        Moment(row.uploaded_ms),
    )


def _as_json(row: BucketTopic) -> dict[str, Any]:
    return {
        "topic": row.topic,
        "id": row.topic_id,
        "partitions": row.partition_count,
        "segments": row.segment_count,
        "size_bytes": row.size_bytes,
        "records": row.offset_count,
        "uploaded_ms": row.uploaded_ms,
        "settings": dict(row.settings),
    }
