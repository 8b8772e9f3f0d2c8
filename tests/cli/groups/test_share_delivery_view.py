"""Text and JSON of the unsettled records of a share group."""

from dataclasses import replace

from ottla.cli.groups.share_delivery_view import delivery_object, delivery_text, time_text
from ottla.client.admin_parts.admin_share_groups import ShareRecordCounts

NONE = ShareRecordCounts(0, 0, 0, None, 0, None, 0, 0, is_spread=False)


def test_only_reasons_with_records_are_shown() -> None:
    assert delivery_text(None) == "not fetched"
    assert delivery_text(NONE) == "none"
    some = replace(NONE, acquired_count=2, delayed_count=3, next_due_ms=1_700_000_000_999)
    assert delivery_text(some) == "2 acquired, 3 delayed until 2023-11-14T22:13:20Z"
    rest = ShareRecordCounts(0, 1, 0, None, 4, 0, 5, 6, is_spread=True)
    assert delivery_text(rest) == (
        "1 ready, 4 in back-off until 1970-01-01T00:00:00Z, 5 waiting for their key, "
        "6 waiting for their dead letter, only records near the start offset are delivered"
    )


def test_json_has_every_number() -> None:
    assert delivery_object(None) is None
    found = delivery_object(replace(NONE, key_count=7))
    assert found is not None
    assert found["waiting_for_key"] == 7
    assert found["next_due_ms"] is None


def test_a_due_time_after_the_year_9999_has_no_text() -> None:
    assert time_text(10**15 - 1) == "-"
