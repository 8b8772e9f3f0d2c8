"""Bounds of a log, against a list of records: retention, deletion, truncation, kills, power cuts.

The disk forgets what was not flushed, so the model knows the flushed end; nothing below it is lost.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.disk_waits import bytes_of, waited_for
from ottla.jepsen.world.rng import SeededRng
from ottla.jepsen.world.walk.stepping import CrashingDisk, run_through
from ottla.model.ids import Epoch, Offset, ProducerId
from ottla.storage.log.log import Log
from ottla.storage.log.log_reader import LogRead
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch import batches
from ottla.wire.batch_builder import ControlType, build_batch, build_end_transaction_marker
from ottla.wire.records import scan
from tests.search_length import length
from tests.storage.log.workbench import NOW_MS, CallbackOwner, Workbench, append

AGE_MS = 1_000
CONFIG = LogConfig(
    segment_bytes=500, index_interval_bytes=100, segment_index_bytes=96, retention_ms=AGE_MS
)
PRODUCER = ProducerId(7)


@dataclass
class Bounds:
    """Expected state: the timestamp of each remaining record, and the flushed end offset."""

    timestamps: dict[int, int] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    flushed_end: int = 0


@dataclass
class Life:
    """A log, the checkpoint that its manager keeps, and what must hold."""

    disk: SimulatedDisk
    bench: Workbench
    log: Log
    now_ms: int = NOW_MS
    start_checkpoint: int = 0
    recovery_checkpoint: int = 0
    sequence: int = 0
    is_in_transaction: bool = False
    bounds: Bounds = field(default_factory=Bounds)

    def checkpoint_with(self, log: Log) -> None:
        """Keep the log's offsets as its manager does."""

        async def keep_start() -> None:
            self.start_checkpoint = log.log_start_offset

        async def keep_recovery_point() -> None:
            self.recovery_checkpoint = log.recovery_checkpoint

        log.state.owner = CallbackOwner(
            on_log_start_raised=keep_start, on_offsets_decreased=keep_recovery_point
        )
        self.log = log


def begin(seed: int) -> Life:
    disk = CrashingDisk(SeededRng(seed))
    bench = Workbench(disk, "/orders-2")
    log: Log = run_through(bench.open(CONFIG))
    disk.flush_everything()
    life = Life(disk, bench, log)
    life.checkpoint_with(log)
    return life


def take(life: Life, step: str, argument: int) -> None:
    """Do one thing to the log, and note what must hold from now on."""
    log, bounds = life.log, life.bounds
    match step:
        case "append":
            at = life.now_ms - argument * 20
            count = 1 + argument % 3
            append(log, build_batch([(at, b"k", bytes(argument))] * count))
            bounds.timestamps |= dict.fromkeys(range(bounds.end, bounds.end + count), at)
        case "transaction" if not life.is_in_transaction:
            batch = build_batch(
                [(life.now_ms, None, b"t")],
                producer_id=PRODUCER,
                producer_epoch=0,
                base_sequence=life.sequence,
                is_transactional=True,
            )
            append(log, batch)
            life.sequence += 1
            life.is_in_transaction = True
            bounds.timestamps[bounds.end] = life.now_ms
        case "transaction":
            marker = build_end_transaction_marker(
                ControlType.ABORT if argument % 2 else ControlType.COMMIT,
                timestamp_ms=life.now_ms,
                producer_id=PRODUCER,
                producer_epoch=0,
                coordinator_epoch=Epoch(0),
            )
            append(log, marker, origin=AppendOrigin.COORDINATOR)
            life.is_in_transaction = False
            bounds.timestamps[bounds.end] = life.now_ms
        case "commit":
            log.update_high_watermark(Offset(log.high_watermark + argument))
        case "wait":
            life.now_ms += argument * 20
        case "retain":
            if argument % 2:
                log.update_high_watermark(log.end_offset)
            retain(life)
        case "delete":
            before = Offset(min(log.high_watermark, log.log_start_offset + argument))
            run_through(log.delete_records_before(before))
            assert log.log_start_offset == before
        case "truncate":
            if not life.is_in_transaction:
                # A follower is never cut below what is committed.
                offset = Offset(log.high_watermark + argument)
                run_through(log.truncate_to(offset))
                life.sequence = next_sequence(log)
        case "flush":
            bounds.flushed_end = run_through(log.flush())
            life.recovery_checkpoint = log.recovery_checkpoint
        case _:
            restart(life, step)
    log = life.log
    if step != "truncate" and log.log_start_offset > bounds.start:
        bounds.start = log.log_start_offset
    bounds.end = log.end_offset
    bounds.flushed_end = min(bounds.flushed_end, bounds.end)
    bounds.timestamps = {at: ms for at, ms in bounds.timestamps.items() if at < bounds.end}


