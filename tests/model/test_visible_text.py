"""Texts of strangers, as a terminal is sent them."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.visible_text import visible, visible_json

STEERS = {"Cc", "Cs", "Zl", "Zp"}
"""Unicode's categories of control characters, lone surrogates, and line or paragraph separators."""
BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ünïcode, 群, 🙂", "plain, ünïcode, 群, 🙂"),
        ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
        ("a\x9b31mb", "a\\x9b31mb"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("a\rb\nc\td", "a\\x0db\\x0ac\\x09d"),
        ("a\u200bb\ufeff\U000e0041", "a\\u200bb\\ufeff\\U000e0041"),
        ("\udcff", "\\udcff"),
    ],
)
def test_what_steers_a_terminal_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown) == shown


def test_lines_that_were_laid_out_stay_lines() -> None:
    assert visible("a\tb\n\x1b[2J\r", keeps_layout=True) == "a\tb\n\\x1b[2J\\x0d"


def steering(text: str) -> list[str]:
    return [
        one
        for one in text
        if unicodedata.category(one) in STEERS or unicodedata.bidirectional(one) in BIDI
    ]


@given(st.text(st.characters()))
def test_nothing_that_steers_is_left(text: str) -> None:
    assert not steering(visible(text))
    assert not steering(visible_json({text: [text]}))


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_means_what_it_meant(text: str) -> None:
    assert json.loads(visible_json({text: [text]}, indent=2)) == {text: [text]}
