"""Files of a backup: `manifest.json`, and one file of record batches per partition.

A file of records contains batches in Kafka's format, with the offsets that they have in the
cluster, so `ottla log dump` prints it. The manifest is written last: a directory without a manifest
is not a backup.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.model.errors import ConfigError, CorruptDataError
from ottla.model.ids import Offset
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.wire.batch import check_crc, parse_header
from ottla.wire.batch_builder import BatchBuilder
from ottla.wire.records import Record, scan

MANIFEST = "manifest.json"
TOPICS = "topics"
FORMAT = 1
"""Version of the backup format, which the manifest of a backup contains. Commands refuse a version
that they do not know."""

BATCH_BYTES_MAX = 1 << 20
"""Size, in bytes, at which a record batch is complete and is written to a backup file. Smaller
batches have more headers in total. Larger batches need more memory when they are restored."""

BATCH_SIZE_MAX = 1 << 30
"""Maximum size in bytes of a record batch that is read from a backup. Without this limit, a damaged
length could allocate any amount of memory."""


@dataclass(slots=True)
class StoredTopic:
    """A topic in a backup. Each of its lists has one entry per partition."""

    name: str
    replication_factor: int
    configs: dict[str, str]
    starts: list[int]
    ends: list[int]
    """End offset of each partition of the topic. The backup contains the records before this
    offset."""
    counts: list[int]
    """Number of records in the backup for each partition of the topic. Compaction and transaction
    markers make it lower than the difference of the offsets."""


@dataclass(slots=True)
class Manifest:
    """Contents of a backup, as its file manifest.json lists them: topics, and committed offsets of
    groups."""

    cluster_id: str
    started_ms: int
    """Time when the backup was started, in ms since 1970. Records and offsets that were
    acknowledged before it are in the backup."""
    topics: list[StoredTopic] = field(default_factory=list)
    groups: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    """Committed offsets in the backup, by group, topic and partition."""

    def write(self, directory: Path) -> None:
        """Write the file manifest.json, which completes the backup."""
        part = directory / f".{MANIFEST}.part"
        with part.open("w") as file:
            json.dump({"format": FORMAT, **asdict(self)}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        part.replace(directory / MANIFEST)


def read_manifest(directory: Path) -> Manifest:
    """Return the manifest (the list of contents) of a backup. Raises ConfigError if the directory
    has no manifest that this release can read."""
    path = directory / MANIFEST
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError("DIR", f"{path} cannot be read ({error.strerror}): no backup") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError("DIR", f"{path} is not JSON ({error})") from None
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise ConfigError("DIR", f"{path} has a format that this release does not know")
    try:
        manifest = Manifest(**content)
        manifest.topics = [_topic(row) for row in manifest.topics]
        _check_groups(manifest.groups)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ConfigError("DIR", f"{path} is damaged ({error})") from None
    return manifest


def _topic(row: Any) -> StoredTopic:
    topic = StoredTopic(**row)
    numbers = (topic.starts, topic.ends, topic.counts)
    if len({len(one) for one in numbers}) != 1 or not topic.counts:
        raise ValueError(f"topic {topic.name!r}: lists of different lengths")
    if not all(isinstance(number, int) and number >= 0 for one in numbers for number in one):
        raise ValueError(f"topic {topic.name!r}: offsets that are none")
    if Path(topic.name).name != topic.name:
        raise ValueError(f"topic {topic.name!r} is no name of a directory")
    return topic


def _check_groups(groups: dict[str, dict[str, dict[str, int]]]) -> None:
    for topics in groups.values():
        for offsets in topics.values():
            for partition, offset in offsets.items():
                if int(partition) < 0 or int(offset) < 0:
                    raise ValueError("an offset of a group is negative")


def records_path(directory: Path, topic: str, partition: int) -> Path:
    """Return the path of the backup file that contains a partition's records."""
    return directory / TOPICS / topic / f"{partition}.log"


class PartitionFile:
    """A new backup file, to which the records of one partition are written."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("xb")
        self._builder = BatchBuilder()
        self._base = Offset(0)
        self.count = 0
        """Number of records that were added to this backup file."""

    def add(self, records: Iterable[ConsumerRecord]) -> None:
        """Add records of the partition to this backup file, in the order of their offsets."""
        for record in records:
            builder = self._builder
            if not builder.record_count:
                self._base = record.offset
            builder.append(
                record.timestamp_ms,
                record.key,
                record.value,
                record.headers,
                offset_delta=record.offset - self._base,
            )
            self.count += 1
            if builder.size_bytes >= BATCH_BYTES_MAX:
                self._write_batch()

    def close(self) -> None:
        """Write the last record batch to this backup file, and wait until the file is flushed to
        disk."""
        self._write_batch()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def _write_batch(self) -> None:
        if self._builder.record_count:
            self._file.write(self._builder.build(base_offset=self._base))
            self._builder = BatchBuilder()


def read_records(path: Path) -> Iterator[list[Record]]:
    """Yield the records of a backup file, one record batch at a time. Raises CorruptDataError if
    the file is damaged, and ConfigError if it cannot be read."""
    try:
        with path.open("rb") as file:
            last = -1
            while header_bytes := file.read(BATCH_HEADER_BYTES):
                header = parse_header(header_bytes)
                if header.size_bytes > BATCH_SIZE_MAX:
                    raise CorruptDataError(f"{path}: a batch of {header.size_bytes} bytes")
                data = header_bytes + file.read(header.size_bytes - BATCH_HEADER_BYTES)
                if not check_crc(data, 0, header) or header.base_offset <= last:
                    raise CorruptDataError(f"{path}: the batch at offset {header.base_offset}")
                last = header.last_offset
                yield list(scan(data, 0, header))
    except OSError as error:
        raise ConfigError("DIR", f"{path} cannot be read ({error.strerror})") from None


def positions_of(offsets: Iterable[int], records: Iterable[Iterable[Record]]) -> dict[int, int]:
    """Return the number of records before each offset of a partition, by offset. This number is the
    record's new offset after all records were written into an empty partition."""
    wanted = sorted(set(offsets))
    found: dict[int, int] = {}
    count = at = 0
    for batch in records:
        for record in batch:
            while at < len(wanted) and wanted[at] <= record.offset:
                found[wanted[at]] = count
                at += 1
            count += 1
    found |= dict.fromkeys(wanted[at:], count)
    return found


def verify(
    directory: Path, manifest: Manifest, on_partition: Callable[[str, int], None] | None = None
) -> None:
    """Read all records of a backup and check them. `on_partition` is called after each partition.
    Raises CorruptDataError if a record is damaged or missing."""
    for topic in manifest.topics:
        for partition, expected in enumerate(topic.counts):
            path = records_path(directory, topic.name, partition)
            found = sum(map(len, read_records(path)))
            if found != expected:
                raise CorruptDataError(f"{path}: {found} records, and the backup has {expected}")
            if on_partition is not None:
                on_partition(topic.name, partition)
