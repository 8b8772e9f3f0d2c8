"""Manifest of an uploaded segment. With the manifest, the segment can be restored from the bucket
alone.

A manifest contains the segment's metadata, its topic with the settings at the time of the upload,
and the sizes and CRCs of the other objects. It is uploaded last, so a manifest proves that the copy
is complete. Pure. Others may write into the bucket, so every field that is read is bounded and
checked.

The content is JSON with sorted keys. The same manifest always has the same bytes, so that the
result of a put with a lost response can be recognised.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from ottla.model.errors import CorruptDataError, NewerReleaseError
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.limits import INT32_MAX
from ottla.model.values import frozen
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.tier.object_names import (
    OFFSET_MAX,
    PARTITION_MAX,
    SegmentNames,
    SegmentObject,
    parse_object_key,
)
from ottla.storage.tier.remote_segment import (
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentState,
    fault_of,
)

MANIFEST_FORMAT = 1
CHUNK_BYTES = 1 << 20
"""Size in bytes of a chunk. A chunk is a part of an uploaded segment's records, and has its own
checksum. The last chunk may be shorter. The size is part of the format and cannot be changed.
Readers fetch and cache whole chunks, so with a larger size, a reader at a random offset waits
longer. With a smaller size, more requests are needed."""
CHECKSUM_BYTES = 4
SEGMENT_BYTES_MAX = INT32_MAX
"""Maximum size in bytes of the object that contains a segment's records. Kafka's offset index
stores positions as int32."""
SECTION_BYTES_MAX = 128 << 20
"""Maximum size in bytes of one section of the object with a segment's indexes. A reader has the
whole section in memory. An offset index of 128 MiB has 16 million entries, and a producer snapshot
of that size has three million producers."""
MANIFEST_BYTES_MAX = 1 << 20
"""Maximum size of a manifest in bytes. Its only long field is the list of leader epochs, of which
20,000 fit. A reader fetches at most one byte more, to notice an object that is too large."""
SETTINGS_MAX = 200
"""Maximum number of topic settings in a manifest. Kafka has about forty topic settings."""
SETTING_CHARS_MAX = 32_768
CUSTOM_METADATA_BYTES_MAX = 4096
"""Maximum size, in bytes, of a segment's custom metadata (bytes that an object store needs to find
the objects). Kafka's default limit is 128 bytes
(`remote.log.metadata.custom.metadata.max.bytes`)."""
_INT64_MIN = -(1 << 63)


class IndexKind(StrEnum):
    """Kind of a section in the object that contains a segment's indexes. The object has the
    sections in this order."""

    CHECKSUMS = "checksums"
    """CRC32C of each chunk of the segment's records, as unsigned big-endian integers of 4 bytes. A
    chunk has `CHUNK_BYTES` bytes. With these checksums, a reader checks every chunk that it
    fetches."""
    OFFSETS = "offsets"
    TIMES = "times"
    PRODUCERS = "producers"
    """Producer snapshot (states of the producers) at the end of the segment."""
    EPOCHS = "epochs"
    """Leader epochs of the log up to the end of the segment, in the format of a leader epoch
    checkpoint."""
    TRANSACTIONS = "transactions"
    """Transaction index: the aborted transactions in the segment. The section is absent if no
    transaction was aborted."""


ENTRY_BYTES = {
    IndexKind.CHECKSUMS: CHECKSUM_BYTES,
    IndexKind.OFFSETS: 8,
    IndexKind.TIMES: 12,
    IndexKind.TRANSACTIONS: 34,
}
"""Size in bytes of one entry, by kind of section, for sections whose entries all have the same
size. Entries have the same format as in Kafka's files."""


class IndexSection(NamedTuple):
    """One section of the object with the indexes: its byte range `[start, end)` in the object, and
    its CRC32C."""

    kind: IndexKind
    start: int
    end: int
    crc: int

    @property
    def size_bytes(self) -> int:
        """Size of the section in bytes."""
        return self.end - self.start


