"""Fetch without message objects: consumers' requests for one partition, read directly from the
frame, and their responses.

Most fetches of a busy consumer name one partition by its topic id, without a session or as the only
change of a session. Such a request is read in place, without the objects of the generated codec.
Its response repeats the bytes by which the request identifies the topic and the partition. This
module makes no decisions. `FlatFetch` has the fields of `FetchRequest` and `FetchPartition` that a
handler reads. `read_flat_fetch` leaves every unusual request, valid or not, to the generated codec.
"""

from struct import Struct
from typing import ClassVar, Final
from uuid import UUID

from ottla.model.limits import INT64_MAX
from ottla.wire.apis import FETCH_TOPIC_IDS_FROM
from ottla.wire.codec_runtime import find_uuid, keep_uuid, write_uvarint
from ottla.wire.codec_types import Chunk, Records
from ottla.wire.messages.fetch_request import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

REPLICA_STATE_FROM: Final = 15
"""First version of Fetch in which a consumer sends no replica id."""

ONE: Final = 2
"""Compact count of one element, as Kafka's compact arrays encode it. Compact counts and sizes are
encoded as the number plus one."""

NO_ELEMENTS: Final = 1
"""Compact count of an empty array, as Kafka's compact arrays encode it."""

NULL: Final = 0
LONG_SIZE: Final = 0x80
"""Bit in the first byte of a compact size that is set if the size continues in the next byte."""

NO_REPLICA: Final = -1

REQUEST: Final = Struct(">iiibii22siqiqiIB")
"""Binary layout of a Fetch request for one partition, without a replica id. Its fields are: maximum
wait, minimum and maximum bytes, isolation level, session id and epoch; topic and partition (22
bytes); leader epoch, fetch offset, last fetched epoch, log start offset, maximum bytes; and the end
of the request, which is four bytes (see `END`) and the number of tagged fields, if the request
names no rack."""

END: Final = NO_ELEMENTS << 8
"""Value of the four bytes before the last byte of an ordinary Fetch request, apart from the size of
the rack's name. The bytes are: empty tags of the partition, empty tags of the topic, an empty list
of forgotten topics, and the size of the rack's name, for which this value has 0."""

_read_request: Final = REQUEST.unpack_from
_read_replica: Final = Struct(">i").unpack_from
REPLICA_BYTES: Final = 4
NO_RACK: Final = END + 1
"""Value of the four bytes described at `END` in a Fetch request that names no rack."""
REQUEST_BYTES: Final = REQUEST.size

ID_AT, COUNT_AT, INDEX_AT = 1, 17, 18
"""Positions in a Fetch request's bytes for topic and partition, which are topic count, topic id,
partition count and partition index."""

ANSWER_START: Final = ">iixihi22shqqqBi"
"""Format of the start of a Fetch response, up to the size of its records: frame length, correlation
id, tags; throttle time, error, session id; topic and partition; error, high watermark, last stable
offset, log start offset, aborted transactions, preferred replica."""

_ANY, _SHORT, _LONG = Struct(ANSWER_START), Struct(ANSWER_START + "B"), Struct(ANSWER_START + "H")
"""Binary layouts of the start of a Fetch response: without the size of the records, with a size of
one byte, and with a size of two bytes."""

_pack_any, _pack_short, _pack_long = _ANY.pack, _SHORT.pack, _LONG.pack
LENGTH_BYTES: Final = 4
NO_TAGS_BEHIND: Final = b"\0\0\0"
"""Last bytes of a Fetch response: empty tagged fields of the partition, of the topic and of the
message."""

ANY_REST: Final = _ANY.size - LENGTH_BYTES + len(NO_TAGS_BEHIND)
SHORT_REST: Final = _SHORT.size - LENGTH_BYTES + len(NO_TAGS_BEHIND)
LONG_REST: Final = _LONG.size - LENGTH_BYTES + len(NO_TAGS_BEHIND)
SHORT_MAX: Final = 126
"""Largest size, in bytes, of a Fetch response's records that is encoded in one byte."""
LONG_MAX: Final = (1 << 14) - 2
"""Largest size, in bytes, of a Fetch response's records that is encoded in two bytes."""


BYTES: Final = (bytes, bytearray)
"""Types of records whose bytes are copied into the frame of a Fetch response."""


