"""The known topics that a subscription matches."""

from typing import NamedTuple

import pytest

from ottla.client.groups.subscription import Subscription, SubscriptionPattern


class Topic(NamedTuple):
    is_internal: bool = False


KNOWN = {
    "orders": Topic(),
    "orders-test": Topic(),
    "orders-test-2": Topic(),
    "bills": Topic(),
    "__consumer_offsets": Topic(is_internal=True),
}


def test_a_pattern_takes_whole_names_and_nothing_internal() -> None:
    assert Subscription(pattern=".*").names(KNOWN) == KNOWN.keys() - {"__consumer_offsets"}
    assert Subscription(pattern="orders").names(KNOWN) == {"orders"}


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        (".*-test", {"orders", "orders-test-2"}),
        (".*-test.*", {"orders"}),
        ("test", {"orders", "orders-test", "orders-test-2"}),
        (".*", set()),
    ],
)
def test_topics_that_match_the_exclusion_are_left_out(exclude: str, left: set[str]) -> None:
    subscription = Subscription(pattern="orders.*", exclude=exclude)
    assert subscription.names(KNOWN) == left
    assert subscription.topics_to_know is None


@pytest.mark.parametrize("pattern", [None, SubscriptionPattern("orders.*")])
def test_an_exclusion_without_a_pattern_that_is_matched_here_is_refused(
    pattern: SubscriptionPattern | None,
) -> None:
    topics = None if pattern else ["orders"]
    with pytest.raises(ValueError, match="exclude needs a pattern"):
        Subscription(topics, pattern, ".*-test")


def test_an_exclusion_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(ValueError, match="no regular expression"):
        Subscription(None, ".*", "((")
