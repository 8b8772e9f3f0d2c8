"""`ottla tier verify`: checks that the segments in a bucket are complete and can be restored.

The listing, all manifests, the sizes of all objects and the leader epochs of each partition are
checked. With --full, all indexes and records are read and compared with their CRCs. Exit code 0, or
2 if a segment is damaged or records are missing.
"""

import argparse
from typing import NamedTuple

from ottla.cli.common import counted, print_json, run_async
from ottla.cli.main import OK, UNHEALTHY
from ottla.cli.tables import print_table
from ottla.cli.terminal import note, say
from ottla.cli.tier.progress_line import BucketProgress
from ottla.cli.tier.store_options import Bucket, open_bucket
from ottla.cli.tier.tier_topics import notes_of
from ottla.model.amounts import amount
from ottla.model.errors import CorruptDataError
from ottla.storage.tier.bucket_driver import (
    log_ranges,
    problem_in,
    read_index,
    read_manifests,
    read_partition,
    scan_bucket,
    within_deadline,
)
from ottla.storage.tier.bucket_scan import BucketScan, ListedSegment
from ottla.storage.tier.manifest import SegmentManifest
from ottla.storage.tier.object_names import SegmentObject
from ottla.storage.tier.store_seam import ObjectNotFoundError, ObjectStore

FLAWS_MAX = 1_000
"""Maximum number of flaws (damaged or missing objects and records) that are kept and shown."""


class BucketFlaw(NamedTuple):
    """A flaw in a bucket: an object that is damaged or missing, or records that no segment
    contains."""

    partition: str
    """Topic and partition, as `topic:partition`."""
    problem: str


class BucketCheck:
    """Result of a check of a bucket: its flaws, and the number of segments that were checked."""

    def __init__(self) -> None:
        self.flaws: list[BucketFlaw] = []
        self.flaw_count = 0
        self.segment_count = 0
        self.partition_count = 0
        self.log_bytes = 0
        self.vanished_count = 0
        """Number of segments that retention deleted during the check."""
        self.unused_count = 0
        """Number of segments that no log needs, because other segments contain the same records or
        because the records were removed."""

    def add(self, partition: str, problem: str) -> None:
        """Add a flaw. Flaws beyond the first `FLAWS_MAX` are not stored."""
        self.flaw_count += 1
        if len(self.flaws) < FLAWS_MAX:
            self.flaws.append(BucketFlaw(partition, problem))


def run(arguments: argparse.Namespace) -> int:
    """`ottla tier verify`: check a bucket, and print its flaws. Returns the exit code."""

    async def body() -> int:
        async with open_bucket(arguments) as bucket:
            with BucketProgress("listing the bucket", "objects") as line:
                scan = await scan_bucket(bucket.store, bucket.cluster_id, on_object=line.advance)
            found = await verify(bucket, scan, topics=arguments.topic, is_full=arguments.full)
            return _report(bucket, scan, found, arguments)

    return run_async(body)


async def verify(
    bucket: Bucket, scan: BucketScan, *, topics: list[str], is_full: bool
) -> BucketCheck:
    """Check the segments of the topics in `topics`, or of all topics if `topics` is empty. Returns
    the result."""
    found = BucketCheck()
    segments = [
        one
        for key, partitions in scan.by_topic().items()
        if not topics or key.topic in topics
        for own in partitions.values()
        for one in own
    ]
    with BucketProgress("reading manifests", "manifests", len(segments)) as line:
        manifests, flaws = await read_manifests(bucket.store, segments, on_manifest=line.advance)
    for flaw in flaws:
        if flaw.is_missing:
            found.vanished_count += 1
        else:
            found.add(_name(flaw.segment), flaw.problem)
    listed = {one.names: one for one in segments}
    partitions: dict[tuple[str, int], list[SegmentManifest]] = {}
    for manifest in manifests:
        problems = await _problems_of_sizes(bucket.store, listed[manifest.names], manifest)
        if problems and await _is_deleted(bucket.store, manifest):
            found.vanished_count += 1
            continue
        for problem in problems:
            found.add(_name(listed[manifest.names]), problem)
        key = (str(manifest.topic_id), manifest.partition)
        partitions.setdefault(key, []).append(manifest)
    found.segment_count = len(manifests)
    found.partition_count = len(partitions)
    found.log_bytes = sum(one.size_bytes for one in manifests)
    for own in partitions.values():
        await _check_lineage(bucket.store, own, found)
    if is_full:
        with BucketProgress("reading records", "bytes", found.log_bytes) as line:
            for manifest in manifests:
                await _check_content(bucket.store, manifest, found, line)
    return found


