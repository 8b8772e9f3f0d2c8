"""Random messages for tests: every field of a version is set, as its schema permits.

Values favour the bounds: extremes of each number, null where allowed, empty and long texts, arrays
whose counts need one byte and two. A field that the version lacks keeps its default, so that
decoding an encoded message returns an equal message.
"""

import sys
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from ottla.model.seams import Rng
from ottla.wire.apis import message_class
from ottla.wire.codec_types import ZERO_UUID, Message
from ottla.wire.generator import schema_files
from ottla.wire.schema import SCALARS, Field, StructSchema, load

TEXTS = ("", "a", "topic-1", "\u00fc\u20ac\U0001f600", "x" * 126, "x" * 127, "y" * 300)
FLOATS = (0.0, -1.5, 1e300, 0.1)
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
UINT16_MAX = (1 << 16) - 1


def all_messages() -> Iterator[tuple[str, type[Message]]]:
    """Import or create every message class that a schema declares. Yields the classes with their
    names."""
    for name in schema_files():
        yield name, message_class(name)


def example(message: type[Message], version: int, rng: Rng) -> Any:
    """Return a random message of this class that can be encoded in this version."""
    structs = vars(sys.modules[message.__module__])
    return _struct(load(message.SCHEMA)[message.__name__].root, version, structs, rng)


def _struct(struct: StructSchema, version: int, structs: dict[str, Any], rng: Rng) -> Any:
    value = structs[struct.name]()
    for field in struct.fields:
        if version in field.versions:
            setattr(value, field.name, _field(field, version, structs, rng))
    return value


def _field(field: Field, version: int, structs: dict[str, Any], rng: Rng) -> Any:
    if version in field.nullable and rng.below(4) == 0:
        return None
    if not field.is_array:
        return _value(field, version, structs, rng)
    counts = (0, 1, 2, 3) if field.struct is not None else (0, 1, 5, 130)
    return [_value(field, version, structs, rng) for _ in range(counts[rng.below(4)])]


def _value(field: Field, version: int, structs: dict[str, Any], rng: Rng) -> Any:
    if field.struct is not None:
        return _struct(field.struct, version, structs, rng)
    if field.type.startswith("string"):
        return TEXTS[rng.below(len(TEXTS))]
    if field.type in ("bytes", "records"):
        return bytes(rng.below(256) for _ in range((0, 1, 126, 127, 400)[rng.below(5)]))
    assert field.type in SCALARS
    return _scalar(field.type, rng)


def _scalar(kind: str, rng: Rng) -> bool | int | float | UUID:
    if kind == "bool":
        return rng.below(2) == 1
    if kind == "float64":
        return FLOATS[rng.below(len(FLOATS))]
    if kind == "uuid":
        return ZERO_UUID if rng.below(4) == 0 else rng.uuid()
    if kind == "uint16":
        return (0, UINT16_MAX, rng.below(UINT16_MAX))[rng.below(3)]
    half = 1 << (BITS[kind] - 1)
    return (-half, -1, 0, half - 1, rng.below(2 * half) - half)[rng.below(5)]
