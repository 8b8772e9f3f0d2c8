"""Findings of `ottla doctor retention` about topics whose records are ahead of the clock."""

from dataclasses import replace

from ottla.insight.facts.topics.retention_driver import TopicAges
from ottla.insight.rules.retention_findings import retention_findings

NOW_MS = 1_700_000_000_000
ORDERS = TopicAges(
    topic="orders",
    cleanup_policy="delete",
    retention_ms=1_000,
    newest_ms={0: NOW_MS - 5, 1: NOW_MS + 3_600_000, 2: -1, 3: NOW_MS + 7_200_000},
)


def test_partitions_with_a_record_ahead_of_the_clock_are_named() -> None:
    (found,) = retention_findings([ORDERS], NOW_MS)
    assert (found.topic, found.partitions) == ("orders", [1, 3])
    assert found.found == "2 partitions with records of up to 2023-11-15T00:13:20Z"


def test_clocks_that_differ_a_little_are_no_finding() -> None:
    near = replace(ORDERS, newest_ms={0: NOW_MS + 59_000})
    assert list(retention_findings([near], NOW_MS)) == []


def test_what_is_not_deleted_by_age_is_no_finding() -> None:
    kept = [replace(ORDERS, cleanup_policy="compact"), replace(ORDERS, retention_ms=-1)]
    assert list(retention_findings(kept, NOW_MS)) == []
    both = replace(ORDERS, cleanup_policy="compact,delete")
    assert len(list(retention_findings([both], NOW_MS))) == 1
