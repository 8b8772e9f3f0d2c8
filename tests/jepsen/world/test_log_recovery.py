"""A log over the world's disk recovers from any crash to a prefix that holds all that was flushed.

Invariant: FlushedIsKept.  Hypothesis draws a history of appends, rolls, flushes, truncations and
crashes; the model is the list of records a perfect log would hold.  A crash may cut the list, never
below what was flushed, and never changes a record.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.disk_waits import bytes_of, waited_for
from ottla.jepsen.world.rng import SeededRng
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset
from ottla.storage.log.log import Log, open_log
from ottla.storage.log.log_reader import LogRead
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch import batches
from ottla.wire.batch_builder import build_batch
from ottla.wire.records import scan

DIRECTORY = "/data/a-0"
TOPIC_ID = UUID(int=1000)
CONFIG = LogConfig(segment_bytes=600, segment_index_bytes=120, index_interval_bytes=100)

Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("flush some"), st.integers(0, 100)),
        st.tuples(st.just("epoch"), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(0, 100)),
        st.tuples(st.just("crash"), st.just(0)),
        st.tuples(st.just("kill"), st.just(0)),
        st.tuples(st.just("close"), st.just(0)),
        st.tuples(st.just("cut append"), st.integers(1, 5)),
    ),
    max_size=30,
)


@dataclass
class World:
    """One log, its disk, and what a perfect log would hold."""

    disk: SimulatedDisk
    records: list[tuple[Epoch, bytes]] = field(default_factory=list)
    flushed_count: int = 0
    checkpoint: Offset = Offset(0)  # noqa: RUF009 - a NewType's call is the value itself
    """The recovery point as a checkpoint file would have it: never ahead of the flushed end."""
    epoch: Epoch = Epoch(0)  # noqa: RUF009
    log: Log | None = None
    value_count: int = 0
    batch_starts: set[Offset] = field(default_factory=set)

    async def open(self, *, is_clean: bool) -> None:
        self.log = await open_log(
            self.disk,
            DIRECTORY,
            config=CONFIG,
            topic_id=TOPIC_ID,
            is_clean=is_clean,
            recovery_point=self.checkpoint,
            log_start_offset=Offset(0),
            now_ms=1,
        )

    async def take(self, step: Step) -> None:
        name, number = step
        log = self.log
        assert log is not None
        if name == "append":
            self.append(log, number)
        elif name == "cut append":
            self.cut_append(log, number)
        elif name == "flush":
            await log.flush()
            self.flushed_count = len(self.records)
            assert log.recovery_point == log.end_offset
            self.checkpoint = log.recovery_point
        elif name == "flush some":
            reached = await log.flush(Offset(len(self.records) * number // 100))
            self.flushed_count = max(self.flushed_count, reached)
        elif name == "epoch":
            self.epoch = Epoch(self.epoch + 1)
        elif name == "truncate":
            await self.truncate(log, self.batch_start(len(self.records) * number // 100))
        elif name == "close":
            await log.close()
            self.flushed_count = len(self.records)
            self.checkpoint = Offset(self.flushed_count)
            self.disk.crash()  # a clean stop is durable
            await self.open(is_clean=True)
        else:
            log.abandon()
            if name == "crash":
                self.disk.crash()
            else:
                self.disk.kill()
            await self.open(is_clean=False)
        self.check(may_be_cut=name == "crash")

    def append(self, log: Log, count: int) -> None:
        values = self.new_values(count)
        info = log.append_as_leader(self.batch(values), leader_epoch=self.epoch, now_ms=1)
        assert info.base_offset == len(self.records)
        self.batch_starts.add(info.base_offset)
        self.records += [(self.epoch, value) for value in values]

    def cut_append(self, log: Log, count: int) -> None:
        """Append on a disk that is full in the middle of the write: nothing of it may stay."""
        self.disk.capacity_bytes = self.disk.used_bytes + 10 * count
        try:
            with pytest.raises(RefusedError) as caught:
                log.append_as_leader(
                    self.batch(self.new_values(count)), leader_epoch=self.epoch, now_ms=1
                )
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        finally:
            self.disk.heal()

    async def truncate(self, log: Log, offset: Offset) -> None:
        await log.truncate_to(offset)
        assert log.end_offset == min(offset, len(self.records))
        del self.records[log.end_offset :]
        self.batch_starts = {start for start in self.batch_starts if start < log.end_offset}
        self.flushed_count = min(self.flushed_count, len(self.records))
        self.checkpoint = min(self.checkpoint, Offset(self.flushed_count))

    def batch_start(self, offset: int) -> Offset:
        """Return the start of the batch that holds an offset: leaders truncate nowhere else."""
        return max((start for start in self.batch_starts if start <= offset), default=Offset(0))

    def batch(self, values: list[bytes]) -> memoryview:
        return memoryview(bytearray(build_batch([(1, None, value) for value in values])))

    def new_values(self, count: int) -> list[bytes]:
        first = self.value_count
        self.value_count += count
        return [b"%d " % number * 8 for number in range(first, first + count)]

    def check(self, *, may_be_cut: bool) -> None:
        """FlushedIsKept, and nothing was changed or made up."""
        assert self.log is not None
        if self.log.failure is not None:
            return
        held = records_of(self.log)
        if may_be_cut:
            assert len(held) >= self.flushed_count
            assert held == self.records[: len(held)]
            self.records = held
            self.batch_starts = {start for start in self.batch_starts if start < len(held)}
            self.checkpoint = min(self.checkpoint, Offset(len(held)))
        assert held == self.records
        assert self.log.end_offset == len(held)
        assert self.log.recovery_point <= self.log.end_offset


def read_from(log: Log, offset: Offset) -> LogRead:
    return log.read(offset, bytes_max=300, end_offset=log.end_offset, at_least_one=True)


def records_of(log: Log) -> list[tuple[Epoch, bytes]]:
    """Read the whole log as a consumer would."""
    held: list[tuple[Epoch, bytes]] = []
    offset = log.log_start_offset
    while offset < log.end_offset:
        read = waited_for(partial(read_from, log, offset))
        assert read.slice is not None
        data = memoryview(bytes_of(read.slice))
        for at, header in batches(data, is_partial_end_allowed=True):
            for record in scan(data, at, header):
                assert record.offset == len(held)
                assert record.value is not None
                held.append((header.partition_leader_epoch, record.value))
            assert log.epoch_of(header.base_offset) == header.partition_leader_epoch
            offset = header.end_offset
    return held


async def run(seed: int, steps: list[Step]) -> None:
    disk = SimulatedDisk(SeededRng(seed), pause=trio.lowlevel.checkpoint)
    await disk.makedirs(DIRECTORY)
    disk.flush_everything()
    world = World(disk)
    await world.open(is_clean=True)
    for step in steps:
        await world.take(step)
        if world.log is not None and world.log.failure is not None:
            await world.take(("crash", 0))


@given(st.integers(0, 1 << 32), STEPS)
@settings(max_examples=300, deadline=None)
def test_after_any_crash_a_log_holds_a_prefix_with_all_that_was_flushed(
    seed: int, steps: list[Step]
) -> None:
    trio.run(run, seed, [*steps, ("crash", 0)])


@given(st.integers(0, 1 << 32), st.lists(st.integers(1, 5), min_size=1, max_size=8), st.data())
@settings(max_examples=200, deadline=None)
def test_a_crash_inside_a_flush_or_a_close_loses_nothing_flushed(
    seed: int, counts: list[int], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(["flush", "close", "truncate"]))
    cut_at = data.draw(st.integers(0, 25))
    trio.run(crash_inside, seed, counts, name, cut_at)


async def crash_inside(seed: int, counts: list[int], name: str, cut_at: int) -> None:
    disk = SimulatedDisk(SeededRng(seed))
    await disk.makedirs(DIRECTORY)
    disk.flush_everything()
    world = World(disk)
    await world.open(is_clean=True)
    for index, count in enumerate(counts):
        await world.take(("append", count))
        if index == len(counts) // 2:
            await world.take(("flush", 0))
    assert world.log is not None
    kept = sum(counts[: len(counts) * 2 // 3])
    actions: dict[str, Callable[[], object]] = {
        "flush": world.log.flush,
        "close": world.log.close,
        "truncate": lambda: world.log.truncate_to(Offset(kept)) if world.log else None,
    }
    with trio.CancelScope() as scope:
        disk._pause = CutPause(cut_at, scope)
        await actions[name]()  # type: ignore[misc]  # each returns an awaitable
    disk._pause = None
    if name == "truncate":
        world.flushed_count = min(world.flushed_count, kept)
        world.checkpoint = min(world.checkpoint, Offset(world.flushed_count))
    world.log.abandon()
    disk.crash()
    await world.open(is_clean=False)
    world.check(may_be_cut=True)


class CutPause:
    """A pause that ends its scope at a chosen step."""

    def __init__(self, step: int, scope: trio.CancelScope) -> None:
        self.step = step
        self.scope = scope

    async def __call__(self) -> None:
        if self.step == 0:
            self.scope.cancel()
        self.step -= 1
        await trio.lowlevel.checkpoint()


async def test_a_log_whose_fsync_failed_is_offline_and_recovers_what_was_flushed_before() -> None:
    disk = SimulatedDisk(SeededRng(3))
    await disk.makedirs(DIRECTORY)
    disk.flush_everything()
    world = World(disk)
    await world.open(is_clean=True)
    await world.take(("append", 3))
    await world.take(("flush", 0))
    await world.take(("append", 2))
    disk.fail(DiskOperation.FSYNC)
    assert world.log is not None
    with pytest.raises(RefusedError) as caught:
        await world.log.flush()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.log.failure is not None
    with pytest.raises(RefusedError):
        world.append(world.log, 1)
    await world.take(("crash", 0))


async def test_flipped_bytes_above_the_recovery_point_cut_the_log_there() -> None:
    disk = SimulatedDisk(SeededRng(3))
    await disk.makedirs(DIRECTORY)
    world = World(disk)
    await world.open(is_clean=True)
    for _ in range(4):
        await world.take(("append", 1))
    assert world.log is not None
    world.log.abandon()
    file = disk.open(f"{DIRECTORY}/00000000000000000000.log")
    size = file.size_bytes
    file.pwrite(size // 2 + 40, [b"\xff"])
    file.close()
    await world.open(is_clean=False)
    assert records_of(world.log) == world.records[:2]


async def test_a_log_that_belongs_to_another_topic_is_not_opened() -> None:
    disk = SimulatedDisk(SeededRng(3))
    await disk.makedirs(DIRECTORY)
    world = World(disk)
    await world.open(is_clean=True)
    assert world.log is not None
    await world.log.close()
    with pytest.raises((RefusedError, CorruptDataError)):
        await open_log(
            disk,
            DIRECTORY,
            config=CONFIG,
            topic_id=UUID(int=2000),
            is_clean=True,
            recovery_point=Offset(0),
            log_start_offset=Offset(0),
            now_ms=1,
        )
