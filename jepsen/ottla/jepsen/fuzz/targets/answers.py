"""Fuzz target: responses of a hostile broker to every call of Ottla's client.

An input is the number of a call, and the bodies of the responses to its requests, each preceded by
its length. A call may end with any error class of Ottla's client. Time is virtual and limited.
"""

from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any

import trio
import trio.testing

from ottla.client.admin import Admin, open_admin
from ottla.client.admin_parts.admin_configs import ConfigResource
from ottla.client.admin_parts.admin_groups import MemberToRemove
from ottla.client.consumer import open_consumer
from ottla.client.fetch.fetched import FetchedRecords
from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.client.fetch.record_decoder import RecordDecoder
from ottla.client.groups.sticky_user_data import (
    read_cooperative_user_data,
    read_sticky_user_data,
    sticky_user_data,
)
from ottla.client.network.transport import TRANSPORT
from ottla.client.producer import open_producer
from ottla.jepsen.fuzz.chance import FuzzRng
from ottla.jepsen.fuzz.hostile_broker import Answer, HostileTransport
from ottla.jepsen.fuzz.target import FuzzTarget, number_of
from ottla.jepsen.fuzz.targets.batches import example_batches, with_right_crcs
from ottla.model.errors import CorruptDataError, OttlaError, ProtocolError
from ottla.model.ids import Epoch, NodeId, Offset, TopicPartition
from ottla.model.limits import MIB
from ottla.model.settings.client import ConsumerConfig, ProducerConfig
from ottla.model.settings.resources import ConfigKind
from ottla.wire.apis import response_class
from ottla.wire.codec import encode
from ottla.wire.codec_examples import example
from ottla.wire.codec_types import Struct
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment

BOOTSTRAP = (("broker", 9092),)
TIMEOUT_S = 0.35
"""Timeout in seconds of a call of Ottla's client: long enough for several retries."""

CALL_S_MAX = 1.0
"""Virtual time in seconds after which a client's call is cancelled. A disconnected client
reconnects at most every 50 ms, which costs about a millisecond of CPU. So this limits the CPU time
of the retries."""

COURSES = 4
AT = TopicPartition("t", 0)
NODE = NodeId(1)
TOPIC = ConfigResource(ConfigKind.TOPIC, "t")


def _of_admin(call: Callable[[Admin], Awaitable[Any]]) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        async with open_admin(BOOTSTRAP, timeout_s=TIMEOUT_S) as admin:
            await call(admin)

    return run


async def _produce() -> None:
    config = ProducerConfig(delivery_timeout_ms=400, request_timeout_ms=200, linger_ms=0)
    async with open_producer(BOOTSTRAP, config) as producer:
        await producer.send("t", b"v", partition=0)


async def _consume() -> None:
    async with open_consumer(BOOTSTRAP, ConsumerConfig(request_timeout_ms=200)) as consumer:
        consumer.assign([AT])
        consumer.seek(AT, 0)
        await consumer.poll(TIMEOUT_S)
        await consumer.end_offsets([AT])


def _of_member(group_protocol: str) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        config = ConsumerConfig(group_id="g", group_protocol=group_protocol, request_timeout_ms=200)
        async with open_consumer(BOOTSTRAP, config) as consumer:
            consumer.subscribe(["t"])
            await consumer.poll(TIMEOUT_S)

    return run


CALLS: tuple[Callable[[], Awaitable[None]], ...] = (
    _produce,
    _consume,
    _of_member("classic"),
    _of_member("consumer"),
    *(
        _of_admin(call)
        for call in (
            lambda admin: admin.describe_cluster(),
            lambda admin: admin.describe_quorum(),
            lambda admin: admin.describe_features(),
            lambda admin: admin.describe_configs(TOPIC, has_synonyms=True),
            lambda admin: admin.alter_configs(TOPIC, {"retention.ms": "7"}),
            lambda admin: admin.replace_configs(TOPIC, {"retention.ms": "7"}),
            lambda admin: admin.list_groups(),
            lambda admin: admin.describe_group("g"),
            lambda admin: admin.group_offsets("g"),
            lambda admin: admin.alter_group_offsets("g", {AT: 3}),
            lambda admin: admin.remove_group_members("g", [MemberToRemove("m")]),
            lambda admin: admin.delete_group("g"),
            lambda admin: admin.delete_group_offsets("g", [AT]),
            lambda admin: admin.elect_leaders([AT]),
            lambda admin: admin.alter_reassignments({AT: [1]}),
            lambda admin: admin.list_reassignments(),
            lambda admin: admin.describe_log_dirs(NODE),
            lambda admin: admin.describe_producers([AT]),
            lambda admin: admin.create_topic("t"),
            lambda admin: admin.delete_topic("t"),
            lambda admin: admin.create_partitions("t", 3),
            lambda admin: admin.list_topics(),
            lambda admin: admin.describe_topic("t"),
            lambda admin: admin.list_offsets({AT: -1}),
            lambda admin: admin.delete_records({AT: -1}),
        )
    ),
)
FETCHED = len(CALLS)
"""First byte of fuzzing inputs that consist of the bytes of a fetched partition. These inputs are
decoded without a connection."""

