"""Reader of topics and groups of a running cluster for a consistent backup.

The order of the steps makes the backup consistent:

1. Read the committed offsets of groups.
2. Read the end offset of each partition. No committed offset is beyond these ends.
3. Wait until the transactions that are open now have ended. All records before the ends, and the
   outputs of every transaction whose offsets were read, are then committed or aborted.
4. Use the last stable offset of each partition as its end in the backup.
"""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import trio

from ottla.cli.backup.backup_files import Manifest, PartitionFile, StoredTopic, records_path
from ottla.cli.common import counted
from ottla.cli.records.wanted_topics import WantedTopics, topics_of
from ottla.client.admin import Admin
from ottla.client.fetch.position_reads import ReadPosition, fetch_once
from ottla.client.fetch.record_decoder import RecordDecoder
from ottla.client.network.cluster import raise_for
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.resources import ConfigSource
from ottla.wire.offset_timestamps import EARLIEST, LATEST

COMMITTED_ONLY = "read_committed"
LOOK_AGAIN_S = 0.1
FAILURES_MAX = 100
NAMES_SHOWN = 3


async def create_backup(
    admin: Admin, directory: Path, names: Sequence[str], timeout_s: float
) -> Manifest:
    """Write a backup into an empty directory. Without `names`, it contains all topics that are not
    internal, and all groups with offsets in these topics.

    Raises RefusedError if a transaction stays open for longer than `timeout_s`.
    """
    started_ms = time.time_ns() // 1_000_000
    cluster_id = (await admin.cluster.metadata([])).cluster_id or ""
    topics = await topics_of(admin.cluster, WantedTopics(names or ["^"], is_regex=False))
    manifest = Manifest(cluster_id, started_ms)
    manifest.groups = await _groups(admin, set(topics))
    manifest.topics = [await _described(admin, topic) for topic in topics]
    partitions = [
        TopicPartition(one.name, index)
        for one in manifest.topics
        for index in range(len(one.counts))
    ]
    ends = await _stable_ends(admin, partitions, timeout_s)
    starts = await _offsets(admin, partitions, EARLIEST)
    for topic in manifest.topics:
        for index in range(len(topic.counts)):
            at = TopicPartition(topic.name, index)
            topic.starts[index], topic.ends[index] = starts[at], ends[at]
        await _copy(admin, directory, topic)
    manifest.write(directory)
    return manifest


async def _groups(admin: Admin, topics: set[str]) -> dict[str, dict[str, dict[str, int]]]:
    found: dict[str, dict[str, dict[str, int]]] = {}
    for group in await admin.list_groups():
        for at, one in (await admin.group_offsets(group.group_id)).items():
            if at.topic in topics and one.offset >= 0:
                of_topic = found.setdefault(group.group_id, {}).setdefault(at.topic, {})
                of_topic[str(at.partition)] = int(one.offset)
    return found


async def _described(admin: Admin, topic: str) -> StoredTopic:
    described = await admin.describe_topic(topic)
    count = len(described.partitions)
    configs = {
        key: one.value
        for key, one in (await admin.topic_configs(topic)).items()
        if one.source is ConfigSource.TOPIC and one.value is not None
    }
    return StoredTopic(
        name=topic,
        replication_factor=len(described.partitions[0].replicas),
        configs=configs,
        starts=[0] * count,
        ends=[0] * count,
        counts=[0] * count,
    )


async def _stable_ends(
    admin: Admin, partitions: Sequence[TopicPartition], timeout_s: float
) -> dict[TopicPartition, int]:
    """Wait until all records that the partitions contain now are committed or aborted. Returns the
    last stable offset of each partition."""
    present = await _offsets(admin, partitions, LATEST)
    deadline = trio.current_time() + timeout_s
    while True:
        stable = await _offsets(admin, partitions, LATEST, COMMITTED_ONLY)
        open_ = [at for at in partitions if stable[at] < present[at]]
        if not open_:
            return stable
        if trio.current_time() >= deadline:
            some = ", ".join(map(str, open_[:NAMES_SHOWN]))
            raise RefusedError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                f"transactions are open in {counted(len(open_), 'partition')} ({some}) for "
                f"{timeout_s:g} s; see 'ottla txn producers', or give more time with --timeout",
            )
        await trio.sleep(LOOK_AGAIN_S)


async def _offsets(
    admin: Admin, partitions: Iterable[TopicPartition], at: int, level: str = "read_uncommitted"
) -> dict[TopicPartition, int]:
    found = await admin.list_offsets(dict.fromkeys(partitions, at), isolation_level=level)
    return {one: int(offset.offset) for one, offset in found.items()}


async def _copy(admin: Admin, directory: Path, topic: StoredTopic) -> None:
    """Write the records of one topic into the backup, up to the end offset chosen for each
    partition."""
    decoder, failures = RecordDecoder(), 0
    files = [
        PartitionFile(records_path(directory, topic.name, index))
        for index in range(len(topic.counts))
    ]
    positions = [
        ReadPosition(topic.name, index, topic.starts[index], topic.ends[index])
        for index in range(len(topic.counts))
    ]
    while left := [one for one in positions if one.offset < topic.ends[one.partition]]:
        try:
            found, stale = await fetch_once(admin.cluster, left, COMMITTED_ONLY, decoder)
        except RefusedError as refusal:
            if refusal.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            await _skip_deleted(admin, left)
            continue
        failures = failures + 1 if stale else 0
        if failures > FAILURES_MAX:
            raise_for(stale)
        if stale:
            admin.cluster.forget_leaders()
            await trio.sleep(LOOK_AGAIN_S)
        for position, records in found:
            end = topic.ends[position.partition]
            kept = [one for one in records if position.offset <= one.offset < end]
            await trio.to_thread.run_sync(files[position.partition].add, kept)
            if records:
                position.offset = records[-1].offset + 1
    for index, file in enumerate(files):
        await trio.to_thread.run_sync(file.close)
        topic.counts[index] = file.count


async def _skip_deleted(admin: Admin, positions: Iterable[ReadPosition]) -> None:
    """Move the read position of each partition past the records that retention has deleted since
    the backup was started."""
    of = {TopicPartition(one.topic, one.partition): one for one in positions}
    for at, start in (await _offsets(admin, of, EARLIEST)).items():
        of[at].offset = max(of[at].offset, start)
