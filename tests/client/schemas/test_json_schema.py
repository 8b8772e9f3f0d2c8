"""JSON records: validation, references, and documents that are never fetched."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.registry.file_registry import file_registry
from ottla.client.registry.schema_registry import run_blocking
from ottla.client.schemas import (
    InvalidSchemaError,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    RemoteReferenceError,
    Schema,
    SchemaError,
    SchemaFormat,
    SchemaReference,
    SchemaRegistry,
    SerializerConfig,
    ValueMismatchError,
    record_name,
)
from tests.client.schemas.order_schemas import JSON_ORDER, JSON_PRICE, ORDER
from tests.client.schemas.round_trips import read_back, round_trip


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> SchemaRegistry:
    """Give a registry that has the price."""
    found = file_registry(tmp_path_factory.mktemp("registry"))
    run_blocking(found.register("price.json", Schema(JSON_PRICE, SchemaFormat.JSON)))
    return found


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
PRICES = st.fixed_dictionaries(
    {"cents": st.integers(), "currency": st.sampled_from(["EUR", "USD"])}
)
ORDERS = st.fixed_dictionaries(
    {"id": TEXTS, "price": PRICES},
    optional={
        "discount": st.none() | PRICES,
        "tags": st.lists(TEXTS),
        "counts": st.dictionaries(
            TEXTS, st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
        ),
    },
)


@given(ORDERS, st.booleans())
def test_every_value_is_read_as_it_was_written(
    registry: SchemaRegistry, order: dict[str, Any], is_guid_in_header: bool
) -> None:
    config = SerializerConfig(is_guid_in_header=is_guid_in_header)
    serializer = JsonSchemaSerializer[Any](registry, JSON_ORDER, config=config)
    assert run_blocking(round_trip(serializer, JsonSchemaDeserializer[Any](registry), order)) == (
        order
    )


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(registry: SchemaRegistry, data: bytes) -> None:
    serializer = JsonSchemaSerializer[Any](registry, JSON_ORDER)
    encoded = run_blocking(serializer.serialize("o", "value", ORDER))
    hostile = encoded._replace(data=encoded.data[:5] + data)
    with pytest.raises(SchemaError):
        run_blocking(read_back(JsonSchemaDeserializer[Any](registry), hostile))


async def test_a_value_is_validated_when_it_is_written_and_read(registry: SchemaRegistry) -> None:
    wrong = {**ORDER, "price": {"cents": 1, "currency": "DM"}}
    with pytest.raises(ValueMismatchError, match=r"price/currency: .DM. is not one of"):
        await JsonSchemaSerializer[Any](registry, JSON_ORDER).serialize("t", "value", wrong)
    lax = JsonSchemaSerializer[Any](registry, JSON_ORDER, is_validated=False)
    with pytest.raises(ValueMismatchError, match="price/currency"):
        await round_trip(lax, JsonSchemaDeserializer[Any](registry), wrong)
    reader = JsonSchemaDeserializer[Any](registry, is_validated=False)
    assert await round_trip(lax, reader, wrong) == wrong
    other = JsonSchemaDeserializer[Any](registry, '{"type": "array"}')
    with pytest.raises(ValueMismatchError, match='is not of type "array"'):
        await round_trip(lax, other, ORDER)


async def test_values_of_an_application_are_converted(registry: SchemaRegistry) -> None:
    serializer = JsonSchemaSerializer[complex](
        registry, '{"type": "array"}', lambda one: [one.real, one.imag]
    )
    deserializer = JsonSchemaDeserializer(registry, from_dict=lambda parts: complex(*parts))
    assert await round_trip(serializer, deserializer, 1 + 2j) == 1 + 2j


async def test_a_subject_may_be_named_by_the_title(registry: SchemaRegistry) -> None:
    config = SerializerConfig(subject=record_name)
    serializer = JsonSchemaSerializer[Any](registry, JSON_ORDER, config=config)
    await serializer.serialize("t", "value", ORDER)
    assert "Order" in await registry.list_subjects()


@pytest.mark.parametrize(
    "uri",
    [
        "https://example.com/x.json",
        "file:///etc/passwd",
        "http://169.254.169.254/latest",
        "other.json",
        "price.json/../x",
        "//host/x",
    ],
)
async def test_no_document_is_fetched(registry: SchemaRegistry, uri: str) -> None:
    schema = json.dumps({"properties": {"a": {"$ref": uri}}})
    with pytest.raises(RemoteReferenceError, match="addresses in schemas are not opened"):
        await JsonSchemaSerializer[Any](registry, schema).serialize("t", "value", {"a": 1})


@pytest.mark.parametrize(
    ("name", "root_id", "ref"),
    [
        ("price.json", None, "price.json"),
        ("/price.json", None, "/price.json"),
        ("https://shop/price.json", None, "https://shop/price.json"),
        ("price.json", "https://shop/schemas/order.json", "price.json"),
        ("https://shop/schemas/price.json", "https://shop/schemas/order.json", "price.json"),
        ("price.json", None, "price.json#/properties/cents"),
    ],
)
async def test_references_are_found_by_their_names(
    registry: SchemaRegistry, name: str, root_id: str | None, ref: str
) -> None:
    root: dict[str, Any] = {"properties": {"a": {"$ref": ref}}}
    if root_id:
        root["$id"] = root_id
    schema = Schema(json.dumps(root), SchemaFormat.JSON, (SchemaReference(name, "price.json", 1),))
    serializer = JsonSchemaSerializer[Any](registry, schema)
    with pytest.raises(ValueMismatchError, match=r"a: "):
        await serializer.serialize("refs", "value", {"a": "no price"})


async def test_a_schema_that_refers_to_itself_is_no_loop(registry: SchemaRegistry) -> None:
    schema = """{"$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
        "$ref": "#/$defs/tree"}"""
    serializer = JsonSchemaSerializer[Any](registry, schema)
    assert (await serializer.serialize("t", "key", [[], [[]]])).data[5:] == b"[[],[[]]]"


@pytest.mark.parametrize("text", ["7", '{"type": "nope"}', '{"pattern": "("}', '{"$ref": 7}'])
async def test_a_malformed_schema_is_refused(registry: SchemaRegistry, text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        await JsonSchemaSerializer[Any](registry, text).serialize("t", "value", {})


async def test_a_number_that_json_lacks_is_refused(registry: SchemaRegistry) -> None:
    with pytest.raises(ValueMismatchError):
        serializer = JsonSchemaSerializer[Any](registry, "true", is_validated=False)
        await serializer.serialize("t", "value", float("nan"))


def test_a_deeply_nested_value_is_refused(registry: SchemaRegistry, tmp_path: Path) -> None:
    serializer = JsonSchemaSerializer[Any](registry, "true")
    encoded = run_blocking(serializer.serialize("deep", "value", []))
    hostile = encoded._replace(data=encoded.data[:5] + b"[" * 100_000)
    with pytest.raises(ValueMismatchError):
        run_blocking(read_back(JsonSchemaDeserializer[Any](registry), hostile))
