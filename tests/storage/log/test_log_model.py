"""The log against the obvious model of one: a list of batches.  Random lives, kills included."""

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch import batches
from ottla.wire.batch_builder import build_batch
from tests.search_length import length
from tests.storage.log.workbench import NOW_MS, Workbench, append, read_values

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, segment_index_bytes=96)


@dataclass
class Model:
    """Batches as (base offset, timestamps and values of its records, epoch)."""

    batches: list[tuple[int, list[tuple[int, bytes]], int]] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def append(self, records: list[tuple[int, bytes]], epoch: int) -> None:
        self.batches.append((self.end, records, epoch))
        self.end += len(records)

    def truncate(self, offset: int) -> None:
        if offset < self.end:
            cut = [base for base, records, _ in self.batches if base + len(records) > offset]
            self.batches = [batch for batch in self.batches if batch[0] not in cut]
            self.end = max(self.start, min(offset, *cut) if cut else offset)

    def values(self, start: int) -> list[tuple[int, bytes]]:
        return [
            (base + i, value)
            for base, records, _ in self.batches
            for i, (_, value) in enumerate(records)
            if base + i >= start
        ]

    def first_at_or_after(self, timestamp: int) -> tuple[int, int, int] | None:
        for base, records, epoch in self.batches:
            for i, (at, _) in enumerate(records):
                if at >= timestamp and base + i >= self.start:
                    return base + i, at, epoch
        return None


RECORDS = st.lists(
    st.tuples(st.integers(NOW_MS - 50, NOW_MS + 50), st.binary(max_size=120)),
    min_size=1,
    max_size=4,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), RECORDS),
        st.tuples(st.just("append"), RECORDS),
        st.tuples(st.just("append"), RECORDS),
        st.tuples(st.just("truncate"), st.integers(0, 40)),
        st.tuples(st.just("delete"), st.integers(0, 40)),
        st.tuples(st.sampled_from(["kill", "close", "flush", "roll", "epoch"]), st.none()),
    ),
    max_size=25,
)


async def live(bench: Workbench, steps: list[tuple[str, object]]) -> None:
    """Live one life, comparing after each step."""
    model = Model()
    epoch = 0
    log = await bench.open(CONFIG)
    for step, argument in steps:
        if step == "append":
            assert isinstance(argument, list)
            batch = build_batch([(at, None, value) for at, value in argument])
            append(log, batch, leader_epoch=epoch)
            model.append(argument, epoch)
        elif step == "truncate":
            assert isinstance(argument, int)
            offset = max(argument, model.start)
            await log.truncate_to(Offset(offset))
            model.truncate(offset)
        elif step == "delete":
            assert isinstance(argument, int)
            if model.start < argument <= log.end_offset:
                log.update_high_watermark(log.end_offset)
                await log.delete_records_before(Offset(argument))
                model.start = argument
        elif step == "kill":
            start, recovery_point = log.log_start_offset, log.recovery_point
            log.abandon()
            log = await bench.open(CONFIG, recovery_point=recovery_point, log_start_offset=start)
        elif step == "close":
            log = await bench.close_and_open(log)
        elif step == "flush":
            assert await log.flush() == log.end_offset
        elif step == "roll":
            await log.roll(now_ms=NOW_MS)
        else:
            epoch += 1
        await compare(log, model)


async def compare(log: Log, model: Model) -> None:
    """Read everything in several ways and hold it against the list."""
    assert log.log_start_offset == model.start
    assert read_values(log) == model.values(model.start)
    for start in range(model.start, model.end, 3):
        assert read_values(log, start, bytes_max=90) == model.values(start)
    for bound in range(model.start, model.end + 1, 2):
        read = log.read(
            Offset(model.start), bytes_max=1 << 20, end_offset=Offset(bound), at_least_one=False
        )
        if read.slice is not None:
            found = list(batches(read.slice.read()))
            assert found[-1][1].end_offset <= bound
    for timestamp in range(NOW_MS - 55, NOW_MS + 56, 11):
        found_at = await log.offset_for_timestamp(timestamp, log.end_offset)
        assert found_at == model.first_at_or_after(timestamp)


