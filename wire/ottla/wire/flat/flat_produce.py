"""Produce without message objects: requests with one batch, read directly from the frame, and their
responses.

Most producers send one batch per request. Such a request is read in place, without the objects of
the generated codec. Its response repeats the bytes by which the request identifies the topic and
the partition. This module makes no decisions. `FlatProduce` has the fields of `ProduceRequest` that
a handler reads. `read_flat_produce` leaves every unusual request, valid or not, to the generated
codec.
"""

from collections.abc import Callable
from struct import Struct
from typing import ClassVar, Final
from uuid import UUID

from ottla.model.errors import ProtocolError
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.wire.apis import PRODUCE_TOPIC_IDS_FROM
from ottla.wire.codec_runtime import find_uuid, keep_uuid
from ottla.wire.codec_types import ZERO_UUID
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

FLEXIBLE_FROM: Final = 9
"""First version of Produce with compact lengths and tagged fields."""

ONE: Final = 2
"""Compact count of one element, as Kafka's compact arrays encode it. Compact counts and sizes are
encoded as the number plus one."""

NULL: Final = 0
LONG_SIZE: Final = 0x80
"""Bit in the first byte of a compact size that is set if the size continues in the next byte."""

ID_PLACE_BYTES: Final = 1 + 16 + 1 + 4
"""Size in bytes of a Produce request's fields for topic and partition, if they contain a topic id:
topic count, id, partition count, index."""
NAME_PLACE_BYTES: Final = 1 + 1 + 4
"""Size in bytes of a Produce request's fields for topic and partition, if they contain a topic
name, without the name and its compact size."""

START_BYTES: Final = 1 + 2 + 4
"""Size in bytes of a Produce request's fields before those for topic and partition: transactional
id, acks, timeout."""
_starts: Final[dict[int, Callable[..., tuple[int, int, int, bytes, int, int]]]] = {}
"""Functions that read the start of a Produce request, by the size in bytes of the fields for topic
and partition: transactional id, acks, timeout, these fields, and the first two bytes after them,
where the size of the batch begins. One call is faster than a read of each field."""

_read_tags: Final = Struct(">BH").unpack_from
"""Function that reads the three counts of tagged fields at the end of a Produce request. It returns
the count of the partition, and the counts of the topic and the request as one number."""
NO_TAGS: Final = (0, 0)
TAGS_BYTES: Final = 3
REST_BYTES_MIN: Final = 1 + BATCH_HEADER_BYTES + TAGS_BYTES

ANSWER_REST: Final = "hqqqBBBBiB"
"""Format of the end of a Produce response, after the fields for topic and partition: error, base
offset, append time, log start offset, record errors, message, tags of the partition and the topic,
throttle time, tags."""
ANSWER_BYTES: Final = 4 + 1 + Struct(f">{ANSWER_REST}").size
"""Size in bytes of a Produce response without its length field and its fields for topic and
partition."""
_answers: Final[dict[int, Callable[..., bytes]]] = {}
"""Functions that pack Produce responses, by the size in bytes of the fields for topic and
partition. There are about 130 sizes."""
NO_ELEMENTS: Final = 1
"""Encoded count of an empty array: Kafka encodes the count of a compact array plus one."""

ACKS: Final = (-1, 0, 1)


