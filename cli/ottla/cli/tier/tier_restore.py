"""`ottla tier restore`: creates a new local cluster with the topics whose segments are in a bucket.

The former cluster must not exist any longer, because its clients would find two clusters with the
same topics. The bucket is only read. The new cluster has a new cluster id. Topics keep their ids,
settings, offsets and leader epochs, and all their records are copied to the new cluster's disks.
Groups continue at the committed offsets that the former cluster uploaded last.
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

from ottla.broker.groups.offsets.uploaded_offsets import (
    OBJECT_BYTES_MAX,
    OffsetsObject,
    decode_offsets,
)
from ottla.cli.cluster.cluster_file import ClusterPlan, ListedNode, make_plan
from ottla.cli.cluster.cluster_format import format_plan
from ottla.cli.common import counted, print_json, run_async
from ottla.cli.confirmation import confirm_in_loop
from ottla.cli.main import OK
from ottla.cli.tables import ByteCount, print_table
from ottla.cli.terminal import note
from ottla.cli.tier.adopted_logs_driver import restored_metadata_topic, write_adopted_logs
from ottla.cli.tier.internal_topics_driver import write_internal_logs
from ottla.cli.tier.progress_line import BucketProgress
from ottla.cli.tier.restore_plan import RestorePlan, first_records, plan_restore, replicas_of
from ottla.cli.tier.restored_files_driver import CheckpointedLogs, write_logs
from ottla.cli.tier.restored_groups import RestoredGroups, plan_groups
from ottla.cli.tier.restored_nodes_driver import read_node, restore_nodes
from ottla.cli.tier.store_options import Bucket, open_bucket
from ottla.metadata.records import Record
from ottla.model.amounts import amount, duration, moment
from ottla.model.errors import ConfigError, CorruptDataError, NewerReleaseError
from ottla.model.ids import NodeId, parse_node_id
from ottla.node.clock_driver import RealRng
from ottla.node.identity import format_directories
from ottla.node.local.private_files_driver import restrict_umask
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.tier.bucket_driver import (
    problem_in,
    read_manifests,
    read_partition,
    scan_bucket,
    within_deadline,
)
from ottla.storage.tier.manifest import SegmentManifest
from ottla.storage.tier.store_seam import ObjectEntry, ObjectNotFoundError, ObjectRangeError
from ottla.storage.tier.stored_partition import StoredPartition

QUIET_MS = 3_600_000
"""Minimum time, in ms, since the last upload after which the command assumes that the former
cluster no longer exists. With usual settings (`segment.ms`, `segment.bytes`), a cluster with
traffic uploads at least once an hour."""
REPLICAS_DEFAULT = 3
ALIVE_MS = 600_000
"""Minimum age, in ms, of the former cluster's last heartbeat after which the command assumes that
the cluster no longer exists. A cluster writes a heartbeat each minute. With a smaller value, an
outage of the store for some minutes would make a running cluster seem gone."""
GROUPS_SHOWN = 50
"""Maximum number of groups that `ottla tier restore` shows."""
GROUP_COLUMNS = ("GROUP", "TOPICS", "PARTITIONS")
COLUMNS = ("TOPIC", "PARTITIONS", "SEGMENTS", "SIZE", "RECORDS")


class BucketContent(NamedTuple):
    """Manifests of the segments in a bucket, and the log of each partition."""

    manifests: list[SegmentManifest]
    logs: Mapping[tuple[UUID, int], StoredPartition]
    newest_ms: int
    """Time, in ms since 1970 on the store's clock, at which the newest segment was written."""
    heartbeat_ms: int
    """Time, in ms since 1970 on the store's clock, of the former cluster's last heartbeat. It is 0
    if the bucket has no heartbeat."""
    group_offsets: Sequence[OffsetsObject]
    """Committed offsets of groups in the bucket."""
    group_offsets_ms: int
    """Time, in ms since 1970, at which the newest committed offsets were written. It is 0 if the
    bucket has none."""

    def manifests_of(self, plan: RestorePlan) -> list[SegmentManifest]:
        """Return the manifests of the topics that are restored."""
        topic_ids = {one.topic_id for one in plan.topics}
        return [one for one in self.manifests if one.topic_id in topic_ids]


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
            content = await _read(bucket, arguments)
            _check_is_gone(bucket, content, arguments)
            plan = plan_restore(
                content.manifests,
                content.logs,
                names=arguments.topic,
                has_tier=arguments.in_place,
                may_lack_records=arguments.allow_missing,
            )
            groups = plan_groups(content.group_offsets, plan, now_ms=_now_ms())
            _show(plan, arguments)
            _show_groups(groups, content, arguments)
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
                    content.manifests_of(plan),
                    groups,
                    nodes,
                    brokers,
                    replication_factor=arguments.replication_factor,
                    is_in_place=arguments.in_place,
                )
                note("restored; start the nodes once this is done on all machines")
                return OK
            await restore(bucket, plan, content, groups, directory, arguments)
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
    content: BucketContent,
    groups: RestoredGroups,
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
    most = min(REPLICAS_DEFAULT, len(brokers))
    factor = arguments.replication_factor or most
    placements = plan.placements(brokers, factor)
    records = first_records(plan, placements)
    internal = []
    if groups.offsets:
        internal.append(
            groups.topic(topic_id=RealRng().uuid(), brokers=brokers, replication_factor=most)
        )
    if arguments.in_place:
        cluster.cluster_id = bucket.cluster_id
        cluster.tier_uri = bucket.uri
        internal.append(
            restored_metadata_topic(
                content.manifests_of(plan),
                topic_id=RealRng().uuid(),
                brokers=brokers,
                replication_factor=most,
                min_insync_replicas=cluster.min_insync_replicas,
            )
        )
    else:
        _check_room(plan.size_bytes * factor, directory)
    for topic in internal:
        records += topic.first_records()
    size_bytes = 0 if arguments.in_place else plan.size_bytes * factor
    with BucketProgress("restoring records", "bytes", size_bytes) as line:
        for node in cluster.brokers:
            broker = NodeId(node.id)
            logs = replicas_of(plan, placements, broker)
            done = CheckpointedLogs()
            async with _formatted_disk(cluster, node) as disk:
                if arguments.in_place:
                    await write_adopted_logs(disk, bucket.store, node.dir, logs, done)
                else:
                    await write_logs(
                        disk, bucket.store, node.dir, logs, done, on_bytes=line.advance
                    )
                own = [topic.logs_of(broker) for topic in internal]
                await write_internal_logs(disk, node.dir, own, done)
                await done.write(disk, node.dir)
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
    """Format the log directory of a broker, and yield the disk that contains the directory."""
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


