"""Random walk on a partition's log: the real `Log` on the simulated disk, compared with a list of
batches.

Long tasks are stepped from one disk operation to the next. So appends, flushes, deletions and
truncations overlap as in a broker, and the power fails or the process ends between any two
operations. The disk fails, fills up, and loses unflushed data. The checkpoints found when a process
starts may be of any age.
"""

import errno
from collections.abc import Callable

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.disk_waits import bytes_of
from ottla.jepsen.world.engine import RunOutcome, outcome_of
from ottla.jepsen.world.invariants import storage
from ottla.jepsen.world.violation import Violation, violation_in
from ottla.jepsen.world.walk.actions import actions_taken, drawn_actions
from ottla.jepsen.world.walk.log_batches import NOW_MS
from ottla.jepsen.world.walk.log_life import LogLife
from ottla.jepsen.world.walk.log_model import ModelBatch, UnplacedBatch, place
from ottla.jepsen.world.walk.stepping import ProcessEnd, run_through
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset
from ottla.storage.log.log import Log
from ottla.storage.producers.verification import UNGUARDED
from ottla.storage.segments.append_info import AppendOrigin

FAULTS = (
    (DiskOperation.WRITE, errno.EIO),
    (DiskOperation.WRITE, errno.ENOSPC),
    (DiskOperation.FSYNC, errno.EIO),
    (DiskOperation.NAME, errno.EIO),
    (DiskOperation.READ, errno.EIO),
    (DiskOperation.OPEN, errno.ENOSPC),
)
FAULTY_PATHS = ("", ".log", "index", ".snapshot", "leader-epoch")
TASKS_MAX = 3


