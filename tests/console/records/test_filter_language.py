"""The filter of a page of records: its meaning, its refusals and its bounds."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.records.filter_language import FILTER_CHARS_MAX, parse_filter
from ottla.console.records.filter_terms import MISSING
from ottla.model.errors import ConfigError

NOW_MS = 1_800_000_000_000


class PlayedRecord:
    """A record whose properties are given."""

    def __init__(self, value: Any = None, **given: Any) -> None:
        self.offset = given.get("offset", 7)
        self.partition = given.get("partition", 2)
        self.timestamp_ms = given.get("timestamp_ms", NOW_MS - 60_000)
        self.size_bytes = given.get("size", 10)
        self.key_text = given.get("key", "k-17")
        self.value_text = value if isinstance(value, str) else json.dumps(value, default=str)
        self.key_object = given.get("key", "k-17")
        self.value_object = value
        self._headers = given.get("headers", {"trace": "abc", "empty": None})

    def header_text(self, name: str) -> Any:
        return self._headers.get(name, MISSING)


def matches(text: str, value: Any = None, **given: Any) -> bool:
    found = parse_filter(text, now_ms=NOW_MS)
    assert found is not None
    return found.matches(PlayedRecord(value, **given))


ORDER = {
    "id": 9_007_199_254_740_993,
    "price": Decimal("0.1"),
    "weight": 0.1,
    "user": {"name": "Bob", "tags": ["a", "b"], "a b": 1, "vip": True, "none": None},
}


@pytest.mark.parametrize(
    "text",
    [
        "offset = 7",
        "offset == 7 and partition = 2",
        "offset in (1, 7)",
        "offset >= 7 and offset <= 7 and not offset > 7 and not offset < 7",
        "size < 11",
        'key = "k-17"',
        'key starts "k-" and key ends "17" and key contains "-1"',
        'key ~ "^k-[0-9]+$"',
        'header.trace = "abc" and headers["trace"] exists',
        "header.nothing = null and not header.nothing exists and not header.empty exists",
        "header.empty = null",
        "value.id = 9007199254740993 and value.id != 9007199254740992",
        "value.price = 0.1 and value.weight = 0.1 and value.price < 0.2",
        'value.user.name = "Bob" or offset = 0',
        'offset = 0 or value.user.tags[1] = "b"',
        'value.user.tags[-1] = "b" and value.user["a b"] = 1',
        'value["user"]["vip"] = true and value.user.vip != 1',
        "value.user.none = null and value.user.missing = null",
        "value.user.missing != 3 and not value.user.missing < 3",
        'value.user contains "\\"name\\":\\"Bob\\""',
        "not not offset = 7",
        "not (offset = 1 or offset = 2) and (offset = 7)",
        'timestamp >= "2m" and timestamp < "30s"',
        'timestamp > "2026-01-01T00:00" and timestamp > 1',
        'value.user.name in (null, "Bob")',
    ],
)
def test_filters_that_match_an_order(text: str) -> None:
    assert matches(text, ORDER)


@pytest.mark.parametrize(
    "text",
    [
        "offset = 8",
        'offset = "7"',
        "offset = true",
        "offset < null",
        'value.user.name = "bob"',
        "value.user.name > 3",
        "value.user = 3",
        "value.user.vip > false",
        "value[0] = 1",
        "value.user.name.first exists",
        "value.user.tags[2] exists",
        'value.missing contains ""',
        'key ~ "^17"',
    ],
)
def test_filters_that_do_not_match_an_order(text: str) -> None:
    assert not matches(text, ORDER)


def test_and_binds_more_tightly_than_or() -> None:
    assert matches("offset = 7 or offset = 8 and offset = 9")
    assert not matches("(offset = 7 or offset = 8) and offset = 9")


def test_a_text_that_is_a_number_is_compared_as_a_number() -> None:
    assert matches("key > 9", key="17")
    assert matches("key = 17", key="17.0")
    assert not matches("key > 9", key="x17")
    assert not matches("key = 17", key=None)


def test_numbers_that_are_none_match_nothing() -> None:
    assert not matches("value.x < 1", {"x": float("nan")})
    assert not matches("value.x < 1", {"x": Decimal("NaN")})
    assert not matches(f"value.x < {'9' * 400}", {"x": 1.0})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("offset", "at character 7: a comparison is expected"),
        ("offset =", "at character 9: a number, true, false, null"),
        ("offset = 7 partition = 1", "at character 12: 'and', 'or' or the end is expected"),
        ("ofset = 7", "at character 1: 'ofset' is no property; there are offset, partition"),
        ("(offset = 7", "at character 12: ')' is expected"),
        ("offset = 7)", "at character 11"),
        ("offset.x = 7", "at character 1: offset has no fields"),
        ("header = 7", "at character 1: a header needs one name"),
        ("value. = 7", "at character 8: a name is expected after the dot"),
        ("value[x] = 7", "at character 7: a number or a quoted name"),
        ("key contains 7", "at character 14: a quoted text is expected"),
        ('key ~ "("', "at character 7: RE2 refuses the pattern"),
        ('key ~ "(a)\\\\1"', "at character 7: RE2 refuses the pattern"),
        ('key ~ "(?:x{1000}){1000}"', "at character 7: RE2 refuses the pattern"),
        ('key = "a\\x"', "at character 7: the text has an unknown escape"),
        ('key = "a', "at character 7: '\"a' is not understood"),
        ("__import__('os')", "at character 12"),
        ("key = 0x7", "at character 7: '0x7' is not understood"),
        ('timestamp > "soon"', "at character 13: time: is 'soon'"),
        ("offset = 1 or " * 60 + "offset = 1", "there are more than 50 comparisons"),
        ("(" * 30 + "offset = 1" + ")" * 30, "parentheses are nested more than 20 times"),
        (f"offset in ({', '.join(['1'] * 200)})", "the list has more than 100 entries"),
        ("value" + ".a" * 30 + " = 1", "the path has more than 20 steps"),
        (
            "offset = 1" + " " * FILTER_CHARS_MAX + "or offset = 2",
            "is longer than 2,000 characters",
        ),
        (f'key ~ "{"a" * 600}"', "the pattern is longer than 500 characters"),
    ],
)
def test_a_mistake_is_refused_with_its_position(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_filter(text, now_ms=NOW_MS)
    assert refused.value.setting == "filter"
    assert problem in refused.value.problem


def test_a_blank_filter_is_none() -> None:
    assert parse_filter("  ", now_ms=NOW_MS) is None


@pytest.mark.parametrize(
    ("text", "reads_content"),
    [
        ("offset = 1 and timestamp > 3 or size > 10 and partition = 1", False),
        ('offset = 1 or key ~ "a"', True),
        ("offset = 1 and not value.a exists", True),
        ("header.a exists", True),
    ],
)
def test_filters_of_content_are_recognised(text: str, reads_content: bool) -> None:
    found = parse_filter(text, now_ms=NOW_MS)
    assert found is not None
    assert found.reads_content is reads_content


@given(st.text(alphabet='offsetkyvalu.h[]()"\\~<>=!0123, andr', max_size=60) | st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        found = parse_filter(text, now_ms=NOW_MS)
    except ConfigError:
        return
    assert found is None or isinstance(found.matches(PlayedRecord({"a": [1]})), bool)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.decimals() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
)
TESTS = [
    "value{} = 1",
    "value{} < 1.5",
    'value{} >= "x"',
    "value{} > null",
    'value{} contains "a"',
    'value{} ~ "a*b"',
    "value{} in (1, true, null)",
    "value{} exists",
]


@given(JSON, st.sampled_from(TESTS), st.sampled_from(["", ".a", "[0]", '[""]']))
def test_a_filter_never_fails_for_a_record(value: Any, text: str, path: str) -> None:
    assert isinstance(matches(text.format(path), value, key=value), bool)
