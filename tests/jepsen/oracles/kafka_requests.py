"""Requests of every API and version, made from the schemas to cost the most that their bytes allow.

`requests_of(api_key, version, rng, names)` yields one message for each of the `SHAPES`: arrays that
are empty, null, filled with one element again and again, with all existing objects, or with
invented names, on the outermost level, on the innermost, or on all; texts and bytes of the greatest
length; and random extremes of everything. `names` has the existing objects of the cluster that gets
them. Each message can be encoded in its version and stays below `bytes_max` or a little above. The
same `rng` seed gives the same requests.

Requests that change the cluster are among them (`DESTRUCTIVE_API_KEYS`): CreateTopics and similar
ones set `validate_only` where the version has it; DeleteTopics and DeleteGroups name existing
objects.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Any

from ottla.model.limits import KIB
from ottla.model.seams import Rng
from ottla.wire.apis import request_class
from ottla.wire.codec_types import Message
from ottla.wire.schema import Field, StructSchema, load
from tests.jepsen.oracles.kafka_values import (
    RESOURCE_TYPES,
    ClusterNames,
    ExistingTopic,
    Values,
    extreme,
    longest,
)

__all__ = [
    "DESTRUCTIVE_API_KEYS",
    "SHAPES",
    "ClusterNames",
    "ExistingTopic",
    "KafkaShape",
    "numbered_request",
    "request_count",
    "request_of",
    "requests_of",
]

BYTES_MAX = 64 * KIB

DESTRUCTIVE_API_KEYS = frozenset((19, 20, 21, 33, 37, 42, 43, 44, 45, 47, 57, 64, 80, 81, 20001))
"""Creates, deletes or alters topics, records, groups, settings, brokers or voters."""


class KafkaShape(Enum):
    """Contents of the arrays of a request."""

    EMPTY = "arrays are empty"
    NULL = "what may be null is null"
    ONE = "one element of each, of what exists"
    DUPLICATED = "the same outermost element as often as fits"
    DUPLICATED_INSIDE = "one outermost element that holds one element as often as fits"
    DUPLICATED_NESTED = "the same element on every level"
    KNOWN = "everything that exists, then invented names"
    KNOWN_NESTED = "everything that exists, on every level"
    INVENTED = "invented names only"
    INVENTED_INSIDE = "one element that exists, with invented ones inside"
    INVENTED_NESTED = "invented names on every level"
    LONG = "texts and bytes as long as they may be"
    HOSTILE = "extremes by chance"
    HOSTILE_MANY = "many elements, each of extremes by chance"
    DUPLICATED_ALL = "the same outermost element as often as fits, null or empty inside: all of it"
    KNOWN_ALL = "everything that exists, then invented names, null or empty inside"


SHAPES = tuple(KafkaShape)

_SINGLE = frozenset((KafkaShape.ONE, KafkaShape.LONG))
_DUPLICATED = frozenset(
    (
        KafkaShape.DUPLICATED,
        KafkaShape.DUPLICATED_INSIDE,
        KafkaShape.DUPLICATED_NESTED,
        KafkaShape.DUPLICATED_ALL,
    )
)
_ALL_INSIDE = frozenset((KafkaShape.DUPLICATED_ALL, KafkaShape.KNOWN_ALL))
_INSIDE = frozenset((KafkaShape.DUPLICATED_INSIDE, KafkaShape.INVENTED_INSIDE))
_NESTED = frozenset(
    (
        KafkaShape.DUPLICATED_NESTED,
        KafkaShape.KNOWN_NESTED,
        KafkaShape.INVENTED_NESTED,
        KafkaShape.HOSTILE_MANY,
    )
)
_INVENTED = frozenset((KafkaShape.INVENTED, KafkaShape.INVENTED_NESTED))
_HOSTILE = frozenset((KafkaShape.HOSTILE, KafkaShape.HOSTILE_MANY))

_FIXED_BYTES = {"bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "int64": 8, "uuid": 16}


def requests_of(
    api_key: int, version: int, rng: Rng, names: ClusterNames, *, bytes_max: int = BYTES_MAX
) -> Iterator[Message]:
    """Yield one request for each shape; an API of resources gets one for each type of them."""
    for number in range(request_count(api_key, version)):
        yield numbered_request(number, api_key, version, rng, names, bytes_max=bytes_max)


def request_count(api_key: int, version: int) -> int:
    """Return how many requests `requests_of` yields."""
    return len(SHAPES) * len(_resource_types(api_key, version))


def numbered_request(
    number: int,
    api_key: int,
    version: int,
    rng: Rng,
    names: ClusterNames,
    *,
    bytes_max: int = BYTES_MAX,
) -> Message:
    """Return one of the requests that `requests_of` yields."""
    types = _resource_types(api_key, version)
    shape = SHAPES[number // len(types)]
    resource_type = types[number % len(types)]
    return request_of(
        shape, api_key, version, rng, names, bytes_max=bytes_max, resource_type=resource_type
    )


def request_of(
    shape: KafkaShape,
    api_key: int,
    version: int,
    rng: Rng,
    names: ClusterNames,
    *,
    bytes_max: int = BYTES_MAX,
    resource_type: int = 2,
) -> Message:
    """Return the request of one shape."""
    message = request_class(api_key)
    root = load(message.SCHEMA)[message.__name__].root
    values = Values(names, rng, is_invented=shape in _INVENTED, resource_type=resource_type)
    module = __import__(message.__module__, fromlist=[message.__name__])
    filler = _Filler(shape, version, vars(module), values, rng)
    request, _ = filler.struct(root, serial=0, budget=bytes_max, depth=0)
    assert isinstance(request, Message)
    return request


def _resource_types(api_key: int, version: int) -> tuple[int, ...]:
    message = request_class(api_key)
    structs = load(message.SCHEMA)[message.__name__].structs.values()
    if any(field.name == "resource_type" for struct in structs for field in struct.fields):
        return tuple(RESOURCE_TYPES)
    return (2,)


class _Filler:
    """Makes the structs of one request, and counts about how many bytes they take."""

    def __init__(
        self, shape: KafkaShape, version: int, classes: dict[str, Any], values: Values, rng: Rng
    ) -> None:
        self._shape = shape
        # Looked up for each of some hundred thousand elements, where hashing a shape is slow.
        self._is_hostile = shape in _HOSTILE
        self._is_inside = shape in _INSIDE
        self._is_nested = shape in _NESTED
        self._is_all_inside = shape in _ALL_INSIDE
        self._fields: dict[str, list[Field]] = {}
        self._version = version
        self._classes = classes
        self._values = values
        self._rng = rng

    def struct(
        self, struct: StructSchema, *, serial: int, budget: int, depth: int
    ) -> tuple[Any, int]:
        """Return a struct whose arrays take about `budget` bytes, and its size."""
        value = self._classes[struct.name]()
        fields = self._fields.get(struct.name)
        if fields is None:
            fields = [field for field in struct.fields if self._version in field.versions]
            self._fields[struct.name] = fields
        array_count = max(1, sum(field.is_array for field in fields))
        size = 1
        for field in fields:
            made, cost = self._field(
                field, struct, serial=serial, budget=budget // array_count, depth=depth
            )
            setattr(value, field.name, made)
            size += cost
        return value, size

    def _field(
        self, field: Field, struct: StructSchema, *, serial: int, budget: int, depth: int
    ) -> tuple[Any, int]:
        is_nullable = self._version in field.nullable
        if is_nullable and self._shape is KafkaShape.NULL:
            return None, 1
        if is_nullable and self._is_hostile and self._rng.below(4) == 0:
            return None, 1
        if field.is_array and depth > 0 and self._is_all_inside:
            return (None if is_nullable else []), 4
        if field.is_array:
            return self._array(field, struct, budget=budget, depth=depth)
        if field.struct is not None:
            return self.struct(field.struct, serial=serial, budget=budget, depth=depth + 1)
        return self._scalar(field, struct, serial)

    def _array(
        self, field: Field, struct: StructSchema, *, budget: int, depth: int
    ) -> tuple[list[Any], int]:
        """Fill an array: with nothing, one element, or as many as the budget takes."""
        if self._shape in (KafkaShape.EMPTY, KafkaShape.NULL):
            return [], 4
        is_leaf = field.struct is None or not _has_arrays(field.struct, self._version)
        is_full = self._is_full(is_leaf=is_leaf, depth=depth)
        # Of two levels that are both full each holds about as many elements as the other.
        inner = budget if not is_full else (int(budget**0.5) * 4 if not is_leaf else 0)
        if not self._is_inside and not self._is_nested:
            inner = 0
        first, size = self._element(field, struct, serial=0, budget=inner, depth=depth)
        if not is_full:
            return [first], 4 + size
        if self._shape in _DUPLICATED:
            count = max(2, budget // size)
            return [first] * count, 4 + size * count
        elements, total = [first], size
        while total + size <= budget:
            made, size = self._element(
                field, struct, serial=len(elements), budget=inner, depth=depth
            )
            elements.append(made)
            total += size
        return elements, 4 + total

    def _is_full(self, *, is_leaf: bool, depth: int) -> bool:
        """Return whether an array at this depth takes as many elements as fit."""
        if self._shape in _SINGLE or self._shape is KafkaShape.HOSTILE:
            return False
        if self._is_nested:
            return True
        return is_leaf if self._is_inside else depth == 0

    def _element(
        self, field: Field, struct: StructSchema, *, serial: int, budget: int, depth: int
    ) -> tuple[Any, int]:
        if field.struct is not None:
            return self.struct(field.struct, serial=serial, budget=budget, depth=depth + 1)
        return self._scalar(field, struct, serial)

    def _scalar(self, field: Field, struct: StructSchema, serial: int) -> tuple[Any, int]:
        value: Any
        if self._is_hostile:
            value = extreme(field, self._rng)
        elif self._shape is KafkaShape.LONG and (long := longest(field)) is not None:
            value = long
        else:
            value = self._values.of(field, struct, serial)
        if isinstance(value, str):
            return value, 2 + len(value.encode())
        if isinstance(value, bytes):
            return value, 4 + len(value)
        return value, _FIXED_BYTES.get(field.type, 8)


def _has_arrays(struct: StructSchema, version: int) -> bool:
    return any(field.is_array for field in struct.fields if version in field.versions)
