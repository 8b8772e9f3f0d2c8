"""What a streaming query tells of its batches, as the figures people ask for.

Pure: from the JSON of Spark's progress events.  Lag is counted in records, over all partitions of
all sources, against what there was when the batch was planned.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

MILLISECONDS = 1_000
SHADOW_PREFIX = "spark-"
"""Before a query's name: the group that it commits its progress to, so that its lag is seen."""


class BatchProgress(NamedTuple):
    """One batch of one query."""

    query: str
    batch: int
    began_at: str
    """When it began, as Spark writes times: 2026-07-31T12:00:00.000Z."""
    row_count: int
    rows_per_s: float
    batch_s: float
    """How long the whole trigger took: planning, reading, writing, and both logs."""
    lag_count: int | None
    """Records that were there and not in this batch; None where a source does not tell."""

    def as_json(self) -> dict[str, Any]:
        """Return it for machines."""
        return self._asdict()


def progress_of(event: Mapping[str, Any]) -> BatchProgress:
    """Return what one progress event says; what it leaves out counts as nothing."""
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
    """Return whether an event is of a batch, rather than of a look that found nothing to do."""
    return "addBatch" in (event.get("durationMs") or {})


def lag_of(sources: Any) -> int | None:
    """Return how many records lie between what was read and what there was."""
    total = 0
    for source in sources:
        lag = _behind(source.get("endOffset"), source.get("latestOffset"))
        if lag is None:
            return None
        total += lag
    return total if sources else None


def _behind(end: Any, latest: Any) -> int | None:
    """Return the records between two offsets of the form {"topic": {"0": 17}}."""
    if not isinstance(end, dict) or not isinstance(latest, dict):
        return None
    total = 0
    for topic, partitions in latest.items():
        if not isinstance(partitions, dict):
            return None
        read = end.get(topic, {})
        for number, offset in partitions.items():
            # A partition that is new since has no end yet: all of it is ahead.
            total += max(0, int(offset) - int(read.get(number, 0)))
    return total


class Totals:
    """What all batches so far come to; owns the sums."""

    def __init__(self) -> None:
        self.row_count = 0
        self.batch_count = 0
        self._busy_s = 0.0
        self._lags: dict[str, int | None] = {}

    def add(self, batch: BatchProgress) -> None:
        """Count one batch."""
        self.row_count += batch.row_count
        self.batch_count += 1
        self._busy_s += batch.batch_s
        self._lags[batch.query] = batch.lag_count

    @property
    def rows_per_s(self) -> float:
        """Return the rate while batches ran; the pauses between them are not speed."""
        return self.row_count / self._busy_s if self._busy_s else 0.0

    @property
    def lag_count(self) -> int | None:
        """Return what the queries were behind by when each told last."""
        known = [lag for lag in self._lags.values() if lag is not None]
        return sum(known) if known and len(known) == len(self._lags) else None

    def as_json(self) -> dict[str, Any]:
        """Return it for machines."""
        return {
            "row_count": self.row_count,
            "batch_count": self.batch_count,
            "rows_per_s": self.rows_per_s,
            "lag_count": self.lag_count,
        }
