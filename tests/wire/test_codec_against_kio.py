"""Every message and version that kio knows too: the same schema, and the same bytes.

kio shares no code with us.  Its entities are filled with random values (negatives, bounds, nulls,
empties), written by kio, read and written again by us, and read back by kio.  Two things it cannot
do are tested elsewhere: it fails on unknown tagged fields, and it has no room for error codes,
times and dates it does not know (`test_codec.py`).
"""

import datetime
import io
import random
import re
import zlib
from dataclasses import MISSING, fields
from dataclasses import Field as KioField
from pkgutil import resolve_name
from types import NoneType, UnionType
from typing import Any, get_args
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import classify_field, get_field_tag

from ottla.wire import codec
from ottla.wire.apis import message_class
from ottla.wire.codec_examples import all_messages
from ottla.wire.codec_types import ZERO_UUID
from ottla.wire.messages.produce_request import ProduceRequest
from ottla.wire.schema import Field, StructSchema, load

VALUES_PER_VERSION = 25

MILLISECOND = datetime.timedelta(milliseconds=1)
UNIX_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
EDGES = {
    "int8": (-128, -1, 0, 1, 127),
    "int16": (-(2**15), -1, 0, 1, 2**15 - 1),
    "int32": (-(2**31), -1, 0, 1, 2**31 - 1),
    "int64": (-(2**63), -1, 0, 1, 2**63 - 1),
    "uint16": (0, 1, 2**16 - 1),
    "timedelta_i32": (-(2**31), -1, 0, 1, 2**31 - 1),
    "timedelta_i64": (-(2**45), -1, 0, 1, 2**45),
    "datetime_i64": (0, 1, 2**47),
}
TEXTS = ("", "a", "topic-1", "ü€\N{GRINNING FACE}", "x" * 126, "x" * 127, "y" * 300)
NAMES = {
    ("StreamsGroupHeartbeatResponse", "acceptable_recovery_lag"): "acceptable_recovery_lag_legacy",
    ("TxnOffsetCommitRequest", "generation_id"): "generation_id_or_member_epoch",
}
"""Fields that Kafka has renamed since kio read its schemas."""


def kio_entities() -> dict[tuple[str, int], str]:
    """Modules of kio with each message and version."""
    paths = [
        path
        for versions in schema_name_map.values()
        for kinds in versions.values()
        for path in kinds.values()
    ]
    found = {}
    for path in paths:
        version = re.search(r"\.v(\d+)\.", path)
        assert version is not None
        found[path.rpartition(":")[2], int(version[1])] = path
    return found


KIO = kio_entities()
OURS = {(name, version) for name, kind in all_messages() for version in kind.VERSIONS}
BOTH = sorted(OURS & set(KIO))


def test_we_declare_whatever_kio_knows() -> None:
    assert set(KIO) - OURS == set()


@pytest.mark.parametrize("name", sorted({name for name, _ in BOTH}))
def test_a_message_is_declared_as_kio_declares_it(name: str) -> None:
    ours = load(message_class(name).SCHEMA)[name]
    for version in (version for other, version in BOTH if other == name):
        entity = resolve_name(KIO[name, version])
        assert entity.__flexible__ == ours.is_flexible(version)
        assert_same_fields(ours.root, entity, version)


def assert_same_fields(struct: StructSchema, entity: Any, version: int) -> None:
    here = [field for field in struct.fields if version in field.versions]
    assert entity.__name__ == struct.name
    assert len(here) == len(fields(entity)), (struct.name, version)
    for ours, theirs in zip(here, fields(entity), strict=True):
        where = f"{struct.name}.{ours.name} v{version}"
        kind = classify_field(theirs)
        kafka_type = theirs.metadata.get("kafka_type")
        assert same_name(struct.name, ours.name, theirs.name), where
        assert ours.is_array == kind.is_array, where
        assert ours.tag == get_field_tag(theirs), where
        if kafka_type != "uuid" and kafka_type != "datetime_i64":
            assert (version in ours.nullable) == may_be_null(theirs), where
        if ours.struct is None:
            assert same_type(ours.type, kafka_type), where
        else:
            assert_same_fields(ours.struct, kind.type_, version)
        assert_same_default(ours, theirs, where)


def same_name(struct: str, ours: str, theirs: str) -> bool:
    """kio drops `Ms` where it has a type for it, and spells a few words otherwise."""
    theirs = NAMES.get((struct, theirs), theirs).replace("k_raft", "kraft").removesuffix("_")
    return ours.removesuffix("_ms") == theirs.removesuffix("_ms")


def same_type(ours: str, kafka_type: Any) -> bool:
    theirs = {
        "error_code": "int16",
        "timedelta_i32": "int32",
        "timedelta_i64": "int64",
        "datetime_i64": "int64",
    }
    ours = "string" if ours == "string16" else ours
    return ours == str(theirs.get(kafka_type, kafka_type))


def assert_same_default(ours: Field, theirs: "KioField[Any]", where: str) -> None:
    if theirs.default is MISSING or ours.struct is not None or ours.is_array:
        return
    expected: Any = {"string": "", "bytes": b"", "uuid": ZERO_UUID}.get(ours.type, ours.default)
    if ours.default is None:
        expected = None
    assert plain(theirs.default, ours.type, theirs) == expected, where


