"""The flat codec of OffsetCommit reads and writes as the generated one, or leaves it to that."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ProtocolError
from ottla.wire.apis import OFFSET_COMMIT
from ottla.wire.codec import decode_prefix, encode
from ottla.wire.flat.flat_commit import ROWS_MAX, flat_commit_answer, read_flat_commit
from ottla.wire.headers import answer_start
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

COMMIT_VERSIONS = range(8, 11)
HEADER = b"header"

texts = st.text(max_size=5) | st.just("t" * 200)
rows = st.builds(
    OffsetCommitRequestPartition,
    partition_index=st.integers(-2, 1 << 20),
    committed_offset=st.integers(-1, 1 << 60),
    committed_leader_epoch=st.integers(-1, 1 << 20),
    committed_metadata=st.none() | texts,
)
topics = st.builds(
    OffsetCommitRequestTopic,
    name=texts,
    topic_id=st.uuids() | st.just(UUID(int=0)),
    partitions=st.lists(rows, min_size=1, max_size=3) | st.lists(rows, max_size=ROWS_MAX + 1),
)
requests = st.builds(
    OffsetCommitRequest,
    group_id=texts,
    generation_id_or_member_epoch=st.integers(-1, 1 << 20),
    member_id=texts,
    group_instance_id=st.none() | texts,
    topics=st.lists(topics, min_size=1, max_size=1) | st.lists(topics, max_size=2),
)


def is_read_alike(body: bytes, version: int) -> bool:
    """Hold a flat request to the decoded one; return whether it was read flat."""
    frame = memoryview(HEADER + body)
    flat = read_flat_commit(frame, len(HEADER), version)
    if flat is None:
        return False
    try:
        found = flat.decoded()
    except ProtocolError:
        found = None
    try:
        decoded, end = decode_prefix(OffsetCommitRequest, version, frame, len(HEADER))
    except ProtocolError:
        assert found is None
        return True
    for topic in decoded.topics:
        for row in topic.partitions:
            row.committed_metadata = row.committed_metadata or ""
    assert found == decoded
    assert end == len(frame)
    return True


@given(requests, st.sampled_from(COMMIT_VERSIONS))
def test_a_request_is_read_as_by_the_generated_codec(
    request: OffsetCommitRequest, version: int
) -> None:
    is_flat = is_read_alike(encode(request, version), version)
    is_plain = len(request.topics) == 1 and 0 < len(request.topics[0].partitions) <= ROWS_MAX
    names = [request.group_id, request.member_id, request.group_instance_id or ""]
    if is_plain:
        parts = request.topics[0].partitions
        names += [part.committed_metadata or "" for part in parts]
        names += [request.topics[0].name] if version < 10 else []
    assert is_flat == (is_plain and all(len(name.encode()) < 127 for name in names))


@given(requests, st.sampled_from(COMMIT_VERSIONS), st.data())
def test_changed_bytes_are_read_alike_or_left_to_the_generated_codec(
    request: OffsetCommitRequest, version: int, data: st.DataObject
) -> None:
    body = bytearray(encode(request, version))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFF)) | st.integers(0, 255))
    is_read_alike(bytes(body), version)


@given(
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.lists(st.tuples(st.integers(0, 99), st.sampled_from((0, 3, 22))), min_size=1, max_size=9),
    st.integers(0, 1 << 30),
    st.sampled_from(COMMIT_VERSIONS),
)
def test_an_answer_is_written_as_by_the_generated_codec(
    correlation_id: int, answers: list[tuple[int, int]], throttle_ms: int, version: int
) -> None:
    parts = [OffsetCommitRequestPartition(partition_index=index) for index, _ in answers]
    topic = OffsetCommitRequestTopic(name="topic", topic_id=UUID(int=3), partitions=parts)
    body = encode(OffsetCommitRequest(group_id="g", topics=[topic]), version)
    flat = read_flat_commit(memoryview(body), 0, version)
    assert flat is not None
    codes = [code for _, code in answers]
    answer = flat_commit_answer(correlation_id, flat.place, flat.rows, codes, throttle_ms)
    reported = [
        OffsetCommitResponsePartition(partition_index=index, error_code=code)
        for index, code in answers
    ]
    named = OffsetCommitResponseTopic(name="topic", topic_id=UUID(int=3), partitions=reported)
    expected = encode(OffsetCommitResponse(topics=[named], throttle_time_ms=throttle_ms), version)
    assert answer == answer_start(OFFSET_COMMIT, version, correlation_id, len(expected)) + expected