async def _read(bucket: Bucket, arguments: argparse.Namespace) -> BucketContent:
    topics = arguments.topic
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
    entries = [] if arguments.without_group_offsets else scan.group_offsets
    return BucketContent(
        manifests,
        logs,
        scan.newest_ms,
        scan.heartbeat_ms,
        [one async for one in _group_offsets(bucket, entries)],
        max((entry.modified_ms for entry in entries), default=0),
    )


async def _group_offsets(
    bucket: Bucket, entries: Sequence[ObjectEntry]
) -> AsyncIterator[OffsetsObject]:
    """Yield the contents of the objects with committed offsets. Raises ConfigError if an object is
    damaged."""
    for entry in entries:
        try:
            data = await within_deadline(bucket.store.get(entry.key, 0, OBJECT_BYTES_MAX + 1))
        except ObjectNotFoundError:
            continue  # deleted since the listing
        except ObjectRangeError:
            data = b""
        try:
            yield decode_offsets(data, cluster_id=bucket.cluster_id, key=entry.key)
        except (CorruptDataError, NewerReleaseError) as error:
            raise ConfigError(
                "--uri",
                f"offsets of groups cannot be read: {problem_in(error)}; add "
                "--without-group-offsets to restore the topics alone",
            ) from None


def _check_is_gone(bucket: Bucket, content: BucketContent, arguments: argparse.Namespace) -> None:
    """Raise ConfigError if the former cluster may still be in use."""
    now_ms = _now_ms()
    if arguments.in_place and not arguments.old_cluster_is_gone:
        raise ConfigError(
            "--in-place",
            "makes the new cluster the owner of the bucket: the former one would delete its "
            "segments; make sure that it never starts again, and add --old-cluster-is-gone",
        )
    alive_ms = max(content.heartbeat_ms, content.group_offsets_ms)
    if now_ms - alive_ms < ALIVE_MS and (arguments.in_place or not arguments.old_cluster_is_gone):
        raise ConfigError(
            "--in-place" if arguments.in_place else "--uri",
            f"cluster {bucket.cluster_id} was alive at {moment(alive_ms)}, as its heartbeat in the "
            f"bucket shows; stop it, and repeat the command {duration(ALIVE_MS)} later"
            + ("" if arguments.in_place else ", or add --old-cluster-is-gone"),
        )
    if alive_ms or arguments.old_cluster_is_gone:
        return
    if now_ms - content.newest_ms < QUIET_MS:
        raise ConfigError(
            "--uri",
            f"cluster {bucket.cluster_id} uploaded at {moment(content.newest_ms)} and may still be "
            "in use; stop it, and add --old-cluster-is-gone",
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


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


def _show_groups(
    groups: RestoredGroups, content: BucketContent, arguments: argparse.Namespace
) -> None:
    """Print the groups whose committed offsets are restored. If the output is JSON, print only
    their number."""
    rows = groups.rows()
    if rows and arguments.format != "json":
        print_table(GROUP_COLUMNS, rows[:GROUPS_SHOWN])
        if len(rows) > GROUPS_SHOWN:
            note(f"… and {counted(len(rows) - GROUPS_SHOWN, 'group')}")
    if rows:
        note(f"offsets of {counted(len(rows), 'group')}, of {moment(content.group_offsets_ms)}")
    for text in groups.notes:
        note(text)
