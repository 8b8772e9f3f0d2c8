"""Hostile input: refused with Kafka's code or a closed connection, and no broker ends."""

import os
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, ProducerId
from ottla.wire import codec, headers
from ottla.wire.batch_builder import (
    ControlType,
    RecordToBuild,
    build_batch,
    build_end_transaction_marker,
)
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import ProduceResponse
from tests.cluster.secure_form import open_socket

pytestmark = pytest.mark.cluster

TOPIC = "victim"
TIMESTAMP_MS = 1_760_000_000_000
BAD_CONNECTIONS = 2_000


def address_of(cluster: Any) -> tuple[str, int]:
    host, _, port = cluster.bootstrap.rpartition(":")
    return host, int(port)


@pytest.fixture(scope="module", autouse=True)
def topic(cluster: Any) -> Iterator[None]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(TOPIC, 1, config={"max.message.bytes": "2000"})
    for future in admin.create_topics([new]).values():
        future.result(timeout=60)
    yield
    # After all that came before: it still takes a record and gives back every one it took.
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(TOPIC, b"last")
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=60)
    consumer.assign([TopicPartition(TOPIC, 0, end - 1)])
    message = consumer.poll(10)
    assert message is not None
    assert message.value() == b"last"
    consumer.close()


def frame(api_key: int, version: int, body: bytes) -> bytes:
    header = headers.encode_request_header(api_key, version, 7, "stranger")
    return struct.pack(">i", len(header) + len(body)) + header + body


TLS_HELLO = bytes.fromhex("16030100c5010000c10303") + bytes(194)

CLOSING = {
    "garbage": b"\xde\xad\xbe\xef" * 16,
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": TLS_HELLO,
    "a frame length of -1": struct.pack(">i", -1),
    "a frame length of 0": struct.pack(">i", 0),
    "a frame length of 2 GiB": struct.pack(">i", 0x7FFFFFFF),
    "an unknown API": struct.pack(">ihhih", 10, 9_999, 0, 7, -1),
    "a version too high": frame(3, 99, b""),
    "a version no longer spoken": frame(0, 2, b""),
    "a header cut off": struct.pack(">ihh", 4, 3, 12),
    "a header without body": frame(3, 12, b""),
    "a controller's API": frame(52, 0, b""),
}


@pytest.mark.parametrize("case", CLOSING)
def test_what_is_not_the_protocol_ends_its_connection_alone(cluster: Any, case: str) -> None:
    with open_socket(address_of(cluster)) as neighbour:
        with open_socket(address_of(cluster)) as stranger:
            stranger.sendall(CLOSING[case])
            assert closed(stranger)
        neighbour.sendall(frame(18, 0, b""))
        assert len(neighbour.recv(4096)) > 100


def closed(client: socket.socket) -> bool:
    try:
        return client.recv(4096) == b""
    except (ConnectionResetError, ssl.SSLError):
        return True


def test_apiversions_too_high_is_answered_in_version_0_with_code_35(cluster: Any) -> None:
    with open_socket(address_of(cluster)) as client:
        client.sendall(frame(18, 99, b""))
        answer = client.recv(4096)
    correlation_id, code = struct.unpack_from(">ih", answer, 4)
    assert (correlation_id, code) == (7, ErrorCode.UNSUPPORTED_VERSION)


def exchange(cluster: Any, api_key: int, version: int, body: bytes) -> memoryview:
    with open_socket(address_of(cluster)) as client:
        client.sendall(frame(api_key, version, body))
        stream = client.makefile("rb")
        answer = memoryview(stream.read(int.from_bytes(stream.read(4), "big")))
    _, at = headers.decode_response_header(api_key, version, answer)
    return answer[at:]


def good_batch(size: int = 10) -> bytearray:
    return bytearray(build_batch([RecordToBuild(TIMESTAMP_MS, b"k", b"v" * size)]))


def with_bad_crc() -> bytearray:
    batch = good_batch()
    batch[-1] ^= 1
    return batch


def with_wrong_count() -> bytes:
    import crc32c

    batch = good_batch()
    struct.pack_into(">i", batch, 57, 5)
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    return bytes(batch)


BATCHES = {
    "a CRC mismatch": (with_bad_crc, ErrorCode.CORRUPT_MESSAGE),
    "a count mismatch": (with_wrong_count, ErrorCode.INVALID_RECORD),
    "a control batch from a client": (
        lambda: build_end_transaction_marker(
            ControlType.COMMIT,
            timestamp_ms=TIMESTAMP_MS,
            producer_id=ProducerId(1),
            producer_epoch=0,
            coordinator_epoch=Epoch(0),
        ),
        ErrorCode.INVALID_RECORD,
    ),
    "a batch above max.message.bytes": (
        lambda: good_batch(3_000),
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    "two batches at once": (lambda: good_batch() + good_batch(), ErrorCode.INVALID_RECORD),
    "a batch cut off": (lambda: good_batch()[:-3], ErrorCode.CORRUPT_MESSAGE),
}


@pytest.mark.parametrize("case", BATCHES)
def test_a_bad_batch_gets_kafkas_code(cluster: Any, case: str) -> None:
    make, code = BATCHES[case]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(
                name=TOPIC, partition_data=[PartitionProduceData(index=0, records=make())]
            )
        ],
    )
    body = exchange(cluster, 0, 9, codec.encode(request, 9))
    answer = codec.decode(ProduceResponse, 9, body)
    assert ErrorCode(answer.responses[0].partition_responses[0].error_code) is code


@pytest.mark.parametrize(
    ("name", "replication_factor", "code"),
    [
        ("a/b", 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("fine", 5, ErrorCode.INVALID_REPLICATION_FACTOR),
        (TOPIC, 1, ErrorCode.TOPIC_ALREADY_EXISTS),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_kafkas_code(
    cluster: Any, name: str, replication_factor: int, code: ErrorCode
) -> None:
    new = CreatableTopic(name=name, num_partitions=1, replication_factor=replication_factor)
    body = exchange(
        cluster, 19, 5, codec.encode(CreateTopicsRequest(topics=[new], timeout_ms=10_000), 5)
    )
    answer = codec.decode(CreateTopicsResponse, 5, body)
    assert ErrorCode(answer.topics[0].error_code) is code
    assert answer.topics[0].error_message


def test_two_thousand_bad_connections_leave_nothing_behind(cluster: Any) -> None:
    pid = cluster.pid("broker")
    cases = list(CLOSING.values())

    def storm(count: int) -> None:
        for index in range(count):
            with open_socket(address_of(cluster)) as client:
                client.sendall(cases[index % len(cases)])
                assert closed(client)

    storm(200)
    descriptors, memory = descriptors_of(pid), resident_bytes(pid)
    storm(BAD_CONNECTIONS)
    assert descriptors_of(pid) <= descriptors + 2
    assert resident_bytes(pid) - memory < 4 << 20


def descriptors_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
