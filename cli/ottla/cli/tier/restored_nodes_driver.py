"""Restores topics into the formatted nodes of a new cluster, which have never been started.

The command runs on each machine with the settings files of its nodes. All runs compute the same
replicas, ids and metadata records, because the bucket no longer changes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid5

from ottla.cli.cluster.server.combined_config import load_combined_config
from ottla.cli.tier.adopted_logs_driver import restored_metadata_topic, write_adopted_logs
from ottla.cli.tier.internal_topics_driver import write_internal_logs
from ottla.cli.tier.progress_line import BucketProgress
from ottla.cli.tier.restore_plan import RestorePlan, first_records, replicas_of
from ottla.cli.tier.restored_files_driver import CheckpointedLogs, write_logs
from ottla.cli.tier.restored_groups import RestoredGroups
from ottla.cli.tier.store_options import Bucket
from ottla.metadata.records import Record
from ottla.model.errors import ConfigError
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.controller import load_controller_config
from ottla.model.settings.roles import BOTH, BROKER, CONTROLLER, roles_of
from ottla.node.identity import add_first_records, read_meta_properties
from ottla.node.properties import parse_properties
from ottla.storage.disk.directory_names import (
    METADATA_DIRECTORY,
    DirectoryKind,
    parse_directory_name,
)
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.tier.manifest import SegmentManifest
from ottla.storage.tier.stored_partition import StoredPartition

NODE = "--node"
METADATA_TOPIC_IDS = UUID("5f0f3c5e-64c5-4c0b-a4c4-9fd5d32a6f25")
"""Namespace of the topic ids of `__remote_log_metadata` in restored clusters."""
OFFSETS_TOPIC_IDS = UUID("6d1cf0f4-2f0a-4d2b-9a35-0b7e0f5b9a11")
"""Namespace of the topic ids of `__consumer_offsets` in restored clusters."""
REPLICAS_DEFAULT = 3

Logs = Mapping[TopicPartition, tuple[UUID, StoredPartition]]


class FormattedNode(NamedTuple):
    """A node of the new cluster on this machine."""

    node_id: NodeId
    log_dirs: tuple[str, ...]
    """Log directories; empty for a controller."""
    metadata_log_dir: str | None
    """Directory of the metadata log; None for a broker."""


def read_node(path: str) -> FormattedNode:
    """Return the node whose settings are in a file. Raises ConfigError if the file does not exist
    or is invalid."""
    try:
        texts = parse_properties(Path(path).read_text())
    except FileNotFoundError:
        raise ConfigError(NODE, f"{path} is not there") from None
    roles = roles_of(texts, BROKER)
    if roles == BOTH:
        both = load_combined_config(texts)[0]
        return FormattedNode(
            both.controller.node_id, both.log_dirs, both.controller.metadata_log_dir
        )
    if CONTROLLER in roles:
        controller = load_controller_config(texts)[0]
        return FormattedNode(controller.node_id, (), controller.metadata_log_dir)
    broker = load_broker_config(texts)[0]
    return FormattedNode(broker.node_id, tuple(broker.log_dirs), None)


async def restore_nodes(
    bucket: Bucket,
    plan: RestorePlan,
    manifests: Sequence[SegmentManifest],
    groups: RestoredGroups,
    nodes: Sequence[FormattedNode],
    brokers: Sequence[NodeId],
    *,
    replication_factor: int | None,
    is_in_place: bool,
) -> None:
    """Write the restored topics into the directories of nodes. `brokers` are all brokers of the new
    cluster.

    Raises ConfigError if a directory is not formatted or has been used. If the records stay in the
    bucket, also raises ConfigError if a directory belongs to another cluster than the bucket. After
    an error, no file has been written.
    """
    most = min(REPLICAS_DEFAULT, len(brokers))
    placements = plan.placements(brokers, replication_factor or most)
    records = first_records(plan, placements)
    internal = []
    if groups.offsets:
        topic_id = uuid5(OFFSETS_TOPIC_IDS, bucket.cluster_id)
        internal.append(groups.topic(topic_id=topic_id, brokers=brokers, replication_factor=most))
    if is_in_place:
        internal.append(
            restored_metadata_topic(
                manifests,
                topic_id=uuid5(METADATA_TOPIC_IDS, bucket.cluster_id),
                brokers=brokers,
                replication_factor=most,
                min_insync_replicas=2 if most == REPLICAS_DEFAULT else 1,
            )
        )
    for topic in internal:
        records += topic.first_records()
    async with RealDisk() as disk:
        for node in nodes:
            await _check_unused(disk, node, bucket.cluster_id if is_in_place else None)
            if node.log_dirs and node.node_id not in brokers:
                raise ConfigError("--broker-ids", f"lacks broker {node.node_id}, a {NODE}")
        own = [(node, replicas_of(plan, placements, node.node_id)) for node in nodes]
        size = sum(
            piece.manifest.size_bytes
            for node, logs in own
            for _, log in (logs.values() if node.log_dirs else ())
            for piece in log.pieces
        )
        with BucketProgress("restoring records", "bytes", 0 if is_in_place else size) as line:
            for node, logs in own:
                for index, log_dir in enumerate(node.log_dirs):
                    count = len(node.log_dirs)
                    mine, done = _share(logs, index, count), CheckpointedLogs()
                    if is_in_place:
                        await write_adopted_logs(disk, bucket.store, log_dir, mine, done)
                    else:
                        await write_logs(
                            disk, bucket.store, log_dir, mine, done, on_bytes=line.advance
                        )
                    kept = [topic.logs_of(node.node_id, index, count) for topic in internal]
                    await write_internal_logs(disk, log_dir, kept, done)
                    await done.write(disk, log_dir)
        await _add_records(disk, nodes, records)


async def _add_records(
    disk: Disk, nodes: Sequence[FormattedNode], records: Sequence[Record]
) -> None:
    """Add the topics' metadata records to the initial records of the nodes that are controllers."""
    for node in nodes:
        if node.metadata_log_dir is not None:
            await add_first_records(disk, node.metadata_log_dir, records)


def _share(logs: Logs, index: int, count: int) -> Logs:
    """Return the logs that belong into one log directory of a broker. `index` is the number of the
    directory, and `count` the number of log directories."""
    return {
        at: log for number, (at, log) in enumerate(sorted(logs.items())) if number % count == index
    }


async def _check_unused(disk: Disk, node: FormattedNode, cluster_id: str | None) -> None:
    """Raise ConfigError if a directory of a node is not formatted or has been used before."""
    for path in dict.fromkeys((*node.log_dirs, *filter(None, (node.metadata_log_dir,)))):
        found = await read_meta_properties(disk, path)
        if found is None:
            raise ConfigError(NODE, f"{path} is not formatted; see 'ottla storage format'")
        if cluster_id is not None and found.cluster_id != cluster_id:
            raise ConfigError(
                NODE,
                f"{path} belongs to cluster {found.cluster_id}; --in-place needs the id of the "
                f"former one: format with --cluster-id {cluster_id}",
            )
        names = await disk.listdir(path)
        if any(parse_directory_name(one).kind is DirectoryKind.LOG for one in names):
            raise ConfigError(NODE, f"{path} has logs already; format new directories")
    if node.metadata_log_dir is not None:
        metadata = f"{node.metadata_log_dir}/{METADATA_DIRECTORY}"
        if any(one.endswith(".log") for one in await disk.listdir(metadata)):
            raise ConfigError(NODE, f"controller {node.node_id} was started; format it again")
