"""The log cleaner task of a broker: compacts its logs, several at a time, until cancelled.

The cleaner has `log.cleaner.threads` slots, each of which cleans one log at a time. A slot chooses
the dirtiest log that is due, passes it to the runner, swaps in each new segment, and checkpoints
the new first dirty offset. A slot that finds no log waits for `log.cleaner.backoff.ms`. The event
loop is never blocked by this work.

A cleaning ends at once when another task changes the log (`pause`): segments that were swapped in
are kept, and the rest is cleaned later. Before a cleaning begins, the log is flushed, so that the
data on which the cleaning relies cannot be lost. The recovery point is checkpointed too, so no
startup checks cleaned segments again.
"""

import logging
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import trio

from ottla.model.background_driver import keep_running
from ottla.model.errors import CorruptDataError, RefusedError
from ottla.model.ids import Offset, TopicPartition
from ottla.model.limits import INT64_MAX
from ottla.model.seams import Clock, Rng
from ottla.model.settings.storage.cleaner import CleanerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.model.values import frozen
from ottla.storage.cleaner.cleanable import Cleanable, cleanable_of
from ottla.storage.cleaner.cleaner_manager import ChosenLog, CleanerManager
from ottla.storage.cleaner.cleaning_runner import CleaningRunner, WorkerDiedError
from ottla.storage.cleaner.cleaning_task import CleanedGroup, CleaningDone, CleaningStats
from ottla.storage.cleaner.log_tasks import aborted_beyond, task_of
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.log.log import Log
from ottla.storage.recovery.segment_swap import remove_cleaned

_LOGGER = logging.getLogger(__name__)

LOGS_PER_TURN = 100
"""Number of logs that the cleaner inspects before other tasks run; each inspection takes about 10
microseconds. A larger number delays other tasks."""

FATES = {True: "set aside", False: "tried again later"}


class CleanedLogs(Protocol):
    """Interface of the broker's logs for the log cleaner, which the log manager implements."""

    def __iter__(self) -> Iterator[tuple[TopicPartition, Log]]:
        """Yield each partition whose log is online, with its log."""
        ...

    def is_moving(self, partition: TopicPartition) -> bool:
        """Return whether a partition's log is moving to another log directory."""
        ...

    async def keep_recovery_point(self, partition: TopicPartition, log: Log, at: Offset) -> None:
        """Wait until the recovery point checkpoint contains the offset `at`, or a larger one, for
        the partition. Raises OSError if the write fails."""
        ...

    async def keep_first_dirty(self, partition: TopicPartition) -> None:
        """Write the first dirty offset of a partition's log to the checkpoint file. Raises OSError
        if the write fails."""
        ...

    def on_file_error(self, path: str, error: OSError) -> None:
        """Handle an OSError of a log's file. The log manager may take the log directory offline."""
        ...


@frozen
class LastCleaning:
    """Result of the last compaction of a partition's log by this broker."""

    ended_ms: int
    seconds: float
    stats: CleaningStats


@dataclass(slots=True)
class CleanerFigures:
    """Totals of all compactions by one broker, and statistics of the last inspection of its
    logs."""

    cleaning_count: int = 0
    failure_count: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    keyless_record_count: int = 0
    seconds_max: float = 0.0
    """Longest duration in seconds of a compaction in the last round, over all slots (concurrent
    compactions) of the cleaner."""
    map_part_max: float = 0.0
    dirty_ratio_max: float = 0.0
    delay_ms_max: int = 0
    last_round_ms: int = 0