async def _problems_of_sizes(
    store: ObjectStore, segment: ListedSegment, manifest: SegmentManifest
) -> list[str]:
    """Return the problems with the sizes of a segment's objects: an object is missing, or its size
    differs from the size in the manifest. Each difference is checked again, because the listing may
    be outdated."""
    problems = []
    wanted = {
        SegmentObject.LOG: manifest.size_bytes,
        SegmentObject.INDEXES: manifest.indexes_size_bytes,
    }
    for kind, size in wanted.items():
        if segment.sizes.get(kind) == size:
            continue
        key = manifest.names.key(kind)
        try:
            actual = (await within_deadline(store.head(key))).size_bytes
        except ObjectNotFoundError:
            problems.append(f"{key} is missing")
            continue
        if actual != size:
            problems.append(f"{key} has {actual} bytes, and {size} in its manifest")
    return problems


async def _check_lineage(
    store: ObjectStore, manifests: list[SegmentManifest], found: BucketCheck
) -> None:
    partition = f"{manifests[0].topic}:{manifests[0].partition}"
    try:
        stored = await read_partition(store, manifests)
    except CorruptDataError as error:
        found.add(partition, problem_in(error))
        return
    except ObjectNotFoundError as error:
        found.add(partition, str(error))
        return
    found.unused_count += len(stored.unused)
    for start, end in stored.gaps:
        found.add(partition, f"offsets {start} to {end - 1} are missing")


async def _check_content(
    store: ObjectStore, manifest: SegmentManifest, found: BucketCheck, line: BucketProgress
) -> None:
    partition = f"{manifest.topic}:{manifest.partition}"
    try:
        for section in manifest.index_sections:
            await read_index(store, manifest, section.kind)
        async for _ in log_ranges(store, manifest, on_bytes=line.advance):
            pass
    except CorruptDataError as error:
        found.add(partition, problem_in(error))
    except ObjectNotFoundError as error:
        if await _is_deleted(store, manifest):
            found.vanished_count += 1
        else:
            found.add(partition, str(error))


async def _is_deleted(store: ObjectStore, manifest: SegmentManifest) -> bool:
    """Return whether a segment was deleted after its manifest was read. A deletion of a segment
    starts with its manifest."""
    try:
        await within_deadline(store.head(manifest.names.key(SegmentObject.MANIFEST)))
    except ObjectNotFoundError:
        return True
    return False


def _name(segment: ListedSegment) -> str:
    return f"{segment.names.topic}:{segment.names.partition}"


def _report(
    bucket: Bucket, scan: BucketScan, found: BucketCheck, arguments: argparse.Namespace
) -> int:
    notes = notes_of(scan)
    if found.unused_count:
        notes.append(
            f"{counted(found.unused_count, 'segment')} of other leaders, whose records the logs "
            "have in other segments or not at all"
        )
    if found.vanished_count:
        notes.append(f"{counted(found.vanished_count, 'segment')} deleted during the check")
    if arguments.format == "json":
        print_json(
            {
                "cluster_id": bucket.cluster_id,
                "segments": found.segment_count,
                "partitions": found.partition_count,
                "size_bytes": found.log_bytes,
                "flaw_count": found.flaw_count,
                "flaws": [flaw._asdict() for flaw in found.flaws],
                "notes": notes,
            }
        )
    else:
        if found.flaws:
            print_table(("PARTITION", "PROBLEM"), found.flaws)
        for text in notes:
            note(text)
        whole = (
            f"{counted(found.segment_count, 'segment')} of "
            f"{counted(found.partition_count, 'partition')}, {amount(found.log_bytes)}, of cluster "
            f"{bucket.cluster_id}"
        )
        kind = "all records read" if arguments.full else "records not read: see --full"
        verdict = f"{counted(found.flaw_count, 'flaw')} in" if found.flaw_count else "sound:"
        say(f"{verdict} {whole} ({kind})")
    return UNHEALTHY if found.flaw_count else OK
