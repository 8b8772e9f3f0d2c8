"""Avro records: references, resolution, options, hostile schemas and bytes."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.registry.file_registry import file_registry
from ottla.client.registry.schema_registry import run_blocking
from ottla.client.schemas import (
    AvroDeserializer,
    AvroSerializer,
    InvalidSchemaError,
    Schema,
    SchemaError,
    SchemaFormat,
    SchemaReference,
    SchemaRegistry,
    SerializerConfig,
    UnknownSchemaError,
    ValueMismatchError,
    record_name,
    topic_record_name,
)
from ottla.model.errors import ConfigError
from tests.client.schemas.order_schemas import AVRO_ORDER, AVRO_PRICE, ORDER
from tests.client.schemas.round_trips import read_back, round_trip

POINT = '{"type":"record","name":"Point","namespace":"geo","fields":[{"name":"x","type":"int"}]}'


@pytest.fixture
def registry(tmp_path: Path) -> SchemaRegistry:
    """Give a registry that has the price."""
    found = file_registry(tmp_path)
    run_blocking(found.register("shop.Price", Schema(AVRO_PRICE)))
    return found


PRICES = st.fixed_dictionaries(
    {"cents": st.integers(-(2**63), 2**63 - 1), "currency": st.sampled_from(["EUR", "USD"])}
)
ORDERS = st.fixed_dictionaries(
    {
        "id": st.text(),
        "price": PRICES,
        "discount": st.none() | PRICES,
        "tags": st.lists(st.text()),
        "counts": st.dictionaries(
            st.text(), st.none() | st.booleans() | st.floats(allow_nan=False)
        ),
    }
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> SchemaRegistry:
    """Give a registry for all examples of a property."""
    found = file_registry(tmp_path_factory.mktemp("registry"))
    run_blocking(found.register("shop.Price", Schema(AVRO_PRICE)))
    return found


@given(ORDERS, st.booleans())
def test_every_value_is_read_as_it_was_written(
    shared: SchemaRegistry, order: dict[str, Any], is_guid_in_header: bool
) -> None:
    config = SerializerConfig(is_guid_in_header=is_guid_in_header)
    serializer = AvroSerializer[Any](shared, AVRO_ORDER, config=config)
    assert run_blocking(round_trip(serializer, AvroDeserializer[Any](shared), order)) == order


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(shared: SchemaRegistry, data: bytes) -> None:
    encoded = run_blocking(AvroSerializer[Any](shared, AVRO_ORDER).serialize("o", "value", ORDER))
    deserializer = AvroDeserializer[Any](shared)
    hostile = encoded._replace(data=encoded.data[:5] + data)
    try:
        run_blocking(read_back(deserializer, hostile))
    except SchemaError:
        return


class Point(NamedTuple):
    x: int


async def test_values_of_an_application_are_converted(registry: SchemaRegistry) -> None:
    serializer = AvroSerializer[Point](registry, POINT, lambda point: point._asdict())
    deserializer = AvroDeserializer(registry, from_dict=lambda fields: Point(**fields))
    assert await round_trip(serializer, deserializer, Point(7), "key") == Point(7)
    assert await registry.list_subjects() == ["orders-key", "shop.Price"]


async def test_a_value_is_resolved_to_the_schema_of_the_reader(registry: SchemaRegistry) -> None:
    wider = """{"type": "record", "name": "Point", "namespace": "geo", "fields": [
        {"name": "x", "type": "double"}, {"name": "y", "type": "double", "default": 0.5}]}"""
    serializer = AvroSerializer[Any](registry, POINT)
    assert await round_trip(serializer, AvroDeserializer[Any](registry, wider), {"x": 1}) == {
        "x": 1.0,
        "y": 0.5,
    }
    other = POINT.replace("int", "string")
    with pytest.raises(ValueMismatchError):
        await round_trip(serializer, AvroDeserializer[Any](registry, other), {"x": 1})


@pytest.mark.parametrize(
    ("schema", "value"),
    [('"string"', "ä"), ('["null", "long"]', None), ('{"type": "array", "items": "int"}', [1])],
)
async def test_a_schema_need_not_be_a_record(
    registry: SchemaRegistry, schema: str, value: object
) -> None:
    serializer = AvroSerializer[Any](registry, schema)
    assert await round_trip(serializer, AvroDeserializer[Any](registry), value) == value


async def test_subjects_are_named_by_the_strategy(registry: SchemaRegistry) -> None:
    for strategy in (record_name, topic_record_name):
        config = SerializerConfig(subject=strategy)
        await AvroSerializer[Any](registry, POINT, config=config).serialize("t", "value", {"x": 1})
    assert await registry.list_subjects() == ["geo.Point", "shop.Price", "t-geo.Point"]


async def test_a_schema_that_is_not_registered_is_unknown(registry: SchemaRegistry) -> None:
    config = SerializerConfig(auto_register=False)
    serializer = AvroSerializer[Any](registry, POINT, config=config)
    with pytest.raises(UnknownSchemaError):
        await serializer.serialize("t", "value", {"x": 1})
    registered = await registry.register("t-value", Schema(POINT))
    assert (await serializer.serialize("t", "value", {"x": 1})).data[4] == registered.id


async def test_the_latest_version_is_written(registry: SchemaRegistry) -> None:
    latest = POINT.replace('"int"', '"string"')
    await registry.register("t-value", Schema(POINT))
    await registry.register("t-value", Schema(latest))
    config = SerializerConfig(auto_register=False, use_latest_version=True)
    serializer = AvroSerializer[Any](registry, POINT, config=config)
    encoded = await serializer.serialize("t", "value", {"x": "text"})
    assert await read_back(AvroDeserializer[Any](registry), encoded) == {"x": "text"}


def test_the_latest_version_is_not_registered() -> None:
    with pytest.raises(ConfigError, match="use_latest_version: it needs auto_register=False"):
        SerializerConfig(use_latest_version=True)


async def test_a_value_that_does_not_match_is_refused(registry: SchemaRegistry) -> None:
    serializer = AvroSerializer[Any](registry, POINT)
    for value in ({"x": "text"}, {}, 7):
        with pytest.raises(ValueMismatchError, match="the value does not match its schema"):
            await serializer.serialize("t", "value", value)
    strict = AvroSerializer[Any](registry, POINT, is_validated=True)
    with pytest.raises(ValueMismatchError):
        await strict.serialize("t", "value", {"x": 2**40})
    assert (await strict.serialize("t", "value", {"x": 1})).data.endswith(b"\2")


async def test_bytes_behind_a_value_are_refused(registry: SchemaRegistry) -> None:
    encoded = await AvroSerializer[Any](registry, POINT).serialize("t", "value", {"x": 1})
    with pytest.raises(ValueMismatchError, match="1 bytes follow the value"):
        longer = encoded._replace(data=encoded.data + b"x")
        await read_back(AvroDeserializer[Any](registry), longer)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[[]]",
        '{"type": "record"}',
        '"Unknown"',
        "7",
        "null",
        '{"type":' * 5_000 + "7" + "}" * 5_000,
    ],
)
async def test_a_malformed_schema_is_refused(registry: SchemaRegistry, text: str) -> None:
    with pytest.raises(SchemaError):
        await AvroSerializer[Any](registry, text).serialize("t", "value", {})


@pytest.mark.parametrize(
    "items",
    [
        '"null"',
        '{"type": "record", "name": "E", "fields": []}',
        '{"type": "record", "name": "E", "fields": [{"name": "a", "type": "null"}]}',
        '{"type": "fixed", "name": "F", "size": 0}',
        '{"type": "record", "name": "O", "fields": [{"name": "i", "type": "Nothing"}]}',
    ],
)
async def test_an_array_whose_items_take_no_bytes_is_refused(
    registry: SchemaRegistry, items: str
) -> None:
    nothing = '{"type": "record", "name": "Nothing", "fields": []}'
    text = f"""{{"type": "record", "name": "R", "fields": [
        {{"name": "n", "type": {nothing}}},
        {{"name": "a", "type": ["null", {{"type": "map", "values":
            {{"type": "array", "items": {items}}}}}]}}]}}"""
    with pytest.raises(InvalidSchemaError, match="an array has items that take no bytes"):
        await AvroSerializer[Any](registry, text).serialize("t", "value", {})


async def test_a_tree_is_no_such_array(registry: SchemaRegistry) -> None:
    tree = """{"type": "record", "name": "Tree", "fields": [
        {"name": "leaves", "type": {"type": "array", "items": "Tree"}}]}"""
    value = {"leaves": [{"leaves": []}, {"leaves": [{"leaves": []}]}]}
    serializer = AvroSerializer[Any](registry, tree)
    assert await round_trip(serializer, AvroDeserializer[Any](registry), value) == value


async def test_a_name_that_is_not_imported_is_named(registry: SchemaRegistry) -> None:
    schema = Schema(AVRO_ORDER.text, references=(SchemaReference("shop.Other", "shop.Price", 1),))
    with pytest.raises(InvalidSchemaError, match=r"shop\.Price is not among the references"):
        await AvroSerializer[Any](registry, schema).serialize("t", "value", ORDER)


async def test_a_record_of_another_format_is_refused(registry: SchemaRegistry) -> None:
    registered = await registry.register("t-value", Schema("{}", SchemaFormat.JSON))
    deserializer = AvroDeserializer[Any](registry)
    data = bytes(4) + bytes((registered.id,)) + b"{}"
    await deserializer.prepare("value", [(data, ())])
    with pytest.raises(ValueMismatchError, match="was written as JSON, and is read as AVRO"):
        deserializer.deserialize("value", data, ())
    with pytest.raises(InvalidSchemaError, match="the schema is JSON, not AVRO"):
        AvroSerializer[Any](registry, Schema("{}", SchemaFormat.JSON))
