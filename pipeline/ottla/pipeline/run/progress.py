"""Row counts, durations and lag of a streaming query's batches, from the JSON of Spark's progress
events. Pure.

Lag is the number of records between the end of a batch and the ends of the logs when the batch was
planned. It is the sum over all partitions of all sources.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

MILLISECONDS = 1_000
SHADOW_PREFIX = "spark-"
"""Prefix of the name of the group to which a streaming query commits its progress. The name of the
query follows. The group shows the query's lag."""


class BatchProgress(NamedTuple):
    """Row count, duration and lag of one batch of a streaming query."""

    query: str
    batch: int
    began_at: str
    """Start of the batch, in Spark's notation: 2026-07-31T12:00:00.000Z."""
    row_count: int
    rows_per_s: float
    batch_s: float
    """Duration of the batch in seconds: planning, reading, writing the rows, and writing both of
    Spark's logs."""
    lag_count: int | None
    """Number of records that follow this batch in the logs, or None if a source does not report it.
    """

    def as_json(self) -> dict[str, Any]:
        """Return the number of rows, the duration in seconds and the lag in records of this batch
        as a JSON object."""
        return self._asdict()


def progress_of(event: Mapping[str, Any]) -> BatchProgress:
    """Read one batch from a progress event of Spark: its number of rows, its duration in seconds
    and its lag in records. Values that the event lacks count as 0."""
    durations = event.get("durationMs") or {}
    batch_ms = durations.get("triggerExecution", event.get("batchDuration", 0)) or 0
    row_count = int(event.get("numInputRows") or 0)
    return BatchProgress(
        query=event.get("name") or str(event.get("id", "")),
        batch=int(event["batchId"]),
        began_at=str(event.get("timestamp", "")),
        row_count=row_count,
        rows_per_s=row_count * MILLISECONDS / batch_ms if batch_ms else 0.0,
        batch_s=batch_ms / MILLISECONDS,
        lag_count=lag_of(event.get("sources") or ()),
    )


def is_batch(event: Mapping[str, Any]) -> bool:
    """Return whether a progress event of Spark reports a batch, rather than a check that found no
    records."""
    return "addBatch" in (event.get("durationMs") or {})


def lag_of(sources: Any) -> int | None:
    """Return the lag of a query: the number of records between its read position and the ends of
    the logs, over all sources. Returns None if a source does not report its offsets."""
    total = 0
    for source in sources:
        lag = _behind(source.get("endOffset"), source.get("latestOffset"))
        if lag is None:
            return None
        total += lag
    return total if sources else None


def _behind(end: Any, latest: Any) -> int | None:
    """Return the number of records between two offsets of the form {"topic": {"0": 17}}, or None if
    one of the arguments has another form."""
    if not isinstance(end, dict) or not isinstance(latest, dict):
        return None
    total = 0
    for topic, partitions in latest.items():
        if not isinstance(partitions, dict):
            return None
        read = end.get(topic, {})
        for number, offset in partitions.items():
            # A new partition has no read position yet, so all of its records count as lag.
            total += max(0, int(offset) - int(read.get(number, 0)))
    return total


class Totals:
    """Sums over all batches of several streaming queries, such as their number of rows."""

    def __init__(self) -> None:
        self.row_count = 0
        self.batch_count = 0
        self._busy_s = 0.0
        self._lags: dict[str, int | None] = {}

    def add(self, batch: BatchProgress) -> None:
        """Add the values of one batch to the sums over all batches."""
        self.row_count += batch.row_count
        self.batch_count += 1
        self._busy_s += batch.batch_s
        self._lags[batch.query] = batch.lag_count

    @property
    def rows_per_s(self) -> float:
        """Number of rows per second while batches were running. Pauses between batches are not
        counted."""
        return self.row_count / self._busy_s if self._busy_s else 0.0

    @property
    def lag_count(self) -> int | None:
        """Sum of the lags that the queries reported last, in records. None if a lag is unknown."""
        known = [lag for lag in self._lags.values() if lag is not None]
        return sum(known) if known and len(known) == len(self._lags) else None

    def as_json(self) -> dict[str, Any]:
        """Return the sums over all batches as a JSON object."""
        return {
            "row_count": self.row_count,
            "batch_count": self.batch_count,
            "rows_per_s": self.rows_per_s,
            "lag_count": self.lag_count,
        }
