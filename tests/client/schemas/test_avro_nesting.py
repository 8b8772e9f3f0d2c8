"""Nested Avro values: a payload must not overflow the stack of the process that decodes it."""

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.registry.registry_errors import InvalidSchemaError, ValueMismatchError
from ottla.client.schemas.avro import reader_of_text
from ottla.client.schemas.avro_nesting import NESTING_MAX, NestingCheck

CHAIN = {"type": "record", "name": "a.L", "fields": [{"name": "n", "type": ["null", "L"]}]}
TREE = {
    "type": "record",
    "name": "T",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "tag", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "tag2", "type": ["E", "double", {"type": "fixed", "name": "F", "size": 3}]},
        {"name": "text", "type": ["null", "string", "bytes", "boolean", "F"]},
        {"name": "inner", "type": {"type": "array", "items": "T"}},
        {"name": "byName", "type": {"type": "map", "values": ["null", "T"]}},
    ],
}


def test_a_record_of_endless_nesting_is_refused() -> None:
    read = reader_of_text(json.dumps(CHAIN))
    with pytest.raises(ValueMismatchError, match="nested more than 500 times"):
        read(b"\x02" * 1_000_000 + b"\x00", ())


def test_nesting_up_to_the_limit_is_read() -> None:
    read = reader_of_text(json.dumps(CHAIN))
    depth, found = 0, read(b"\x02" * (NESTING_MAX // 2 - 2) + b"\x00", ())
    while found["n"] is not None:
        depth, found = depth + 1, found["n"]
    assert depth == NESTING_MAX // 2 - 2


@pytest.mark.parametrize(
    ("schema", "is_needed"),
    [
        ("string", False),
        (["null", "string"], False),
        ({"type": "array", "items": {"type": "map", "values": "long"}}, False),
        ({"type": "map", "values": {"type": "string"}}, False),
        (CHAIN, True),
        (TREE, True),
    ],
)
def test_only_schemas_that_contain_themselves_are_checked(schema: Any, is_needed: bool) -> None:
    assert NestingCheck(fastavro.parse_schema(schema)).is_needed is is_needed


def test_a_definition_in_another_branch_is_no_recursion() -> None:
    schema = fastavro.parse_schema(
        [
            {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]},
            {"type": "record", "name": "B", "fields": [{"name": "a", "type": "A"}]},
        ]
    )
    assert not NestingCheck(schema).is_needed


TREES: st.SearchStrategy[Any] = st.recursive(
    st.just([]), lambda inner: st.lists(inner, max_size=3), max_leaves=8
)


@given(TREES, st.binary(max_size=20), st.sampled_from([None, "x", b"\x01", True]))
@settings(max_examples=50)
def test_values_of_all_types_are_walked_to_their_end(shape: Any, data: bytes, text: Any) -> None:
    def tree(children: Any) -> dict[str, Any]:
        inner = [tree(one) for one in children]
        named = {f"k{at}": one for at, one in enumerate(inner)}
        return {
            "id": len(data),
            "tag": "B",
            "tag2": 0.5,
            "text": text,
            "inner": inner,
            "byName": {**named, "none": None},
        }

    schema = fastavro.parse_schema(TREE)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, tree(shape))
    check = NestingCheck(schema)
    check.check(out.getvalue())
    check.check(out.getvalue() + data)


@given(st.binary(max_size=200))
def test_any_bytes_are_walked_or_refused(data: bytes) -> None:
    try:
        NestingCheck(fastavro.parse_schema(TREE)).check(data)
    except ValueMismatchError:
        return


@pytest.mark.parametrize("text", ["{", "{}", '"unknown"', '{"type": "array", "items": "null"}'])
def test_a_text_that_is_no_usable_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        reader_of_text(text)
