"""Whole log managers on one simulated machine, whose logs are compacted all the time.

There is no network and no cluster. A log is written as a leader writes it, with keys, deletions,
idempotent producers and transactions, while the cleaner runs on small segments at short intervals.
At any moment the log is truncated or moved, its log start is raised, its process is killed, or the
power fails. `compaction_model` has the invariants.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from uuid import UUID

import trio

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.engine import RunOutcome
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import Violation, violation_of
from ottla.jepsen.world.whole.compaction_model import (
    CompactionModel,
    KeyedRecord,
    WrittenBatch,
    batches_of,
)
from ottla.jepsen.world.whole.loop import Loop, run_in_virtual_time
from ottla.model.errors import RefusedError
from ottla.model.ids import Epoch, NodeId, Offset, ProducerId, TopicPartition
from ottla.model.limits import MIB
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.storage.cleaner import CleanerConfig
from ottla.storage.cleaner.cleaning_runner import CleaningRunner
from ottla.storage.cleaner.cleaning_task import (
    CleanedGroup,
    CleaningDone,
    CleaningTask,
    Throttle,
)
from ottla.storage.directories.meta_properties import MetaProperties, format_meta_properties
from ottla.storage.log.log import Log
from ottla.storage.manager.log_manager_driver import LogManager, open_log_manager
from ottla.storage.producers.verification import UNGUARDED
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import ControlType, build_batch, build_end_transaction_marker
from ottla.wire.compression import Codec

AT = TopicPartition("state", 0)
TOPIC_ID = UUID(int=1000)
PATHS = ("/one", "/two")
FEW_KEYS = 1e-4
"""Load factor of the cleaner's offset map at which the smallest allowed memory stores four keys.
The cleaner then needs several passes over a log. The factor is below the setting's minimum, because
the logs of a run are small."""

START_MS = 1_700_000_000_000
KEY_COUNT = 6
IDEMPOTENT, TRANSACTIONAL = (1, 2), (11, 12)
CODECS = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4)
DERIVED = (".snapshot", "producer-batches", "recovery-point-offset-checkpoint")
"""Suffixes of files whose content can be derived from the log. If such a file is missing at a
startup, the log is read instead."""

SETTLED_S = 120.0
"""Virtual time in seconds at the end of a run within which compaction must remove all removable
records."""


class CompactionOfLogs:
    """Search engine that tests log managers without other components. Their logs are compacted
    continuously."""

    name = "whole"
    subject = "compaction"
    budget = 250
    required: tuple[str, ...] = (
        "a segment is replaced",
        "several segments become one",
        "a cleaning is cut off by the power",
        "a cleaning ends for a truncation",
        "a log moves while it is cleaned",
        "a deletion is forgotten",
        "snapshots of producers are lost",
        "an aborted transaction is cleaned away",
        "a batch is empty",
    )

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Run one simulation of compacted logs, with random choices from `chance` and for about
        `budget` events. Returns the outcome, which includes a broken invariant."""
        run = _CompactionRun(chance, budget)
        violation = run_in_virtual_time(run.main, seed=chance.stream("loop").below(1 << 62))
        return RunOutcome(
            engine=self.name,
            subject=self.subject,
            seed=chance.seed,
            event_count=run.trace.event_count,
            sim_ms=run.ended_ms,
            figures=run.figures,
            rare=dict(run.rare.counts),
            trace_hash=run.trace.hash,
            violation=violation,
            decisions=tuple(chance.decisions),
        )


class _WallClock:
    """Clock in virtual time whose wall time begins at a fixed date."""

    def monotonic_ms(self) -> int:
        """Return the milliseconds since the start of the run."""
        return int(trio.current_time() * 1_000)

    def wall_ms(self) -> int:
        """Return the wall-clock time in milliseconds since 1970."""
        return START_MS + self.monotonic_ms()


