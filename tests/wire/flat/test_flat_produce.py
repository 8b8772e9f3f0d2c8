"""The flat codec of Produce reads and writes as the generated codec, or leaves it to that."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ProtocolError
from ottla.wire.apis import PRODUCE
from ottla.wire.batch_builder import build_batch
from ottla.wire.codec import decode_prefix, encode
from ottla.wire.flat.flat_produce import FlatProduce, flat_produce_answer, read_flat_produce
from ottla.wire.headers import answer_start
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

PRODUCE_VERSIONS = range(3, 14)
BATCHES = tuple(build_batch([(7, None, b"v" * size)]) for size in (0, 60, 100, 9_000, 20_000))
HEADER = b"header"

records = st.one_of(st.sampled_from(BATCHES), st.none(), st.binary(max_size=200))
parts = st.builds(PartitionProduceData, index=st.integers(-5, 1 << 20), records=records)
one_or_few = st.one_of(st.lists(parts, min_size=1, max_size=1), st.lists(parts, max_size=3))
topics = st.builds(
    TopicProduceData,
    name=st.one_of(st.just(""), st.text(max_size=5), st.just("t" * 200)),
    topic_id=st.uuids() | st.just(UUID(int=0)),
    partition_data=one_or_few,
)
requests = st.builds(
    ProduceRequest,
    transactional_id=st.sampled_from((None, None, None, "", "t")),
    acks=st.sampled_from((-1, -1, 0, 1, 2)),
    timeout_ms=st.integers(-(1 << 31), (1 << 31) - 1),
    topic_data=st.one_of(st.lists(topics, min_size=1, max_size=1), st.lists(topics, max_size=2)),
)


def is_read_alike(body: bytes, version: int) -> bool:
    """Hold a flat request to the decoded one; return whether it was read flat."""
    frame = memoryview(HEADER + body)
    flat = read_flat_produce(frame, len(HEADER), version)
    if flat is None:
        return False
    try:
        found = ProduceRequest(
            transactional_id=flat.transactional_id,
            acks=flat.acks,
            timeout_ms=flat.timeout_ms,
            topic_data=flat.topic_data,
        )
    except ProtocolError as error:
        with pytest.raises(ProtocolError, match="UTF-8") as expected:
            decode_prefix(ProduceRequest, version, frame, len(HEADER))
        assert expected.value.where.endswith(error.where.split(" has ")[1])
        return True
    decoded, end = decode_prefix(ProduceRequest, version, frame, len(HEADER))
    assert found == decoded
    assert end == len(frame)
    return True


@given(requests, st.sampled_from(PRODUCE_VERSIONS))
def test_a_request_is_read_as_by_the_generated_codec(request: ProduceRequest, version: int) -> None:
    parts = [one for topic in request.topic_data for one in topic.partition_data]
    is_flat = is_read_alike(encode(request, version), version)
    is_plain = (
        len(request.topic_data) == 1
        and len(parts) == 1
        and request.transactional_id is None
        and parts[0].records in BATCHES[:-1]
        and request.acks != 2
        and (version >= 13 or len(request.topic_data[0].name.encode()) < 127)
    )
    assert is_flat >= (is_plain and version >= 9)


@given(
    st.sampled_from(BATCHES[:4]),
    st.sampled_from(PRODUCE_VERSIONS[6:]),
    st.data(),
)
def test_changed_bytes_are_read_alike_or_left_to_the_generated_codec(
    batch: bytes, version: int, data: st.DataObject
) -> None:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1_000,
        topic_data=[
            TopicProduceData(
                name="topic",
                topic_id=UUID(int=3),
                partition_data=[PartitionProduceData(index=2, records=batch)],
            )
        ],
    )
    body = bytearray(encode(request, version))
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, min(60, len(body) - 1)) | st.integers(-4, -1))
        body[at] = data.draw(st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFF)) | st.integers(0, 255))
    size = data.draw(st.sampled_from((0, 0, 0, -1, 1)))
    is_read_alike(bytes(body[: len(body) + min(size, 0)]) + bytes(max(size, 0)), version)


@given(
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(0, 1 << 62),
    st.integers(-1, 1 << 50),
    st.integers(0, 1 << 62),
    st.integers(0, 1 << 30),
    st.integers(0, 1 << 20),
    st.sampled_from(PRODUCE_VERSIONS[6:]),
)
def test_an_answer_is_written_as_by_the_generated_codec(
    correlation_id: int,
    base_offset: int,
    append_time_ms: int,
    log_start: int,
    throttle_ms: int,
    index: int,
    version: int,
) -> None:
    data = [PartitionProduceData(index=index, records=BATCHES[1])]
    topic = TopicProduceData(name="topic", topic_id=UUID(int=3), partition_data=data)
    body = encode(ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), version)
    flat = read_flat_produce(memoryview(body), 0, version)
    assert isinstance(flat, FlatProduce)
    answer = flat_produce_answer(
        correlation_id, flat.place, base_offset, append_time_ms, log_start, throttle_ms
    )
    part = PartitionProduceResponse(
        index=index,
        base_offset=base_offset,
        log_append_time_ms=append_time_ms,
        log_start_offset=log_start,
    )
    named = TopicProduceResponse(
        name=topic.name, topic_id=topic.topic_id, partition_responses=[part]
    )
    expected = encode(ProduceResponse(responses=[named], throttle_time_ms=throttle_ms), version)
    assert answer == answer_start(PRODUCE, version, correlation_id, len(expected)) + expected
