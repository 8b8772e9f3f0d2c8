"""Keys, values and headers as text: exact, bounded, and the same for any bytes."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.records.record_text import (
    FORMATS,
    PARSED_BYTES_MAX,
    decode_plain,
    hex_dump,
    indented_json,
    object_text,
    parse_json,
    shown,
)


@pytest.mark.parametrize(
    ("data", "format_name", "text"),
    [
        (b'{"a": 1}', "json", '{"a": 1}'),
        (b" [1]", "json", " [1]"),
        (b"{no json", "text", "{no json"),
        (b"17", "text", "17"),
        (b"", "text", ""),
        ("Zoë\n\t".encode(), "text", "Zoë\n\t"),
        (b"\x1b[31mred", "text", "\x1b[31mred"),
        (b"\x00\x00\x00\x11", "hex", "00 00 00 11"),
        (b"\xff\xfe", "hex", "ff fe"),
        (b"[" * 100_000, "text", "[" * 100_000),
        (b'{"a":' + b"9" * 5_000 + b"}", "text", '{"a":' + "9" * 5_000 + "}"),
    ],
)
def test_the_format_of_bytes_is_detected(data: bytes, format_name: str, text: str) -> None:
    found = decode_plain(data, "auto")
    assert (found.format, found.text, found.problem) == (format_name, text, "")


def test_a_large_json_object_is_shown_as_text() -> None:
    assert decode_plain(b'{"a": "' + b"x" * PARSED_BYTES_MAX + b'"}', "auto").format == "text"


@pytest.mark.parametrize(
    ("data", "format_name", "content"),
    [
        (b"\xff\xff\xff\xfe", "int", -2),
        (struct.pack(">d", 0.1), "double", 0.1),
        (bytes(range(16)), "uuid", "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (b"\xff", "base64", "/w=="),
        (b"a\xffb", "text", r"a\xffb"),
        (b"17", "json", 17),
    ],
)
def test_bytes_are_decoded_in_the_chosen_format(
    data: bytes, format_name: str, content: object
) -> None:
    found = decode_plain(data, format_name)
    assert (found.format, found.content) == (format_name, content)


@pytest.mark.parametrize("format_name", ["json", "int", "double", "uuid"])
def test_bytes_of_another_format_are_shown_with_the_reason(format_name: str) -> None:
    found = decode_plain(b"abc", format_name)
    assert (found.format, found.text) == ("text", "abc")
    assert found.problem.startswith(f"not {FORMATS[format_name]}: ")


def test_numbers_of_json_are_exact() -> None:
    text = '{"id": 9007199254740993, "price": 0.10000000000000000001}'
    found: Any = parse_json(text)
    assert found["id"] == 9_007_199_254_740_993
    assert str(found["price"]) == "0.10000000000000000001"
    assert "9007199254740993" in indented_json(text, chars_max=1_000)
    assert "0.10000000000000000001" in indented_json(text, chars_max=1_000)


def test_json_is_indented() -> None:
    text = '{"a":[1,{"b":"x,{:y\\""}],"c":{},"d":[]}'
    expected = json.dumps(json.loads(text), indent=2)
    assert indented_json(text, chars_max=1_000) == expected


def test_json_of_deep_nesting_stays_short() -> None:
    assert len(indented_json("[" * 100_000, chars_max=10_000)) < 11_000


@given(
    st.recursive(
        st.integers() | st.text(max_size=4),
        lambda one: st.lists(one) | st.dictionaries(st.text(max_size=3), one),
    )
)
def test_indented_json_is_the_same_json(value: Any) -> None:
    text = json.dumps(value)
    assert json.loads(indented_json(text, chars_max=10**9)) == value
    assert indented_json(text, chars_max=10**9) == json.dumps(value, indent=2)


@given(st.binary(max_size=64) | st.text().map(str.encode), st.sampled_from([*FORMATS, "unknown"]))
def test_any_bytes_are_shown_in_any_format(data: bytes, format_name: str) -> None:
    decoded = decode_plain(data, format_name)
    for is_indented in (False, True):
        found = shown(decoded, len(data), chars_max=20, is_indented=is_indented)
        assert len(found.text) <= 20
        assert found.size_bytes == len(data)


def test_a_cut_text_says_so() -> None:
    decoded = decode_plain(b"x" * 1_000_000, "auto")
    found = shown(decoded, 1_000_000, chars_max=400, is_indented=False)
    assert (len(found.text), found.is_cut) == (400, True)
    assert not shown(decode_plain(b"x" * 400, "auto"), 400, chars_max=400, is_indented=False).is_cut


def test_a_hex_dump_has_offsets_and_characters() -> None:
    assert hex_dump(b"<b>\x1b\xff" + bytes(12), chars_max=1_000).splitlines() == [
        "00000000  3c 62 3e 1b ff 00 00 00 00 00 00 00 00 00 00 00  <b>.............",
        "00000010  00                                               .",
    ]
    assert len(hex_dump(bytes(1_000_000), chars_max=1_000)) < 1_200


def test_objects_of_decoders_become_json() -> None:
    assert object_text({"a": b"\x01\xff", "b": [1.5, None]}) == '{"a": "0x01ff", "b": [1.5, null]}'
    assert object_text("plain") == "plain"
