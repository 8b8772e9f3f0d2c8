"""Schema ids before payloads and in headers."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.registry.framing import (
    INDEX_COUNT_MAX,
    FramedPayload,
    decode_frame,
    decode_prefix,
    encode_guid_header,
    encode_indexes,
    encode_prefix,
)
from ottla.client.registry.registry_errors import FramingError
from ottla.client.registry.schema_values import SchemaId

IDS = st.integers(0, 2**32 - 1).map(SchemaId)
INDEXES = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=INDEX_COUNT_MAX).map(tuple)
GUID = UUID("89791762-2336-186f-9674-299b90a8e2e1")


@given(IDS, st.none() | INDEXES, st.binary(max_size=40))
def test_a_prefix_is_read_as_it_was_written(
    schema_id: SchemaId, indexes: tuple[int, ...] | None, payload: bytes
) -> None:
    prefix = encode_prefix(schema_id, indexes)
    found = decode_prefix(prefix + payload, has_indexes=indexes is not None)
    assert found == FramedPayload(schema_id, indexes or (), len(prefix))


@given(st.uuids(), st.none() | INDEXES, st.binary(max_size=40))
def test_a_header_is_read_before_the_payload(
    guid: UUID, indexes: tuple[int, ...] | None, payload: bytes
) -> None:
    headers = [
        ("__key_schema_id", b"another part"),
        ("__value_schema_id", encode_guid_header(guid, indexes)),
    ]
    found = decode_frame("value", payload, headers, has_indexes=indexes is not None)
    assert found == FramedPayload(guid, indexes or (), 0)


def test_the_bytes_are_those_of_confluents_serializers() -> None:
    assert encode_prefix(SchemaId(1)) == b"\0\0\0\0\1"
    assert encode_prefix(SchemaId(258), (0,)) == b"\0\0\0\1\2\0"
    assert encode_indexes((1,)) == b"\2\2"
    assert encode_indexes((1, 0)) == b"\4\2\0"
    assert encode_indexes((0, 100)) == b"\4\0\xc8\1"
    assert encode_guid_header(GUID) == b"\1" + GUID.bytes


def test_the_path_of_the_first_message_may_be_written_in_full() -> None:
    assert decode_prefix(b"\0\0\0\0\1\2\0x", has_indexes=True) == FramedPayload(
        SchemaId(1), (0,), 7
    )


def test_a_guid_may_be_a_prefix_and_an_id_may_be_in_a_header() -> None:
    data = b"\1" + GUID.bytes + b"x"
    assert decode_prefix(data, has_indexes=False) == FramedPayload(GUID, (), 17)
    headers = [("__key_schema_id", b"\0\0\0\0\7")]
    assert decode_frame("key", b"x", headers, has_indexes=False).key == 7


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "begins with nothing"),
        (b"{}", "begins with byte 0x7b, not with a schema id"),
        (b"\0\0\0\1", "has 4 bytes, too few"),
        (b"\1" + bytes(15), "has 16 bytes, too few"),
        (b"\0\0\0\0\1", "ends within its message indexes"),
        (b"\0\0\0\0\1\4\2", "ends within its message indexes"),
        (b"\0\0\0\0\1\2\1", "negative message index -1"),
        (b"\0\0\0\0\1\1", "has -1 message indexes"),
        (b"\0\0\0\0\1\xff\xff\xff\xff\x0f", "has -2147483648 message indexes"),
        (b"\0\0\0\0\1\2\xff\xff\xff\xff\xff\1", "more than 5 bytes"),
    ],
)
def test_a_malformed_prefix_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(FramingError, match=message):
        decode_prefix(data, has_indexes=True)


def test_a_header_is_the_identity_of_a_schema_and_nothing_else() -> None:
    headers = [("__value_schema_id", encode_guid_header(GUID) + b"more")]
    with pytest.raises(FramingError, match="header __value_schema_id has 4 more bytes"):
        decode_frame("value", b"", headers, has_indexes=False)


@given(st.binary(max_size=30), st.booleans())
def test_any_bytes_are_read_or_refused(data: bytes, has_indexes: bool) -> None:
    try:
        found = decode_prefix(data, has_indexes=has_indexes)
    except FramingError:
        return
    assert 5 <= found.start <= len(data)
