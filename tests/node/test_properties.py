"""Properties files, as operators and Java write them."""

import pytest

from ottla.model.errors import ConfigError
from ottla.node.properties import parse_properties


def test_comments_and_blank_lines_say_nothing() -> None:
    assert parse_properties("# a\n! b\n\n   \n") == {}


def test_keys_and_values_are_cut_at_equals_colon_or_blank() -> None:
    text = "a=1\n b : 2 \nc 3\nd=\nlisteners=PLAINTEXT://:9092\n"
    expected = {"a": "1", "b": "2", "c": "3", "d": "", "listeners": "PLAINTEXT://:9092"}
    assert parse_properties(text) == expected


def test_a_backslash_at_the_end_joins_the_next_line() -> None:
    assert parse_properties("a=1,\\\n   2,\\\n   3\nb=4") == {"a": "1,2,3", "b": "4"}


def test_escapes_are_resolved() -> None:
    assert parse_properties(r"a\=b=c\:d\tA\\") == {"a=b": "c:d\tA\\"}


def test_the_last_line_of_a_key_wins() -> None:
    assert parse_properties("a=1\na=2\n") == {"a": "2"}


def test_a_line_without_key_is_a_bad_setting() -> None:
    with pytest.raises(ConfigError, match="line 2"):
        parse_properties("a=1\n=2\n")
