"""What is done in time for the logs of one directory: checkpoints, flushes, retention.

Each directory has an upkeep of its own, so that a disk that hangs holds up its own logs alone.  A
checkpoint in time, a flush and a round of retention of one directory wait for no other either.
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
from ottla.storage.checkpoint_file import HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE
from ottla.storage.delayed_removal_driver import DelayedRemoval
from ottla.storage.log import Log

_LOGGER = logging.getLogger(__name__)

FLUSH_CHECK_INTERVAL_MS = 1_000
"""How often flush.ms is looked at where log.flush.scheduler.interval.ms does not say: shorter costs
a walk over all logs, longer flushes later."""

IDLE_FLUSH_INTERVAL_MS = 15_000
"""How long a file is not written before its descriptor may be flushed and given back: shorter
flushes files that are still written, longer keeps descriptors that others need."""

RETENTION_PAUSE_S = 0.1
"""Gathers changes of many topics: shorter looks at all logs more often, longer is felt."""

LOGS_PER_TURN = 100
"""Logs looked at before other tasks get their turn; each takes some 10 us."""


FUTURE_TIMESTAMP = (
    "%s: the segment from offset %s on has a record of %s ms, ahead of our clock: until "
    "retention.ms after that, neither it nor what follows is deleted by age"
)


class DirectoryUpkeep:
    """The upkeep of one directory."""

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
        measure_room: Callable[[], Awaitable[None]],
        removal: DelayedRemoval,
    ) -> None:
        """`logs` yields those of the directory; `write_checkpoint` writes one by its name.

        `flush_idle` has descriptors given back that are open for unflushed writes alone, and
        `measure_room` keeps measuring the room that is left.
        """
        self.removal = removal
        self._path = path
        self._config = config
        self._clock = clock
        self._errors = errors
        self._logs = logs
        self._write_checkpoint = write_checkpoint
        self._flush_idle = flush_idle
        self._measure_room = measure_room
        self._to_flush: dict[TopicPartition, Log] = {}
        self._flush_wanted = trio.Event()
        self._retention_wanted = trio.Event()

    async def run(self) -> None:
        """Do each in its own rhythm until cancelled."""
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
            # Not delayed: flush.ms bounds what a power cut takes, also right after a start.
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
            self._keep_running(nursery, "room", self._measure_room)

    def _keep_running(
        self, nursery: trio.Nursery, name: str, work: Callable[[], Awaitable[object]]
    ) -> None:
        nursery.start_soon(keep_running, f"{name} of {self._path}", work, self._errors)

    # ---- flushes

    def request_flush(self, partition: TopicPartition, log: Log) -> None:
        """Have a log flushed soon: after a roll, or when flush.ms demands it."""
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
        """Look at all logs now: how long something is kept was changed."""
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
        """Apply retention to every log."""
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
        """Have every log forget the producers that went silent."""
        for count, (partition, log) in enumerate(self._logs(), 1):
            try:
                if log.failure is None:
                    log.expire_producers(self._clock.wall_ms())
            except Exception as error:
                self._errors.note("partition", partition, error)
            if count % LOGS_PER_TURN == 0:
                await trio.lowlevel.checkpoint()


def _flush_target(log: Log) -> Offset | None:
    """Return up to where to flush: the closed segments after a roll, everything when it is due."""
    if log.is_flush_due or log.config.flush_ms != INT64_MAX:
        return None
    return log.unflushed_roll_offset


async def _every(first_ms: int, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
    """Work after `first_ms`, or after one interval where that is 0, and then at each interval."""
    await trio.sleep(max(first_ms or interval_ms, 1) / 1_000)
    while True:
        await work()
        await trio.sleep(max(interval_ms, 1) / 1_000)
