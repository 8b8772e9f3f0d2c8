"""Choice of the next log to compact, and record of the pauses and failures that prevent a
compaction. Pure.

A partition has at most one cleaning at a time. A task that must not run during a cleaning (a
truncation, a move, a deletion) pauses the partition, which aborts a cleaning in progress. The task
resumes the partition once for each pause. Logs whose cleaning was requested are chosen first, then
the dirtiest of the logs that are due. A log whose cleaning fails is retried after increasing
delays, and is then excluded with the reason. A corrupt log is excluded without a retry.

Invariants: OneCleaningPerLog, PausedIsNotCleaned (no cleaning runs once a pause has returned).
"""

from collections.abc import Iterable
from enum import Enum
from heapq import nlargest
from typing import Generic, NamedTuple, TypeVar

from ottla.model.ids import TopicPartition
from ottla.model.values import frozen
from ottla.storage.cleaner.cleanable import Cleanable, CleanableLog, cleanable_of

RETRY_PAUSES_MS = (15_000, 60_000, 300_000, 1_800_000)
"""Delays in ms before the retries of a failed compaction. After one more failure the log is
excluded. With shorter delays, a failing log is read more often. With longer delays, the log stays
dirty for longer after a temporary error."""


SHORTLIST_MAX = 100
"""Maximum number of due logs that are inspected again before one of them is chosen, dirtiest first.
With a smaller number, all inspected logs may have changed and no longer be due. With a larger one,
the event loop is blocked for longer."""


class CleaningState(Enum):
    """State of one partition in the log cleaner, for example "being compacted" or "paused"."""

    NONE = "none"
    CLEANING = "cleaning"
    ABORTED = "aborted"
    """State of a partition whose compaction was stopped by another task but is still running. That
    task waits until the compaction has ended."""
    PAUSED = "paused"


LEGAL = {
    CleaningState.NONE: {CleaningState.CLEANING, CleaningState.PAUSED},
    CleaningState.CLEANING: {CleaningState.NONE, CleaningState.ABORTED},
    CleaningState.ABORTED: {CleaningState.PAUSED, CleaningState.CLEANING},
    CleaningState.PAUSED: {CleaningState.NONE},
}
"""Permitted next states, by cleaning state. ABORTED returns to CLEANING once no task waits for the
compaction to end."""


@frozen
class CleaningFailure:
    """Failure of the last compaction of a log, with the reason and the time of the next attempt."""

    reason: str
    count: int
    retry_at_ms: int | None
    """Time of the next attempt to compact the log, in ms since 1970. None if the log is excluded
    from compaction."""


class _Entry:
    """Compaction state of one partition, with its pauses and its failures."""

    __slots__ = ("pause_count", "state")

    def __init__(self) -> None:
        self.state = CleaningState.NONE
        self.pause_count = 0

    def become(self, state: CleaningState) -> None:
        assert state in LEGAL[self.state], f"{self.state} to {state}"
        self.state = state


L = TypeVar("L", bound=CleanableLog)


class ChosenLog(NamedTuple, Generic[L]):
    """A log whose compaction has begun, with its partition and its cleanable part."""

    partition: TopicPartition
    log: L
    cleanable: Cleanable


