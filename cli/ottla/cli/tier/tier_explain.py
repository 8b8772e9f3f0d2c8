"""`ottla tier explain`: shows which segments in a bucket contain the records of a partition, and
why the other segments are not used."""

import argparse
from collections.abc import Iterator

from ottla.cli.common import print_json, run_async
from ottla.cli.main import OK, UNHEALTHY
from ottla.cli.tables import ByteCount, Identifier, Moment, print_table
from ottla.cli.terminal import note, say
from ottla.cli.tier.store_options import open_bucket
from ottla.cli.tier.stored_log import parse_partition, read_log
from ottla.model.ids import uuid_text
from ottla.storage.tier.bucket_driver import ManifestFlaw
from ottla.storage.tier.lineage import Lineage
from ottla.storage.tier.manifest import SegmentManifest
from ottla.storage.tier.stored_partition import StoredPartition

COLUMNS = ("OFFSETS", "SEGMENT", "SIZE", "EPOCHS", "BROKER", "UPLOADED", "USE")


def run(arguments: argparse.Namespace) -> int:
    """`ottla tier explain`: print the segments of a partition. Returns the exit code, which is 2 if
    records are missing."""
    topic, partition = parse_partition(arguments.partition)

    async def body() -> int:
        async with open_bucket(arguments) as bucket:
            log, flaws = await read_log(bucket, topic, partition)
        rows = list(_rows(log))
        if arguments.format == "json":
            print_json(_as_json(log, rows, flaws))
        else:
            say(f"{topic}:{partition} of cluster {bucket.cluster_id}")
            print_table(COLUMNS, [_cells(one, use) for one, use in rows])
            for start, end in log.gaps:
                note(f"offsets {start} to {end - 1} are in no segment")
            for flaw in flaws:
                note(flaw.problem)
        return UNHEALTHY if log.gaps or flaws else OK

    return run_async(body)


def _rows(log: StoredPartition) -> Iterator[tuple[SegmentManifest, str]]:
    """Yield each segment of the partition, with a text about its use. The text is the range of
    offsets that the log reads from the segment, or the reason why the log does not use the
    segment."""
    for piece in log.pieces:
        yield (
            piece.manifest,
            "whole" if piece.is_whole else f"{piece.start_offset} to {piece.end_offset - 1}",
        )
    lineage = Lineage(log.epochs, start_offset=log.start_offset, end_offset=log.end_offset)
    for manifest in log.unused:
        is_same = lineage.contains(manifest.remote_segment)
        yield manifest, "none: a copy" if is_same else "none: of another lineage"


def _cells(one: SegmentManifest, use: str) -> tuple[object, ...]:
    epochs = [int(entry.epoch) for entry in one.leader_epochs]
    return (
        f"{one.start_offset} to {one.end_offset}",
        Identifier(uuid_text(one.segment_id)),
        ByteCount(one.size_bytes),
        epochs,
        one.broker_id,
        Moment(one.event_timestamp_ms),
        use,
    )


def _as_json(
    log: StoredPartition, rows: list[tuple[SegmentManifest, str]], flaws: list[ManifestFlaw]
) -> dict[str, object]:
    return {
        "start_offset": log.start_offset,
        "end_offset": log.end_offset,
        "epochs": [list(entry) for entry in log.epochs],
        "segments": [
            {
                "id": uuid_text(one.segment_id),
                "start_offset": one.start_offset,
                "end_offset": one.end_offset,
                "size_bytes": one.size_bytes,
                "leader_epochs": [list(entry) for entry in one.leader_epochs],
                "broker": one.broker_id,
                "uploaded_ms": one.event_timestamp_ms,
                "use": use,
            }
            for one, use in rows
        ],
        "gaps": [[start, end] for start, end in log.gaps],
        "flaws": [flaw.problem for flaw in flaws],
    }
