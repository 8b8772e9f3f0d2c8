"""`ottla tier restore`: creates a new local cluster with the topics whose segments are in a bucket.

The former cluster must not exist any longer, because its clients would find two clusters with the
same topics. The bucket is only read. The new cluster has a new cluster id. Topics keep their ids,
settings, offsets and leader epochs, and all their records are copied to the new cluster's disks.
"""

import argparse
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import trio

from ottla.cli.cluster.cluster_file import ClusterPlan, ListedNode, make_plan
from ottla.cli.cluster.cluster_format import format_plan
from ottla.cli.common import counted, print_json, run_async
from ottla.cli.confirmation import confirm_in_loop
from ottla.cli.main import OK
from ottla.cli.tables import ByteCount, print_table
from ottla.cli.terminal import note
from ottla.cli.tier.adopted_logs_driver import (
    RestoredMetadataTopic,
    entries_of,
    write_adopted_logs,
)
from ottla.cli.tier.progress_line import BucketProgress
from ottla.cli.tier.restore_plan import RestorePlan, first_records, plan_restore, replicas_of
from ottla.cli.tier.restored_files_driver import write_logs
from ottla.cli.tier.restored_nodes_driver import read_node, restore_nodes
from ottla.cli.tier.store_options import Bucket, open_bucket
from ottla.metadata.records import Record
from ottla.model.amounts import amount, moment
from ottla.model.errors import ConfigError, CorruptDataError
from ottla.model.ids import NodeId, parse_node_id
from ottla.node.clock_driver import RealRng
from ottla.node.identity import format_directories
from ottla.node.local.private_files_driver import restrict_umask
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.tier.bucket_driver import read_manifests, read_partition, scan_bucket
from ottla.storage.tier.manifest import SegmentManifest
from ottla.storage.tier.stored_partition import StoredPartition

QUIET_MS = 3_600_000
"""Minimum time in ms since the last upload before the former cluster is assumed to be gone. With
usual settings (`segment.ms`, `segment.bytes`), a cluster with traffic uploads at least once an
hour."""
REPLICAS_DEFAULT = 3
COLUMNS = ("TOPIC", "PARTITIONS", "SEGMENTS", "SIZE", "RECORDS")


class BucketContent(NamedTuple):
    """Manifests of the segments in a bucket, and the log of each partition."""

    manifests: list[SegmentManifest]
    logs: Mapping[tuple[UUID, int], StoredPartition]
    newest_ms: int
    """Time at which the newest object was written, by the store's clock, in ms since 1970."""


def run(arguments: argparse.Namespace) -> int:
    """`ottla tier restore`: write the directories of a new local cluster. Returns the exit code."""
    restrict_umask()
    nodes = [read_node(path) for path in arguments.node]
    brokers = _broker_ids(arguments)
    directory = Path(arguments.into or "")
    if not nodes and directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError("--into", f"{directory} is not empty; name a new directory")

    async def body() -> int:
        async with open_bucket(arguments) as bucket:
            content = await _read(bucket, arguments.topic)
            _check_is_gone(bucket, content, arguments)
            plan = plan_restore(
                content.manifests,
                content.logs,
                names=arguments.topic,
                has_tier=arguments.in_place,
                may_lack_records=arguments.allow_missing,
            )
            _show(plan, arguments)
            if not plan.topics:
                raise ConfigError("--uri", "there are no topics in this bucket")
            question = (
                f"the last upload of cluster {bucket.cluster_id} was at "
                f"{moment(content.newest_ms)}; is the cluster gone, and restore its topics?"
            )
            if not await confirm_in_loop(arguments, question):
                return OK
            if nodes:
                await restore_nodes(
                    bucket,
                    plan,
                    content.manifests,
                    nodes,
                    brokers,
                    replication_factor=arguments.replication_factor,
                    is_in_place=arguments.in_place,
                )
                note("restored; start the nodes once this is done on all machines")
                return OK
            await restore(bucket, plan, content.manifests, directory, arguments)
        note(f"restored; start the cluster with 'ottla up --dir {directory}'")
        return OK

    return run_async(body)


def _broker_ids(arguments: argparse.Namespace) -> list[NodeId]:
    """Return the ids in --broker-ids, which belongs to --node."""
    text = arguments.broker_ids or ""
    if bool(text) != bool(arguments.node):
        raise ConfigError(
            "--broker-ids", "and --node belong together: name all brokers of the new cluster"
        )
    found = [parse_node_id(part.strip()) for part in text.split(",") if part.strip()]
    if None in found or len(set(found)) != len(found):
        raise ConfigError("--broker-ids", f"is {text!r}; it must be different ids, such as 1,2,3")
    return sorted(one for one in found if one is not None)