class _CountedCleanings:
    """Runner of log compactions that reports each file swap before it happens."""

    def __init__(self, runner: CleaningRunner, say: Callable[[CleanedGroup], None]) -> None:
        self._runner = runner
        self._say = say

    @property
    def died_count(self) -> int:
        """Number of compaction worker processes that ended before their compaction did."""
        return self._runner.died_count

    @property
    def dead_count(self) -> int:
        """Number of compaction worker processes that ended and were not replaced."""
        return self._runner.dead_count

    @asynccontextmanager
    async def run(
        self, task: CleaningTask, throttle: Throttle
    ) -> AsyncIterator[AsyncIterator[CleanedGroup | CleaningDone]]:
        """Run the compaction of a log during the `async with` block. Yields the reports of the
        worker process that does it."""
        async with (
            self._runner.run(task, throttle) as reports,
            aclosing(self._counted(reports)) as counted,
        ):
            yield counted

    async def _counted(
        self, reports: AsyncIterator[CleanedGroup | CleaningDone]
    ) -> AsyncGenerator[CleanedGroup | CleaningDone, None]:
        async for report in reports:
            if isinstance(report, CleanedGroup):
                self._say(report)
            yield report

    async def end_idle(self) -> None:
        """End the idle worker process that is kept between two compactions."""
        await self._runner.end_idle()


