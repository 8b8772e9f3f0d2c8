"""Records that an instance's requests contain or refer to: produced, fetched and committed records.

Pure functions over the frames of a request and of its response. A frame that cannot be decoded has
no records. Only timelines use them.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

from ottla.model.errors import OttlaError
from ottla.wire.apis import (
    FETCH,
    OFFSET_COMMIT,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    request_class,
    response_class,
)
from ottla.wire.batch import HEADER
from ottla.wire.codec import decode
from ottla.wire.codec_types import ZERO_UUID
from ottla.wire.headers import RequestHeader, decode_request_header, decode_response_header

REQUESTS_WITH_OFFSETS = frozenset({OFFSET_COMMIT, TXN_OFFSET_COMMIT})
"""Keys of the APIs whose requests contain offsets: OffsetCommit and TxnOffsetCommit."""
RESPONSES_WITH_OFFSETS = frozenset({PRODUCE, FETCH})
"""Keys of the APIs whose responses contain the offsets of records: Produce and Fetch."""
APIS_WITH_RECORDS = REQUESTS_WITH_OFFSETS | RESPONSES_WITH_OFFSETS

FRAME_BYTES_MAX = 64 * 1024
"""Maximum size, in bytes, of a request or response that is decoded. Records in larger frames are
ignored."""
LENGTH_END = 12
"""Number of bytes at the start of a batch that its length field does not include: the base offset
and the length field itself."""
CONTROL_BATCH = 0x20
"""Bit in the attributes of a record batch. It is set if the batch contains transaction markers
instead of records."""

TopicName = Callable[[UUID], str]
"""Function that returns the name of a topic, given its id."""


class RecordRange(NamedTuple):
    """A range of records of one partition in a request or response."""

    topic: str
    partition: int
    first: int
    last: int
    """Last offset, inclusive. For a commit, the last offset that counts as processed."""
    is_commit: bool = False

    def __str__(self) -> str:
        place = f"{self.topic}-{self.partition}"
        if self.is_commit:
            return f"{place} offset {self.last + 1}"
        return f"{place}@{self.first}" + (f"-{self.last}" if self.last > self.first else "")

    def facts(self) -> dict[str, str | int]:
        """Return the topic, partition and offsets of these records, as properties of a timeline
        event."""
        facts: dict[str, str | int] = {"topic": self.topic, "partition": self.partition}
        if self.is_commit:
            return facts | {"committed": self.last + 1}
        return facts | {"offset": self.first, "last_offset": self.last}


def records_of_request(frame: bytes, topic_name: TopicName) -> list[RecordRange]:
    """Return the records that a request commits; an empty list for other requests."""
    try:
        header = decode_request_header(frame)
        if not _is_known(header, REQUESTS_WITH_OFFSETS):
            return []
        message: Any = _request(header, frame)
    except OttlaError:
        return []
    return [
        RecordRange(
            _name(topic.name, topic.topic_id, topic_name),
            partition.partition_index,
            0,
            partition.committed_offset - 1,
            is_commit=True,
        )
        for topic in message.topics
        for partition in topic.partitions
        if partition.committed_offset >= 0
    ]


def records_of_response(frame: bytes, response: bytes, topic_name: TopicName) -> list[RecordRange]:
    """Return the records that a response acknowledges or delivers. `frame` is the request."""
    try:
        header = decode_request_header(frame)
        if not _is_known(header, RESPONSES_WITH_OFFSETS):
            return []
        _, at = decode_response_header(header.api_key, header.api_version, response)
        answer: Any = decode(response_class(header.api_key), header.api_version, response, at)
        if header.api_key == FETCH:
            return list(_fetched(answer, topic_name))
        return list(_produced(_request(header, frame), answer, topic_name))
    except OttlaError:
        return []


def _is_known(header: RequestHeader, apis: frozenset[int]) -> bool:
    return header.api_key in apis and header.api_version in request_class(header.api_key).VERSIONS


def _request(header: RequestHeader, frame: bytes) -> Any:
    return decode(request_class(header.api_key), header.api_version, frame, header.body_at)


def _produced(request: Any, answer: Any, topic_name: TopicName) -> Iterator[RecordRange]:
    counts: dict[tuple[str, int], int] = {}
    for topic in request.topic_data:
        name = _name(topic.name, topic.topic_id, topic_name)
        for partition in topic.partition_data:
            counts[name, partition.index] = sum(
                last - first + 1 for first, last in _batches(partition.records)
            )
    for topic in answer.responses:
        name = _name(topic.name, topic.topic_id, topic_name)
        for partition in topic.partition_responses:
            count = counts.get((name, partition.index), 0)
            if partition.error_code == 0 and count:
                first = partition.base_offset
                yield RecordRange(name, partition.index, first, first + count - 1)


def _fetched(answer: Any, topic_name: TopicName) -> Iterator[RecordRange]:
    for topic in answer.responses:
        name = _name(topic.topic, topic.topic_id, topic_name)
        for partition in topic.partitions:
            spans = list(_batches(partition.records))
            if spans:
                yield RecordRange(name, partition.partition_index, spans[0][0], spans[-1][1])


def _batches(records: bytes | memoryview | None) -> Iterator[tuple[int, int]]:
    """Yield the first and last offset of each whole batch, without transaction markers."""
    at = 0
    data = b"" if records is None else records
    while at + HEADER.size <= len(data):
        base, length, _, _, _, attributes, last_delta, *_ = HEADER.unpack_from(data, at)
        end = at + LENGTH_END + length
        if length < HEADER.size - LENGTH_END or end > len(data) or last_delta < 0:
            return  # the rest is a part of a batch, as at the end of a fetch response
        if not attributes & CONTROL_BATCH:
            yield base, base + last_delta
        at = end


def _name(name: str, topic_id: UUID, topic_name: TopicName) -> str:
    return name if topic_id == ZERO_UUID else topic_name(topic_id)
