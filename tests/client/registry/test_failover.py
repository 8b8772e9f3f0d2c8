"""Attempts of one call over several addresses."""

from itertools import islice

from ottla.client.registry.failover import FailoverPlan


def test_every_address_is_tried_before_a_pause_which_doubles_up_to_a_maximum() -> None:
    plan = FailoverPlan(["a", "b"], retry_count=4, pause_s=1, pause_max_s=3)
    assert list(plan.attempts()) == [
        (0, "a"), (0, "b"), (1, "a"), (0, "b"), (2, "a"), (0, "b"), (3, "a"), (0, "b"), (3, "a"),
        (0, "b"),
    ]  # fmt: skip


def test_the_next_call_begins_with_the_address_that_responded() -> None:
    plan = FailoverPlan(["a", "b", "c"], retry_count=0, pause_s=1, pause_max_s=3)
    plan.responded("b")
    assert [url for _, url in islice(plan.attempts(), 3)] == ["b", "c", "a"]