class CleanerManager:
    """Compaction states of all partitions of a broker, and the choice of the next log to
    compact."""

    def __init__(self) -> None:
        self._entries: dict[TopicPartition, _Entry] = {}
        self._failures: dict[TopicPartition, CleaningFailure] = {}
        self._wanted: set[TopicPartition] = set()
        """Partitions whose compaction was requested. They are compacted even if they have no dirty
        records."""

    # ---- queries

    def state_of(self, partition: TopicPartition) -> CleaningState:
        """Return the compaction state of a partition."""
        entry = self._entries.get(partition)
        return CleaningState.NONE if entry is None else entry.state

    def failure_of(self, partition: TopicPartition) -> CleaningFailure | None:
        """Return the failure that currently prevents compactions of a partition. Returns None if no
        failure prevents them."""
        return self._failures.get(partition)

    @property
    def failed(self) -> list[TopicPartition]:
        """The partitions whose last compaction failed, whether they are excluded or will be
        retried."""
        return list(self._failures)

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        """The partitions that are excluded from compaction, each with the reason."""
        return {
            partition: failure.reason
            for partition, failure in self._failures.items()
            if failure.retry_at_ms is None
        }

    # ---- choosing

    def shortlist(
        self, logs: Iterable[tuple[TopicPartition, L, Cleanable]], now_ms: int
    ) -> list[tuple[TopicPartition, L]]:
        """Return the logs from which the next log to compact is chosen: all requested logs, and the
        dirtiest of the logs that are due.

        As in Kafka, logs that are not due or are excluded are removed before the number is limited
        to `SHORTLIST_MAX`. A log may be due only because of `max.compaction.lag.ms`, or because of
        its own low dirty ratio. Such a log is therefore found even if `SHORTLIST_MAX` dirtier logs
        are not due or excluded.
        """
        wanted: list[tuple[TopicPartition, L]] = []
        due: list[tuple[float, TopicPartition, L]] = []
        for partition, log, found in logs:
            if partition in self._wanted:
                wanted.append((partition, log))
            elif self._may_begin(partition, now_ms) and found.is_due(log.config):
                due.append((found.ratio, partition, log))
        dirtiest = nlargest(SHORTLIST_MAX, due, key=lambda each: each[0])
        return wanted + [(partition, log) for _, partition, log in dirtiest]

    def choose(self, logs: Iterable[tuple[TopicPartition, L]], now_ms: int) -> ChosenLog[L] | None:
        """Choose the next log to compact, mark its compaction as begun, and return the log. Returns
        None if no compaction is due."""
        best: ChosenLog[L] | None = None
        best_rank = (False, 0.0)
        for partition, log in logs:
            if not self._may_begin(partition, now_ms):
                continue
            found = cleanable_of(log, now_ms)
            is_wanted = partition in self._wanted
            if not found.is_due(log.config) and not (is_wanted and found.cleanable_bytes):
                self._wanted.discard(partition)
                continue
            rank = (is_wanted, found.ratio)
            if best is None or rank > best_rank:
                best, best_rank = ChosenLog(partition, log, found), rank
        if best is not None:
            self._wanted.discard(best.partition)
            self._entry(best.partition).become(CleaningState.CLEANING)
        return best

    def _may_begin(self, partition: TopicPartition, now_ms: int) -> bool:
        if partition in self._entries:
            return False
        failure = self._failures.get(partition)
        if failure is None or partition in self._wanted:
            return True
        return failure.retry_at_ms is not None and failure.retry_at_ms <= now_ms

    def request(self, partition: TopicPartition) -> None:
        """Schedule a partition to be compacted next, even if few bytes are dirty. Clears the
        failures of the partition."""
        self._wanted.add(partition)
        self._failures.pop(partition, None)

    def is_wanted(self, partition: TopicPartition) -> bool:
        """Return whether a compaction of the partition was requested and has not started yet."""
        return partition in self._wanted

    def retry(self, partition: TopicPartition) -> bool:
        """Schedule a new compaction of a partition whose compaction failed. Returns False if no
        compaction of the partition has failed."""
        return self._failures.pop(partition, None) is not None

    # ---- ending

    def on_done(self, partition: TopicPartition) -> None:
        """Record that a compaction of a partition succeeded, which clears the partition's
        failures."""
        self._failures.pop(partition, None)

    def on_failed(
        self, partition: TopicPartition, reason: str, *, now_ms: int, is_final: bool
    ) -> CleaningFailure:
        """Record that a compaction of a partition failed. Returns the failure with the time of the
        next attempt.

        With `is_final`, the log is excluded without further attempts.
        """
        before = self._failures.get(partition)
        count = 1 if before is None else before.count + 1
        retry_at_ms = None
        if not is_final and count <= len(RETRY_PAUSES_MS):
            retry_at_ms = now_ms + RETRY_PAUSES_MS[count - 1]
        failure = self._failures[partition] = CleaningFailure(reason, count, retry_at_ms)
        return failure

    def on_ended(self, partition: TopicPartition) -> None:
        """Record that a compaction of a partition has ended and no longer uses the partition's
        files."""
        entry = self._entries[partition]
        is_paused = entry.pause_count > 0
        entry.become(CleaningState.PAUSED if is_paused else CleaningState.NONE)
        self._drop_if_idle(partition)

    def forget(self, partition: TopicPartition) -> None:
        """Remove the recorded failures and requests of a partition, because it is deleted."""
        self._failures.pop(partition, None)
        self._wanted.discard(partition)

    # ---- pausing

    def pause(self, partition: TopicPartition) -> bool:
        """Prevent new compactions of a partition. Returns True if a compaction is in progress,
        whose end the caller must await."""
        entry = self._entry(partition)
        entry.pause_count += 1
        if entry.state is CleaningState.NONE:
            entry.become(CleaningState.PAUSED)
        elif entry.state is CleaningState.CLEANING:
            entry.become(CleaningState.ABORTED)
        return entry.state is CleaningState.ABORTED

    def resume(self, partition: TopicPartition) -> None:
        """End one pause of a partition. After the last pause has ended, the partition's log may be
        compacted again."""
        entry = self._entries[partition]
        assert entry.pause_count > 0, partition
        entry.pause_count -= 1
        if entry.pause_count:
            return
        if entry.state is CleaningState.ABORTED:
            entry.become(CleaningState.CLEANING)
        else:
            entry.become(CleaningState.NONE)
        self._drop_if_idle(partition)

    def _entry(self, partition: TopicPartition) -> _Entry:
        return self._entries.setdefault(partition, _Entry())

    def _drop_if_idle(self, partition: TopicPartition) -> None:
        if self._entries[partition].state is CleaningState.NONE:
            del self._entries[partition]