async def restore(
    bucket: Bucket,
    plan: RestorePlan,
    manifests: Sequence[SegmentManifest],
    directory: Path,
    arguments: argparse.Namespace,
) -> None:
    """Write the directories of a new local cluster with the restored topics. `cluster.json` is
    written last, so that the cluster cannot be started after an interrupted restore."""
    cluster = make_plan(
        directory,
        host=arguments.host,
        port=arguments.port,
        controllers=arguments.controllers,
        brokers=arguments.brokers,
    )
    brokers = [NodeId(node.id) for node in cluster.brokers]
    factor = arguments.replication_factor or min(REPLICAS_DEFAULT, len(brokers))
    placements = plan.placements(brokers, factor)
    records = first_records(plan, placements)
    if arguments.in_place:
        cluster.cluster_id = bucket.cluster_id
        cluster.tier_uri = bucket.uri
        topic = RestoredMetadataTopic(
            RealRng().uuid(), brokers, min(REPLICAS_DEFAULT, len(brokers))
        )
        records += topic.first_records(min_insync_replicas=cluster.min_insync_replicas)
        topic_ids = {one.topic_id for one in plan.topics}
        entries = entries_of(one for one in manifests if one.topic_id in topic_ids)
        for node in cluster.brokers:
            logs = replicas_of(plan, placements, NodeId(node.id))
            own = {
                at: rows for at, rows in entries.items() if NodeId(node.id) in topic.replicas(at)
            }
            async with _formatted_disk(cluster, node) as disk:
                await write_adopted_logs(disk, bucket.store, node.dir, logs, own, topic.topic_id)
    else:
        _check_room(plan.size_bytes * factor, directory)
        with BucketProgress("restoring records", "bytes", plan.size_bytes * factor) as line:
            for node in cluster.brokers:
                logs = replicas_of(plan, placements, NodeId(node.id))
                async with _formatted_disk(cluster, node) as disk:
                    await write_logs(disk, bucket.store, node.dir, logs, on_bytes=line.advance)
    await trio.to_thread.run_sync(_finish, cluster, records)


def _check_room(size_bytes: int, directory: Path) -> None:
    free_bytes = shutil.disk_usage(directory).free
    if size_bytes > free_bytes:
        raise ConfigError(
            "--into",
            f"{amount(size_bytes)} are needed, and {directory} has {amount(free_bytes)} free; "
            "choose another disk, fewer topics with --topic, or --in-place",
        )


@asynccontextmanager
async def _formatted_disk(cluster: ClusterPlan, node: ListedNode) -> AsyncIterator[Disk]:
    """Format the log directory of a broker, and yield the disk on which it is."""
    async with RealDisk() as disk:
        await format_directories(
            disk,
            {node.dir: RealRng().uuid()},
            cluster_id=cluster.cluster_id,
            node_id=NodeId(node.id),
        )
        yield disk


def _finish(cluster: ClusterPlan, records: Sequence[Record]) -> None:
    cluster.write_properties()
    format_plan(cluster, records)


async def _read(bucket: Bucket, topics: Sequence[str]) -> BucketContent:
    with BucketProgress("listing the bucket", "objects") as line:
        scan = await scan_bucket(bucket.store, bucket.cluster_id, on_object=line.advance)
    segments = [
        one
        for one in scan.segments
        if one.has_manifest and (not topics or one.names.topic in topics)
    ]
    with BucketProgress("reading manifests", "manifests", len(segments)) as line:
        manifests, flaws = await read_manifests(bucket.store, segments, on_manifest=line.advance)
    for flaw in flaws[:10]:
        note(f"ottla tier: {flaw.problem}")
    if flaws:
        raise CorruptDataError(f"{counted(len(flaws), 'manifest')}; see 'ottla tier verify'")
    partitions: dict[tuple[UUID, int], list[SegmentManifest]] = {}
    for manifest in manifests:
        partitions.setdefault((manifest.topic_id, manifest.partition), []).append(manifest)
    logs = {at: await read_partition(bucket.store, own) for at, own in partitions.items()}
    return BucketContent(manifests, logs, scan.newest_ms)


def _check_is_gone(bucket: Bucket, content: BucketContent, arguments: argparse.Namespace) -> None:
    """Raise ConfigError if the former cluster may still be in use."""
    age_ms = time.time_ns() // 1_000_000 - content.newest_ms
    if arguments.in_place and not arguments.old_cluster_is_gone:
        raise ConfigError(
            "--in-place",
            "makes the new cluster the owner of the bucket: the former one would delete its "
            "segments; make sure that it never starts again, and add --old-cluster-is-gone",
        )
    if age_ms < QUIET_MS and not arguments.old_cluster_is_gone:
        raise ConfigError(
            "--uri",
            f"cluster {bucket.cluster_id} uploaded at {moment(content.newest_ms)} and may still be "
            "in use; stop it, and add --old-cluster-is-gone",
        )


def _show(plan: RestorePlan, arguments: argparse.Namespace) -> None:
    rows = [
        (
            topic.name,
            topic.partition_count,
            sum(len(log.pieces) for log in topic.logs.values()),
            ByteCount(topic.size_bytes),
            sum(log.end_offset - log.start_offset for log in topic.logs.values()),
        )
        for topic in plan.topics
    ]
    if arguments.format == "json":
        names = ("topic", "partitions", "segments", "size_bytes", "records")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        print_table(COLUMNS, rows)
    for text in plan.notes:
        note(text)