class FlatFetch:
    """A consumer's Fetch request for one partition, which it names by topic id. The object serves
    both as the request and as its only partition."""

    __slots__ = (
        "current_leader_epoch", "fetch_offset", "isolation_level", "last_fetched_epoch",
        "log_start_offset", "max_bytes", "max_wait_ms", "min_bytes", "partition_max_bytes",
        "place", "rack_id", "session_epoch", "session_id",
    )  # fmt: skip
    replica_id: ClassVar[int] = NO_REPLICA
    replica_state: ClassVar[ReplicaState] = ReplicaState()
    forgotten_topics_data: ClassVar[list[ForgottenTopic]] = []
    high_watermark: ClassVar[int] = INT64_MAX

    def __init__(
        self,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        session_id: int,
        session_epoch: int,
        place: bytes,
        current_leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        log_start_offset: int,
        partition_max_bytes: int,
        rack_id: str,
    ) -> None:
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.place = place
        """Bytes of the Fetch request that identify the topic and the partition. The response
        repeats them."""
        self.current_leader_epoch = current_leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.partition_max_bytes = partition_max_bytes
        self.rack_id = rack_id
        """Rack of the consumer, or an empty string if the Fetch request names no rack."""

    @property
    def topic_id(self) -> UUID:
        """Id of the topic in the Fetch request."""
        data = self.place[ID_AT:COUNT_AT]
        return find_uuid(data) or keep_uuid(data)

    @property
    def partition(self) -> int:
        """Index of the partition in the Fetch request."""
        return int.from_bytes(self.place[INDEX_AT:], "big", signed=True)

    @property
    def topics(self) -> list[FetchTopic]:
        """The topic and partition of the Fetch request, as the generated codec decodes them."""
        partition = FetchPartition(
            partition=self.partition,
            current_leader_epoch=self.current_leader_epoch,
            fetch_offset=self.fetch_offset,
            last_fetched_epoch=self.last_fetched_epoch,
            log_start_offset=self.log_start_offset,
            partition_max_bytes=self.partition_max_bytes,
        )
        return [FetchTopic(topic_id=self.topic_id, partitions=[partition])]


def read_flat_fetch(frame: memoryview, at: int, version: int) -> FlatFetch | None:
    """Read the Fetch request whose body begins at position `at` of the frame. Returns None if the
    generated codec must read it."""
    size = len(frame)
    if version < REPLICA_STATE_FROM:
        if (
            version < FETCH_TOPIC_IDS_FROM
            or size < at + REPLICA_BYTES
            or _read_replica(frame, at)[0] != NO_REPLICA
        ):
            return None
        at += REPLICA_BYTES
    end = at + REQUEST_BYTES
    if size < end:
        return None
    # fmt: off
    (
        max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, place,
        leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, partition_max_bytes,
        rest, next_byte,
    ) = _read_request(frame, at)
    if place[0] != ONE or place[COUNT_AT] != ONE:
        return None
    rack_id = ""
    if rest != NO_RACK or next_byte or size != end:
        rack_size = rest - END
        if (
            not NO_ELEMENTS < rack_size < LONG_SIZE
            or size != end + rack_size - 1
            or frame[size - 1]
            or not (rack := bytes(frame[end - 1 : size - 1])).isascii()
        ):
            return None
        rack_id = rack.decode("ascii")
    return FlatFetch(
        max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, place,
        leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, partition_max_bytes,
        rack_id,
    )
    # fmt: on


def flat_fetch_answer(
    correlation_id: int,
    throttle_ms: int,
    session_id: int,
    place: bytes,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    is_committed: bool,
    records: Records,
    size: int,
) -> list[Chunk]:
    """Return the frame of the response to a `FlatFetch` whose partition has no error.

    The response lists no aborted transaction. With `is_committed` that list is empty, as for
    READ_COMMITTED, otherwise null. `size` is the number of bytes of the records. The frame is one
    chunk unless the records are stored elsewhere.
    """
    aborted = NO_ELEMENTS if is_committed else NULL
    # fmt: off
    if size <= SHORT_MAX:
        start = _pack_short(
            size + SHORT_REST, correlation_id, throttle_ms, 0, session_id, place, 0,
            high_watermark, last_stable_offset, log_start_offset, aborted, NO_REPLICA, size + 1,
        )
    elif size <= LONG_MAX:
        start = _pack_long(
            size + LONG_REST, correlation_id, throttle_ms, 0, session_id, place, 0,
            high_watermark, last_stable_offset, log_start_offset, aborted, NO_REPLICA,
            (size + 1 & 0x7F | LONG_SIZE) << 8 | size + 1 >> 7,
        )
    else:
        compact_size = write_uvarint(size + 1)
        start = _pack_any(
            size + ANY_REST + len(compact_size), correlation_id, throttle_ms, 0, session_id, place,
            0, high_watermark, last_stable_offset, log_start_offset, aborted, NO_REPLICA,
        ) + compact_size
    # fmt: on
    if isinstance(records, BYTES):
        return [b"".join((start, records, NO_TAGS_BEHIND))]
    return [start, records, NO_TAGS_BEHIND]