class LogWalk:
    """Search engine that tests a partition's log by random walks."""

    name = "walk"
    subject = "log"
    budget = 120
    required: tuple[str, ...] = (
        "a segment is rolled",
        "unflushed batches are lost",
        "all unflushed batches outlive the power",
        "power goes inside an operation",
        "the process ends inside an operation",
        "recovery is cut off",
        "a log goes offline",
        "a full disk refuses an append",
        "a flush is overtaken by a truncation",
        "an append overtakes a flush",
        "the log start is raised",
        "retention removes a segment",
        "a duplicate is answered",
        "a duplicate is answered after a restart",
        "a transaction is aborted",
        "an epoch is truncated away",
        "the log begins again elsewhere",
        "a truncation goes below the recovery point",
    )

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Run one random walk of at most `budget` events, with random choices from `chance`.
        Returns the outcome."""
        walk = WalkedLog(chance)
        violation = violation_in(lambda: walk.go(budget))
        return outcome_of(self, chance, walk, violation)


class FailingLogWalk(LogWalk):
    """Search engine that tests a partition's log by random walks, in a directory that fails while
    the log's tasks run."""

    subject = "log-failing"
    required = (*LogWalk.required, "the directory fails inside a truncation")

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Run one random walk of at most `budget` events, with random choices from `chance`.
        Returns the outcome."""
        walk = FailingWalk(chance)
        violation = violation_in(lambda: walk.go(budget))
        return outcome_of(self, chance, walk, violation)


class WalkedLog(LogLife):
    """One partition's log, and the adversary that chooses the log's events from one seed."""

    def __init__(self, chance: Chance) -> None:
        super().__init__(chance)
        self._actions = self._draw_actions()

    def go(self, budget: int) -> None:
        """Perform at most `budget` random actions on the log. A replayed run may end earlier. Then
        check all invariants."""
        self._open()
        for action in actions_taken(self.chance, self._actions, budget):
            try:
                action()
            except ProcessEnd:
                self.rare.sometimes("the process ends inside an operation")
                self._die()
            self._after(action.__name__)
        self._end()

    def _draw_actions(self) -> list[Callable[[], None]]:
        """Return the actions of the adversary. The list contains each action as often as its weight
        in this random walk."""
        rows: tuple[tuple[Callable[[], None], int, bool], ...] = (
            (self._append, 30, True),
            (self._replicate, 4, False),
            (self._step, 40, True),
            (self._flush, 5, True),
            (self._flush_part, 3, False),
            (self._truncate, 3, False),
            (self._restart_elsewhere, 1, False),
            (self._raise_start, 3, False),
            (self._retain, 3, False),
            (self._roll, 2, False),
            (self._lead, 3, False),
            (self._commit, 6, True),
            (self._checkpoint, 3, True),
            (self._resend, 3, True),
            (self._look, 6, True),
            (self._cut_power, 3, True),
            (self._kill, 2, False),
            (self._doom, 3, False),
            (self._stop, 1, False),
            (self._fail, 2, False),
            (self._fill, 1, False),
        )
        return drawn_actions(self.chance, rows)

    # --- appending ----------------------------------------------------------------------------

    def _append(self) -> None:
        """Append one random batch to the log, as a leader does."""
        log = self._serving()
        if log is None or self._cut is not None:
            self._step()
            return
        made = self._maker.next(self.model)
        origin = AppendOrigin.CLIENT if made.is_abort is None else AppendOrigin.COORDINATOR
        kept = place(made, self.model.end_offset, self._epoch)
        self._check_guard(log, made)
        self._pending = [kept]
        try:
            info = log.append_as_leader(
                memoryview(made.data),
                leader_epoch=Epoch(self._epoch),
                now_ms=NOW_MS,
                origin=origin,
                guard=UNGUARDED,
            )
        except RefusedError as error:
            self._on_refused_append(log, kept, error)
            return
        if info.is_duplicate or info.base_offset != kept.base_offset:
            raise Violation("OffsetsMonotone", f"{kept.base_offset} went to {info.base_offset}")
        self._take_in(log, [kept])

    def _check_guard(self, log: Log, made: UnplacedBatch) -> None:
        """Check GuardHolds: the log refuses the first batch of a transaction that was not
        verified."""
        producer = self.model.producers.get(made.producer_id)
        is_open = producer is not None and producer.txn_first_offset >= 0
        if not made.is_transactional or made.is_abort is not None or is_open:
            return
        try:
            info = log.append_as_leader(
                memoryview(made.data), leader_epoch=Epoch(self._epoch), now_ms=NOW_MS
            )
        except RefusedError:
            return
        raise Violation("GuardHolds", f"an unverified batch lies at {info.base_offset}")

    def _replicate(self) -> None:
        """Append several batches to the log as a follower does. The batches may belong to later
        epochs."""
        log = self._serving()
        if log is None or self._cut is not None:
            return
        made = [self._maker.plain() for _ in range(1 + self.chance.below(4))]
        kept: list[ModelBatch] = []
        end_offset = self.model.end_offset
        for each in made:
            self._epoch += self.chance.below(3) == 2
            kept.append(place(each, end_offset, self._epoch))
            end_offset = kept[-1].end_offset
        self._pending = kept
        data = bytearray(b"".join(each.raw for each in kept))
        try:
            log.append_as_follower(memoryview(data), now_ms=NOW_MS)
        except RefusedError as error:
            self._check_may_fail(log, error)
            count = sum(1 for each in kept if each.end_offset <= log.end_offset)
            self._take_in(log, kept[:count])
            self.model.ghosts += kept[count:]
            return
        self._take_in(log, kept)

    def _take_in(self, log: Log, kept: list[ModelBatch]) -> None:
        self._pending = []
        for each in kept:
            self.model.append(each)
        self.figures["appends"] += len(kept)
        if any(task.name.startswith("flush") and task.step_count for task in self._tasks):
            self.rare.sometimes("an append overtakes a flush")
        if kept and kept[-1].made.is_abort:
            self.rare.sometimes("a transaction is aborted")

    def _on_refused_append(self, log: Log, kept: ModelBatch, error: RefusedError) -> None:
        self._pending = []
        if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            producer = self.model.producers[kept.made.producer_id]
            sent = producer.batches
            if sent and sent[-1].base_offset >= log.log_start_offset:
                raise Violation("DuplicateIsSeen", f"what is due is refused: {error}")
            self._maker.begin_epoch(kept.made.producer_id)
            return
        self._check_may_fail(log, error)
        self._maker.forget(self.model)
        self.model.ghosts.append(kept)
        if log.failure is None:
            self.rare.sometimes("a full disk refuses an append")

    def _resend(self) -> None:
        """Send a producer's last batch to the log again, and then a batch whose sequence number
        leaves a gap. The log must write neither batch."""
        log = self._serving()
        if log is None or self._cut is not None or self.disk.is_faulty:
            return
        for producer in self.model.producers.values():
            if not producer.batches or producer.batches[-1].base_offset < log.log_start_offset:
                continue
            last = producer.batches[-1]
            info = log.append_as_leader(
                memoryview(last.made.data), leader_epoch=Epoch(self._epoch), now_ms=NOW_MS
            )
            if not info.is_duplicate or info.base_offset != last.base_offset:
                detail = f"the batch at {last.base_offset} was written again"
                raise Violation("DuplicateIsSeen", detail)
            self.rare.sometimes("a duplicate is answered")
            if self._is_restarted:
                self.rare.sometimes("a duplicate is answered after a restart")

    def _lead(self) -> None:
        """Begin a new leader epoch. At random, record the epoch's start offset in the log at once,
        as a new leader does."""
        log = self._serving()
        self._epoch += 1
        if log is not None and self._cut is None and self.chance.below(2):
            log.assign_epoch(Epoch(self._epoch), log.end_offset)

    def _commit(self) -> None:
        log = self._serving()
        if log is not None:
            span = log.end_offset - log.high_watermark
            log.update_high_watermark(
                Offset(log.high_watermark + self.chance.below(span + 1) + span % 2)
            )

    # --- long tasks ---------------------------------------------------------------------------

    def _flush(self) -> None:
        log = self._serving()
        if log is not None and len(self._tasks) < TASKS_MAX:
            self._begin("flush", log.flush(), lambda reached: self._on_flushed(log, reached))

    def _flush_part(self) -> None:
        """Flush the log up to a random offset, or flush the segments that a roll has closed."""
        log = self._serving()
        if log is None or len(self._tasks) >= TASKS_MAX:
            return
        target = log.unflushed_roll_offset
        if target is None or self.chance.below(2):
            target = Offset(self.chance.below(log.end_offset + 1))
        self._begin("flush part", log.flush(target), lambda reached: self._on_flushed(log, reached))

    def _on_flushed(self, log: Log, reached: int) -> None:
        if reached > log.end_offset:
            raise Violation("RecoveryPointIsFlushed", f"{reached} is above the end")
        self.figures["flushes"] += 1
        if self._cut is None:
            self._note_flushed(log)

    def _truncate(self) -> None:
        """Truncate the log's tail, as a follower does whose log has diverged from its leader's."""
        log = self._serving()
        if log is None or self._cut is not None or len(self._tasks) >= TASKS_MAX:
            return
        lowest = self._lowest_cut(log)
        self._truncate_at(log, lowest + self.chance.below(max(1, log.end_offset + 2 - lowest)))

    def _lowest_cut(self, log: Log) -> int:
        return max(self._start_checkpoint, log.log_start_offset)

    def _truncate_at(self, log: Log, offset: int) -> None:
        self._cut = self.model.cut_place(offset)[1]
        if self._cut < log.log_start_offset:
            self._cut = 0  # the log restarts at another offset
        self._flushed_end = min(self._flushed_end, self._cut)
        if any(task.name.startswith("flush") for task in self._tasks):
            self.rare.sometimes("a flush is overtaken by a truncation")
        self._begin(
            "truncate", log.truncate_to(Offset(offset)), lambda _: self._on_cut(log, offset)
        )

    def _on_cut(self, log: Log, offset: int) -> None:
        before = self.model.epochs(0)
        self.model.truncate(offset)
        self._flushed_end = min(self._flushed_end, self.model.end_offset)
        self._maker.forget(self.model)
        if self.model.epochs(0) != before:
            self.rare.sometimes("an epoch is truncated away")
        self._cut = None
        self.figures["truncations"] += 1
        self._check_whole(log)

    def _restart_elsewhere(self) -> None:
        """Remove all data of the log and start it at a later offset, like a follower whose log ends
        below its leader's log start."""
        log = self._serving()
        if log is None or self._cut is not None or self._tasks:
            return
        offset = log.end_offset + self.chance.below(20)
        self._cut = self._flushed_end = 0
        self._begin(
            "begin again",
            log.truncate_fully_and_start_at(Offset(offset)),
            lambda _: self._on_restarted_elsewhere(offset),
        )

    def _on_restarted_elsewhere(self, offset: int) -> None:
        self.model.begin_at(offset)
        self._maker.forget(self.model)
        self._cut = None
        self.rare.sometimes("the log begins again elsewhere")

    def _raise_start(self) -> None:
        """Delete the log's records below an offset that is at most the high watermark."""
        log = self._serving()
        if log is None or self._cut is not None or len(self._tasks) >= TASKS_MAX:
            return
        start = log.log_start_offset
        offset = start + self.chance.below(log.high_watermark - start + 1)
        self.model.raise_start(offset)
        self.rare.sometimes("the log start is raised")
        self._begin("raise start", log.delete_records_before(Offset(offset)), lambda _: None)

    def _retain(self) -> None:
        """Remove old segments of the log, because the log is too large or they are below the log
        start."""
        log = self._serving()
        if log is None or self._cut is not None or len(self._tasks) >= TASKS_MAX:
            return
        start = log.log_start_offset
        self._begin("retain", log.delete_old_segments(NOW_MS), self._on_retained)
        if log.log_start_offset > log.high_watermark:
            raise Violation("UncommittedIsKept", f"the log begins at {log.log_start_offset}")
        if log.log_start_offset < start:
            raise Violation("StartOffsetNeverGoesBack", f"{start} to {log.log_start_offset}")
        self.model.raise_start(log.log_start_offset)

    def _on_retained(self, count: int) -> None:
        if count:
            self.rare.sometimes("retention removes a segment")

    def _roll(self) -> None:
        log = self._serving()
        if log is not None and self._cut is None and len(self._tasks) < TASKS_MAX:
            self._begin("roll", log.roll(now_ms=NOW_MS), lambda _: self._note_flushed(log))

    def _step(self) -> None:
        """Continue a running task of the log for one or several disk operations."""
        if not self._tasks:
            return
        task = self._tasks[self.chance.below(len(self._tasks))]
        for _ in range(1 + self.chance.below(6)):
            if not self._go_on(task):
                return

    # --- reads --------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read the log at a random offset, find an offset by timestamp, and check both results."""
        log = self._serving()
        if log is None or self._cut is not None:
            return
        with self.disk.quietly():
            self._look_into(log)

    def _look_into(self, log: Log) -> None:
        draw, model = self.chance.below, self.model
        span = log.end_offset - log.log_start_offset
        offset = Offset(log.log_start_offset + draw(span + 1))
        bound = Offset(offset + draw(log.end_offset - offset + 1))
        bytes_max = draw(300)
        if bytes_max % 4 == 0:
            self.disk.evict()
        read = run_through(
            log.read_cold(offset, bytes_max=bytes_max, end_offset=bound, at_least_one=True)
        )
        due = [each.raw for each in model.since(offset) if each.end_offset <= bound]
        data = b"" if read.slice is None else bytes_of(read.slice)
        if not b"".join(due).startswith(data) and not (due and data == due[0]):
            raise Violation("ReadsAsWritten", f"from {offset} below {bound}: {len(data)} bytes")
        if due and not data:
            raise Violation("ReadsAsWritten", f"nothing from {offset} below {bound}")
        timestamp_ms = NOW_MS - 30 + draw(self._maker.span_ms + 60)
        found = run_through(log.offset_for_timestamp(timestamp_ms, bound))
        expected = model.first_at_or_after(timestamp_ms, bound)
        if found != expected:
            detail = f"{timestamp_ms - NOW_MS} ms below {bound}: {found}, not {expected}"
            raise Violation("FoundByTime", detail)
        storage.check_aborted(log, model, offset, bound)
        storage.check_stable(log, model)
        storage.check_epochs(log, model)

    # --- faults -------------------------------------------------------------------------------

    def _fail(self) -> None:
        """Inject a failure into a later disk operation of the log, or remove all injected disk
        faults."""
        if self.chance.below(3) == 0:
            self.disk.heal()
            return
        operation, number = self.chance.pick(FAULTS)
        self.disk.fail(
            operation,
            number,
            path_part=self.chance.pick(FAULTY_PATHS),
            skip_count=self.chance.below(4),
        )

    def _fill(self) -> None:
        if self.disk.capacity_bytes is None:
            self.disk.capacity_bytes = self.disk.used_bytes + self.chance.below(400)
        else:
            self.disk.capacity_bytes = None

    # --- crashes and restarts -----------------------------------------------------------------

    def _doom(self) -> None:
        self.disk.operations_left = self.chance.below(12)

    def _cut_power(self) -> None:
        if self._tasks:
            self.rare.sometimes("power goes inside an operation")
        self._die(is_power_cut=True)

    def _kill(self) -> None:
        self._die(is_power_cut=False)

    def _stop(self) -> None:
        """Shut the log's process down cleanly. The power may fail afterwards."""
        log = self._serving()
        if log is None or self._tasks or self._cut is not None:
            return
        try:
            run_through(log.close())
        except RefusedError as error:
            self._check_may_fail(log, error)
            return
        self._flushed_end = self.model.end_offset if self.model.batches else 0
        self.model.ghosts = []
        self._recovery_checkpoint = log.recovery_checkpoint
        self._start_checkpoint = log.log_start_offset
        if self.chance.below(2):
            self.disk.crash()
        else:
            self.disk.kill()
        self.disk.heal()
        self.disk.operations_left = None
        self.log = None
        self._is_clean = True
        self._open()

    def _checkpoint(self) -> None:
        """Write a checkpoint of the log's recovery point or start offset, as a broker does at
        intervals."""
        log = self._serving()
        if log is None or (self._cut is not None and self._cut < log.log_start_offset):
            return
        if self.chance.below(3) < 2:
            self._recovery_checkpoint = log.recovery_checkpoint
        else:
            self._start_checkpoint = log.log_start_offset

    # --- invariants ---------------------------------------------------------------------------

    def _after(self, name: str) -> None:
        log = self.log
        if log is None:
            self.trace.add(name, -1)
            return
        self.trace.add(name, log.end_offset, log.recovery_point, log.log_start_offset)
        if log.segment_count > 2:
            self.rare.sometimes("a segment is rolled")
        if log.failure is None and self._cut is None:
            storage.check_bounds(log, self.model)

    def _end(self) -> None:
        """Heal the disk, finish the running tasks of the log, and check all invariants once
        more."""
        self.disk.heal()
        self.disk.operations_left = None
        while self._tasks:
            for task in list(self._tasks):
                self._go_on(task)
        log = self._serving()
        if log is not None:
            self._check_whole(log)
        self._die(is_power_cut=True)
        self.disk.heal()
        self._open()
        assert self.log is not None
        self._after("end")


class FailingWalk(WalkedLog):
    """A partition's log whose files are closed while tasks use them, as when the log manager takes
    a failed directory offline."""

    def _draw_actions(self) -> list[Callable[[], None]]:
        return [*super()._draw_actions(), *[self._fail_directory] * 4, *[self._truncate] * 4]

    def _fail_directory(self) -> None:
        """Close the log's files. Running tasks may fail, but only with one of Ottla's own error
        types."""
        log = self._serving()
        if log is None or not self._tasks:
            return
        if self._cut is not None:
            self.rare.sometimes("the directory fails inside a truncation")
        log.abandon()

    def _check_whole(self, log: Log) -> None:
        if log.failure is None:
            super()._check_whole(log)