class _RunningTask:
    """A compaction of one log that the cleaner is currently running."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.ended = trio.Event()


class LogCleaner:
    """The log cleaner of one broker: its slots (each compacts one log at a time), its current
    compactions, and their results."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        errors: UnexpectedErrors,
        config: CleanerConfig,
        logs: CleanedLogs,
        runner: CleaningRunner,
    ) -> None:
        self.config = config
        self.runner = runner
        self.figures = CleanerFigures(last_round_ms=clock.wall_ms())
        self.last: dict[TopicPartition, LastCleaning] = {}
        """Result of the last compaction of each partition's log by this broker, by partition."""
        self.manager = CleanerManager()
        self._disk = disk
        self._clock = clock
        self._rng = rng
        self._errors = errors
        self._logs = logs
        self._running: dict[TopicPartition, _RunningTask] = {}
        self._wanted = trio.Event()
        self._slots_changed = trio.Event()
        self._slots: set[int] = set()
        self._throttle_free_at = 0.0
        self._is_stopped = False

    # ---- running

    async def run(self) -> None:
        """Compact the logs of the broker until this call is cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                self._slots_changed = trio.Event()
                for index in set(range(self.config.thread_count)) - self._slots:
                    self._slots.add(index)
                    work = partial(self._run_slot, index)
                    nursery.start_soon(keep_running, f"log cleaner {index}", work, self._errors)
                await self._slots_changed.wait()

    def reconfigure(self, **changes: Any) -> None:
        """Apply new values of the cleaner's settings. Compactions in progress keep the old
        values."""
        self.config = replace(self.config, **changes)
        self._slots_changed.set()
        self._wake()

    def _wake(self) -> None:
        self._wanted.set()
        self._wanted = trio.Event()

    async def _run_slot(self, index: int) -> None:
        """Compact one log after another, as slot `index` of the cleaner. Ends once the index is at
        least `log.cleaner.threads`."""
        while index < self.config.thread_count and not self._is_stopped:
            wanted = self._wanted
            if not await self._clean_dirtiest():
                await self.runner.end_idle()
                with trio.move_on_after(max(self.config.backoff_ms, 1) / 1_000):
                    await wanted.wait()
        self._slots.discard(index)

    async def _clean_dirtiest(self) -> bool:
        """Compact the dirtiest log that is due for compaction. Returns False if no log is due."""
        candidates = await self._candidates()
        choice = self.manager.choose(candidates, self._clock.wall_ms())
        if choice is None:
            return False
        await self._clean(choice)
        return True

    async def _candidates(self) -> list[tuple[TopicPartition, Log]]:
        """Return the dirtiest logs that may be due for compaction, with their partitions. Other
        tasks run after every `LOGS_PER_TURN` logs."""
        found: list[tuple[TopicPartition, Log, Cleanable]] = []
        now_ms = self._clock.wall_ms()
        delay_ms_max, ratio_max = 0, 0.0
        for count, (partition, log) in enumerate(self._logs, 1):
            if log.config.is_compacted and log.failure is None and self._may_be_cleaned(log):
                await self._learn_first_timestamps(log)
                cleanable = cleanable_of(log, now_ms)
                delay_ms_max = max(delay_ms_max, cleanable.delay_ms)
                ratio_max = max(ratio_max, cleanable.ratio if cleanable.cleanable_bytes else 0.0)
                if not self._logs.is_moving(partition):
                    found.append((partition, log, cleanable))
            if count % LOGS_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
        self.figures.delay_ms_max, self.figures.dirty_ratio_max = delay_ms_max, ratio_max
        self.figures.last_round_ms = now_ms
        return [
            (partition, log)
            for partition, log in self.manager.shortlist(found, now_ms)
            if log.failure is None
            and not log.is_being_changed
            and not self._logs.is_moving(partition)
        ]

    def _may_be_cleaned(self, log: Log) -> bool:
        return log.segment_count > 1 and not log.is_being_changed and not log.is_being_cleaned

    async def _learn_first_timestamps(self, log: Log) -> None:
        """Read the first timestamps of a log's dirty segments if `max.compaction.lag.ms` requires
        these timestamps."""
        if log.config.max_compaction_lag_ms == INT64_MAX:
            return
        for segment in log.segments[:-1]:
            is_known = segment.first_timestamp_ms >= 0 or not segment.size_bytes
            if segment.base_offset >= log.first_dirty_offset and not is_known:
                try:
                    await segment.load_first_timestamp()
                except OSError as error:
                    if log.failure is None and not segment.file.is_closed:
                        self._logs.on_file_error(segment.file.path, error)
                    return

    # ---- one cleaning

    async def _clean(self, choice: ChosenLog[Log]) -> None:
        """Compact the chosen log. Its compaction is marked as ended in every case, even after an
        error."""
        partition, log = choice.partition, choice.log
        running = self._running[partition] = _RunningTask()
        log.is_being_cleaned = True
        try:
            with running.scope:
                await self._clean_guarded(choice)
        finally:
            with trio.CancelScope(shield=True):
                await self._remove_leftovers(log)
            log.is_being_cleaned = False
            del self._running[partition]
            self.manager.on_ended(partition)
            running.ended.set()
        await self._remove_old(log)

    async def _clean_guarded(self, choice: ChosenLog[Log]) -> None:
        """Compact the chosen log. An error is recorded for the log and ends only this compaction,
        not the cleaner."""
        partition, log = choice.partition, choice.log
        try:
            await self._clean_log(choice)
        except RefusedError as error:
            if log.failure is None:
                self._on_failed(partition, error.message)
        except CorruptDataError as error:
            self._on_failed(partition, error.where, is_final=True)
        except OSError as error:
            self._on_failed(partition, f"{log.directory}: {error.strerror or error}")
            self._logs.on_file_error(f"{log.directory}/", error)
        except WorkerDiedError as error:
            self._on_failed(partition, str(error))
        except Exception as error:
            self._errors.note("partition", partition, error)
            self._on_failed(partition, f"unexpected error: {error!r}")

    def _on_failed(self, partition: TopicPartition, reason: str, *, is_final: bool = False) -> None:
        failure = self.manager.on_failed(
            partition, reason, now_ms=self._clock.wall_ms(), is_final=is_final
        )
        self.figures.failure_count += 1
        fate = FATES[failure.retry_at_ms is None]
        _LOGGER.error("cleaning of %s failed, it is %s: %s", partition, fate, reason)

    async def _clean_log(self, choice: ChosenLog[Log]) -> None:
        partition, log, cleanable = choice
        begun = self._clock.monotonic_ms()
        await log.flush()  # losing the end of a transaction would change its records' fate
        await self._logs.keep_recovery_point(partition, log, cleanable.end_offset)
        aborted = await aborted_beyond(self._disk, log, cleanable.end_offset)
        task = task_of(
            log,
            cleanable,
            self.config,
            aborted,
            now_ms=self._clock.wall_ms(),
            hash_seed=self._hash_seed(),
        )
        done: CleaningDone | None = None
        async with self.runner.run(task, self._take) as reports:
            async for report in reports:
                if isinstance(report, CleanedGroup):
                    # A half-finished swap would take the log offline.
                    with trio.CancelScope(shield=True):
                        await log.replace_segments(report)
                else:
                    done = report
        if done is None:
            raise WorkerDiedError("the cleaning ended without a result")
        if done.clean_to <= cleanable.first_dirty_offset:
            raise CorruptDataError(f"{log.directory}: cleaned to {done.clean_to} only")
        log.first_dirty_offset = Offset(min(done.clean_to, cleanable.end_offset))
        await self._logs.keep_first_dirty(partition)
        self.manager.on_done(partition)
        self._note_done(partition, done.stats, (self._clock.monotonic_ms() - begun) / 1_000)

    def _note_done(self, partition: TopicPartition, stats: CleaningStats, seconds: float) -> None:
        figures = self.figures
        figures.cleaning_count += 1
        figures.read_bytes += stats.read_bytes
        figures.written_bytes += stats.written_bytes
        figures.keyless_record_count += stats.keyless_record_count
        self.last[partition] = LastCleaning(self._clock.wall_ms(), seconds, stats)
        figures.seconds_max = max((each.seconds for each in self.last.values()), default=0.0)
        figures.map_part_max = max(
            each.stats.key_count / max(1, each.stats.key_count_max) for each in self.last.values()
        )

    def _hash_seed(self) -> int:
        return self._rng.uuid().int

    async def _remove_leftovers(self, log: Log) -> None:
        """Remove the files that an interrupted compaction of a log left behind."""
        if log.failure is not None:
            return  # The next start removes the files.
        try:
            await remove_cleaned(self._disk, log.directory)
        except OSError as error:
            _LOGGER.warning("%s: files of an interrupted cleaning remain: %s", log.directory, error)

    async def _remove_old(self, log: Log) -> None:
        """Remove the files of segments that were deleted from the log during its compaction, by
        retention or by a new log start offset."""
        try:
            await log.delete_old_segments(self._clock.wall_ms())
        except RefusedError as error:
            _LOGGER.warning("retention of %s: %s", log.directory, error.message)

    async def _take(self, byte_count: int) -> None:
        """Wait until a compaction may read or write `byte_count` bytes under the rate limit that
        all compactions share."""
        rate = self.config.io_bytes_per_second_max
        now = trio.current_time()
        self._throttle_free_at = max(self._throttle_free_at, now) + byte_count / rate
        if self._throttle_free_at > now and math.isfinite(self._throttle_free_at):
            await trio.sleep_until(self._throttle_free_at)

    # ---- state for metrics

    @property
    def since_last_round_ms(self) -> int:
        """Time in ms since the cleaner last inspected the logs."""
        return max(0, self._clock.wall_ms() - self.figures.last_round_ms)

    def uncleanable(self) -> list[tuple[TopicPartition, int]]:
        """Return the partitions that are excluded from compaction after failures, each with its
        number of cleanable bytes."""
        uncleanable = self.manager.uncleanable
        if not uncleanable:
            return []
        now_ms = self._clock.wall_ms()
        return [
            (partition, cleanable_of(log, now_ms).cleanable_bytes)
            for partition, log in self._logs
            if partition in uncleanable
        ]

    # ---- requests of other tasks

    def request(self, partition: TopicPartition) -> None:
        """Schedule a compaction of a partition's log soon, even if few bytes are dirty."""
        self.manager.request(partition)
        self._wake()

    def retry(self, partition: TopicPartition) -> bool:
        """Schedule a new compaction of a partition whose compaction failed. Returns False if no
        compaction of the partition has failed."""
        found = self.manager.retry(partition)
        self._wake()
        return found

    async def pause(self, partition: TopicPartition) -> None:
        """Prevent compactions of a partition until `resume`. Waits until a compaction in progress
        has ended.

        The pause remains in effect if this call is cancelled.
        """
        if self.manager.pause(partition):
            running = self._running[partition]
            running.scope.cancel()
            await running.ended.wait()

    def resume(self, partition: TopicPartition) -> None:
        """End one pause of a partition. The partition's log is not compacted before all its pauses
        have ended."""
        self.manager.resume(partition)

    @asynccontextmanager
    async def paused(self, partition: TopicPartition) -> AsyncIterator[None]:
        """Prevent compactions of a partition for the duration of the `async with` block."""
        try:
            await self.pause(partition)
            yield
        finally:
            self.resume(partition)

    async def wait_for_cleaning(self, partition: TopicPartition) -> None:
        """Wait until every compaction of a partition that began before this call has ended."""
        async with self.paused(partition):
            pass

    def abort(self, partition: TopicPartition) -> None:
        """Stop the running compaction of a partition whose log went offline."""
        running = self._running.get(partition)
        if running is not None:
            running.scope.cancel()

    def forget(self, partition: TopicPartition) -> None:
        """Remove the log cleaner's state of a partition, because the partition is deleted."""
        self.manager.forget(partition)
        self.last.pop(partition, None)

    async def prepare_truncation(self, partition: TopicPartition, log: Log, offset: Offset) -> None:
        """Stop a compaction of a log whose records from an offset on will be removed."""
        await self.pause(partition)
        if log.first_dirty_offset > offset:
            log.first_dirty_offset = offset
            await self._logs.keep_first_dirty(partition)

    async def stop(self) -> None:
        """Start no further compactions, and wait until the compactions in progress have ended."""
        self._is_stopped = True
        self._wake()
        for running in list(self._running.values()):
            running.scope.cancel()
        for running in list(self._running.values()):
            await running.ended.wait()
        await self.runner.end_idle()