@frozen(kw_only=True)
class SegmentManifest:
    """Description of an uploaded segment: the fields of Kafka's RemoteLogSegmentMetadata, its
    topic, and the checksums of its objects."""

    cluster_id: str
    topic: str
    partition_count: int
    """Number of the topic's partitions at the time of the upload."""
    topic_settings: Mapping[str, str]
    """Settings that were set on the topic at the time of the upload, by Kafka's keys."""
    topic_id: UUID
    partition: int
    segment_id: UUID
    start_offset: Offset
    end_offset: Offset
    """Offset of the segment's last record (inclusive, as in Kafka)."""
    broker_id: NodeId
    """Id of the broker that uploaded the segment."""
    max_timestamp_ms: int
    """Largest timestamp of the segment's records, in ms since 1970, or -1 if they have none."""
    event_timestamp_ms: int
    """Time of the upload by the broker's clock, in ms since the Unix epoch."""
    size_bytes: int
    """Size, in bytes, of the object that contains the segment's records."""
    log_crc: int
    """CRC32C of the object that contains the segment's records."""
    leader_epochs: tuple[EpochEntry, ...]
    """Leader epochs of the segment's records, each with its first offset in the segment."""
    custom_metadata: bytes | None = None
    has_empty_transaction_index: bool
    index_sections: tuple[IndexSection, ...]

    @property
    def names(self) -> SegmentNames:
        """Identity of the upload, from which the keys of its objects are derived."""
        return SegmentNames(
            cluster_id=self.cluster_id,
            topic=self.topic,
            topic_id=self.topic_id,
            partition=self.partition,
            start_offset=self.start_offset,
            segment_id=self.segment_id,
        )

    @property
    def remote_segment(self) -> RemoteSegment:
        """The segment in the form that the metadata topic uses, in the state COPY_FINISHED."""
        return RemoteSegment(
            id=RemoteSegmentId(self.topic_id, self.partition, self.segment_id),
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            broker_id=self.broker_id,
            max_timestamp_ms=self.max_timestamp_ms,
            event_timestamp_ms=self.event_timestamp_ms,
            size_bytes=self.size_bytes,
            leader_epochs=self.leader_epochs,
            custom_metadata=self.custom_metadata,
            state=RemoteSegmentState.COPY_FINISHED,
            has_empty_transaction_index=self.has_empty_transaction_index,
        )

    @property
    def indexes_size_bytes(self) -> int:
        """Size, in bytes, of the object that contains the segment's indexes."""
        return self.index_sections[-1].end

    def section(self, kind: IndexKind) -> IndexSection | None:
        """Return the section of one kind in the object with the indexes, or None if the segment has
        no such section."""
        return next((each for each in self.index_sections if each.kind is kind), None)