@pytest.mark.parametrize("name", sorted({name for name, _ in BOTH}))
def test_random_values_have_the_bytes_that_kio_writes(name: str) -> None:
    chance = random.Random(zlib.crc32(name.encode()))
    kind = message_class(name)
    for version in (version for other, version in BOTH if other == name):
        entity_class = resolve_name(KIO[name, version])
        write, read = entity_writer(entity_class), entity_reader(entity_class)
        for _ in range(VALUES_PER_VERSION):
            entity = random_entity(entity_class, chance)
            buffer = io.BytesIO()
            write(buffer, entity)
            data = buffer.getvalue()
            message = codec.decode(kind, version, data)
            assert_same_values(message, entity, load(kind.SCHEMA)[name].root, version)
            assert codec.encode(message, version) == data
            again, size = read(codec.encode(message, version), 0)
            assert (again, size) == (entity, len(data))


def test_a_difference_would_be_seen() -> None:
    """The comparison is not blind: one changed value is enough."""
    chance = random.Random(1)
    entity = random_entity(resolve_name(KIO["ProduceRequest", 9]), chance)
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    message = codec.decode(ProduceRequest, 9, buffer.getvalue())
    message.acks = 7 if message.acks != 7 else 8
    with pytest.raises(AssertionError):
        assert_same_values(message, entity, load("produce")["ProduceRequest"].root, 9)


def random_entity(entity: Any, chance: random.Random) -> Any:
    return entity(**{field.name: random_field(field, chance) for field in fields(entity)})


def random_field(field: "KioField[Any]", chance: random.Random) -> Any:
    kind = classify_field(field)
    # kio cannot write a null tagged field whose default is something else.
    null_is_written = get_field_tag(field) is None or field.default is None
    if may_be_null(field) and null_is_written and chance.random() < 0.25:
        return None
    if field.default is not MISSING and chance.random() < 0.2:
        return field.default
    kafka_type = field.metadata.get("kafka_type")

    def value() -> Any:
        if kafka_type is None:
            return random_entity(kind.type_, chance)
        return random_scalar(str(kafka_type), chance)

    if not kind.is_array:
        return value()
    count = chance.choice((0, 1, 2, 3)) if kafka_type is None else chance.choice((0, 1, 5, 130))
    return tuple(value() for _ in range(count))


def may_be_null(field: "KioField[Any]") -> bool:
    """Look at the field itself: kio's own answer is misled by an array of ids."""
    return isinstance(field.type, UnionType) and NoneType in get_args(field.type)


def random_scalar(kafka_type: str, chance: random.Random) -> Any:
    if kafka_type == "string":
        return chance.choice(TEXTS)
    if kafka_type in ("bytes", "records"):
        return chance.randbytes(chance.choice((0, 1, 126, 127, 400)))
    if kafka_type == "bool":
        return chance.random() < 0.5
    if kafka_type == "float64":
        return chance.choice((0.0, -1.5, 1e300, chance.random()))
    if kafka_type == "uuid":
        return UUID(bytes=chance.randbytes(16)) if chance.random() < 0.7 else None
    if kafka_type == "error_code":
        return chance.choice(list(ErrorCode))
    edges = EDGES[kafka_type]
    number = chance.choice(edges) if chance.random() < 0.5 else chance.randint(edges[0], edges[-1])
    if kafka_type.startswith("timedelta"):
        return number * MILLISECOND
    if kafka_type == "datetime_i64":
        # kio goes by way of a float: only whole seconds survive its own reading.
        return UNIX_EPOCH + number // 1000 * 1000 * MILLISECOND
    return number


def assert_same_values(message: Any, entity: Any, struct: StructSchema, version: int) -> None:
    here = [field for field in struct.fields if version in field.versions]
    for ours, theirs in zip(here, fields(entity), strict=True):
        value, expected = getattr(message, ours.name), getattr(entity, theirs.name)
        where = f"{struct.name}.{ours.name} v{version}"
        if ours.is_array and expected is None:
            assert value is None, where
        elif ours.is_array:
            assert isinstance(value, list)
            assert len(value) == len(expected), where
            for one, other in zip(value, expected, strict=True):
                assert_same_value(one, other, ours, theirs, version, where)
        else:
            assert_same_value(value, expected, ours, theirs, version, where)


def assert_same_value(
    value: Any, expected: Any, ours: Field, theirs: Any, version: int, where: str
) -> None:
    if ours.struct is not None and value is not None:
        assert_same_values(value, expected, ours.struct, version)
    else:
        assert value == plain(expected, ours.type, theirs), where


def plain(value: Any, our_type: str, theirs: "KioField[Any]") -> Any:
    """Give kio's value as the plain one that stands on the wire."""
    if isinstance(value, datetime.timedelta):
        return value // MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - UNIX_EPOCH) // MILLISECOND
    if value is None and our_type == "uuid":
        return ZERO_UUID
    if value is None and theirs.metadata.get("kafka_type") == "datetime_i64":
        return -1
    return value
