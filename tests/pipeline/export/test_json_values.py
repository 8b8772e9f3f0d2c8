"""JSON values as columns: one row a value, and no value is lost."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.pipeline.export.json_values import DEPTH_MAX, JsonValues, inferred_type

TYPE = pa.struct([("id", pa.int64()), ("name", pa.string())])

objects = st.fixed_dictionaries(
    {}, optional={"id": st.integers(-(2**63), 2**63 - 1) | st.none(), "name": st.text() | st.none()}
)
misfits = st.sampled_from(
    [
        b"", b" ", b"null", b"5", b"[]", b'"x"', b"{", b"}", b'{"id":"x"}', b'{"id":1}{"id":2}',
        b'1}{"v":2', b'{"id":1},"z":1', b'{"id":1},', b"\xff", b'{"id":1.5}', b"[" * 2_000,
        b'{"id":1,"more":true}', b'{"id":1}\n{"id":2}', b'{"id":99999999999999999999}',
    ]
)  # fmt: skip


def expected(value: bytes | None) -> dict[str, Any] | None:
    """Return the row of a value that fits."""
    return None if value is None else {"id": None, "name": None} | json.loads(value)


@settings(max_examples=25)  # a call of Arrow's reader wakes a thread, which a busy machine delays
@given(
    st.lists(
        st.none() | objects.map(lambda one: json.dumps(one, indent=1).encode()) | misfits,
        max_size=6,
    )
)
def test_each_value_is_one_row_and_fits_or_is_in_bad_value(values: list[bytes | None]) -> None:
    parser = JsonValues(TYPE, reports_unknown_fields=True)
    found = parser.parse(pa.array(values, pa.binary()))
    assert len(found.value) == len(found.bad_value) == len(values)
    rows = zip(values, found.value.to_pylist(), found.bad_value.to_pylist(), strict=True)
    for value, row, bad in rows:
        if bad is None:
            assert row == expected(value)
        else:
            assert bad == value


def test_good_neighbours_of_bad_values_are_parsed() -> None:
    values = [b'{"id":%d}' % index for index in range(1_000)]
    values[17] = values[500] = b"no JSON"
    values[900] = b'{"id":"text"}'
    found = JsonValues(TYPE, reports_unknown_fields=False).parse(pa.array(values, pa.binary()))
    assert found.bad_value.null_count == 997
    assert sum(one is not None for one in found.value.to_pylist()) == 997


def test_fields_that_a_given_schema_leaves_out_are_left_out() -> None:
    values = pa.array([b'{"id":1,"more":{"a":[1]}}'], pa.binary())
    assert JsonValues(TYPE, reports_unknown_fields=False).parse(values).bad_value.null_count == 1
    assert JsonValues(TYPE, reports_unknown_fields=True).parse(values).bad_value.null_count == 0


def test_unknown_fields_are_found_within_lists_and_structs() -> None:
    type_ = inferred_type([pa.array([b'{"a":[{"b":1}],"c":{"d":2}}'], pa.binary())])
    assert type_ is not None
    values = [
        b'{"a":[{"b":1},{"b":2}]}', b'{"a":[{"b":1,"x":1}]}', b'{"a":[],"c":{"d":1,"y":1}}',
        b'{"a":null}', b'{"a":[{"b":3,"x":null}]}',
    ]  # fmt: skip
    found = JsonValues(type_, reports_unknown_fields=True).parse(pa.array(values, pa.binary()))
    assert [bad is not None for bad in found.bad_value.to_pylist()] == [
        False, True, True, False, False,
    ]  # fmt: skip
    assert found.value.to_pylist()[1] == {"a": [{"b": 1}], "c": None}


def test_a_type_is_inferred_from_what_most_values_have() -> None:
    samples = [
        pa.array([b'{"a":1,"at":"2026-01-01"}', b"no JSON", b'{"b":null,"c":[]}'], pa.binary()),
        pa.array([b'{"a":1.5,"c":["x"]}', b'{"a":"text"}'], pa.binary()),
    ]
    found = inferred_type(samples)
    assert found == pa.struct(
        [
            ("a", pa.float64()),
            ("at", pa.string()),
            ("c", pa.list_(pa.field("element", pa.string()))),
        ]
    )


@pytest.mark.parametrize("values", [[], [b"5"], [b"x"], [None], [b"{}"], [b'{"a":null}']])
def test_no_type_is_inferred_without_an_object_with_fields(values: list[bytes | None]) -> None:
    assert inferred_type([pa.array(values, pa.binary())]) is None


def test_deep_values_are_bad_and_texts_with_brackets_are_not() -> None:
    deep = b'{"id":1,"name":"x","z":' + b"[" * DEPTH_MAX + b"]" * DEPTH_MAX + b"}"
    text = json.dumps({"id": 2, "name": "[{" * 200}).encode()
    found = JsonValues(TYPE, reports_unknown_fields=False).parse(
        pa.array([deep, text], pa.binary())
    )
    assert found.bad_value.to_pylist() == [deep, None]