USER_DATA = FETCHED + 1
"""First byte of fuzzing inputs that contain user data from the assignor of another group member."""


def _check(data: bytes) -> None:
    number = number_of(data, len(CALLS) + 2)
    if number == FETCHED:
        _take_fetched(data[2:])
        return
    if number == USER_DATA:
        read_sticky_user_data(data[2:])
        read_cooperative_user_data(data[2:])
        return
    bodies = _bodies_of(data[2:])
    _call(CALLS[number], lambda key, version: next(bodies, None))


def _take_fetched(data: bytes) -> None:
    """Decode the bytes of a fetched partition by every method that the client offers. All methods
    must return the same records, or fail at the same offset."""
    body = with_right_crcs(data)
    scanned = _given_out(body, RecordDecoder(rows_before_import=1 << 40), is_batched=False)
    for is_batched in (False, True):
        arrays = RecordDecoder(rows_before_import=0, array_rows_min=1)
        assert _given_out(body, arrays, is_batched=is_batched) == scanned


def _given_out(
    body: bytes, decoder: RecordDecoder, *, is_batched: bool
) -> tuple[list[ConsumerRecord], Offset | None]:
    """Return the records that a decoder yields for fetched bytes, and the offset of the corruption
    (None if the bytes are intact). With `is_batched`, records are read batch by batch."""
    try:
        fetched = FetchedRecords(
            AT, Offset(0), Epoch(0), body, aborted=[(9, Offset(0))], decoder=decoder
        )
    except CorruptDataError:
        return [], Offset(0)
    found: list[ConsumerRecord] = []
    while True:
        before = fetched.offset
        try:
            some = fetched.take_batch(3) if is_batched else fetched.take(3)
        except CorruptDataError:
            return found, fetched.offset
        if not some:
            return found, None
        assert fetched.offset >= before
        found += some


def _bodies_of(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 2])
        yield data[at + 2 : at + 2 + length]
        at += 2 + length


def _call(call: Callable[[], Awaitable[None]], answer: Answer) -> None:
    async def run() -> None:
        TRANSPORT.set(HostileTransport(answer))
        with trio.move_on_after(CALL_S_MAX):
            await call()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


# ---- valid responses

NAMED: dict[str, Any] = {
    "error_code": 0,
    "error_message": None,
    "name": "t",
    "topic": "t",
    "topic_name": "t",
    "partition": 0,
    "partition_index": 0,
    "partition_id": 0,
    "index": 0,
    "leader": 1,
    "leader_id": 1,
    "node_id": 1,
    "broker_id": 1,
    "host": "broker",
    "port": 9092,
    "key": "g",
    "group_id": "g",
    "member_id": "m",
    "session_id": 0,
    "throttle_time_ms": 0,
    "leader_epoch": 1,
    "generation_id": 1,
    "protocol_name": "range",
    "protocol_type": "consumer",
}


def _made_good(value: Any, random: Random) -> None:
    """Replace most topic and group names in a random response by names from the client's request.
    The client then accepts the response."""
    if isinstance(value, list):
        del value[2:]
        for each in value:
            _made_good(each, random)
    elif isinstance(value, Struct):
        for field in value.__slots__:
            inner = getattr(value, field)
            wanted = NAMED.get(field)
            if field in NAMED and type(inner) is type(wanted) and random.random() < 0.95:
                setattr(value, field, wanted)
            elif field == "assignment" and isinstance(inner, bytes):
                setattr(value, field, bytes(2) + encode(ConsumerProtocolAssignment(), 0))
            else:
                _made_good(inner, random)


def _seeds(random: Random) -> Iterator[bytes]:
    for number, call in enumerate(CALLS):
        for _ in range(COURSES):
            yield number.to_bytes(2) + _course_of(call, random)
    for batch in example_batches(random):
        yield FETCHED.to_bytes(2) + batch
    yield USER_DATA.to_bytes(2) + sticky_user_data([AT, TopicPartition("u", 3)], 7)


def _course_of(call: Callable[[], Awaitable[None]], random: Random) -> bytes:
    """Run a client call against a broker with valid responses. Returns these responses as one
    fuzzing input."""
    bodies: list[bytes] = []
    rng = FuzzRng(random)

    def answer(key: int, version: int) -> bytes | None:
        if len(bodies) == 6:
            return None
        for _ in range(20):
            value = example(response_class(key), version, rng)
            _made_good(value, random)
            body = encode(value, version)
            if 10 < len(body) < 600:
                break
        bodies.append(body)
        return body

    try:
        _call(call, answer)
    except Exception:
        # The effect of a valid response on the client is checked when it is read as an input.
        return _joined(bodies)
    return _joined(bodies)


def _joined(bodies: list[bytes]) -> bytes:
    return b"".join(len(body).to_bytes(2) + body for body in bodies)


ANSWERS = FuzzTarget(
    name="answers",
    sentence="responses of a hostile broker to Ottla's client: producer, consumer, admin",
    check=_check,
    seeds=_seeds,
    refusals=(OttlaError, ProtocolError, CorruptDataError),
    allocation_free_bytes=2 * MIB,
)