class FlatProduce:
    """A Produce request with one batch for one partition, outside of a transaction, read directly
    from its frame."""

    __slots__ = ("acks", "is_by_id", "place", "records", "timeout_ms")
    transactional_id: ClassVar[str | None] = None

    def __init__(
        self, acks: int, timeout_ms: int, place: bytes, records: memoryview, is_by_id: bool
    ) -> None:
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.place = place
        """Bytes of the Produce request that identify the topic and the partition. The response
        repeats them."""
        self.records = records
        """View of the record batch in the Produce request's frame."""
        self.is_by_id = is_by_id
        """True if the Produce request identifies the topic by id, False if by name."""

    @property
    def name(self) -> str:
        """Name of the topic, or an empty string if the request identifies the topic by id.

        Raises ProtocolError if the name is not UTF-8.
        """
        if self.is_by_id:
            return ""
        try:
            return self.place[2:-5].decode()
        except UnicodeDecodeError:
            raise ProtocolError("ProduceRequest has text that is no UTF-8") from None

    @property
    def topic_id(self) -> UUID:
        """Id of the topic, or the zero id if the Produce request identifies the topic by name."""
        if not self.is_by_id:
            return ZERO_UUID
        data = self.place[1:17]
        return find_uuid(data) or keep_uuid(data)

    @property
    def topic_data(self) -> list[TopicProduceData]:
        """The topic and the batch of the Produce request, as the generated codec decodes them."""
        index = int.from_bytes(self.place[-4:], "big", signed=True)
        data = PartitionProduceData(index=index, records=self.records)
        return [TopicProduceData(name=self.name, topic_id=self.topic_id, partition_data=[data])]

    def decoded(self) -> ProduceRequest:
        """Return the Produce request as the generated codec decodes it."""
        return ProduceRequest(
            acks=self.acks, timeout_ms=self.timeout_ms, topic_data=self.topic_data
        )


def read_flat_produce(frame: memoryview, at: int, version: int) -> FlatProduce | None:
    """Read the Produce request whose body begins at position `at` of the frame. Returns None if the
    generated codec must read it."""
    size = len(frame)
    if version < FLEXIBLE_FROM or size < at + START_BYTES + ID_PLACE_BYTES:
        return None
    is_by_id = version >= PRODUCE_TOPIC_IDS_FROM
    if is_by_id:
        place_bytes = ID_PLACE_BYTES
    else:
        name_size = frame[at + START_BYTES + 1]
        if not name_size or name_size & LONG_SIZE:
            return None
        place_bytes = NAME_PLACE_BYTES + name_size
    batch_at = at + START_BYTES + place_bytes + 1
    if size < batch_at - 1 + REST_BYTES_MIN:
        return None
    transactional_id, acks, timeout_ms, place, batch_size, more = (
        _starts.get(place_bytes) or _start_of(place_bytes)
    )(frame, at)
    if transactional_id != NULL or place[0] != ONE or place[-5] != ONE or acks not in ACKS:
        return None
    batch_size -= 1
    if batch_size >= LONG_SIZE - 1:
        if more & LONG_SIZE:
            return None
        batch_size += (more << 7) - LONG_SIZE
        batch_at += 1
    batch_end = batch_at + batch_size
    if (
        batch_size < BATCH_HEADER_BYTES
        or size != batch_end + TAGS_BYTES
        or _read_tags(frame, batch_end) != NO_TAGS
    ):
        return None
    return FlatProduce(acks, timeout_ms, place, frame[batch_at:batch_end], is_by_id)


def _start_of(place_bytes: int) -> Callable[..., tuple[int, int, int, bytes, int, int]]:
    """Return a function that reads the start of a Produce request, for one size in bytes of the
    fields with topic and partition."""
    read = _starts[place_bytes] = Struct(f">Bhi{place_bytes}sBB").unpack_from
    return read


def flat_produce_answer(
    correlation_id: int,
    place: bytes,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
    throttle_ms: int,
) -> bytes:
    """Return the frame of the response to a `FlatProduce` request whose batch is acknowledged."""
    size = len(place)
    # fmt: off
    return (_answers.get(size) or _writer_of(size))(
        ANSWER_BYTES + size, correlation_id, place, 0, base_offset, log_append_time_ms,
        log_start_offset, NO_ELEMENTS, NULL, 0, 0, throttle_ms, 0,
    )
    # fmt: on


def _writer_of(place_bytes: int) -> Callable[..., bytes]:
    """Return a function that packs Produce responses, for one size in bytes of the fields with
    topic and partition."""
    write = _answers[place_bytes] = Struct(f">iix{place_bytes}s{ANSWER_REST}").pack
    return write
