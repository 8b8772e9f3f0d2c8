"""Records of requests: found in each version, and never in bytes that cannot be decoded."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.testing.world.request_records import (
    APIS_WITH_RECORDS,
    RecordRange,
    records_of_request,
    records_of_response,
)
from ottla.testing.world.request_watch import SmallFrames
from ottla.wire.apis import FETCH, OFFSET_COMMIT, PRODUCE, TXN_OFFSET_COMMIT, request_class
from ottla.wire.batch import HEADER
from ottla.wire.codec import encode
from ottla.wire.codec_types import Message
from ottla.wire.headers import encode_request_header, encode_response_header
from ottla.wire.messages import fetch_request as fetch
from ottla.wire.messages import fetch_response as fetched
from ottla.wire.messages import offset_commit_request as commit
from ottla.wire.messages import produce_request as produce
from ottla.wire.messages import produce_response as produced
from ottla.wire.messages import txn_offset_commit_request as txn_commit

ORDERS = UUID(int=7)


def topic_name(topic_id: UUID) -> str:
    assert topic_id == ORDERS
    return "orders"


def batch(base: int, count: int, *, attributes: int = 0) -> bytes:
    head = HEADER.pack(base, HEADER.size - 12, 0, 2, 0, attributes, count - 1, 0, 0, 0, 0, 0, count)
    assert len(head) == HEADER.size
    return head


def request(key: int, version: int, message: Message) -> bytes:
    return encode_request_header(key, version, 1, "a client") + encode(message, version)


def response(key: int, version: int, message: Message) -> bytes:
    return encode_response_header(key, version, 1) + encode(message, version)


def versions(key: int) -> list[int]:
    """Return the first version, the last one that may have names of topics, and the newest."""
    every = request_class(key).VERSIONS
    return [every[0], every[-2], every[-1]]


@pytest.mark.parametrize("version", versions(OFFSET_COMMIT))
def test_a_commit_names_the_offset_of_each_partition(version: int) -> None:
    partitions = [
        commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=6),
        commit.OffsetCommitRequestPartition(partition_index=1, committed_offset=-1),
    ]
    topic = commit.OffsetCommitRequestTopic(name="orders", topic_id=ORDERS, partitions=partitions)
    frame = request(OFFSET_COMMIT, version, commit.OffsetCommitRequest(topics=[topic]))

    (span,) = records_of_request(frame, topic_name)

    assert str(span) == "orders-0 offset 6"
    assert span.facts() == {"topic": "orders", "partition": 0, "committed": 6}


@pytest.mark.parametrize("version", versions(TXN_OFFSET_COMMIT))
def test_a_commit_of_a_transaction_names_the_offsets_too(version: int) -> None:
    partition = txn_commit.TxnOffsetCommitRequestPartition(partition_index=3, committed_offset=1)
    topic = txn_commit.TxnOffsetCommitRequestTopic(
        name="orders", topic_id=ORDERS, partitions=[partition]
    )
    frame = request(TXN_OFFSET_COMMIT, version, txn_commit.TxnOffsetCommitRequest(topics=[topic]))

    assert records_of_request(frame, topic_name) == [RecordRange("orders", 3, 0, 0, is_commit=True)]


@pytest.mark.parametrize("version", versions(PRODUCE))
def test_a_produced_batch_has_the_offsets_of_its_response(version: int) -> None:
    sent = produce.TopicProduceData(
        name="orders",
        topic_id=ORDERS,
        partition_data=[
            produce.PartitionProduceData(index=0, records=batch(0, 3)),
            produce.PartitionProduceData(index=1, records=batch(0, 1)),
        ],
    )
    answer = produced.TopicProduceResponse(
        name="orders",
        topic_id=ORDERS,
        partition_responses=[
            produced.PartitionProduceResponse(index=0, base_offset=10),
            produced.PartitionProduceResponse(index=1, error_code=6, base_offset=-1),
        ],
    )

    spans = records_of_response(
        request(PRODUCE, version, produce.ProduceRequest(topic_data=[sent])),
        response(PRODUCE, version, produced.ProduceResponse(responses=[answer])),
        topic_name,
    )

    assert [str(span) for span in spans] == ["orders-0@10-12"]
    assert spans[0].facts() == {"topic": "orders", "partition": 0, "offset": 10, "last_offset": 12}


@pytest.mark.parametrize("version", versions(FETCH))
def test_fetched_batches_are_one_range_without_markers_and_broken_ends(version: int) -> None:
    records = batch(4, 1, attributes=0x20) + batch(5, 2) + batch(7, 1) + batch(8, 5)[:-1]
    partition = fetched.PartitionData(partition_index=2, records=records)
    empty = fetched.PartitionData(partition_index=3, records=b"")
    topic = fetched.FetchableTopicResponse(
        topic="orders", topic_id=ORDERS, partitions=[partition, empty]
    )

    spans = records_of_response(
        request(FETCH, version, fetch.FetchRequest()),
        response(FETCH, version, fetched.FetchResponse(responses=[topic])),
        topic_name,
    )

    assert [str(span) for span in spans] == ["orders-2@5-7"]


@given(
    st.sampled_from(sorted(APIS_WITH_RECORDS)),
    st.integers(-1, 100),
    st.binary(max_size=200),
    st.binary(max_size=200),
)
def test_hostile_frames_have_no_records(key: int, version: int, body: bytes, answer: bytes) -> None:
    head = key.to_bytes(2, "big") + (version & 0xFFFF).to_bytes(2, "big") + b"\0\0\0\1\xff\xff"
    for frame in (body, head + body):
        for span in [
            *records_of_request(frame, str),
            *records_of_response(frame, answer, str),
            *records_of_response(frame, b"\0\0\0\1" + answer, str),
        ]:
            assert str(span)


@given(st.lists(st.binary(max_size=40), max_size=5), st.lists(st.integers(1, 30), max_size=9))
def test_frames_are_found_in_any_pieces(frames: list[bytes], cuts: list[int]) -> None:
    data = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    splitter = SmallFrames()
    found = []
    for size in [*cuts, len(data)]:
        found += splitter.feed(data[:size])
        data = data[size:]

    assert found + splitter.feed(data) == frames


def test_a_large_frame_is_skipped_and_the_next_one_found() -> None:
    large = b"x" * 70_000
    data = b"".join(len(one).to_bytes(4, "big") + one for one in (b"a", large, b"b"))
    splitter = SmallFrames()

    found = [
        frame for at in range(0, len(data), 1_000) for frame in splitter.feed(data[at:][:1000])
    ]

    assert found == [b"a", b"b"]
