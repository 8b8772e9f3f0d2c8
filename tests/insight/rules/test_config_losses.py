"""Changes of settings that an operator confirms."""

import pytest

from ottla.insight.rules.config_losses import losses_of


@pytest.mark.parametrize(
    ("key", "before", "after", "is_asked"),
    [
        ("retention.ms", "604800000", "1000", True),
        ("retention.ms", "1000", "604800000", False),
        ("retention.ms", "1000", "-1", False),
        ("retention.ms", "-1", "1000", True),
        ("retention.bytes", None, "1000", True),
        ("retention.bytes", "1000", None, False),
        ("log.retention.hours", "168", "24", True),
        ("retention.ms", "1000", "a week", False),
        ("cleanup.policy", "delete", "compact", True),
        ("cleanup.policy", "compact", "compact,delete", True),
        ("cleanup.policy", "compact, delete", "delete", False),
        ("unclean.leader.election.enable", "false", "true", True),
        ("unclean.leader.election.enable", "true", "false", False),
        ("min.insync.replicas", "2", "1", True),
        ("min.insync.replicas", "1", "2", False),
        ("min.insync.replicas", "1", "1", False),
        ("segment.ms", "1000", "1", False),
    ],
)
def test_a_change_that_deletes_or_risks_records_is_found(
    key: str, before: str | None, after: str | None, is_asked: bool
) -> None:
    found = losses_of([(key, before, after), ("segment.bytes", "2", "1")])
    assert len(found) == is_asked
    assert all(clause.startswith(f"{key}={after}") for clause in found)