class _CompactionRun:
    """One simulated run of compacted logs, with one seed."""

    def __init__(self, chance: Chance, budget: int) -> None:
        self.trace = Trace()
        self.rare = RareStates()
        self.figures = {
            "appends": 0,
            "power cuts": 0,
            "crashes": 0,
            "cleanings": 0,
            "truncations": 0,
        }
        self.ended_ms = 0
        self._chance = chance
        self._left = budget
        self._clock = _WallClock()
        self._retention_ms = chance.pick((3_000, 500, 6_000))
        self._config = LogConfig(
            is_compacted=True,
            is_deleted_by_retention=False,
            segment_bytes=chance.pick((700, 1_500, 400)),
            index_interval_bytes=chance.pick((0, 300)),
            segment_index_bytes=1_200,
            min_cleanable_dirty_ratio=chance.pick((0.0, 0.3)),
            delete_retention_ms=self._retention_ms,
            file_delete_delay_ms=500,
        )
        self._broker = BrokerConfig(
            node_id=NodeId(1),
            log_dirs=PATHS,
            initial_task_delay_ms=500,
            cleaner=CleanerConfig(
                backoff_ms=chance.pick((50, 300)),
                dedupe_buffer_bytes=MIB,
                buffer_load_factor=chance.pick((0.9, FEW_KEYS)),
                io_buffer_bytes=chance.pick((512, 1 << 19)),
            ),
        )
        self._model = CompactionModel(self._retention_ms)
        self._disk = SimulatedDisk(chance.stream("disk"), pause=self._pause)
        self._disk.wall_ms = self._clock.wall_ms
        self._flushed_end = 0
        self._known_in: UUID | None = None
        """Id of the log's directory according to the cluster's metadata, or None if the metadata
        names no directory."""
        self._value_count = 0

    async def _pause(self) -> None:
        await trio.sleep(self._chance.pick((0.0, 0.000_3, 0.002)))

    async def main(self, loop: Loop) -> Violation | None:
        """Run the simulation of one seed. Returns the first broken invariant, or None."""
        violation: Violation | None = None
        try:
            await self._format()
            while self._left > 0 and not self._chance.is_spent:
                await self._live()
            await self._live(is_last=True)
        except* Exception as group:
            violation = violation_of(_first(group))
        self.ended_ms = self._clock.monotonic_ms()
        self.trace.add("end", self._model.end_offset, str(violation))
        return violation

    async def _format(self) -> None:
        for index, path in enumerate(PATHS):
            await self._disk.makedirs(path)
            identity = MetaProperties(
                cluster_id="c", node_id=NodeId(1), directory_id=UUID(int=500 + index)
            )
            data = format_meta_properties(identity)
            await self._disk.write_atomically(f"{path}/meta.properties", data)
        self._disk.flush_everything()

    # ---- one process

    async def _live(self, *, is_last: bool = False) -> None:
        """Run one process that owns the log: start it, work on the log, and end it. The kind of end
        is random."""
        stream = self._chance.stream(f"process/{self.trace.event_count}")
        life = self._disk.life
        try:
            async with open_log_manager(self._disk, self._broker, self._clock, stream) as logs:
                self._watch(logs)
                await logs.recover(
                    lambda partition: self._config, directory_id_of=lambda partition: self._known_in
                )
                log = await logs.create(AT, TOPIC_ID, self._config)
                self._judge_start(log)
                if is_last:
                    await self._settle(logs)
                    return
                await self._work(logs)
        except* OSError:
            if life == self._disk.life:
                raise  # Only the disks of dead processes fail here.

    def _watch(self, logs: LogManager) -> None:
        """Act as the cluster's controller: record the directory to which the log has moved."""

        async def know(partition: TopicPartition, directory_id: UUID) -> None:
            self._known_in = directory_id

        def withdraw(partition: TopicPartition, directory_id: UUID) -> None:
            self._known_in = directory_id

        logs.moves.announce, logs.moves.withdraw = know, withdraw
        logs.cleaner.runner = _CountedCleanings(logs.cleaner.runner, self._before_swap)

    def _before_swap(self, cleaned: CleanedGroup) -> None:
        self._model.cleaned_end = max(self._model.cleaned_end, cleaned.end_offset)
        self.rare.sometimes("a segment is replaced")
        if len(cleaned.sources) > 1:
            self.rare.sometimes("several segments become one")
        self.figures["cleanings"] += 1

    def _judge_start(self, log: Log) -> None:
        """Check that the recovered log contains the flushed data. In the rest of the run, unflushed
        batches that were lost count as never written."""
        end = int(log.end_offset)
        if end < self._flushed_end or end > self._model.end_offset:
            raise Violation("FlushedIsKept", f"{end}, {self._flushed_end} were flushed")
        self._model.cut(end)
        if self._model.end_offset != end and self._model.batches:
            raise Violation("FlushedIsKept", f"the log ends at {end}, within a batch")
        log.update_high_watermark(log.end_offset)
        self._judge(log)

    def _judge(self, log: Log) -> None:
        self._model.judge(log, self._clock.wall_ms())
        for header, _ in batches_of(log):
            if header.record_count == 0:
                self.rare.sometimes("a batch is empty")
                break

    async def _work(self, logs: LogManager) -> None:
        actions = [
            *[self._append] * 24,
            *[self._wait] * 6,
            *[self._flush] * 4,
            *[self._look] * 4,
            *[self._resend] * 3,
            self._truncate,
            self._move,
            self._request,
        ]
        while self._left > 0 and not self._chance.is_spent:
            self._left -= 1
            log = logs.get(AT)
            assert log is not None
            end = self._chance.below(60)
            if end < 3:
                await self._end(logs, log, end)
                return
            action = actions[self._chance.below(len(actions))]
            await action(logs, log)
            self.trace.add(action.__name__, log.end_offset, log.first_dirty_offset, log.size_bytes)

    async def _end(self, logs: LogManager, log: Log, kind: int) -> None:
        """End the process that owns the log: by a power cut, by a kill, or by a clean shutdown.
        `kind` selects one of these."""
        if log.is_being_cleaned and kind == 0:
            self.rare.sometimes("a cleaning is cut off by the power")
        if kind == 0:
            self.figures["power cuts"] += 1
            self._disk.crash()
        elif kind == 1:
            self.figures["crashes"] += 1
            self._flushed_end = int(log.end_offset)
            self._disk.kill()
        else:
            await logs.shutdown_cleanly(1)
            self._flushed_end = self._model.end_offset
            self._disk.crash()
        self.trace.add("ends", kind)
        if self._chance.below(3) == 0 and kind < 2:
            await self._lose_snapshots()

    async def _lose_snapshots(self) -> None:
        """Remove the producer snapshots, so that the next startup rebuilds the producers' state
        from their batches."""
        for path in PATHS:
            for file in self._disk.files_in(path):
                if file.endswith(
                    (".snapshot", "producer-batches", "recovery-point-offset-checkpoint")
                ):
                    self.rare.sometimes("snapshots of producers are lost")
                    await self._disk.unlink(file)

    # ---- changes of the log

    async def _append(self, logs: LogManager, log: Log) -> None:
        """Append a random batch to the log as a leader does."""
        draw = self._chance.below
        open_ones = self._model.open_transactions()
        kind = draw(8)
        if kind == 7 and open_ones:
            self._end_transaction(log, sorted(open_ones)[draw(len(open_ones))], bool(draw(2)))
            return
        now_ms = self._clock.wall_ms()
        records = tuple(
            KeyedRecord(b"k%d" % draw(KEY_COUNT), self._value(), now_ms - draw(50))
            for _ in range(1 + draw(3))
        )
        if kind < 4:
            self._write(log, records)
        elif kind < 6:
            self._write(log, records, producer_id=self._chance.pick(IDEMPOTENT))
        else:
            self._write(log, records, producer_id=self._chance.pick(TRANSACTIONAL), is_in=True)

    def _value(self) -> bytes | None:
        self._value_count += 1
        if self._chance.below(4) == 0:
            return None
        return b"v%d " % self._value_count * (1 + self._chance.below(4))

    def _write(
        self,
        log: Log,
        records: tuple[KeyedRecord, ...],
        *,
        producer_id: int = -1,
        is_in: bool = False,
    ) -> None:
        producer = log.active_producers.get(producer_id)
        sequence = 0
        if producer is not None and producer.batches:
            sequence = producer.batches[-1].last_sequence + 1
        data = build_batch(
            [(each.timestamp_ms, each.key, each.value) for each in records],
            codec=self._chance.pick(CODECS),
            producer_id=ProducerId(producer_id),
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=-1 if producer_id < 0 else sequence,
            is_transactional=is_in,
        )
        base_offset = self._give(log, data, AppendOrigin.CLIENT)
        self._model.batches.append(
            WrittenBatch(base_offset, records, data, self._clock.wall_ms(), producer_id, is_in)
        )

    def _end_transaction(self, log: Log, producer_id: int, is_abort: bool) -> None:
        data = build_end_transaction_marker(
            ControlType.ABORT if is_abort else ControlType.COMMIT,
            timestamp_ms=self._clock.wall_ms(),
            producer_id=ProducerId(producer_id),
            producer_epoch=0,
            coordinator_epoch=Epoch(0),
        )
        base_offset = self._give(log, data, AppendOrigin.COORDINATOR)
        self._model.batches.append(
            WrittenBatch(base_offset, (), data, self._clock.wall_ms(), producer_id, True, is_abort)
        )

    def _give(self, log: Log, data: bytes, origin: AppendOrigin) -> int:
        now_ms = self._clock.wall_ms()
        info = log.append_as_leader(
            memoryview(bytearray(data)),
            leader_epoch=Epoch(0),
            now_ms=now_ms,
            origin=origin,
            guard=UNGUARDED,
        )
        if info.base_offset != self._model.end_offset:
            raise Violation("OrderKept", f"{info.base_offset}, not {self._model.end_offset}")
        self.figures["appends"] += 1
        span = log.end_offset - log.high_watermark
        log.update_high_watermark(Offset(log.high_watermark + self._chance.below(span + 1)))
        return int(info.base_offset)

    async def _wait(self, logs: LogManager, log: Log) -> None:
        log.update_high_watermark(log.end_offset)
        await trio.sleep(self._chance.pick((0.001, 0.01, 0.1, 1.0)))

    async def _flush(self, logs: LogManager, log: Log) -> None:
        end = log.unflushed_roll_offset if self._chance.below(2) else None
        with suppress(RefusedError):
            self._flushed_end = max(self._flushed_end, int(await log.flush(end)))

    async def _look(self, logs: LogManager, log: Log) -> None:
        self._judge(log)

    async def _resend(self, logs: LogManager, log: Log) -> None:
        """Send a producer's last batch to the log again. The log must recognise it as a
        duplicate."""
        for producer_id in IDEMPOTENT:
            sent = [each for each in self._model.batches if each.producer_id == producer_id]
            if not sent:
                continue
            data = memoryview(bytearray(sent[-1].data))
            info = log.append_as_leader(data, leader_epoch=Epoch(0), now_ms=self._clock.wall_ms())
            if not info.is_duplicate or info.base_offset != sent[-1].base_offset:
                raise Violation("DuplicateIsSeen", f"{sent[-1].base_offset} was written again")

    async def _truncate(self, logs: LogManager, log: Log) -> None:
        """Truncate the log, which removes uncommitted records."""
        if log.is_being_cleaned:
            self.rare.sometimes("a cleaning ends for a truncation")
        span = log.end_offset - log.high_watermark
        offset = Offset(log.high_watermark + self._chance.below(span + 1))
        if await log.truncate_to(offset):
            self.figures["truncations"] += 1
            self._model.cut(int(log.end_offset))
            self._flushed_end = min(self._flushed_end, int(log.end_offset))

    async def _move(self, logs: LogManager, log: Log) -> None:
        """Move the log to the other log directory of the machine."""
        here = logs.directory_of(AT)
        if log.is_being_cleaned:
            self.rare.sometimes("a log moves while it is cleaned")
        target = next(each for each in logs.directories if each is not here)
        if not logs.moves.is_moving(AT):
            logs.start_move(AT, target)

    async def _request(self, logs: LogManager, log: Log) -> None:
        logs.cleaner.request(AT)

    # ---- the end

    async def _settle(self, logs: LogManager) -> None:
        """End all open transactions, roll the log's segments twice, and check that compaction has
        removed all removable records."""
        while logs.moves.is_moving(AT):
            await trio.sleep(0.1)
        log = logs.get(AT)
        assert log is not None
        for producer_id in sorted(self._model.open_transactions()):
            self._end_transaction(log, producer_id, is_abort=False)
        before = self._model.end_offset
        if not before:
            return
        # The cleaner wakes at once on a request; a map of a few keys would need a pass for each.
        logs.cleaner.reconfigure(backoff_ms=1_000, buffer_load_factor=0.9)
        for number in range(4):
            now_ms = self._clock.wall_ms()
            self._write(log, (KeyedRecord(b"end %d" % number, b"v", now_ms),))
            await log.roll(now_ms=now_ms)
            log.update_high_watermark(log.end_offset)
            log.config = replace(log.config, min_cleanable_dirty_ratio=0.0)
            logs.cleaner.request(AT)
            await self._wait_until_clean(logs, log)
            self._judge(log)
            await trio.sleep(2 * self._retention_ms / 1_000)
        self._model.judge_cleaned(log, before)
        self._note_rare_states()

    async def _wait_until_clean(self, logs: LogManager, log: Log) -> None:
        ends_at = trio.current_time() + SETTLED_S
        wanted = log.segments[-1].base_offset
        while log.first_dirty_offset < wanted:
            if trio.current_time() > ends_at:
                reason = logs.cleaner.manager.failure_of(AT)
                raise Violation("OldIsGone", f"clean to {log.first_dirty_offset}: {reason}")
            await trio.sleep(0.1)

    def _note_rare_states(self) -> None:
        if any(each.is_abort for each in self._model.batches):
            self.rare.sometimes("an aborted transaction is cleaned away")
        if any(record.value is None for each in self._model.batches for record in each.records):
            self.rare.sometimes("a deletion is forgotten")


def _first(group: BaseExceptionGroup[Exception]) -> Exception:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Exception)
    return error
