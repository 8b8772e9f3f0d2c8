"""Fuzz target: a client's bytes from the frame's length to the response, processed by the core of a
real broker.

The first byte of an input selects the size of the pieces in which the other bytes arrive. The
broker must send complete responses with the correlation ids of the requests, in the order of the
requests.
"""

import struct
from collections.abc import Iterator
from random import Random
from uuid import UUID

from ottla.jepsen.fuzz.chance import FuzzRng
from ottla.jepsen.fuzz.mini_broker import PUSH_INTERVAL_MS, TOPIC, MiniBroker, id_of
from ottla.jepsen.fuzz.target import FuzzTarget
from ottla.jepsen.fuzz.targets.batches import example_batches
from ottla.model.errors import ProtocolError
from ottla.model.limits import MIB
from ottla.telemetry.clients.subscriptions import subscription_id_of
from ottla.wire.apis import API, request_class, response_class
from ottla.wire.codec import decode, encode
from ottla.wire.codec_examples import example
from ottla.wire.codec_types import Message
from ottla.wire.compression import Codec, compress
from ottla.wire.headers import (
    correlation_id_of,
    decode_request_header,
    decode_response_header,
    encode_request_header,
)
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.push_telemetry_request import PushTelemetryRequest

METRICS = b"\n\x0b\x12\x09\x12\x07\n\x05a.sum"
"""Encoded OTLP MetricsData with one metric, a.sum, that has no points."""

LENGTH = struct.Struct(">i")
PIECES = (1 << 20, 1, 7, 100)
"""Sizes in bytes of the pieces in which a client's input arrives."""


def _check(data: bytes) -> None:
    broker = MiniBroker()
    body = data[1:]
    sent = broker.take(body, PIECES[data[0] % len(PIECES)] if data else 1)
    for fault in broker.faults:
        raise fault
    asked = list(_requests_of(body))
    for at, frame in enumerate(_frames_of(sent)):
        # A Produce with acks=0 has no response; all other responses are in order.
        while asked and not _is_answered_by(asked[0], frame):
            asked.pop(0)
        assert asked, f"answer {at} is to no request, or cannot be read"
        asked.pop(0)
    if broker.closed_for_bad_input_count:
        raise ProtocolError("the connection was closed")


def _frames_of(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        (length,) = LENGTH.unpack_from(data, at)
        frame = data[at + 4 : at + 4 + length]
        assert len(frame) == length, "an answer is not as long as it says"
        yield frame
        at += 4 + length


def _requests_of(data: bytes) -> Iterator[tuple[int, int, int]]:
    at = 0
    while at + 4 <= len(data):
        (length,) = LENGTH.unpack_from(data, at)
        if not 0 <= length <= len(data) - at - 4:
            return
        request = data[at + 4 : at + 4 + length]
        header, correlation_id = decode_request_header(request), correlation_id_of(request)
        key, version = header.api_key, header.api_version
        again = encode_request_header(key, version, correlation_id, header.client_id)
        assert decode_request_header(again).fields()[:3] == header.fields()[:3]
        assert correlation_id_of(again) == correlation_id
        yield key, version, correlation_id
        at += 4 + length


def _is_answered_by(asked: tuple[int, int, int], frame: bytes) -> bool:
    api_key, version, correlation_id = asked
    if int.from_bytes(frame[:4], signed=True) != correlation_id:
        return False
    api = API[api_key]
    if not api.lowest <= version <= api.highest:
        return True  # ApiVersions of an unknown version
    try:
        _, at = decode_response_header(api_key, version, frame)
        decode(response_class(api_key), version, frame, at)
    except ProtocolError:
        return False
    return True


def framed(message: Message, version: int, correlation_id: int = 7) -> bytes:
    """Return the bytes of a request on the wire, with its frame and header."""
    header = encode_request_header(message.API_KEY, version, correlation_id, "fuzz")
    body = header + encode(message, version)
    return LENGTH.pack(len(body)) + body


def _seeds(random: Random) -> Iterator[bytes]:
    first, *others = example_batches(random)
    for version in (3, 9, 13):
        for acks in (-1, 0, 1):
            yield b"\0" + _produce(first, version, acks) * 2
            yield b"\2" + _produce(first, version, acks) + _fetch(min(version, 12))
    for batch in others:
        yield b"\0" + _produce(batch, 13, -1) + _fetch(18)
    for message in _of_groups():
        for version in message.VERSIONS:
            # Fields that an old version lacks are left out.
            try:
                yield b"\3" + framed(message, version)
            except ProtocolError:
                continue
    yield from _of_telemetry()
    yield from _of_every_api(random)


def _of_every_api(random: Random) -> Iterator[bytes]:
    rng = FuzzRng(random)
    for api_key in sorted(MiniBroker().dispatcher.api_keys):
        api = API[api_key]
        kind = request_class(api_key)
        for version in range(api.lowest, api.latest_stable + 1):
            for message in (kind(), example(kind, version, rng)):
                data = framed(message, version, random.getrandbits(31))
                if len(data) < 2_000:
                    yield b"\0" + data


def _produce(records: bytes, version: int, acks: int) -> bytes:
    data = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name=TOPIC, topic_id=id_of(TOPIC), partition_data=[data])
    return framed(ProduceRequest(acks=acks, timeout_ms=10, topic_data=[topic]), version)


def _fetch(version: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
    topic = FetchTopic(topic=TOPIC, topic_id=id_of(TOPIC), partitions=[partition])
    return framed(FetchRequest(max_wait_ms=5, min_bytes=1, topics=[topic]), max(4, version))


def _of_telemetry() -> Iterator[bytes]:
    """Yield telemetry pushes in every codec that the broker accepts. Each follows its
    GetTelemetrySubscriptions request."""
    client = UUID(int=1 << 64)
    get = framed(GetTelemetrySubscriptionsRequest(client_instance_id=client), 0)
    for codec in Codec:
        push = PushTelemetryRequest(
            client_instance_id=client,
            subscription_id=subscription_id_of(("*",), PUSH_INTERVAL_MS, client),
            compression_type=codec,
            metrics=compress(codec, METRICS),
        )
        yield b"\0" + framed(push, 0)
        yield b"\3" + get + framed(push, 0) * 2


def _of_groups() -> Iterator[Message]:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff")
    yield JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    yield ConsumerGroupHeartbeatRequest(
        group_id="c",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=5_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    commit = OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    yield OffsetCommitRequest(
        group_id="g",
        topics=[OffsetCommitRequestTopic(name=TOPIC, topic_id=id_of(TOPIC), partitions=[commit])],
    )
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    yield ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])]
    )
    yield MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    yield FindCoordinatorRequest(key="g", coordinator_keys=[])


FRAMES = FuzzTarget(
    name="frames",
    sentence="a client's bytes through the connection and all handlers of a small real broker",
    check=_check,
    seeds=_seeds,
    refusals=(ProtocolError,),
    allocation_free_bytes=4 * MIB,  # the broker itself
)
