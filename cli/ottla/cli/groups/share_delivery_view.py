"""Formats the number of a share group's records that are neither acknowledged nor archived, as text
and JSON. The numbers are listed by the reason why the records are not delivered yet."""

from datetime import UTC, datetime
from typing import Any

from ottla.client.admin_parts.admin_share_groups import ShareRecordCounts


def delivery_text(delivery: ShareRecordCounts | None) -> str:
    """Return a text with the numbers of a share group's unfinished records in a partition, such as
    "3 ready, 2 waiting for their key". The numbers are listed by the reason for the wait.

    Times are UTC. Returns "not fetched" if no member fetches the partition.
    """
    if delivery is None:
        return "not fetched"
    parts = [
        f"{count} {reason}"
        for count, reason in (
            (delivery.acquired_count, "acquired"),
            (delivery.ready_count, "ready"),
            (delivery.delayed_count, f"delayed until {time_text(delivery.next_due_ms)}"),
            (delivery.backoff_count, f"in back-off until {time_text(delivery.next_backoff_ms)}"),
            (delivery.key_count, "waiting for their key"),
            (delivery.dead_letter_count, "waiting for their dead letter"),
        )
        if count
    ]
    if delivery.is_spread:
        parts.append("only records near the start offset are delivered")
    return ", ".join(parts) or "none"


def delivery_object(delivery: ShareRecordCounts | None) -> dict[str, Any] | None:
    """Return the number of a share group's unsettled records in a partition, by reason, as a JSON
    object. Returns None if no member fetches the partition."""
    if delivery is None:
        return None
    return {
        "acquired": delivery.acquired_count,
        "ready": delivery.ready_count,
        "delayed": delivery.delayed_count,
        "next_due_ms": delivery.next_due_ms,
        "backoff": delivery.backoff_count,
        "next_backoff_ms": delivery.next_backoff_ms,
        "waiting_for_key": delivery.key_count,
        "waiting_for_dead_letter": delivery.dead_letter_count,
        "is_spread": delivery.is_spread,
    }


def time_text(time_ms: int | None) -> str:
    """Return the text of a time in UTC, to the second. `time_ms` is in milliseconds since 1970.
    Returns a dash if the time is unknown or beyond the year 9999."""
    if time_ms is None or time_ms >= 253_402_300_800_000:
        return "-"
    return f"{datetime.fromtimestamp(time_ms / 1_000, UTC):%Y-%m-%dT%H:%M:%SZ}"
