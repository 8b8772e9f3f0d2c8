"""Frames and headers, against their own schemas and against bytes written out by hand."""

import random
import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ProtocolError
from ottla.wire import codec, headers
from ottla.wire.apis import API, API_VERSIONS, PRODUCE, message_module
from ottla.wire.codec_runtime import write_uvarint
from ottla.wire.headers import frame, frame_length

# The headers in use are written by hand; their schemas are for comparison.
HeaderMessage = message_module("RequestHeader").RequestHeader
ResponseHeader = message_module("ResponseHeader").ResponseHeader


def test_a_flexible_request_header_keeps_the_long_length_of_its_client_id() -> None:
    frame = bytes.fromhex("0000 0009 00000007 0002 6d65 00") + b"body"
    assert headers.decode_request_header(frame).fields() == (0, 9, "me", 13)
    assert headers.correlation_id_of(frame) == 7
    assert headers.encode_request_header(0, 9, 7, "me") + b"body" == frame


def test_an_old_request_header_has_no_tagged_fields() -> None:
    frame = bytes.fromhex("0000 0008 ffffffff ffff")
    assert headers.decode_request_header(frame).fields() == (0, 8, None, 10)
    assert headers.encode_request_header(0, 8, -1, None) == frame


def test_unknown_tagged_fields_of_a_header_are_skipped() -> None:
    frame = bytes.fromhex("0003 000c 00000001 0000 02 07 02 aabb 63 00") + b"body"
    header = headers.decode_request_header(memoryview(frame))
    assert header.fields() == (3, 12, "", len(frame) - 4)


@pytest.mark.parametrize("key", sorted(API))
@pytest.mark.parametrize("client_id", [None, "", "client-1", "ü"])
def test_a_request_header_is_what_its_schema_says(key: int, client_id: str | None) -> None:
    api = API[key]
    for version in range(api.lowest, api.highest + 1):
        is_flexible = api.flexible_from is not None and version >= api.flexible_from
        message = HeaderMessage(
            request_api_key=key,
            request_api_version=version,
            correlation_id=-5,
            client_id=client_id,
        )
        expected = codec.encode(message, 2 if is_flexible else 1)
        assert headers.encode_request_header(key, version, -5, client_id) == expected
        assert headers.decode_request_header(expected).fields() == (
            *(key, version, client_id),
            len(expected),
        )
        assert headers.correlation_id_of(expected) == -5


@pytest.mark.parametrize("key", sorted(API))
def test_a_response_header_is_what_its_schema_says(key: int) -> None:
    api = API[key]
    for version in range(api.lowest, api.highest + 1):
        is_flexible = api.flexible_from is not None and version >= api.flexible_from
        header_version = 1 if is_flexible and key != API_VERSIONS else 0
        expected = codec.encode(ResponseHeader(correlation_id=9), header_version)
        assert headers.encode_response_header(key, version, 9) == expected
        data = expected + b"body"
        assert headers.decode_response_header(key, version, data) == (9, len(expected))


def test_the_answer_to_api_versions_can_be_read_before_versions_are_known() -> None:
    assert headers.encode_response_header(API_VERSIONS, 4, 1) == b"\0\0\0\1"


def test_tagged_fields_of_a_response_header_are_skipped() -> None:
    data = bytes.fromhex("00000001 01 05 02 aabb") + b"body"
    assert headers.decode_response_header(PRODUCE, 9, data) == (1, len(data) - 4)


def test_a_version_too_high_still_has_a_header() -> None:
    frame = bytes.fromhex("0012 7fff 00000001 ffff 00") + b"whatever"
    assert headers.decode_request_header(frame).fields() == (18, 32767, None, 11)


@pytest.mark.parametrize("key", [-1, 4, 7, 999, 29999])
def test_an_unknown_api_is_refused(key: int) -> None:
    frame = key.to_bytes(2, signed=True) + bytes(30)
    with pytest.raises(ProtocolError, match="there is no API"):
        headers.decode_request_header(frame)


def test_a_header_that_ends_at_any_earlier_byte_is_refused() -> None:
    request = bytes.fromhex("0003 000c 00000001 0002 6162 02 07 02 aabb 63 00")
    for length in range(len(request)):
        with pytest.raises(ProtocolError):
            headers.decode_request_header(request[:length])
    response = bytes.fromhex("00000001 01 05 02 aabb")
    for length in range(len(response)):
        with pytest.raises(ProtocolError):
            headers.decode_response_header(PRODUCE, 9, response[:length])


