"""Periodic work on the logs of one log directory: checkpoints, flushes, retention.

Each directory has its own upkeep, so that a hanging disk delays only its own logs. Within a
directory, checkpoints, flushes and retention do not wait for each other.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import trio

from ottla.model.background_driver import keep_running
from ottla.model.errors import RefusedError
from ottla.model.ids import Offset, TopicPartition
from ottla.model.limits import INT64_MAX
from ottla.model.seams import Clock
from ottla.model.settings.broker import BrokerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.directories.checkpoint_file import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from ottla.storage.log.log import Log
from ottla.storage.manager.delayed_removal_driver import DelayedRemoval
from ottla.storage.manager.disk_relief_driver import DiskRelief

_LOGGER = logging.getLogger(__name__)

FLUSH_CHECK_INTERVAL_MS = 1_000
"""Interval in ms between checks of logs for flush.ms, if log.flush.scheduler.interval.ms is not
set. With a shorter interval, all logs are checked more often. With a longer one, flushes are late.
"""

IDLE_FLUSH_INTERVAL_MS = 15_000
"""Time in ms without a write after which a file may be flushed and its descriptor closed. With a
shorter time, files are flushed that are still being written. With a longer time, idle files occupy
descriptors that other files need."""

RETENTION_PAUSE_S = 0.1
"""Delay in seconds between a change of a retention setting and the resulting retention check.
Changes of many topics within this time cause one check of all logs. With a longer delay, an
operator notices the wait."""

LOGS_PER_TURN = 100
"""Number of logs that periodic work inspects before other tasks run; each inspection takes about 10
microseconds. A larger number delays other tasks."""


FUTURE_TIMESTAMP = (
    "%s: the segment from offset %s on has a record with timestamp %s ms, ahead of our clock: "
    "until retention.ms after that time, neither it nor later segments are deleted by age"
)


class DirectoryUpkeep:
    """The periodic work on the logs of one log directory: checkpoints, flushes, retention."""

    def __init__(
        self,
        path: str,
        config: BrokerConfig,
        clock: Clock,
        errors: UnexpectedErrors,
        *,
        logs: Callable[[], Iterator[tuple[TopicPartition, Log]]],
        write_checkpoint: Callable[[str], Awaitable[None]],
        flush_idle: Callable[[], Awaitable[None]],
        measure_free_space: Callable[[], Awaitable[None]],
        removal: DelayedRemoval,
        relief: DiskRelief,
    ) -> None:
        """Create the periodic work of the log directory at `path`. `logs` yields the directory's
        logs; `write_checkpoint` writes the checkpoint file of a name.

        `flush_idle` flushes idle files so that their descriptors can be closed.
        `measure_free_space` measures the disk's free space until cancelled. `relief` deletes copied
        segments if the free space is too small.
        """
        self.removal = removal
        self.relief = relief
        self._path = path
        self._config = config
        self._clock = clock
        self._errors = errors
        self._logs = logs
        self._write_checkpoint = write_checkpoint
        self._flush_idle = flush_idle
        self._measure_free_space = measure_free_space
        self._to_flush: dict[TopicPartition, Log] = {}
        self._flush_wanted = trio.Event()
        self._retention_wanted = trio.Event()

    async def run(self) -> None:
        """Run each kind of periodic work on the directory's logs at its own interval until
        cancelled."""
        config = self._config
        async with trio.open_nursery() as nursery:
            delay_ms = config.initial_task_delay_ms
            for first_ms, interval_ms, name in (
                (delay_ms, config.recovery_point_checkpoint_interval_ms, RECOVERY_POINT_FILE),
                (delay_ms, config.log_start_checkpoint_interval_ms, LOG_START_FILE),
                (0, config.high_watermark_checkpoint_interval_ms, HIGH_WATERMARK_FILE),
            ):
                work = partial(self._write_checkpoint, name)
                self._keep_running(nursery, name, partial(_every, first_ms, interval_ms, work))
            interval_ms = config.flush_scheduler_interval_ms
            if interval_ms == INT64_MAX:
                interval_ms = FLUSH_CHECK_INTERVAL_MS
            # No initial delay: flush.ms bounds the loss at a power failure, also right after a
            # start.
            due = partial(_every, 0, interval_ms, self._request_due_flushes)
            self._keep_running(nursery, "flush.ms", due)
            idle = partial(_every, 0, IDLE_FLUSH_INTERVAL_MS, self._flush_idle)
            self._keep_running(nursery, "descriptors", idle)
            interval_ms = config.producer_id_expiration_check_interval_ms
            silent = partial(_every, interval_ms, interval_ms, self._expire_producers)
            self._keep_running(nursery, "producers", silent)
            self._keep_running(nursery, "flushes", self._flush_requested)
            self._keep_running(nursery, "retention", self._apply_retention)
            self._keep_running(nursery, "removals", self.removal.run)
            self._keep_running(nursery, "free space", self._measure_free_space)
            self._keep_running(nursery, "relief", self.relief.run)

    def _keep_running(
        self, nursery: trio.Nursery, name: str, work: Callable[[], Awaitable[object]]
    ) -> None:
        nursery.start_soon(keep_running, f"{name} of {self._path}", work, self._errors)

    # ---- flushes

    def request_flush(self, partition: TopicPartition, log: Log) -> None:
        """Schedule a flush of a partition's log, after a new segment was begun or when flush.ms
        requires it."""
        self._to_flush[partition] = log
        self._flush_wanted.set()

    async def _request_due_flushes(self) -> None:
        now_ms = self._clock.wall_ms()
        for partition, log in self._logs():
            since_ms = log.unflushed_since_ms
            if since_ms is None or log.config.flush_ms == INT64_MAX:
                continue
            if now_ms - since_ms >= log.config.flush_ms:
                self.request_flush(partition, log)

    async def _flush_requested(self) -> None:
        while True:
            await self._flush_wanted.wait()
            self._flush_wanted = trio.Event()
            waiting, self._to_flush = self._to_flush, {}
            for partition, log in waiting.items():
                if log.failure is not None:
                    continue
                try:
                    await log.flush(_flush_target(log))
                except RefusedError as error:
                    _LOGGER.error("flush of %s: %s", partition, error.message)
                except Exception as error:
                    self._errors.note("partition", partition, error)

    # ---- retention

    def apply_retention_soon(self) -> None:
        """Apply retention to all logs soon, because a retention setting was changed."""
        self._retention_wanted.set()

    async def _apply_retention(self) -> None:
        wait_ms = self._config.initial_task_delay_ms
        while True:
            with trio.move_on_after(wait_ms / 1_000):
                await self._retention_wanted.wait()
                await trio.sleep(RETENTION_PAUSE_S)
            self._retention_wanted = trio.Event()
            await self._delete_old_segments()
            wait_ms = self._config.retention_check_interval_ms

    async def _delete_old_segments(self) -> None:
        """Apply retention to every log of the directory."""
        for count, (partition, log) in enumerate(self._logs(), 1):
            if log.failure is not None:
                continue
            try:
                await log.delete_old_segments(self._clock.wall_ms())
                ahead_ms = log.report_future_timestamps(self._clock.wall_ms())
                if ahead_ms is not None:
                    _LOGGER.warning(FUTURE_TIMESTAMP, partition, log.log_start_offset, ahead_ms)
            except RefusedError as error:
                _LOGGER.warning("retention of %s: %s", partition, error.message)
            except Exception as error:
                self._errors.note("partition", partition, error)
            if count % LOGS_PER_TURN == 0:
                await trio.lowlevel.checkpoint()

    # ---- producers

    async def _expire_producers(self) -> None:
        """Remove the states of idle producers from every log of the directory."""
        for count, (partition, log) in enumerate(self._logs(), 1):
            try:
                if log.failure is None:
                    log.expire_producers(self._clock.wall_ms())
            except Exception as error:
                self._errors.note("partition", partition, error)
            if count % LOGS_PER_TURN == 0:
                await trio.lowlevel.checkpoint()


def _flush_target(log: Log) -> Offset | None:
    """Return the offset up to which to flush a log: the offset of the last roll, or the log end if
    a full flush is due. Returns None if no flush is due."""
    if log.is_flush_due or log.config.flush_ms != INT64_MAX:
        return None
    return log.unflushed_roll_offset


async def _every(first_ms: int, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` repeatedly: first after `first_ms`, then every `interval_ms`. If `first_ms` is 0,
    the first run is after one interval."""
    await trio.sleep(max(first_ms or interval_ms, 1) / 1_000)
    while True:
        await work()
        await trio.sleep(max(interval_ms, 1) / 1_000)
