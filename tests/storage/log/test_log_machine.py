"""A partition log with its producers and epochs, against lists, over kills and lost power."""

import os
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.jepsen.fuzz.chance import FuzzRng
from ottla.jepsen.world.disk import SimulatedDisk
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset, ProducerId
from ottla.model.run_now import run_now
from ottla.storage.log.log import Log
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch
from tests.storage.log.workbench import NOW_MS, Workbench, append, read_values

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=120, segment_index_bytes=96)
PRODUCERS = (7, 8)
DIRECTORY = "/data/orders-0"


class ModelBatch:
    """A batch that the log accepted."""

    def __init__(
        self, base: int, values: list[bytes], epoch: int, producer: int, sequence: int
    ) -> None:
        self.base = base
        self.values = values
        self.epoch = epoch
        self.producer = producer
        """-1: of no idempotent producer."""
        self.sequence = sequence

    @property
    def end(self) -> int:
        return self.base + len(self.values)

    def data(self) -> bytes:
        records = [(NOW_MS, None, value) for value in self.values]
        if self.producer < 0:
            return build_batch(records)
        return build_batch(
            records,
            producer_id=ProducerId(self.producer),
            producer_epoch=0,
            base_sequence=self.sequence,
        )


class PartitionLog(RuleBasedStateMachine):
    """One log that is written, cut at both ends, killed and opened again."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk(FuzzRng(Random(5)))
        run_now(self.disk.makedirs(DIRECTORY))
        self.disk.flush_everything()
        self.bench = Workbench(self.disk, DIRECTORY)
        self.log: Log = run_now(self.bench.open(CONFIG))
        self.batches: list[ModelBatch] = []
        self.start = self.flushed_end = 0
        self.end = 0
        self.high_watermark = 0
        self.epoch = 0

    values = st.lists(st.binary(max_size=60), min_size=1, max_size=3)
    producers = st.sampled_from(PRODUCERS)

    # ---- the leader

    @rule(values=values)
    def appends(self, values: list[bytes]) -> None:
        self.accept(ModelBatch(self.end, values, self.epoch, -1, -1))

    @rule(producer=producers, values=values)
    def appends_the_next_of_a_producer(self, producer: int, values: list[bytes]) -> None:
        last = self.last_of(producer)
        sequence = 0 if last is None else last.sequence + len(last.values)
        self.accept(ModelBatch(self.end, values, self.epoch, producer, sequence))

    @rule(producer=producers)
    def is_sent_a_batch_again(self, producer: int) -> None:
        last = self.last_of(producer)
        if last is not None and last.base >= self.start:
            info = append(self.log, last.data(), leader_epoch=self.epoch)
            assert info.is_duplicate
            assert info.base_offset == last.base

    @rule(producer=producers, gap=st.integers(1, 5))
    def misses_a_batch(self, producer: int, gap: int) -> None:
        last = self.last_of(producer)
        if last is not None and last.base >= self.start:
            sequence = last.sequence + len(last.values) + gap
            late = ModelBatch(self.end, [b"late"], self.epoch, producer, sequence)
            with pytest.raises(RefusedError) as refused:
                append(self.log, late.data(), leader_epoch=self.epoch)
            assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def accept(self, batch: ModelBatch) -> None:
        info = append(self.log, batch.data(), leader_epoch=self.epoch)
        assert not info.is_duplicate
        assert (info.base_offset, info.end_offset) == (batch.base, batch.end)
        self.batches.append(batch)
        self.end = batch.end

    def last_of(self, producer: int) -> ModelBatch | None:
        mine = [batch for batch in self.batches if batch.producer == producer]
        return mine[-1] if mine else None

    @rule()
    def is_led_again(self) -> None:
        self.epoch += 1

    @rule(share=st.sampled_from((0.3, 1.0)))
    def commits(self, share: float) -> None:
        reached = self.high_watermark + int((self.end - self.high_watermark) * share)
        self.log.update_high_watermark(Offset(reached))
        self.high_watermark = max(self.high_watermark, reached)

    # ---- upkeep

    @rule()
    def flushes(self) -> None:
        assert run_now(self.log.flush()) == self.end
        self.flushed_end = self.end

    @rule()
    def rolls(self) -> None:
        run_now(self.log.roll(now_ms=NOW_MS))

    @rule(share=st.sampled_from((0.2, 0.6, 1.0)))
    def deletes_records(self, share: float) -> None:
        offset = self.start + int((self.high_watermark - self.start) * share)
        if offset > self.start:
            run_now(self.log.delete_records_before(Offset(offset)))
            self.start = offset

    @rule(back=st.integers(0, 5))
    def truncates(self, back: int) -> None:
        offset = max(self.high_watermark, self.end - back)
        run_now(self.log.truncate_to(Offset(offset)))
        if offset < self.end:
            self.cut_to(offset)
            assert self.log.end_offset == self.end

    @rule(values=values)
    def loses_a_leaders_batch(self, values: list[bytes]) -> None:
        """Cut a batch off that only a deposed leader had, and go on with the next leader's."""
        offset = self.end
        self.epoch += 1
        self.appends(values)
        run_now(self.log.truncate_to(Offset(offset)))
        self.cut_to(offset)
        self.epoch += 1
        self.appends(values)

    def cut_to(self, offset: int) -> None:
        """Drop the batches that do not end by an offset; the end is where the last one ends."""
        self.batches = [batch for batch in self.batches if batch.end <= offset]
        self.end = max(self.start, self.batches[-1].end if self.batches else 0)
        self.flushed_end = min(self.flushed_end, self.end)
        self.high_watermark = min(self.high_watermark, self.end)

    # ---- lives

    @rule()
    def is_closed_and_opened(self) -> None:
        self.log = run_now(self.bench.close_and_open(self.log))
        self.flushed_end = self.end
        self.comes_back()

    @rule()
    def is_killed(self) -> None:
        point = self.log.recovery_point
        self.log.abandon()
        self.disk.kill()
        self.opens(point)
        assert self.log.end_offset == self.end, "a killed process loses nothing"
        self.comes_back()

    @precondition(lambda self: self.start == 0)
    @rule()
    def loses_power(self) -> None:
        point = self.log.recovery_point
        self.log.abandon()
        self.disk.crash()
        self.opens(point)
        assert self.flushed_end <= self.log.end_offset <= self.end, "a flushed record is lost"
        self.cut_to(self.log.end_offset)
        assert self.log.end_offset == self.end, "the end is not that of a whole batch"
        self.comes_back()

    def opens(self, recovery_point: int) -> None:
        self.log = run_now(
            self.bench.open(CONFIG, recovery_point=recovery_point, log_start_offset=self.start)
        )

    def comes_back(self) -> None:
        """Restore what a broker keeps in its checkpoint: the high watermark."""
        self.log.update_high_watermark(Offset(self.high_watermark))

    def teardown(self) -> None:
        self.bench.let_go()

    # ---- always

    @invariant()
    def it_reads_as_the_list(self) -> None:
        assert (self.log.log_start_offset, self.log.end_offset) == (self.start, self.end)
        due = [
            (batch.base + index, value)
            for batch in self.batches
            for index, value in enumerate(batch.values)
            if batch.base + index >= self.start
        ]
        assert read_values(self.log) == due
        assert self.log.high_watermark == self.high_watermark

    @invariant()
    def each_epoch_ends_where_the_next_begins(self) -> None:
        there = [batch for batch in self.batches if batch.base >= self.start]
        for epoch in {batch.epoch for batch in there}:
            later = [batch.base for batch in there if batch.epoch > epoch]
            found = self.log.end_offset_for_epoch(Epoch(epoch))
            assert found == (min(later, default=self.end), epoch)


TestPartitionLog = PartitionLog.TestCase
TestPartitionLog.settings = settings(
    max_examples=300 if os.environ.get("OTTLA_FAULTS") == "full" else 50,
    stateful_step_count=40,
    deadline=None,
)