@settings(max_examples=length(50, 150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_a_log_reads_as_the_list_of_its_batches(steps: list[tuple[str, object]]) -> None:
    with TemporaryDirectory() as directory:
        bench = Workbench(RealDisk(), str(Path(directory, "orders-2")))
        try:
            trio.run(live, bench, steps)
        finally:
            bench.let_go()


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(RealDisk(), str(tmp_path / "orders-2"))


async def test_reads_outside_the_log_are_refused_and_at_its_bound_empty(bench: Workbench) -> None:
    log = await bench.open(CONFIG)
    three = build_batch([(NOW_MS, None, b"v")] * 3)
    for _ in range(4):
        append(log, three)
    log.update_high_watermark(Offset(9))
    await log.delete_records_before(Offset(4))

    for offset in (3, 13, -1):
        with pytest.raises(RefusedError) as refused:
            log.read(Offset(offset), bytes_max=1, end_offset=log.end_offset, at_least_one=True)
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    at_bound = log.read(Offset(9), bytes_max=1, end_offset=Offset(9), at_least_one=True)
    assert (at_bound.slice, at_bound.base_offset) == (None, 9)
    bench.let_go()


async def test_at_least_one_batch_is_whole_however_small_the_budget(bench: Workbench) -> None:
    log = await bench.open(LogConfig())
    batch = build_batch([(NOW_MS, None, bytes(500))])
    append(log, batch)
    append(log, batch)

    whole = log.read(Offset(1), bytes_max=1, end_offset=Offset(2), at_least_one=True)
    none = log.read(Offset(1), bytes_max=1, end_offset=Offset(2), at_least_one=False)

    assert whole.slice is not None
    assert len(whole.slice) == len(batch)
    assert none.slice is None
    bench.let_go()


@pytest.mark.parametrize("value_bytes", [10, 300, 9_000])
async def test_a_reader_of_whole_batches_is_given_no_part_of_one(
    bench: Workbench, value_bytes: int
) -> None:
    log = await bench.open(LogConfig())
    batch = build_batch([(NOW_MS, None, bytes(value_bytes))])
    for _ in range(200):
        append(log, batch)
    end = Offset(200)

    for bytes_max in (1, len(batch), len(batch) + 1, 5_000, 20_000, 3 * len(batch), 1 << 30):
        read = log.read(
            Offset(3), bytes_max=bytes_max, end_offset=end, at_least_one=True, whole_batches=True
        )
        assert read.slice is not None
        length = len(read.slice)
        assert length % len(batch) == 0 and length
        if bytes_max >= len(batch):
            assert length <= bytes_max
        # What is left out is little: what lies between two entries of the index.
        left = min(bytes_max, 197 * len(batch)) - length
        assert left < LogConfig().index_interval_bytes + 2 * len(batch)
    bounded = log.read(
        Offset(3), bytes_max=1 << 30, end_offset=Offset(9), at_least_one=True, whole_batches=True
    )
    assert bounded.slice is not None
    assert len(bounded.slice) == 6 * len(batch), "the high watermark cuts no batch"
    bench.let_go()


async def test_a_slice_outlives_the_segment_it_was_cut_from(bench: Workbench) -> None:
    log = await bench.open(LogConfig())
    batch = build_batch([(NOW_MS, None, b"v")])
    append(log, batch)
    read = log.read(Offset(0), bytes_max=1000, end_offset=Offset(1), at_least_one=True)
    assert read.slice is not None
    file = read.slice.file

    await log.truncate_fully_and_start_at(Offset(50))

    assert read.slice.read()[61:] == batch[61:]
    del read
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pread(0, 1)
    bench.let_go()


async def test_the_high_watermark_never_recedes_nor_passes_the_end(bench: Workbench) -> None:
    log = await bench.open(LogConfig())
    append(log, build_batch([(NOW_MS, None, b"v")] * 5))

    assert log.update_high_watermark(Offset(3))
    assert not log.update_high_watermark(Offset(2))
    assert log.update_high_watermark(Offset(99))

    assert log.high_watermark == 5
    with pytest.raises(RefusedError, match="OFFSET_OUT_OF_RANGE"):
        await log.delete_records_before(Offset(6))
    bench.let_go()


async def test_the_largest_timestamp_is_found_with_its_first_record(bench: Workbench) -> None:
    log = await bench.open(CONFIG)
    for at in (5, 90, 7, 90, 1):
        append(log, build_batch([(NOW_MS + at - 1, None, b"v"), (NOW_MS + at, None, bytes(200))]))

    found = await log.max_timestamp_offset(log.end_offset)

    assert found == (3, NOW_MS + 90, 0)
    bench.let_go()


async def test_retention_removes_by_age_and_by_size_but_nothing_uncommitted(
    bench: Workbench,
) -> None:
    batch = build_batch([(NOW_MS, None, bytes(200))])
    config = LogConfig(segment_bytes=2 * len(batch), retention_bytes=5 * len(batch))
    log = await bench.open(config)
    for _ in range(8):
        append(log, batch)
    assert await log.delete_old_segments(NOW_MS) == 0  # the high watermark is at the start

    log.update_high_watermark(Offset(8))
    assert await log.delete_old_segments(NOW_MS) == 1
    assert (log.log_start_offset, log.size_bytes) == (2, 6 * len(batch))

    assert await log.delete_old_segments(NOW_MS + config.retention_ms + 1) == 3
    assert (log.log_start_offset, log.end_offset, log.size_bytes) == (8, 8, 0)
    assert append(log, batch, leader_epoch=1).base_offset == 8
    assert log.end_offset_for_epoch(Epoch(0)).offset == 8
    bench.let_go()


async def test_a_truncation_forgets_the_timestamps_it_removes(bench: Workbench) -> None:
    log = await bench.open(LogConfig())
    for at in (5, 90, 7):
        append(log, build_batch([(NOW_MS + at, None, b"v")]))

    await log.truncate_to(Offset(1))

    assert await log.max_timestamp_offset(log.end_offset) == (0, NOW_MS + 5, 0)
    bench.let_go()
