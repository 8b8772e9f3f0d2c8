"""Which log is cleaned next, and what keeps a log from being cleaned.  Pure.

Per partition there is at most one cleaning; who must have none of it (a truncation, a move, a
deletion) pauses the partition, which aborts a cleaning under way, and resumes it once for each
pause.  Of the logs that are due the dirtiest is next, those before all others that somebody asked
for.  A log whose cleaning fails waits, each time longer, and is then set aside with the reason; one
whose bytes lie is set aside at once.

Invariants: OneCleaningPerLog, PausedIsNotCleaned (a pause that returns finds no cleaning).
"""

from collections.abc import Iterable
from enum import Enum
from heapq import nlargest
from typing import Generic, NamedTuple, TypeVar

from ottla.model.ids import TopicPartition
from ottla.model.values import frozen
from ottla.storage.cleaner.cleanable import Cleanable, LogState, cleanable_of

RETRY_PAUSES_MS = (15_000, 60_000, 300_000, 1_800_000)
"""How long a log waits after its first failures; after one more it is set aside.  Shorter reads a
log again that fails again, longer leaves it dirty after what would have passed."""


SHORTLIST_MAX = 100
"""Due logs that are looked at again before one is chosen: the dirtiest ones.  Fewer find none where
many change meanwhile, more make the choice hold the event loop longer."""


class CleaningState(Enum):
    """What a partition's cleaning is at."""

    NONE = "none"
    CLEANING = "cleaning"
    ABORTED = "aborted"
    """Somebody waits for the cleaning to end."""
    PAUSED = "paused"


LEGAL = {
    CleaningState.NONE: {CleaningState.CLEANING, CleaningState.PAUSED},
    CleaningState.CLEANING: {CleaningState.NONE, CleaningState.ABORTED},
    CleaningState.ABORTED: {CleaningState.PAUSED, CleaningState.CLEANING},
    CleaningState.PAUSED: {CleaningState.NONE},
}
"""What may follow each state; ABORTED goes back where all who waited gave up."""


@frozen
class CleaningFailure:
    """Why the last cleaning of a log failed."""

    reason: str
    count: int
    retry_at_ms: int | None
    """When it is tried again, in wall time; None where it is set aside."""


class _Entry:
    """One partition's cleaning."""

    __slots__ = ("pause_count", "state")

    def __init__(self) -> None:
        self.state = CleaningState.NONE
        self.pause_count = 0

    def become(self, state: CleaningState) -> None:
        assert state in LEGAL[self.state], f"{self.state} to {state}"
        self.state = state


L = TypeVar("L", bound=LogState)


class Choice(NamedTuple, Generic[L]):
    """A log that is cleaned from now on."""

    partition: TopicPartition
    log: L
    cleanable: Cleanable


class CleanerManager:
    """What every partition's cleaning is at."""

    def __init__(self) -> None:
        self._entries: dict[TopicPartition, _Entry] = {}
        self._failures: dict[TopicPartition, CleaningFailure] = {}
        self._wanted: set[TopicPartition] = set()
        """Partitions that somebody asked to have cleaned, however clean they are."""

    # ---- what is at

    def state_of(self, partition: TopicPartition) -> CleaningState:
        """Return what a partition's cleaning is at."""
        entry = self._entries.get(partition)
        return CleaningState.NONE if entry is None else entry.state

    def failure_of(self, partition: TopicPartition) -> CleaningFailure | None:
        """Return why a partition is not cleaned at present, None if nothing failed."""
        return self._failures.get(partition)

    @property
    def failed(self) -> list[TopicPartition]:
        """The partitions whose last cleaning failed, set aside or not."""
        return list(self._failures)

    @property
    def set_aside(self) -> dict[TopicPartition, str]:
        """The partitions that are not cleaned any more, with their reasons."""
        return {
            partition: failure.reason
            for partition, failure in self._failures.items()
            if failure.retry_at_ms is None
        }

    # ---- choosing

    def shortlist(
        self, logs: Iterable[tuple[TopicPartition, L, Cleanable]], now_ms: int
    ) -> list[tuple[TopicPartition, L]]:
        """Return the logs among which the next one is: all wanted ones, and the dirtiest due ones.

        Eligibility is decided before the maximum, as in Kafka: a log that is over its
        `max.compaction.lag.ms`, or above a low dirty ratio of its own, is found also beside
        `SHORTLIST_MAX` dirtier logs that are not due or set aside.
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

    def choose(self, logs: Iterable[tuple[TopicPartition, L]], now_ms: int) -> Choice[L] | None:
        """Return the log to be cleaned now, whose cleaning has begun; None if none is due."""
        best: Choice[L] | None = None
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
                best, best_rank = Choice(partition, log, found), rank
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
        """Have a partition cleaned next, however clean it is, and what failed forgotten."""
        self._wanted.add(partition)
        self._failures.pop(partition, None)

    def is_wanted(self, partition: TopicPartition) -> bool:
        """Return whether somebody asked to have a partition cleaned."""
        return partition in self._wanted

    def retry(self, partition: TopicPartition) -> bool:
        """Have a partition cleaned again whose cleaning failed; return whether it had."""
        return self._failures.pop(partition, None) is not None

    # ---- ending

    def on_done(self, partition: TopicPartition) -> None:
        """Note that a cleaning came to its end."""
        self._failures.pop(partition, None)

    def on_failed(
        self, partition: TopicPartition, reason: str, *, now_ms: int, is_final: bool
    ) -> CleaningFailure:
        """Note that a cleaning failed; return what follows from it."""
        before = self._failures.get(partition)
        count = 1 if before is None else before.count + 1
        retry_at_ms = None
        if not is_final and count <= len(RETRY_PAUSES_MS):
            retry_at_ms = now_ms + RETRY_PAUSES_MS[count - 1]
        failure = self._failures[partition] = CleaningFailure(reason, count, retry_at_ms)
        return failure

    def on_ended(self, partition: TopicPartition) -> None:
        """Note that no cleaning of a partition works on its files any more."""
        entry = self._entries[partition]
        is_paused = entry.pause_count > 0
        entry.become(CleaningState.PAUSED if is_paused else CleaningState.NONE)
        self._drop_if_idle(partition)

    def forget(self, partition: TopicPartition) -> None:
        """Forget what failed and what was asked of a partition that is deleted."""
        self._failures.pop(partition, None)
        self._wanted.discard(partition)

    # ---- pausing

    def pause(self, partition: TopicPartition) -> bool:
        """Let no cleaning begin; return whether one is under way, which must end soon."""
        entry = self._entry(partition)
        entry.pause_count += 1
        if entry.state is CleaningState.NONE:
            entry.become(CleaningState.PAUSED)
        elif entry.state is CleaningState.CLEANING:
            entry.become(CleaningState.ABORTED)
        return entry.state is CleaningState.ABORTED

    def resume(self, partition: TopicPartition) -> None:
        """Take back one pause."""
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
