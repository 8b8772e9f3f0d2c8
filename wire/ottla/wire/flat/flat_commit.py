"""OffsetCommit without message objects: requests for one topic, read directly from the frame, and
their responses.

A member commits its partitions of a topic again and again. Such a request is read in place: the
bytes before the offsets identify the member and the topic, and only the offsets are decoded. The
response repeats the bytes by which the request identifies the topic. This module makes no
decisions: `read_flat_commit` leaves every unusual request, valid or not, to the generated codec.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, TypeAlias
from uuid import UUID

from ottla.model.errors import ProtocolError
from ottla.model.limits import KIB
from ottla.wire.apis import OFFSETS_TOPIC_IDS_FROM
from ottla.wire.codec_runtime import find_uuid, keep_uuid
from ottla.wire.codec_types import ZERO_UUID
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

FLEXIBLE_FROM: Final = 8
"""First version of OffsetCommit with compact lengths and tagged fields."""

ONE: Final = 2
"""Compact count of one element, as Kafka's compact arrays encode it. Compact counts and sizes are
encoded as the number plus one."""

LONG_SIZE: Final = 0x80
"""Bit in the first byte of a compact size that is set if the size continues in the next byte."""

ROWS_MAX: Final = 50
"""Maximum number of partitions in an OffsetCommit request that this module reads. Such a request is
served without yielding, which takes about a millisecond."""

TOPIC_ID_BYTES: Final = 16
TAGS_BYTES: Final = 2
"""Size in bytes of the empty tagged fields of the topic and of the message."""
NO_TAGS_BEHIND: Final = b"\0\0"
"""Empty tagged fields of the topic and of the message, at the end of an OffsetCommit request and of
its response."""

_read_row: Final = Struct(">iqiB").unpack_from
"""Function that reads one partition of an OffsetCommit request: partition, offset, leader epoch,
compact size of the metadata."""
ROW_BYTES: Final = 4 + 8 + 4 + 1
_read_generation: Final = Struct(">i").unpack_from

FRAME_BYTES_MAX: Final = 8 * KIB
"""Maximum size in bytes of a frame that this module reads: some hundred bytes for each of ROWS_MAX
partitions. The frame is copied, because bytes are read faster than a view of them."""

_answer_head: Final = Struct(">iixi").pack
"""Function that packs the start of an OffsetCommit response: length, correlation id, no tags,
throttle time."""
HEAD_BYTES: Final = 4 + 1 + 4
"""Size in bytes of the header and throttle time of an OffsetCommit response, without the frame
length."""
_answer_row: Final = Struct(">ihx").pack
"""Function that packs one partition of an OffsetCommit response: partition, error, no tags."""
ONE_ROW: Final = "Bihxxx"
"""Format of the end of an OffsetCommit response with a single partition: partition count,
partition, error, tags of the partition, the topic and the message."""
ONE_ROW_BYTES: Final = HEAD_BYTES + Struct(f">{ONE_ROW}").size
"""Size in bytes of an OffsetCommit response with a single partition, without the frame length and
the fields for the topic."""
_answers_of_one: Final[dict[int, Callable[..., bytes]]] = {}
"""Functions that pack OffsetCommit responses with a single partition, by the size in bytes of the
fields for the topic. There are about 130 sizes."""

CommitRow: TypeAlias = tuple[int, int, int, str]
"""One partition of an OffsetCommit request: partition, offset, leader epoch and metadata."""


class FlatCommit:
    """An OffsetCommit request for at most ROWS_MAX partitions of one topic, read directly from its
    frame."""

    __slots__ = ("committer", "is_by_id", "rows")

    def __init__(self, committer: bytes, rows: list[CommitRow], is_by_id: bool) -> None:
        self.committer = committer
        """Bytes of the OffsetCommit request before the offsets: group, generation, member, instance
        and topic."""
        self.rows = rows
        self.is_by_id = is_by_id
        """True if the OffsetCommit request identifies the topic by id, False if by name."""

    @property
    def _member_at(self) -> int:
        return self.committer[0] + 4

    @property
    def _instance_at(self) -> int:
        return self._member_at + self.committer[self._member_at]

    @property
    def _topics_at(self) -> int:
        return self._instance_at + (self.committer[self._instance_at] or 1)

    @property
    def place(self) -> bytes:
        """Bytes of the OffsetCommit request that identify the topic. The response repeats them."""
        return self.committer[self._topics_at :]

    @property
    def name(self) -> str:
        """Name of the topic, or an empty string if the request identifies the topic by id."""
        return "" if self.is_by_id else _text(self.committer[self._topics_at + 2 :])

    @property
    def topic_id(self) -> UUID:
        """Id of the topic, or the zero id if the OffsetCommit request identifies the topic by
        name."""
        if not self.is_by_id:
            return ZERO_UUID
        data = self.committer[self._topics_at + 1 :]
        return find_uuid(data) or keep_uuid(data)

    def head(self) -> OffsetCommitRequest:
        """Return the OffsetCommit request as a message object without its topics."""
        data, member_at, instance_at = self.committer, self._member_at, self._instance_at
        instance = data[instance_at + 1 : self._topics_at]
        return OffsetCommitRequest(
            group_id=_text(data[1 : member_at - 4]),
            generation_id_or_member_epoch=_read_generation(data, member_at - 4)[0],
            member_id=_text(data[member_at + 1 : instance_at]),
            group_instance_id=_text(instance) if data[instance_at] else None,
        )

    def decoded(self) -> OffsetCommitRequest:
        """Return the OffsetCommit request as the generated codec decodes it, with an empty string
        for null metadata."""
        request = self.head()
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
            for index, offset, leader_epoch, metadata in self.rows
        ]
        request.topics = [
            OffsetCommitRequestTopic(name=self.name, topic_id=self.topic_id, partitions=partitions)
        ]
        return request


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ProtocolError("OffsetCommitRequest has text that is no UTF-8") from None


def read_flat_commit(frame: memoryview, at: int, version: int) -> FlatCommit | None:
    """Read the OffsetCommit request whose body begins at position `at` of the frame. Returns None
    if the generated codec must read it."""
    if version < FLEXIBLE_FROM or len(frame) > FRAME_BYTES_MAX:
        return None
    data = frame[at:].tobytes()
    size = len(data)
    try:
        group_size = data[0]
        member_at = group_size + 4
        member_size = data[member_at]
        instance_at = member_at + member_size
        instance_size = data[instance_at]
        topics_at = instance_at + (instance_size or 1)
        is_by_id = version >= OFFSETS_TOPIC_IDS_FROM
        name_size = TOPIC_ID_BYTES if is_by_id else data[topics_at + 1]
        at = topics_at + 1 + name_size
        if (
            (group_size | member_size | instance_size | name_size) & LONG_SIZE
            or data[topics_at] != ONE
            or not (group_size and member_size and name_size)
        ):
            return None
        count = data[at] - 1
        at += 1
        if not 0 < count <= ROWS_MAX or size < at + count * (ROW_BYTES + 1):
            return None
        committer = data[: at - 1]
        rows: list[CommitRow] = []
        for _ in range(count):
            if size < at + ROW_BYTES:
                return None
            index, offset, leader_epoch, metadata_size = _read_row(data, at)
            at += ROW_BYTES
            metadata = ""
            if metadata_size > 1:
                if metadata_size & LONG_SIZE:
                    return None
                metadata = data[at : at + metadata_size - 1].decode()
                at += metadata_size - 1
            if data[at]:
                return None
            at += 1
            rows.append((index, offset, leader_epoch, metadata))
        if size != at + TAGS_BYTES or data[at] or data[at + 1]:
            return None
    except (IndexError, UnicodeDecodeError):
        return None
    return FlatCommit(committer, rows, is_by_id)


def flat_commit_answer(
    correlation_id: int,
    place: bytes,
    rows: list[CommitRow],
    codes: Sequence[int],
    throttle_ms: int,
) -> bytes:
    """Return the frame of the response to a `FlatCommit` request, with one error code for each
    partition."""
    size = len(place)
    if len(rows) == 1:
        return (_answers_of_one.get(size) or _answer_of_one(size))(
            ONE_ROW_BYTES + size, correlation_id, throttle_ms, place, ONE, rows[0][0], codes[0]
        )
    parts = [bytes((len(rows) + 1,))]
    for row, code in zip(rows, codes, strict=True):
        parts.append(_answer_row(row[0], code))
    parts.append(NO_TAGS_BEHIND)
    rest = b"".join(parts)
    length = HEAD_BYTES + size + len(rest)
    return _answer_head(length, correlation_id, throttle_ms) + place + rest


def _answer_of_one(place_bytes: int) -> Callable[..., bytes]:
    """Return a function that packs OffsetCommit responses with a single partition, for one size in
    bytes of the fields for the topic."""
    write = _answers_of_one[place_bytes] = Struct(f">iixi{place_bytes}s{ONE_ROW}").pack
    return write