def chunk_count(size_bytes: int) -> int:
    """Return the number of chunks of `CHUNK_BYTES` into which an object of this size is divided."""
    return -(-size_bytes // CHUNK_BYTES)


def encode_manifest(manifest: SegmentManifest) -> bytes:
    """Return a manifest encoded as the content of its object. The manifest must be valid
    (`problem_of` returns None). Raises ValueError if the encoded manifest is too large."""
    problem = problem_of(manifest)
    assert problem is None, problem
    custom = manifest.custom_metadata
    values = {
        "format": MANIFEST_FORMAT,
        "cluster_id": manifest.cluster_id,
        "topic": {
            "name": manifest.topic,
            "id": str(manifest.topic_id),
            "partition_count": manifest.partition_count,
            "settings": dict(manifest.topic_settings),
        },
        "segment": {
            "id": str(manifest.segment_id),
            "partition": manifest.partition,
            "start_offset": manifest.start_offset,
            "end_offset": manifest.end_offset,
            "broker_id": manifest.broker_id,
            "max_timestamp_ms": manifest.max_timestamp_ms,
            "event_timestamp_ms": manifest.event_timestamp_ms,
            "leader_epochs": [list(entry) for entry in manifest.leader_epochs],
            "custom_metadata": None if custom is None else b64encode(custom).decode(),
            "has_empty_transaction_index": manifest.has_empty_transaction_index,
        },
        "log": {"size_bytes": manifest.size_bytes, "crc32c": manifest.log_crc},
        "indexes": [
            {
                "kind": section.kind.value,
                "start": section.start,
                "end": section.end,
                "crc32c": section.crc,
            }
            for section in manifest.index_sections
        ],
    }
    data = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    if len(data) > MANIFEST_BYTES_MAX:
        raise ValueError(f"the manifest has {len(data)} bytes, more than {MANIFEST_BYTES_MAX}")
    return data


def decode_manifest(data: bytes, key: str) -> SegmentManifest:
    """Decode a manifest from the content of the object with the key `key`.

    Raises CorruptDataError if a field is missing or invalid, or if the manifest does not match the
    key. Without the comparison with the key, a renamed object could be mistaken for another
    segment. Raises NewerReleaseError if a newer release wrote the manifest. Unknown fields are
    ignored.
    """
    where = f"manifest {key}"
    if len(data) > MANIFEST_BYTES_MAX:
        raise CorruptDataError(f"{where}: more than {MANIFEST_BYTES_MAX} bytes")
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        raise CorruptDataError(f"{where}: it is not JSON") from None
    fields = _Fields(values, where)
    if (version := fields.integer("format", 0, OFFSET_MAX)) != MANIFEST_FORMAT:
        if version > MANIFEST_FORMAT:
            raise NewerReleaseError(f"{where}: a newer release wrote it, in format {version}")
        raise CorruptDataError(f"{where}: format {version}")
    manifest = _decoded(fields, where)
    if (problem := problem_of(manifest)) is not None:
        raise CorruptDataError(f"{where}: {problem}")
    if manifest.names.key(SegmentObject.MANIFEST) != key:
        raise CorruptDataError(f"{where}: it is the manifest of another segment")
    return manifest


def problem_of(manifest: SegmentManifest) -> str | None:
    """Return the reason why a manifest is invalid, as part of a sentence, or None if it is valid.
    The fields must have the right types."""
    kinds = [section.kind for section in manifest.index_sections]
    needed: list[IndexKind] = [kind for kind in IndexKind if kind is not IndexKind.TRANSACTIONS]
    if not manifest.has_empty_transaction_index:
        needed.append(IndexKind.TRANSACTIONS)
    custom = manifest.custom_metadata
    ends = [0, *(section.end for section in manifest.index_sections)]
    checks = (
        (
            parse_object_key(manifest.names.key(SegmentObject.MANIFEST)) is not None,
            "the cluster id, the topic, the partition or the start offset is invalid",
        ),
        (
            manifest.partition < manifest.partition_count <= PARTITION_MAX,
            "the topic has no such partition",
        ),
        (manifest.size_bytes > 0, "the segment is empty"),
        (
            manifest.size_bytes <= SEGMENT_BYTES_MAX,
            f"the segment has more than {SEGMENT_BYTES_MAX} bytes",
        ),
        (
            custom is None or len(custom) <= CUSTOM_METADATA_BYTES_MAX,
            f"the custom metadata has more than {CUSTOM_METADATA_BYTES_MAX} bytes",
        ),
        (len(manifest.topic_settings) <= SETTINGS_MAX, "the topic has too many settings"),
        (kinds == needed, f"the sections of the indexes are not {', '.join(needed)}"),
        (
            all(
                section.start == end and section.start <= section.end
                for section, end in zip(manifest.index_sections, ends, strict=False)
            ),
            "the sections of the indexes do not follow each other",
        ),
        (
            all(section.size_bytes <= SECTION_BYTES_MAX for section in manifest.index_sections),
            f"a section of the indexes has more than {SECTION_BYTES_MAX} bytes",
        ),
        (
            not kinds
            or manifest.index_sections[0].size_bytes
            == chunk_count(manifest.size_bytes) * CHECKSUM_BYTES,
            "the number of checksums is wrong",
        ),
        (
            all(
                section.size_bytes % ENTRY_BYTES.get(section.kind, 1) == 0
                for section in manifest.index_sections
            ),
            "a section of the indexes ends within an entry",
        ),
    )
    problem = next((problem for is_right, problem in checks if not is_right), None)
    return problem or fault_of(manifest.remote_segment)


def _decoded(fields: "_Fields", where: str) -> SegmentManifest:
    topic, segment, log = (fields.object(name) for name in ("topic", "segment", "log"))
    return SegmentManifest(
        cluster_id=fields.text("cluster_id"),
        topic=topic.text("name"),
        partition_count=topic.integer("partition_count", 1, PARTITION_MAX),
        topic_settings=topic.settings("settings"),
        topic_id=topic.uuid("id"),
        partition=segment.integer("partition", 0, PARTITION_MAX),
        segment_id=segment.uuid("id"),
        start_offset=Offset(segment.integer("start_offset", 0, OFFSET_MAX)),
        end_offset=Offset(segment.integer("end_offset", 0, OFFSET_MAX)),
        broker_id=NodeId(segment.integer("broker_id", 0, PARTITION_MAX)),
        max_timestamp_ms=segment.integer("max_timestamp_ms", _INT64_MIN, OFFSET_MAX),
        event_timestamp_ms=segment.integer("event_timestamp_ms", _INT64_MIN, OFFSET_MAX),
        size_bytes=log.integer("size_bytes", 1, OFFSET_MAX),
        log_crc=log.crc(),
        leader_epochs=segment.epochs("leader_epochs"),
        custom_metadata=segment.binary("custom_metadata"),
        has_empty_transaction_index=segment.boolean("has_empty_transaction_index"),
        index_sections=tuple(
            _section(_Fields(value, f"{where}: indexes")) for value in fields.items("indexes")
        ),
    )


def _section(fields: "_Fields") -> IndexSection:
    text = fields.text("kind")
    if text not in list(IndexKind):
        raise CorruptDataError(f"{fields.where}: kind")
    start, end = (fields.integer(name, 0, OFFSET_MAX) for name in ("start", "end"))
    return IndexSection(IndexKind(text), start, end, fields.crc())


class _Fields:
    """Reader of the fields of a JSON object from a bucket. It checks the type of each field."""

    __slots__ = ("_values", "where")

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, dict):
            raise CorruptDataError(f"{where}: it is not a JSON object")
        self._values: dict[str, Any] = values
        self.where = where

    def object(self, name: str) -> "_Fields":
        return _Fields(self._values.get(name), f"{self.where}: {name}")

    def text(self, name: str) -> str:
        value = self._values.get(name)
        if not isinstance(value, str):
            raise self._wrong(name)
        return value

    def integer(self, name: str, lowest: int, highest: int) -> int:
        return self._integer(name, self._values.get(name), lowest, highest)

    def crc(self) -> int:
        return self.integer("crc32c", 0, (1 << 32) - 1)

    def boolean(self, name: str) -> bool:
        value = self._values.get(name)
        if not isinstance(value, bool):
            raise self._wrong(name)
        return value

    def uuid(self, name: str) -> UUID:
        text = self.text(name)
        try:
            found = UUID(text)
        except ValueError:
            raise self._wrong(name) from None
        if str(found) != text:
            raise self._wrong(name)
        return found

    def binary(self, name: str) -> bytes | None:
        if self._values.get(name) is None:
            return None
        try:
            return b64decode(self.text(name), validate=True)
        except ValueError:
            raise self._wrong(name) from None

    def items(self, name: str) -> list[Any]:
        value = self._values.get(name)
        if not isinstance(value, list):
            raise self._wrong(name)
        return value

    def epochs(self, name: str) -> tuple[EpochEntry, ...]:
        entries = []
        for pair in self.items(name):
            if not isinstance(pair, list) or len(pair) != 2:
                raise self._wrong(name)
            epoch = self._integer(name, pair[0], 0, PARTITION_MAX)
            start = self._integer(name, pair[1], 0, OFFSET_MAX)
            entries.append(EpochEntry(Epoch(epoch), Offset(start)))
        return tuple(entries)

    def settings(self, name: str) -> dict[str, str]:
        value = self._values.get(name)
        if not isinstance(value, dict) or len(value) > SETTINGS_MAX:
            raise self._wrong(name)
        for text in value.values():
            if not isinstance(text, str) or len(text) > SETTING_CHARS_MAX:
                raise self._wrong(name)
        return value

    def _integer(self, name: str, value: Any, lowest: int, highest: int) -> int:
        # A bool is an int to Python.
        if type(value) is not int or not lowest <= value <= highest:
            raise self._wrong(name)
        return value

    def _wrong(self, name: str) -> CorruptDataError:
        return CorruptDataError(f"{self.where}: {name} is missing or invalid")
