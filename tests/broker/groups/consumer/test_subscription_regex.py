"""Regular expressions of subscriptions: RE2's syntax, whole names, bounded cost."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.groups.consumer.subscription_regex import (
    REGEX_CHARS_MAX,
    compile_topic_regex,
    matches,
)
from ottla.model.errors import ErrorCode, RefusedError

NAMES = ("orders", "orders-eu", "old-orders", "Orders", "payments", "a.b", "axb", "o" * 249)


def found(text: str) -> set[str]:
    return set(matches(compile_topic_regex(text), NAMES))


def test_a_name_matches_as_a_whole() -> None:
    assert found("orders") == {"orders"}
    assert found("orders.*") == {"orders", "orders-eu"}
    assert found("^orders.*$") == {"orders", "orders-eu"}
    assert found(".*orders") == {"orders", "old-orders"}
    assert found("orders|payments") == {"orders", "payments"}
    assert found(r"a\.b") == {"a.b"}
    assert found("a.b") == {"a.b", "axb"}
    assert found("(?i)ORDERS") == {"orders", "Orders"}
    assert found("[[:lower:]]+") == {"orders", "payments", "axb", "o" * 249}
    assert found(".*") == set(NAMES)
    assert found("nothing") == set()


@pytest.mark.parametrize(
    "text", ["a(", "[", "*", "a**", "(?=a)", "(?!a)", r"(a)\1", r"\q", "a{2,1}"]
)
def test_what_is_none_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        compile_topic_regex(text)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    shown = str(refusal.value)
    assert f"SubscribedTopicRegex `{text}` is not a valid regular expression: " in shown
    assert "b'" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "x" * (REGEX_CHARS_MAX + 1),
        "(?:.?){1000}",
        "(?:(?:a{100}){100}){100}",
        ".?" * (REGEX_CHARS_MAX // 2),
        r"\pL" * (REGEX_CHARS_MAX // 3),
    ],
    ids=lambda text: text[:12],
)
def test_what_would_take_much_memory_or_time_is_refused(text: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        compile_topic_regex(text)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("text", ["(a+)+b", "(a|a)*b", "(.*)*b", "(?:a?){120}a{120}b"])
def test_an_expression_that_backtracks_without_end_elsewhere_is_decided_here(text: str) -> None:
    # Backtracking, one such name outlasts any timeout of the test run.
    names = ["a" * 248 + str(number % 10) for number in range(100)]
    assert matches(compile_topic_regex(text), names) == frozenset()


def test_a_mistake_writes_nothing_to_the_broker_s_output(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RefusedError):
        compile_topic_regex("a(")
    assert capfd.readouterr() == ("", "")


SIMPLE = st.recursive(
    st.sampled_from(["a", "b", "[ab]", ".", "[^a]"]),
    lambda inner: (
        st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{1,2}"]))
        | st.builds("(?:{}|{})".format, inner, inner)
        | st.builds("{}{}".format, inner, inner)
    ),
    max_leaves=5,
)


@given(SIMPLE, st.lists(st.text("abc", max_size=6), max_size=8))
def test_it_agrees_with_python_where_both_have_the_same_syntax(text: str, names: list[str]) -> None:
    expected = {name for name in names if re.fullmatch(text, name)}
    assert matches(compile_topic_regex(text), names) == expected