CONTEXT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_garbage_gives_a_header_or_a_protocol_error() -> None:
    chance = random.Random(7)
    for _ in range(5_000):
        frame = bytes([0, chance.choice(sorted(API)) & 0xFF]) + chance.randbytes(20)
        try:
            header = headers.decode_request_header(frame)
        except ProtocolError:
            continue
        assert 10 <= header.body_at <= len(frame)


HEADERS = st.tuples(
    st.sampled_from(sorted(API)),
    st.integers(0, 13),
    st.integers(-2, 3),
    st.sampled_from([None, "", "shop", "shops", "s" * 300]),
    st.sampled_from([None, CONTEXT]),
)


@given(st.lists(HEADERS, max_size=12), st.integers(0, 400))
def test_headers_of_one_connection_are_those_of_their_frames(
    fields: list[tuple[int, int, int, str | None, bytes | None]], length: int
) -> None:
    """A header that is equal but for its correlation id is not decoded again."""
    decoder = headers.HeaderDecoder()
    for each in fields:
        whole = headers.encode_request_header(*each) + b"body"
        for sent in (whole, whole, whole[:length], whole):
            try:
                expected = headers.decode_request_header(sent)
            except ProtocolError as error:
                with pytest.raises(ProtocolError, match=re.escape(error.where)):
                    decoder.decode(sent)
                continue
            assert decoder.decode(memoryview(sent)).fields() == expected.fields()
            assert decoder.correlation_id == headers.correlation_id_of(sent)


def test_requests_that_differ_in_the_correlation_id_share_a_header() -> None:
    decoder = headers.HeaderDecoder()
    first, second, other = (
        decoder.decode(headers.encode_request_header(0, 9, number, client_id) + b"body")
        for number, client_id in ((1, "shop"), (2, "shop"), (2, "shoq"))
    )
    assert first is second
    assert decoder.correlation_id == 2
    assert (first.client_id, other.client_id) == ("shop", "shoq")


def test_the_length_counts_every_chunk_without_touching_one() -> None:
    records = memoryview(b"records")
    framed = frame([b"head", records, b""])
    assert framed[0] == b"\0\0\0\x0b"
    assert framed[1:] == [b"head", records, b""]
    assert framed[2] is records


def test_an_empty_frame_has_a_length() -> None:
    assert frame([]) == [b"\0\0\0\0"]


def test_a_length_is_read_where_it_stands() -> None:
    assert frame_length(b"xx\0\0\1\0", 2, bytes_max=256) == 256


@pytest.mark.parametrize("length", [-1, -(1 << 31), 257, (1 << 31) - 1])
def test_a_negative_or_too_large_length_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError):
        frame_length(length.to_bytes(4, signed=True), bytes_max=256)


@pytest.mark.parametrize("client_id", [None, "", "shop"])
def test_a_trace_context_is_read_from_the_tagged_fields_of_a_header(client_id: str | None) -> None:
    frame = headers.encode_request_header(0, 9, 7, client_id, CONTEXT) + b"body"

    header = headers.decode_request_header(frame)

    assert (header.client_id, frame[header.body_at :]) == (client_id, b"body")
    assert headers.trace_context_of(memoryview(frame), header.body_at) == CONTEXT


def test_a_header_without_tagged_fields_has_and_gets_no_trace_context() -> None:
    for version, context in ((8, CONTEXT), (8, None), (9, None)):
        frame = headers.encode_request_header(0, version, 7, "shop", context) + b"body"
        assert frame == headers.encode_request_header(0, version, 7, "shop") + b"body"
        body_at = headers.decode_request_header(frame).body_at
        assert headers.trace_context_of(memoryview(frame), body_at) is None


def test_a_trace_context_stands_among_other_tagged_fields() -> None:
    before, own, after = b"\0\3abc", b"\xa0\x9c\1\x37" + CONTEXT, b"\xa1\x9c\1\1z"
    fixed = struct.pack(">hhih", 0, 9, 7, -1)
    for tags, expected in (
        (b"\3" + before + own + after, CONTEXT),
        (b"\2" + before + after, None),
        (b"\1" + before, None),
        (b"\1\xa0\x9c\1\5short", None),
    ):
        frame = fixed + tags + b"body"
        body_at = headers.decode_request_header(frame).body_at
        assert frame[body_at:] == b"body"
        assert headers.trace_context_of(memoryview(frame), body_at) == expected


def test_tagged_fields_of_a_header_are_bounded() -> None:
    count = headers.TAGS_BYTES_MAX
    frame = struct.pack(">hhih", 0, 9, 7, -1) + write_uvarint(count) + b"\0\0" * count

    with pytest.raises(ProtocolError):
        headers.decode_request_header(frame)
