"""Buckets for tests: the closed segments of logs, which the project's own log wrote, with their
indexes and manifests."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid5

from ottla.model.ids import Epoch, NodeId, Offset
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import open_log
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.segments.files import (
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
    offsets_of,
)
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.tier.cluster_marker import claim_prefix
from ottla.storage.tier.manifest import SegmentManifest
from ottla.storage.tier.segment_upload_driver import SegmentUpload, upload_segment
from ottla.storage.tier.store_seam import ObjectStore
from ottla.wire.batch_builder import build_batch
from tests.storage.log.workbench import NOW_MS

CLUSTER_ID = "rVyN6nEfTFCY4mGkyA7S8w"
TOPIC_ID = UUID("0f0e0d0c-0b0a-4908-8706-050403020100")
SETTINGS = {"remote.storage.enable": "true", "retention.ms": "-1"}
SEGMENT_IDS = UUID("ffeeddcc-bbaa-4988-b766-554433221100")
CONFIG = LogConfig(segment_bytes=800, index_interval_bytes=200)


class ExampleTopic(NamedTuple):
    """A topic whose segments are put into a bucket."""

    name: str = "orders"
    topic_id: UUID = TOPIC_ID
    partition_count: int = 2
    batch_count: int = 40
    """Batches of two records in each partition, of 70 to 110 bytes."""
    settings: Mapping[str, str] = SETTINGS


def values_of(partition: int, batch_count: int) -> list[bytes]:
    """Return the values of the records of an example's partition, by offset."""
    return [
        value
        for number in range(batch_count)
        for value in (b"p%d-%d" % (partition, number), b"x" * (number % 40))
    ]


async def fill_bucket(
    store: ObjectStore,
    directory: Path,
    topics: Sequence[ExampleTopic] = (ExampleTopic(),),
    *,
    cluster_id: str = CLUSTER_ID,
) -> list[SegmentManifest]:
    """Claim the prefix, and put all closed segments of the topics into it. The logs are written
    below `directory`. Returns the manifests."""
    await claim_prefix(store, cluster_id)
    manifests = []
    for topic in topics:
        for partition in range(topic.partition_count):
            path = directory / f"{topic.name}-{partition}"
            epochs = await write_log(path, topic, partition)
            manifests += await upload_log(
                store, path, topic, partition, epochs=epochs, cluster_id=cluster_id
            )
    return manifests


async def write_log(path: Path, topic: ExampleTopic, partition: int) -> tuple[EpochEntry, ...]:
    """Write the log of a partition with leader epochs 3, 4, …, each of twelve batches. Returns its
    leader epochs."""
    async with RealDisk() as disk:
        log = await open_log(
            disk,
            str(path),
            config=CONFIG,
            topic_id=topic.topic_id,
            is_clean=False,
            recovery_point=Offset(0),
            log_start_offset=Offset(0),
            now_ms=NOW_MS,
        )
        values = values_of(partition, topic.batch_count)
        for number in range(topic.batch_count):
            records = [
                (NOW_MS + number, b"key", values[2 * number]),
                (NOW_MS + number, None, values[2 * number + 1]),
            ]
            log.append_as_leader(
                memoryview(build_batch(records)),
                leader_epoch=Epoch(3 + number // 12),
                now_ms=NOW_MS,
                origin=AppendOrigin.CLIENT,
            )
        entries = log.state.epochs.entries
        await log.close()
    return entries


class FileSource:
    """A segment in a directory of a closed log. It implements the protocol `SegmentSource`."""

    def __init__(
        self, path: Path, base_offset: int, end_offset: int, epochs: Sequence[EpochEntry]
    ) -> None:
        self._path = path
        self.base_offset, self.end_offset = Offset(base_offset), Offset(end_offset)
        self.epochs = tuple(one for one in epochs if one.start_offset < end_offset)
        self.max_timestamp_ms = NOW_MS
        self._log = self._read(base_offset, LOG)
        self.size_bytes = len(self._log)

    async def read_log(self, start: int, end: int) -> bytes:
        """Return a range of the `.log` file."""
        return self._log[start:end]

    async def offset_index(self) -> bytes:
        """Return the content of the `.index` file."""
        return self._read(self.base_offset, OFFSET_INDEX)

    async def time_index(self) -> bytes:
        """Return the content of the `.timeindex` file."""
        return self._read(self.base_offset, TIME_INDEX)

    async def transaction_index(self) -> bytes:
        """Return the content of the `.txnindex` file."""
        return self._read(self.base_offset, TRANSACTION_INDEX)

    async def producer_snapshot(self) -> bytes:
        """Return the content of the `.snapshot` file at the end of the segment."""
        return self._read(self.end_offset, SNAPSHOT)

    def _read(self, offset: int, suffix: str) -> bytes:
        file = self._path / file_name(offset, suffix)
        return file.read_bytes() if file.exists() else b""


async def upload_log(
    store: ObjectStore,
    path: Path,
    topic: ExampleTopic,
    partition: int,
    *,
    epochs: Sequence[EpochEntry],
    cluster_id: str = CLUSTER_ID,
) -> list[SegmentManifest]:
    """Upload all segments of a log but the active one. Returns their manifests."""
    bases = offsets_of([one.name for one in path.iterdir()], LOG)
    return [
        await upload_segment(
            store,
            FileSource(path, base, following, epochs),
            SegmentUpload(
                cluster_id=cluster_id,
                topic=topic.name,
                topic_id=topic.topic_id,
                partition=partition,
                segment_id=uuid5(SEGMENT_IDS, f"{topic.name}-{partition}-{base}"),
                partition_count=topic.partition_count,
                topic_settings=topic.settings,
                broker_id=NodeId(1),
                event_timestamp_ms=NOW_MS + base,
            ),
        )
        for base, following in pairwise(bases)
    ]
