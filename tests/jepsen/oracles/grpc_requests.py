"""Requests of every gRPC method of a controller, made from the descriptors of their messages.

`requests_of(method, truth, rng)` yields the encoded requests of one method: repeated fields hold
one element again and again, invented elements, or random extremes, as many as fit into the method's
limit. A `Truth` has the existing objects of the cluster that gets them, so that many of them pass
the first checks. For `Forward`, whose body is a client's request in Kafka's encoding,
`forward_requests_of` wraps those of `kafka_requests`; `broken_of` yields bytes that are no request.
The same `rng` seed gives the same requests.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from ottla.controller.client_requests import DECISIONS
from ottla.model.limits import INT32_MAX, INT64_MAX, KIB
from ottla.model.seams import Rng
from ottla.proto import controller_pb2 as pb
from ottla.rpc import controller_methods as methods
from ottla.rpc.cluster_id import CLUSTER_ID
from ottla.rpc.method import RpcMethod
from ottla.rpc.quorum_codec import QUORUM_METHODS
from ottla.wire.apis import API, DELETE_TOPICS
from ottla.wire.codec import encode
from tests.jepsen.oracles import kafka_requests
from tests.jepsen.oracles.kafka_values import HOSTILE_TEXTS, ClusterNames

OF_CONTROLLER: tuple[RpcMethod[Any, Any], ...] = (
    methods.REGISTER,
    methods.HEARTBEAT,
    methods.ATTEND,
    methods.ALTER_PARTITION,
    methods.ALLOCATE_PRODUCER_IDS,
    methods.ASSIGN_REPLICAS_TO_DIRS,
    methods.UNREGISTER,
    methods.REGISTER_CONTROLLER,
)
OF_QUORUM: tuple[RpcMethod[Any, Any], ...] = tuple(
    conversation.method for conversation in QUORUM_METHODS.values()
)
METHODS = (*OF_QUORUM, CLUSTER_ID, *OF_CONTROLLER, methods.FORWARD)

BYTES_MAX = 60 * KIB
FORWARDED_API_KEYS = (*sorted(set(DECISIONS) - {DELETE_TOPICS}), DELETE_TOPICS)
"""Requests that brokers forward; last the one that deletes the topics of the others."""


class GrpcShape(Enum):
    """Contents of the repeated fields of a request."""

    EMPTY = "nothing at all"
    ONE = "one element of each, all of it true"
    DUPLICATED = "the same outermost element as often as fits"
    DUPLICATED_INSIDE = "one outermost element that holds one element as often as fits"
    INVENTED = "many outermost elements, all of them different"
    INVENTED_INSIDE = "one outermost element with many different ones inside"
    HOSTILE = "extremes by chance"
    HOSTILE_MANY = "many elements, each of extremes by chance"


INTEGERS = (0, 1, -1, 2, INT32_MAX, INT32_MAX - 1, -(1 << 31), 1 << 24, INT64_MAX, -(1 << 63))
BYTES = (b"", b"\0" * 16, b"\xff" * 16, b"\0" * 15, b"x" * 17, b"y" * 4_000)


@dataclass(frozen=True, slots=True)
class Truth:
    """Existing objects of a cluster, by the names of the fields for them."""

    values: Mapping[str, Sequence[Any]]

    def of(self, name: str, serial: int) -> Any:
        """Return the true value of a field, or None if it is unknown."""
        known = self.values.get(name)
        return known[serial % len(known)] if known else None


def requests_of(
    method: RpcMethod[Any, Any], truth: Truth, rng: Rng, *, bytes_max: int = BYTES_MAX
) -> Iterator[bytes]:
    """Yield one request for each shape, and some random ones."""
    bytes_max = min(bytes_max, method.request_bytes_max)
    for shape in (*GrpcShape, *[GrpcShape.HOSTILE] * 8):
        message = method.request_class()
        _Filler(shape, truth, rng).fill(message, bytes_max, depth=0, serial=0)
        data: bytes = message.SerializeToString()
        yield data


def broken_of(method: RpcMethod[Any, Any], rng: Rng) -> Iterator[bytes]:
    """Yield bytes that are no request, and one that is more than the method takes."""
    yield b"\xff" * 64
    yield bytes(rng.below(256) for _ in range(200))
    yield b"\x0a\xff\xff\xff\xff\x0f"
    yield b"\x0a" * (method.request_bytes_max + 1)


def forward_requests_of(
    api_key: int, version: int, names: ClusterNames, rng: Rng, *, bytes_max: int = BYTES_MAX
) -> Iterator[bytes]:
    """Yield client's requests of one API as the brokers pass them on."""
    for request in kafka_requests.requests_of(api_key, version, rng, names, bytes_max=bytes_max):
        yield forward_request(api_key, version, encode(request, version))


