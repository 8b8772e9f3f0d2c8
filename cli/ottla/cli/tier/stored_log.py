"""Reads the log of one partition in a bucket, for commands that name a partition."""

from ottla.cli.tier.progress_line import BucketProgress
from ottla.cli.tier.store_options import Bucket
from ottla.model.errors import ConfigError
from ottla.storage.tier.bucket_driver import (
    ManifestFlaw,
    read_manifests,
    read_partition,
    scan_bucket,
)
from ottla.storage.tier.bucket_scan import ListedSegment
from ottla.storage.tier.stored_partition import StoredPartition


def parse_partition(text: str) -> tuple[str, int]:
    """Return the topic and the partition in a text such as orders:0. Raises ConfigError if the text
    has another form."""
    topic, colon, number = text.rpartition(":")
    if not colon or not topic or not (number.isascii() and number.isdigit()):
        raise ConfigError("PARTITION", f"is {text!r}; it must be TOPIC:NUMBER, such as orders:0")
    return topic, int(number)


async def read_log(
    bucket: Bucket, topic: str, partition: int
) -> tuple[StoredPartition, list[ManifestFlaw]]:
    """Return the log of a partition, and a ManifestFlaw for each of its segments whose manifest is
    missing or invalid.

    If the bucket has several topics with this name, the topic with the latest upload is read.
    Raises ConfigError if the bucket has no such topic."""
    with BucketProgress("listing the bucket", "objects") as line:
        scan = await scan_bucket(bucket.store, bucket.cluster_id, on_object=line.advance)
    found = [
        partitions[partition]
        for key, partitions in scan.by_topic().items()
        if key.topic == topic and partition in partitions
    ]
    if not found:
        raise ConfigError("PARTITION", f"{topic}:{partition} is not in the bucket")
    segments = max(found, key=_newest_ms)
    with BucketProgress("reading manifests", "manifests", len(segments)) as line:
        manifests, flaws = await read_manifests(bucket.store, segments, on_manifest=line.advance)
    if not manifests:
        raise ConfigError("PARTITION", f"{topic}:{partition} has no valid manifest in the bucket")
    return await read_partition(bucket.store, manifests), flaws


def _newest_ms(segments: list[ListedSegment]) -> int:
    return max(one.modified_ms for one in segments)
