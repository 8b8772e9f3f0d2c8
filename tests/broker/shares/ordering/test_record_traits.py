"""Headers that delay or prioritise a record; headers of any other form count as absent."""

import pytest

from ottla.broker.shares.ordering.ordering_rules import OrderingRules, ordering_rules
from ottla.broker.shares.ordering.record_traits import PLAIN, Priority, due_ms_of, traits_of
from ottla.model.settings.share_groups import ShareGroupSettings
from ottla.model.settings.storage.topic import TopicConfig

DELAYS = OrderingRules(delay_ms=500)


def test_a_record_without_a_header_has_the_delay_of_the_topic() -> None:
    assert due_ms_of(DELAYS, 1_000, ()) == 1_500
    assert due_ms_of(OrderingRules(delay_ms=0), 1_000, ()) == 0


def test_headers_replace_the_delay_of_the_topic_and_a_due_time_precedes_a_delay() -> None:
    delay, due = ("ottla.delay.ms", b"7"), ("ottla.due.ms", b"99")
    assert due_ms_of(DELAYS, 1_000, (delay,)) == 1_007
    assert due_ms_of(DELAYS, 1_000, (delay, due)) == 99
    assert due_ms_of(DELAYS, 1_000, (("ottla.delay.ms", b"0"),)) == 0
    assert due_ms_of(OrderingRules(), 1_000, (delay, due)) == 0


@pytest.mark.parametrize("text", [None, b"", b"-1", b"1.5", b"soon", b"9" * 16, b"\xd9\xa1"])
def test_a_time_of_another_form_counts_as_absent(text: bytes | None) -> None:
    headers = (("ottla.delay.ms", text), ("ottla.due.ms", text))
    assert due_ms_of(DELAYS, 1_000, headers) == 1_500


def test_key_and_priority_are_read_if_the_rules_need_them() -> None:
    headers = (("ottla.priority", b"high"),)
    assert traits_of(DELAYS, b"k", headers) is PLAIN
    found = traits_of(OrderingRules(key_concurrency=1, has_priority=True), b"k", headers)
    assert found.priority is Priority.HIGH
    assert found.key == hash(b"k")
    assert traits_of(OrderingRules(key_concurrency=1), None, headers) is PLAIN
    odd = (("ottla.priority", b"urgent"),)
    assert traits_of(OrderingRules(has_priority=True), b"k", odd) is PLAIN


def test_rules_are_off_by_default() -> None:
    assert ordering_rules(ShareGroupSettings(), TopicConfig()) is None
    assert ordering_rules(ShareGroupSettings(has_priority=True), TopicConfig()) is not None
    assert ordering_rules(ShareGroupSettings(key_concurrency=1), TopicConfig()) is not None
    assert ordering_rules(ShareGroupSettings(backoff_ms_min=1), TopicConfig()) is not None
    rules = ordering_rules(ShareGroupSettings(), TopicConfig(share_delay_ms=0))
    assert rules is not None
    assert rules.reads_records
