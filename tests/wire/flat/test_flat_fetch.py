"""The flat codec of Fetch reads and writes as the generated codec, or leaves it to that."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.model.limits import INT64_MAX
from ottla.wire.answers import encode_answer
from ottla.wire.apis import FETCH
from ottla.wire.codec import decode_prefix, encode
from ottla.wire.codec_types import Chunk
from ottla.wire.flat.flat_fetch import FlatFetch, flat_fetch_answer, read_flat_fetch
from ottla.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from ottla.wire.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)

VERSIONS = range(12, 19)
FLAT_VERSIONS = VERSIONS[1:]
HEADER = b"header"
RACKS = ("", "", "", "rack", "r\u00e4ck", "r" * 126, "r" * 127)

int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def requests(draw: st.DrawFn, version: int) -> FetchRequest:
    def one_of(*values: int) -> int:
        return draw(st.sampled_from(values))

    replica = one_of(-1, -1, -1, 2)
    topics = [
        FetchTopic(
            topic="t" if version < 13 else "",
            topic_id=draw(st.uuids()) if version >= 13 else UUID(int=0),
            partitions=[
                FetchPartition(
                    partition=draw(int32s),
                    current_leader_epoch=draw(int32s),
                    fetch_offset=draw(int64s),
                    last_fetched_epoch=draw(int32s),
                    log_start_offset=draw(int64s),
                    partition_max_bytes=draw(int32s),
                    high_watermark=one_of(INT64_MAX, 5) if version >= 18 else INT64_MAX,
                )
                for _ in range(one_of(1, 1, 1, 0, 2))
            ],
        )
        for _ in range(one_of(1, 1, 1, 0, 2))
    ]
    return FetchRequest(
        replica_id=replica if version < 15 else -1,
        replica_state=ReplicaState(replica_id=replica if version >= 15 else -1),
        max_wait_ms=draw(int32s),
        min_bytes=draw(int32s),
        max_bytes=draw(int32s),
        isolation_level=draw(st.integers(-128, 127)),
        session_id=draw(int32s),
        session_epoch=draw(int32s),
        topics=topics,
        forgotten_topics_data=[ForgottenTopic(partitions=[1])] * one_of(0, 0, 0, 1),
        rack_id=draw(st.sampled_from(RACKS)),
    )


def is_read_alike(body: bytes, version: int) -> bool:
    """Hold a flat request to the decoded one; return whether it was read flat."""
    frame = memoryview(HEADER + body)
    flat = read_flat_fetch(frame, len(HEADER), version)
    if flat is None:
        return False
    decoded, end = decode_prefix(FetchRequest, version, frame, len(HEADER))
    assert end == len(frame)
    decoded.rack_id = ""  # which the broker does not use
    assert as_decoded(flat) == decoded
    ((asked,),) = [topic.partitions for topic in decoded.topics]
    assert (flat.partition, flat.high_watermark) == (asked.partition, asked.high_watermark)
    return True


def as_decoded(flat: FlatFetch) -> FetchRequest:
    return FetchRequest(
        replica_id=flat.replica_id,
        replica_state=flat.replica_state,
        max_wait_ms=flat.max_wait_ms,
        min_bytes=flat.min_bytes,
        max_bytes=flat.max_bytes,
        isolation_level=flat.isolation_level,
        session_id=flat.session_id,
        session_epoch=flat.session_epoch,
        topics=flat.topics,
        forgotten_topics_data=flat.forgotten_topics_data,
    )


def joined(chunks: list[Chunk]) -> bytes:
    found = bytearray()
    for each in chunks:
        assert isinstance(each, bytes | bytearray | memoryview)
        found += each
    return bytes(found)


@given(st.data(), st.sampled_from(VERSIONS))
def test_a_request_is_read_as_by_the_generated_codec(data: st.DataObject, version: int) -> None:
    request = data.draw(requests(version))
    parts = [one for topic in request.topics for one in topic.partitions]
    is_flat = is_read_alike(encode(request, version), version)
    is_plain = (
        len(request.topics) == len(parts) == 1
        and request.replica_id < 0
        and request.replica_state.replica_id < 0
        and not request.forgotten_topics_data
        and request.rack_id in ("", "rack", "r" * 126)
        and parts[0].high_watermark == INT64_MAX
    )
    assert is_flat == (is_plain and version >= 13)


@given(st.sampled_from(FLAT_VERSIONS), st.data())
def test_changed_bytes_are_read_alike_or_left_to_the_generated_codec(
    version: int, data: st.DataObject
) -> None:
    asked = FetchPartition(partition=2, fetch_offset=3, partition_max_bytes=4)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        session_id=7,
        session_epoch=8,
        topics=[FetchTopic(topic_id=UUID(int=3), partitions=[asked])],
        rack_id=data.draw(st.sampled_from(("", "rack"))),
    )
    body = bytearray(encode(request, version))
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(body) - 1) | st.integers(-10, -1))
        body[at] = data.draw(st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFF)) | st.integers(0, 255))
    size = data.draw(st.sampled_from((0, 0, 0, -1, 1)))
    is_read_alike(bytes(body[: len(body) + min(size, 0)]) + bytes(max(size, 0)), version)


@given(
    st.sampled_from(FLAT_VERSIONS),
    st.sampled_from((0, 1, 125, 126, 127, 128, 4_096, 16_381, 16_382, 16_383, 20_000)),
    st.tuples(int32s, int32s, int32s),
    st.tuples(int64s, int64s, int64s),
    st.booleans(),
)
def test_a_response_is_written_as_by_the_generated_codec(
    version: int,
    size: int,
    numbers: tuple[int, int, int],
    offsets: tuple[int, int, int],
    is_committed: bool,
) -> None:
    correlation_id, throttle_ms, session_id = numbers
    topic_id, records = UUID(int=5), b"r" * size
    request = FetchRequest(
        topics=[FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=9)])]
    )
    flat = read_flat_fetch(memoryview(encode(request, version)), 0, version)
    assert flat is not None
    high_watermark, last_stable_offset, log_start_offset = offsets
    data = PartitionData(
        partition_index=9,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        aborted_transactions=[] if is_committed else None,
        records=records,
    )
    response = FetchResponse(
        throttle_time_ms=throttle_ms,
        session_id=session_id,
        responses=[FetchableTopicResponse(topic_id=topic_id, partitions=[data])],
    )
    expected = encode_answer(response, FETCH, version, correlation_id)
    for stored in (records, memoryview(records)):
        found = flat_fetch_answer(
            correlation_id,
            throttle_ms,
            session_id,
            flat.place,
            *offsets,
            is_committed,
            stored,
            size,
        )
        assert joined(found) == joined(expected)
