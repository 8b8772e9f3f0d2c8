"""Random walk on a partition's log that favours short sequences of actions before a crash.

Some bugs need four or five actions in a row, such as a flush, a segment roll, a checkpoint and a
power cut. `LogWalk` draws each action alone, and such a sequence occurred only once in some
thousand schedules. Here a schedule also draws whole sequences. Their lengths, offsets and
interruptions stay random, and all other actions happen between them.
"""

import errno
from collections.abc import Callable

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.engine import RunOutcome, outcome_of
from ottla.jepsen.world.violation import violation_in
from ottla.jepsen.world.walk.log_walk import LogWalk, WalkedLog
from ottla.model.ids import Offset
from ottla.storage.log.log import Log

SEQUENCE_WEIGHT = 4
"""Weight with which a random walk on a log draws each sequence of actions. An append has the weight
30. With a larger weight, too little of the budget would remain for the actions between two
sequences."""

ALONE_STEPS_MAX = 60
"""Maximum number of disk operations of a log flush while no other task runs. Without this limit, a
flush that waits until another task has replaced the same file would never end."""


class SequencesLogWalk(LogWalk):
    """Search engine that tests a partition's log by random walks with sequences of actions before a
    crash."""

    subject = "log-sequences"
    required = (
        *LogWalk.required,
        "a truncation ends just below a removed segment",
        "unflushed segments are removed during a flush",
        "a segment is rolled at the recovery point",
        "an append follows a failed roll",
    )

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Run one random walk of at most `budget` events, with random choices from `chance`.
        Returns the outcome."""
        walk = SequencesWalk(chance)
        violation = violation_in(lambda: walk.go(budget))
        return outcome_of(self, chance, walk, violation)


class SequencesWalk(WalkedLog):
    """One partition's log, and an adversary that also draws sequences of actions on it."""

    def _draw_actions(self) -> list[Callable[[], None]]:
        sequences = (
            self._cut_below_a_segment,
            self._remove_during_a_flush,
            self._roll_at_the_recovery_point,
            self._append_after_a_failed_roll,
        )
        return [*super()._draw_actions(), *sequences * SEQUENCE_WEIGHT]

    def _cut_below_a_segment(self) -> None:
        """Truncate the log within a segment, which removes all later segments. Then append again,
        flush, and cut the power.

        If the removal is not durable, the old records may follow the new ones.
        """
        log = self._settled()
        if log is None or self._append_some(9) is not log or not self._flush_all(log):
            return
        base_offset = self._cut_into_a_closed_segment(log)
        if base_offset is None or self._append_some(2) is not log:
            return
        if log.end_offset == base_offset:
            self.rare.sometimes("a truncation ends just below a removed segment")
        if self._flush_all(log):
            self._cut_power()

    def _remove_during_a_flush(self) -> None:
        """Remove unflushed segments of the log below a raised log start while the rest of the log
        is flushed, and cut the power."""
        log = self._settled()
        if log is None or self._append_some(9) is not log:
            return
        log.update_high_watermark(Offset(log.end_offset))
        is_flushed = all(each.is_sealed for each in log.segments[:-1])
        self._raise_start()
        for _ in range(self.chance.below(8)):
            self._step()
        if log.failure is None and self._flush_all(log):
            if not is_flushed:
                self.rare.sometimes("unflushed segments are removed during a flush")
            self._cut_power()

    def _roll_at_the_recovery_point(self) -> None:
        """Flush the log, roll its segment, write the checkpoint of the recovery point, and cut the
        power.

        In some runs the segment was sealed and truncated before. Its index files may then contain
        old entries instead of new ones after the power cut, because neither the truncation nor the
        index writes are durable.
        """
        log = self._settled()
        if log is None or self._append_some(9) is not log or not self._flush_all(log):
            return
        if self.chance.below(3):
            cut = self._cut_into_a_closed_segment(log)
            if cut is None or self._append_some(4) is not log or not self._flush_all(log):
                return
        self._roll()
        self._recovery_checkpoint = log.recovery_checkpoint
        self.rare.sometimes("a segment is rolled at the recovery point")
        if self.chance.below(2):
            self._append_some(3)
        self._cut_power()

    def _append_after_a_failed_roll(self) -> None:
        """Inject a failure into the creation of a new log segment, append to the old segment, and
        end the process."""
        log = self._settled()
        if log is None or self._append_some(3) is not log:
            return
        self.disk.fail(
            DiskOperation.OPEN, errno.ENOSPC, path_part="index", skip_count=self.chance.below(2)
        )
        self._roll()
        self.disk.heal()
        if self._settled() is not log or self._append_some(4) is not log:
            return
        self.rare.sometimes("an append follows a failed roll")
        if self.chance.below(2):
            self._stop()
        else:
            self._kill()

    # --- parts of a sequence -------------------------------------------------------------------

    def _settled(self) -> Log | None:
        """Finish the running tasks of the log. Returns the log, or None if it cannot serve
        requests, for example after a crash."""
        log = self._serving()
        while log is not None and self._tasks:
            for task in list(self._tasks):  # one may wait for another
                self._go_on(task)
        return log if log is not None and log.failure is None and self._cut is None else None

    def _cut_into_a_closed_segment(self, log: Log) -> int | None:
        """Truncate the log within a segment, which removes all later segments. Returns the base
        offset of the first segment removed. Returns None if no segment can be removed or the log no
        longer serves requests."""
        lowest = self._lowest_cut(log)
        bases = [each.base_offset for each in log.segments if each.base_offset > lowest]
        if not bases:
            return None
        base_offset = self.chance.pick(bases)
        depth = 1 + self.chance.below(2) * self.chance.below(6)
        self._truncate_at(log, max(lowest, base_offset - depth))
        return base_offset if self._settled() is log else None

    def _append_some(self, count_max: int) -> Log | None:
        """Append up to `count_max` random batches to the log. Returns the log, or None if it no
        longer serves requests."""
        for _ in range(1 + self.chance.below(count_max)):
            log = self.log
            if log is None or log.failure is not None:
                return None
            self._append()
        return self.log

    def _flush_all(self, log: Log) -> bool:
        """Flush the whole log while the other tasks of the log wait. Returns False if the disk
        failed."""
        if log is not self.log or log.failure is not None:
            return False
        waiting = len(self._tasks)
        self._begin("flush", log.flush(), lambda reached: self._on_flushed(log, reached))
        for _ in range(ALONE_STEPS_MAX):
            if len(self._tasks) == waiting or not self._go_on(self._tasks[-1]):
                return log.failure is None and log.recovery_point == log.end_offset
        return False
