"""Successive processes that use one partition log: the current process, its disk, its running
tasks, and its recovery.

`LogLife` owns the log, its model and the broker's checkpoints. A random walk chooses the events.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.invariants import storage
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.walk.log_batches import NOW_MS, BatchMaker
from ottla.jepsen.world.walk.log_model import LogModel, ModelBatch
from ottla.jepsen.world.walk.stepping import CrashingDisk, ProcessEnd, SteppedTask, run_through
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.storage.log.log import Log, open_log
from ottla.storage.log.log_owner import LogOwner
from ottla.storage.segments.log_config import LogConfig

DIRECTORY = "/data/orders-0"
TOPIC_ID = UUID(int=1000)

SEGMENT_BYTES = (600, 400, 1_200)
INDEX_INTERVAL_BYTES = (100, 0, 250)
INDEX_BYTES = (120, 48)
RETENTION_BYTES = (-1, 800)


class _LifeOwner(LogOwner):
    """Owner of the log of a `LogLife`, which writes the checkpoint of the recovery point."""

    __slots__ = ("_life",)

    def __init__(self, life: "LogLife") -> None:
        self._life = life

    async def on_offsets_decreased(self) -> None:
        """Write the checkpoint of the log's recovery point. The log calls this before it is
        truncated below its recovery point."""
        self._life.keep_recovery_point()


class LogLife:
    """One partition directory on a simulated disk, and the successive processes that open its
    log."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.trace = Trace()
        self.rare = RareStates()
        self.figures = {
            "appends": 0,
            "flushes": 0,
            "power cuts": 0,
            "crashes": 0,
            "recoveries": 0,
            "truncations": 0,
        }
        self.model = LogModel()
        self.disk = CrashingDisk(chance.stream("disk"))
        run_through(self.disk.makedirs(DIRECTORY))
        self.disk.flush_everything()
        self.log: Log | None = None
        self._maker = BatchMaker(chance)
        self._config = LogConfig(
            segment_bytes=chance.pick(SEGMENT_BYTES),
            index_interval_bytes=chance.pick(INDEX_INTERVAL_BYTES),
            segment_index_bytes=chance.pick(INDEX_BYTES),
            retention_bytes=chance.pick(RETENTION_BYTES),
            preallocate=chance.chance(0.1),
        )
        self._tasks: list[SteppedTask] = []
        self._epoch = 0
        self._flushed_end = 0
        self._cut: int | None = None
        """Offset to which the log is being truncated, or None if no truncation is running. Appends
        wait until the truncation ends."""
        self._pending: list[ModelBatch] = []
        """Expected batches that a task is writing to the log."""
        self._is_clean = True
        self._recovery_checkpoint = 0
        self._start_checkpoint = 0
        self._was_cut_by_power = False
        self._is_restarted = False
        self._has_failed = False
        """True if a disk write of the log failed and the process still reads the data of the failed
        write from the page cache."""

    # --- running tasks -------------------------------------------------------------------------

    def _begin(self, name: str, work: Any, on_end: Callable[[Any], None]) -> None:
        """Start a task of the log with the coroutine `work`, and run it to its first disk
        operation. `on_end` receives the task's result."""
        task = SteppedTask(name, work, on_end)
        self._tasks.append(task)
        self._go_on(task)

    def _go_on(self, task: SteppedTask) -> bool:
        """Run a task of the log to its next disk operation. Returns whether it is still running."""
        log = self.log
        assert log is not None
        try:
            is_over = task.step()
        except RefusedError as error:
            self._tasks.remove(task)
            self._check_may_fail(log, error)
            is_cut = task.name in ("truncate", "begin again")
            if is_cut and log.failure is None:
                raise Violation("HalfCutIsOffline", str(error)) from None
            return False
        if is_over:
            self._tasks.remove(task)
        return not is_over

    def _check_may_fail(self, log: Log, error: RefusedError) -> None:
        """Check that an injected disk fault explains the error with which the log refused an
        operation."""
        if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            raise Violation("NoRefusalWithoutReason", str(error))
        if log.failure is not None:
            self.rare.sometimes("a log goes offline")
        self._has_failed = True

    def _note_flushed(self, log: Log) -> None:
        if log.recovery_point <= log.log_start_offset:
            return  # the recovery point is right, because no data is left to flush
        ends = [each.end_offset for each in self.model.batches]
        safe = max((end for end in ends if end <= log.recovery_point), default=0)
        self._flushed_end = max(self._flushed_end, safe)
        self.model.ghosts = [g for g in self.model.ghosts if g.base_offset >= log.recovery_point]

    def _check_whole(self, log: Log) -> None:
        with self.disk.quietly():
            storage.check_whole(log, self.model)

    # --- crashes and restarts -----------------------------------------------------------------

    def _serving(self) -> Log | None:
        """Return the log if it can serve requests. Otherwise end or start the process that owns it,
        and return None."""
        log = self.log
        if log is not None and log.failure is None:
            return log
        if log is None:
            self._open()
        elif not self._tasks:
            self._die()
        return None

    def _die(self, is_power_cut: bool | None = None) -> None:
        """End the process that uses the log. `is_power_cut` is True if its machine loses power as
        well; None decides this at random."""
        if is_power_cut is None:
            is_power_cut = self.chance.below(2) == 1
        disk = self.disk
        disk.operations_left = None
        if is_power_cut:
            self.figures["power cuts"] += 1
            self._was_cut_by_power = True
            disk.crash()
        else:
            self.figures["crashes"] += 1
            disk.kill()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.drop()
        self._is_clean = False
        self.log = None
        if self.chance.below(4):
            disk.heal()
        self._has_failed = self._has_failed and not is_power_cut

    def _open(self) -> None:
        """Start a process that opens and recovers the log. A crash may interrupt the recovery."""
        may_fail = self.disk.is_faulty or self._has_failed
        try:
            log = self._load()
        except ProcessEnd:
            self.rare.sometimes("recovery is cut off")
            self._die()
            return
        except OSError:
            if not may_fail:
                raise
            self.rare.sometimes("recovery fails")
            self._has_failed = True
            self._die()
            return
        with self.disk.quietly():
            self._judge_recovery(log)

    def _load(self) -> Log:
        log: Log = run_through(
            open_log(
                self.disk,
                DIRECTORY,
                config=self._config,
                topic_id=TOPIC_ID,
                is_clean=self._is_clean,
                recovery_point=Offset(self._recovery_checkpoint),
                log_start_offset=Offset(self._start_checkpoint),
                now_ms=NOW_MS,
                rng=self.chance.stream("jitter"),
            )
        )
        return log

    def _judge_recovery(self, log: Log) -> None:
        """Check that the recovered log contains all data that the model of the log requires."""
        model = self.model
        if self._cut is not None:
            self._flushed_end = min(self._flushed_end, self._cut)
        at_least = self._flushed_end
        is_all_there = not self._was_cut_by_power and not self.disk.has_lost_writes
        if is_all_there and self._cut is None:
            at_least = model.end_offset if model.batches else 0
        kept = storage.kept_batches(
            log, model, self._pending, flushed_end=self._flushed_end, at_least=at_least
        )
        start, end = log.log_start_offset, log.end_offset
        if start < self._start_checkpoint or (start > model.start_offset and start != end):
            raise Violation("StartOffsetNeverGoesBack", f"{model.start_offset} to {start}")
        if self._was_cut_by_power:
            is_lost = end < model.end_offset
            if is_lost:
                self.rare.sometimes("unflushed batches are lost")
            elif end > self._flushed_end:
                self.rare.sometimes("all unflushed batches outlive the power")
        model.keep(kept, end)
        model.start_offset = start
        model.start_offset_max = max(model.start_offset_max, start)
        self._maker.forget(model)
        self._flushed_end = min(self._flushed_end, end)
        self._pending, self._cut = [], None
        self._was_cut_by_power = self.disk.has_lost_writes = False
        self._is_restarted = True
        self.figures["recoveries"] += 1
        self.log = log
        log.state.owner = _LifeOwner(self)
        self._recovery_checkpoint = min(self._recovery_checkpoint, log.recovery_checkpoint)
        storage.check_whole(log, model)
        if self.chance.below(8) == 1:
            self._recover_again(log)
        self._is_clean = False

    def _recover_again(self, log: Log) -> None:
        """Check RecoveryIsIdempotent: a second recovery of the log yields the same state as the
        first."""
        before = storage.state_of(log)
        self.disk.kill()
        self._is_clean = False
        again = self._load()
        after = storage.state_of(again)
        if after[:2] + after[3:] != before[:2] + before[3:]:
            raise Violation("RecoveryIsIdempotent", f"{before}, then {after}")
        storage.check_whole(again, self.model)
        again.state.owner = _LifeOwner(self)
        self.log = again

    def keep_recovery_point(self) -> None:
        """Write the checkpoint of the log's recovery point."""
        assert self.log is not None
        self._recovery_checkpoint = self.log.recovery_checkpoint
        self.rare.sometimes("a truncation goes below the recovery point")
