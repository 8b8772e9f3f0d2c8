"""Memory and event-loop holds of many share partitions: every step is measured."""

import pytest

from ottla.bench.queues import share_scale
from ottla.bench.queues.share_scale import measure


def test_each_step_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_scale, "FETCHED_PARTITIONS", 210)
    rows = measure(2, 3)
    assert [row[0] for row in rows] == [
        "an idle share partition on the leader",
        "its 2,000 records in flight",
        "all locks expire",
        "states loaded by another coordinator",
        "an idle state on the coordinator",
        "snapshots of idle states",
        "states of a deleted topic",
        "a record in a span of its own",
        "ShareFetches of 210 partitions",
    ]
