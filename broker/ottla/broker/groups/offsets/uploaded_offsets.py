"""Copies of the groups' committed offsets in the object store. Pure.

Each object belongs to one partition of `__consumer_offsets`. It contains the offsets in tiered
topics that the groups of this partition have committed. An object consists of a line of JSON and of
record batches in the format of `__consumer_offsets`. Topics are identified by their ids, so that no
offset is restored into another topic with the same name.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from ottla.broker.groups.group_records import lasting_offset_value, offset_key, read_record
from ottla.broker.groups.offsets.committed_offsets import CommittedOffset, OffsetTable
from ottla.model.errors import CorruptDataError, NewerReleaseError
from ottla.model.ids import ZERO_UUID, Offset
from ottla.storage.tier.object_names import OFFSET_MAX, parse_group_offsets_key
from ottla.wire.batch import batches, check_crc
from ottla.wire.batch_builder import BatchBuilder
from ottla.wire.messages.offset_commit_key import OffsetCommitKey
from ottla.wire.messages.offset_commit_value import OffsetCommitValue
from ottla.wire.records import scan

FORMAT = 1
OFFSETS_MAX = 100_000
"""Maximum number of committed offsets in one object. If a partition has more offsets, the oldest
are left out."""
METADATA_CHARS_MAX = 256
"""Maximum length in characters of the metadata text of a committed offset in an object. Longer
texts are left out, because an object with many long texts could become too large to read."""
OBJECT_BYTES_MAX = 128 << 20
"""Maximum size in bytes of an object that a restore reads. The limit is sufficient for OFFSETS_MAX
offsets with the longest usual names of groups and topics."""
HEADER_BYTES_MAX = 4096
PARTITIONS_MAX = 10_000
"""Maximum number of partitions of `__consumer_offsets` in a valid object."""
BATCH_COUNT = 500
"""Number of committed offsets in a batch. A batch is encoded in one event-loop iteration."""


class StoredOffset(NamedTuple):
    """Offset that a group has committed in a partition of a tiered topic."""

    group: str
    topic: str
    partition: int
    topic_id: UUID
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int


class OffsetsObject(NamedTuple):
    """Decoded content of one object with committed offsets."""

    partition: int
    """Index of the partition of `__consumer_offsets` to which the offsets belong."""
    leader_epoch: int
    """Leader epoch of the partition at the time of writing. If several objects exist, the object
    with the highest epoch is used."""
    partition_count: int
    """Number of partitions of `__consumer_offsets`. It determines the partition of each group."""
    offsets: Sequence[StoredOffset]
    left_out_count: int
    """Number of committed offsets that did not fit into the object."""


def tiered_offsets_of(
    table: OffsetTable, group: str, topic_ids: Mapping[str, UUID]
) -> list[StoredOffset]:
    """Return the offsets that a group has committed in tiered topics. `topic_ids` maps the names of
    these topics to their ids. Offsets of a deleted topic with the same name are left out."""
    found = []
    for (topic, partition), one in table.of_group(group).items():
        topic_id = topic_ids.get(topic)
        if topic_id is not None and one.topic_id in (topic_id, ZERO_UUID):
            found.append(_stored(group, topic, partition, topic_id, one))
    return found


def _stored(
    group: str, topic: str, partition: int, topic_id: UUID, one: CommittedOffset
) -> StoredOffset:
    metadata = one.metadata if len(one.metadata) <= METADATA_CHARS_MAX else ""
    return StoredOffset(
        group,
        topic,
        partition,
        topic_id,
        one.offset,
        one.leader_epoch,
        metadata,
        one.commit_timestamp_ms,
    )


def limited(offsets: list[StoredOffset], count_max: int = OFFSETS_MAX) -> list[StoredOffset]:
    """Return the offsets that fit into one object, sorted. If there are too many offsets, the most
    recently committed offsets are returned."""
    if len(offsets) > count_max:
        offsets = sorted(offsets, key=lambda one: one.commit_timestamp_ms)[-count_max:]
    return sorted(offsets)


def encoded_parts(
    offsets: Sequence[StoredOffset],
    *,
    cluster_id: str,
    place: tuple[int, int],
    partition_count: int,
    left_out_count: int,
) -> Iterator[bytes]:
    """Yield the parts of an object with committed offsets. Each part is encoded in a few
    milliseconds. Equal offsets always result in equal content. `place` is the partition of
    `__consumer_offsets` and its leader epoch."""
    header = {
        "format": FORMAT,
        "cluster_id": cluster_id,
        "partition": place[0],
        "leader_epoch": place[1],
        "partition_count": partition_count,
        "count": len(offsets),
        "left_out": left_out_count,
    }
    yield json.dumps(header, separators=(",", ":")).encode() + b"\n"
    for at in range(0, len(offsets), BATCH_COUNT):
        builder = BatchBuilder()
        for one in offsets[at : at + BATCH_COUNT]:
            builder.append(max(0, one.commit_timestamp_ms), *record_of(one))
        yield builder.build(base_offset=Offset(at))


def record_of(one: StoredOffset) -> tuple[bytes, bytes]:
    """Return the key and value of the record of `__consumer_offsets` that stores an offset."""
    return offset_key(one.group, one.topic, one.partition), lasting_offset_value(
        one.offset, one.leader_epoch, one.metadata, one.commit_timestamp_ms, one.topic_id
    )


def decode_offsets(data: bytes, *, cluster_id: str, key: str) -> OffsetsObject:
    """Decode the object with the key `key`. Raises CorruptDataError if its content is damaged or
    does not match the key, and NewerReleaseError if a newer release wrote it."""
    place = parse_group_offsets_key(cluster_id, key)
    assert place is not None, "the caller has found the key by its form"
    if len(data) > OBJECT_BYTES_MAX:
        raise CorruptDataError(f"{key}: more than {OBJECT_BYTES_MAX} bytes")
    header, newline, body = data.partition(b"\n")
    if not newline or len(header) > HEADER_BYTES_MAX:
        raise CorruptDataError(f"{key}: it has no header")
    values = _header_of(header, place, cluster_id=cluster_id, key=key)
    partition_count = _count(values, "partition_count", PARTITIONS_MAX, key)
    count = _count(values, "count", OFFSETS_MAX, key)
    left_out = _count(values, "left_out", OFFSET_MAX, key)
    if place[0] >= partition_count:
        raise CorruptDataError(f"{key}: its topic has only {partition_count} partitions")
    offsets: list[StoredOffset] = []
    for at, batch in batches(body):
        if not check_crc(body, at, batch):
            raise CorruptDataError(f"{key}: a batch does not match its CRC")
        if len(offsets) + batch.record_count > count:
            raise CorruptDataError(f"{key}: it has more than {count} offsets")
        offsets += (_offset_in(one.key, one.value, key) for one in scan(body, at, batch))
    if len(offsets) != count:
        raise CorruptDataError(f"{key}: it has {len(offsets)} offsets in place of {count}")
    return OffsetsObject(*place, partition_count, offsets, left_out)


def newest_of(objects: Iterable[OffsetsObject]) -> list[OffsetsObject]:
    """Return, for each partition of `__consumer_offsets`, the object with the highest leader
    epoch."""
    found: dict[int, OffsetsObject] = {}
    for one in objects:
        before = found.get(one.partition)
        if before is None or before.leader_epoch < one.leader_epoch:
            found[one.partition] = one
    return [found[partition] for partition in sorted(found)]


def _header_of(
    header: bytes, place: tuple[int, int], *, cluster_id: str, key: str
) -> Mapping[str, Any]:
    """Return the values in the header of an object. Raises CorruptDataError if the header does not
    match the object's key."""
    try:
        values: Any = json.loads(header)
    except (ValueError, RecursionError):
        raise CorruptDataError(f"{key}: its header is not JSON") from None
    version = values.get("format") if isinstance(values, dict) else None
    if type(version) is int and version > FORMAT:
        raise NewerReleaseError(f"{key}: a newer release wrote it, in format {version}")
    if version != FORMAT:
        raise CorruptDataError(f"{key}: its format is not {FORMAT}")
    named = (values.get("cluster_id"), values.get("partition"), values.get("leader_epoch"))
    if named != (cluster_id, *place):
        raise CorruptDataError(f"{key}: it is the content of another object")
    found: Mapping[str, Any] = values
    return found


def _count(values: Mapping[str, Any], name: str, highest: int, key: str) -> int:
    value = values.get(name)
    if type(value) is not int or not 0 <= value <= highest:
        raise CorruptDataError(f"{key}: {name} is missing or invalid")
    return value


def _offset_in(key: bytes | None, value: bytes | None, where: str) -> StoredOffset:
    found = read_record(key, value)
    if found is None:
        raise CorruptDataError(f"{where}: a record is none of a committed offset")
    named, said = found
    if not isinstance(named, OffsetCommitKey) or not isinstance(said, OffsetCommitValue):
        raise CorruptDataError(f"{where}: a record is none of a committed offset")
    if named.partition < 0 or said.offset < 0:
        raise CorruptDataError(f"{where}: a partition or an offset is negative")
    return StoredOffset(
        named.group,
        named.topic,
        named.partition,
        said.topic_id,
        said.offset,
        said.leader_epoch,
        said.metadata,
        said.commit_timestamp,
    )