def forward_request(api_key: int, version: int, body: bytes) -> bytes:
    """Return a client's request as a broker passes it on."""
    request = pb.ForwardRequest(api_key=api_key, api_version=version, body=body)
    return request.SerializeToString()


def versions_of(api_key: int) -> range:
    """Return the versions of a client's request that brokers accept."""
    return range(API[api_key].lowest, API[api_key].latest_stable + 1)


class _Filler:
    """Fills the messages of one request."""

    def __init__(self, shape: GrpcShape, truth: Truth, rng: Rng) -> None:
        self._shape = shape
        self._truth = truth
        self._rng = rng

    @property
    def _is_hostile(self) -> bool:
        return self._shape in (GrpcShape.HOSTILE, GrpcShape.HOSTILE_MANY)

    def fill(self, message: Message, budget: int, *, depth: int, serial: int) -> None:
        """Set every field of a message; repeated ones take about `budget` bytes."""
        if self._shape is GrpcShape.EMPTY:
            return
        fields = message.DESCRIPTOR.fields
        repeated_count = max(1, sum(field.is_repeated for field in fields))
        for field in fields:
            if self._is_hostile and self._rng.below(6) == 0:
                continue
            if field.is_repeated:
                share = budget // repeated_count
                self._fill_repeated(getattr(message, field.name), field, share, depth)
            elif field.message_type is not None:
                part = getattr(message, field.name)
                part.SetInParent()
                self.fill(part, budget, depth=depth + 1, serial=serial)
            else:
                setattr(message, field.name, self._scalar(field, serial))

    def _fill_repeated(self, room: Any, field: Any, budget: int, depth: int) -> None:
        is_full = self._is_full(field, depth)
        inner = budget if not is_full else 64
        spent, serial = 0, 0
        while serial == 0 or (is_full and spent < budget):
            is_same = self._shape in (GrpcShape.DUPLICATED, GrpcShape.DUPLICATED_INSIDE)
            number = 0 if is_same else serial
            if field.message_type is None:
                value = self._scalar(field, number)
                room.append(value)
                spent += 2 + (len(value) if isinstance(value, bytes | str) else 5)
            else:
                part = room.add()
                self.fill(part, inner, depth=depth + 1, serial=number)
                spent += 2 + part.ByteSize()
            serial += 1

    def _is_full(self, field: Any, depth: int) -> bool:
        match self._shape:
            case GrpcShape.DUPLICATED | GrpcShape.INVENTED:
                return depth == 0
            case GrpcShape.DUPLICATED_INSIDE | GrpcShape.INVENTED_INSIDE:
                return depth > 0 or field.message_type is None
            case GrpcShape.HOSTILE_MANY:
                return True
        return False

    def _scalar(self, field: Any, serial: int) -> Any:
        if not self._is_hostile or self._rng.below(3):
            known = self._truth.of(field.name, serial)
            if known is not None:
                return known
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_BOOL:
                return self._rng.below(2) == 1
            case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
                return self._bytes(serial)
            case FieldDescriptor.CPPTYPE_STRING:
                return self._text(serial)
            case FieldDescriptor.CPPTYPE_ENUM:
                return self._rng.below(2)
        return self._integer(field, serial)

    def _bytes(self, serial: int) -> bytes:
        if self._is_hostile:
            return BYTES[self._rng.below(len(BYTES))]
        return serial.to_bytes(16, "big")

    def _text(self, serial: int) -> str:
        if self._is_hostile:
            return HOSTILE_TEXTS[self._rng.below(len(HOSTILE_TEXTS))]
        return f"text-{serial}"

    def _integer(self, field: Any, serial: int) -> int:
        value = INTEGERS[self._rng.below(len(INTEGERS))] if self._is_hostile else serial
        bits = 64 if field.cpp_type in _LONG else 32
        if field.cpp_type in _UNSIGNED:
            return int(value % (1 << bits))
        top = 1 << (bits - 1)
        return max(-top, min(top - 1, value))


_LONG = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
_UNSIGNED = (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)