def retain(life: Life) -> None:
    """Retention deletes old records, oldest first, and no uncommitted record."""
    log, bounds = life.log, life.bounds
    before = log.log_start_offset
    first = log.segments[0].base_offset  # what is deleted and still there keeps its segment
    run_through(log.delete_old_segments(life.now_ms))
    oldest_kept_ms = life.now_ms - AGE_MS
    assert all(bounds.timestamps[at] < oldest_kept_ms for at in range(before, log.log_start_offset))
    kept = [bounds.timestamps[at] for at in range(first, log.end_offset)]
    if log.high_watermark == log.end_offset and all(at < oldest_kept_ms for at in kept):
        assert log.log_start_offset == log.end_offset


def restart(life: Life, step: str) -> None:
    """Die, or end in order, and come back."""
    log, bounds = life.log, life.bounds
    high_watermark = log.high_watermark
    is_clean = step == "close"
    if is_clean:
        run_through(log.close())
        bounds.flushed_end = log.end_offset
        life.recovery_checkpoint, life.start_checkpoint = log.recovery_point, log.log_start_offset
    if step == "cut":
        life.disk.crash()
    else:
        life.disk.kill()
    again: Log = run_through(
        life.bench.open(
            CONFIG,
            is_clean=is_clean,
            recovery_point=life.recovery_checkpoint,
            log_start_offset=life.start_checkpoint,
        )
    )
    life.checkpoint_with(again)
    at_least = bounds.flushed_end if step == "cut" else bounds.end
    assert again.end_offset >= at_least, f"{again.end_offset} of {at_least} came back"
    assert again.end_offset <= max(bounds.end, life.start_checkpoint)
    assert again.log_start_offset >= min(bounds.start, again.end_offset)
    again.update_high_watermark(min(high_watermark, again.end_offset))
    life.sequence = next_sequence(again)
    producer = again.active_producers.get(PRODUCER)
    life.is_in_transaction = producer is not None and producer.txn_first_offset >= 0


def next_sequence(log: Log) -> int:
    producer = log.active_producers.get(PRODUCER)
    return 0 if producer is None or not producer.batches else producer.batches[-1].last_sequence + 1


def read_from(log: Log, offset: Offset) -> LogRead:
    return log.read(offset, bytes_max=1 << 20, end_offset=log.end_offset, at_least_one=True)


def check(life: Life) -> None:
    """Hold the log's bounds and records against the list."""
    log, bounds = life.log, life.bounds
    start, end = log.log_start_offset, log.end_offset
    assert start <= log.last_stable_offset <= log.high_watermark <= end
    assert log.recovery_point <= end
    assert start >= bounds.start
    found: dict[int, int] = {}
    offset = start
    while offset < end:
        read = waited_for(partial(read_from, log, offset))
        assert read.slice is not None
        data = memoryview(bytes_of(read.slice))
        for at, header in batches(data, is_partial_end_allowed=True):
            found |= {record.offset: record.timestamp_ms for record in scan(data, at, header)}
            offset = max(offset, header.end_offset)
    wanted = {at: stamp for at, stamp in bounds.timestamps.items() if at >= start}
    assert {at: stamp for at, stamp in found.items() if at >= start} == wanted


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *["append", "append", "append", "commit", "commit", "transaction", "wait"],
                *["retain", "delete", "truncate", "flush", "kill", "cut", "close"],
            ]
        ),
        st.integers(0, 60),
    ),
    max_size=40,
)


@settings(
    max_examples=length(100, 300), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(seed=st.integers(0, 1 << 32), steps=STEPS)
def test_the_bounds_of_a_log_hold_and_nothing_flushed_is_lost(
    seed: int, steps: list[tuple[str, Any]]
) -> None:
    life = begin(seed)
    for step, argument in steps:
        take(life, step, argument)
        check(life)
