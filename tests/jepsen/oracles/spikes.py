"""Honest requests in which one value, or a few, are extremes: these get furthest into a handler.

`sweep` goes through every field of the given APIs and every extreme of its kind, in an order that
chance decides, and begins again in other versions; `spiked` draws a few by chance.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from ottla.jepsen.fuzz.chance import FuzzRng
from ottla.model.seams import Rng
from ottla.wire.apis import API
from ottla.wire.codec_types import Message
from ottla.wire.schema import Field, StructSchema, load
from tests.jepsen.oracles.kafka_requests import KafkaShape, request_of
from tests.jepsen.oracles.kafka_values import (
    BITS,
    CONFIG_KEYS,
    HOSTILE_TEXTS,
    RESOURCE_TYPES,
    ClusterNames,
    extreme,
)

EXTREME_COUNTS = {
    **dict.fromkeys(BITS, 7),
    "uint16": 2,
    "bool": 2,
    "float64": 4,
    "uuid": 2,
    "string": len(HOSTILE_TEXTS),
    "bytes": 4,
    "records": 4,
}
"""Number of extreme values of each kind of scalar."""

ARRAY_COUNT = 2
"""Number of changes to an array of structs: emptied, or every element twice."""

BYTES_MAX = 600
Place = tuple[Any, Field]
T = TypeVar("T")


class ChosenRng(FuzzRng):
    """Draws one chosen number first, then by chance."""

    __slots__ = ("_chosen",)

    def __init__(self, random: Random, chosen: int) -> None:
        super().__init__(random)
        self._chosen: int | None = chosen

    def below(self, bound: int) -> int:
        """Return the chosen number, once."""
        chosen, self._chosen = self._chosen, None
        return super().below(bound) if chosen is None else chosen % bound


def sweep(
    keys: Sequence[int], random: Random, names: ClusterNames
) -> Iterator[tuple[int, int, Message, str]]:
    """Yield (key, version, request, description of the extreme), round after round."""
    is_first = True
    while keys:
        todo: list[tuple[int, int, int, int, int]] = []
        for key in keys:
            api = API[key]
            version = api.highest if is_first else random.randint(api.lowest, api.highest)
            for resource_type, place, count in _space(key, version, random, names):
                todo += [(key, version, resource_type, place, chosen) for chosen in range(count)]
        random.shuffle(todo)
        is_first = False
        for key, version, resource_type, place, chosen in todo:
            message, places = _honest(key, version, resource_type, random, names)
            owner, field = places[place % len(places)]
            value = _replace(owner, field, ChosenRng(random, chosen), chosen)
            yield key, version, message, f"one with {field.name}={value[:40]!r}"


def _space(
    key: int, version: int, random: Random, names: ClusterNames
) -> Iterator[tuple[int, int, int]]:
    """Yield (resource type, number of a place, how many extremes it has)."""
    _, places = _honest(key, version, 2, random, names)
    has_types = any(field.name == "resource_type" for _, field in places)
    for resource_type in RESOURCE_TYPES if has_types else (2,):
        for number, (_, field) in enumerate(places):
            yield (
                resource_type,
                number,
                ARRAY_COUNT if field.struct is not None else EXTREME_COUNTS[field.type],
            )


def _honest(
    key: int, version: int, resource_type: int, random: Random, names: ClusterNames
) -> tuple[Message, list[Place]]:
    message = request_of(
        KafkaShape.ONE,
        key,
        version,
        FuzzRng(random),
        turned(names, random),
        bytes_max=BYTES_MAX,
        resource_type=resource_type,
    )
    places = list(_places_of(message, version))
    for owner, field in places:
        if field.name == "name" and "Config" in type(owner).__name__:
            owner.name = random.choice(CONFIG_KEYS)
    return message, places


def turned(names: ClusterNames, random: Random) -> ClusterNames:
    """Return the same names, with another of each kind as the first."""
    return replace(
        names,
        topics=_turned(names.topics, random),
        groups=_turned(names.groups, random),
        members=_turned(names.members, random),
        brokers=_turned(names.brokers, random),
    )


def _turned(names: Sequence[T], random: Random) -> Sequence[T]:
    at = random.randrange(len(names)) if names else 0
    return [*names[at:], *names[:at]]


def _replace(owner: Any, field: Field, rng: Rng, chosen: int) -> str:
    """Put an extreme where an honest value is; return it as text."""
    kept = getattr(owner, field.name)
    value: object
    if field.struct is not None:
        value = (kept or []) * (0, 2)[chosen % 2]
    else:
        value = extreme(field, rng)
        value = [*(kept or []), value] if field.is_array else value
    setattr(owner, field.name, value)
    return str(value)


def spiked(message: Message, version: int, rng: Rng, names: ClusterNames) -> str:
    """Replace one value of a request, or a few, by an extreme; return which."""
    places = list(_places_of(message, version))
    said = ""
    for _ in range((1, 1, 1, 2, 3)[rng.below(5)] if places else 0):
        owner, field = places[rng.below(len(places))]
        kept = getattr(owner, field.name)
        if field.struct is not None:
            value: object = (kept or []) * 2
        else:
            value = _extreme_of(field, rng, names)
            value = [*(kept or []), value] if field.is_array else value
        setattr(owner, field.name, value)
        said += f", {field.name}={str(value)[:40]!r}"
    return said


def _places_of(message: Message, version: int) -> Iterator[Place]:
    return _places(message, load(message.SCHEMA)[type(message).__name__].root, version)


def _places(value: Any, struct: StructSchema, version: int) -> Iterator[Place]:
    """Yield every field of a message, however deep, with the object that has it."""
    for field in struct.fields:
        if version not in field.versions:
            continue
        inner = getattr(value, field.name)
        if field.is_array if field.struct is not None else field.type in EXTREME_COUNTS:
            yield value, field
        if field.struct is not None:
            for one in (inner or ()) if field.is_array else (inner,):
                if one is not None:
                    yield from _places(one, field.struct, version)


def _extreme_of(field: Field, rng: Rng, names: ClusterNames) -> object:
    if field.type.startswith("string") and rng.below(2):
        known = [*CONFIG_KEYS, *names.groups, *(topic.name for topic in names.topics)]
        known += [str(broker) for broker in names.brokers]
        return known[rng.below(len(known))]
    return extreme(field, rng)
