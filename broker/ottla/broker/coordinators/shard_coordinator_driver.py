"""Driver of one coordinator: loads its shards (states of topic partitions), calls it at its
deadlines, and runs its work in steps."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import trio

from ottla.broker.coordinators.commit_wait import StateChangeWait
from ottla.broker.coordinators.led_shard import LedShard
from ottla.broker.coordinators.shard_coordinator import PeriodicTask, ShardCoordinator
from ottla.model.background_driver import BackgroundWork, keep_running, run_side_by_side
from ottla.model.errors import RefusedError
from ottla.model.ids import Offset
from ottla.node.network.alarm_driver import Alarm
from ottla.node.part_registry import PartRegistry

COMMIT_POLL_MS = 1_000
"""Milliseconds between two checks whether all records that a coordinator loaded are committed. A
wake-up causes an earlier check."""


class CoordinatorDriver:
    """Background tasks that drive one coordinator of this broker: loads, deadlines and unfinished
    work."""

    def __init__(self, core: ShardCoordinator[Any, Any]) -> None:
        self._core = core
        self._errors = core.errors
        self._is_due = trio.Event()
        self._is_working = False
        self._alarm = Alarm(core.clock, core.next_deadline_ms, core.on_time)
        core.on_due = self._note_due
        core.on_earlier_deadline = self._alarm.rearm

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task, the metrics and the problem reports of the coordinator."""
        parts.task(f"coordinator of {self._core.serves}", self.run)
        parts.figures(self._core.metrics)
        parts.problems(self._core.problems)

    def _note_due(self) -> None:
        self._is_due.set()

    async def run(self) -> None:
        """Load the coordinator's shards, append their writes and handle deadlines until
        cancelled."""
        await run_side_by_side(self._works, self._errors)

    def _works(self, nursery: trio.Nursery) -> Iterator[tuple[str, BackgroundWork]]:
        serves = self._core.serves
        yield serves, partial(self._serve, nursery)
        yield f"alarm of {serves}", self._alarm.run
        for work in self._core.periodic_tasks():
            yield work.name, partial(self._run_periodically, work)

    async def _serve(self, nursery: trio.Nursery) -> None:
        core = self._core
        while True:
            await self._is_due.wait()
            self._is_due = trio.Event()
            for led in core.take_loads():
                nursery.start_soon(self._load, led)
            core.flush_due()
            if not self._is_working and core.has_work:
                self._is_working = True
                name = f"work of {core.serves} in steps"
                nursery.start_soon(keep_running, name, self._work_off, self._errors)

    async def _work_off(self) -> None:
        """Run the coordinator's unfinished work in steps, with pauses for other tasks."""
        for _ in self._core.work():
            await trio.lowlevel.checkpoint()
        self._is_working = False

    async def _run_periodically(self, work: PeriodicTask) -> None:
        while True:
            await trio.sleep(work.interval_ms / 1000)
            for _ in self._core.run_periodically(work.steps):
                await trio.lowlevel.checkpoint()

    async def _load(self, led: LedShard[Any, Any]) -> None:
        """Replay the log of a coordinator shard up to its end. Only the coordinator appends to this
        log."""
        core, clock = self._core, self._core.clock
        await trio.sleep(max(0, led.load_at_ms - clock.monotonic_ms()) / 1000)
        log = led.partition.log
        if log is None or not core.is_current(led):
            return
        started_ms = clock.monotonic_ms()
        end_offset = log.end_offset
        replay = core.replay_of(log, led.shard)
        try:
            while not replay.is_done:
                await replay.replay_part()
                await trio.lowlevel.checkpoint()
                if not core.is_current(led):
                    return
            core.note_loaded(led, replay, started_ms)
            if core.serves_committed_only:
                await self._wait_committed(led, end_offset)
            if not core.is_current(led):
                return
            for _ in core.resume(led):
                await trio.lowlevel.checkpoint()
                if not core.is_current(led):
                    return
        except (RefusedError, OSError) as refusal:
            core.delay_load(led, str(refusal))
        except Exception as error:
            core.fail_load(led, error)
        else:
            core.activate(led)

    async def _wait_committed(self, led: LedShard[Any, Any], end_offset: Offset) -> None:
        """Wait until all records of the shard's log below `end_offset` are committed, or until the
        shard is dropped."""
        core, partition = self._core, led.partition
        while core.is_current(led) and partition.high_watermark < end_offset:
            moved = trio.Event()
            deadline_ms = core.clock.monotonic_ms() + COMMIT_POLL_MS
            entry = StateChangeWait(moved.set)
            core.purgatory.watch((partition.high_watermark_key,), entry, deadline_ms)
            await moved.wait()
