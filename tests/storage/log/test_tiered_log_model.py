"""A tiered log, against a list of records: each committed record is local or copied, at any time.

The log lives a random life on a simulated disk that may lose what was not flushed, and that may end
the process at any operation. Planted mistakes, one at a time, must be found.
"""

import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from ottla.jepsen.world.disk_waits import bytes_of, waited_for
from ottla.jepsen.world.rng import SeededRng
from ottla.jepsen.world.walk.stepping import CrashingDisk, ProcessEnd, run_through
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset, ProducerId
from ottla.storage.log.log import Log
from ottla.storage.log.log_reader import LogRead
from ottla.storage.producers.producer_snapshot import encode_snapshot
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch import batches
from ottla.wire.batch_builder import build_batch
from ottla.wire.records import scan
from tests.storage.log.workbench import NOW_MS, CallbackOwner, Workbench, append

CONFIG = LogConfig(
    segment_bytes=500,
    index_interval_bytes=100,
    segment_index_bytes=96,
    is_tiered=True,
    local_retention_bytes=900,
    retention_ms=-1,
)
PRODUCER = ProducerId(7)
LIVES = 150
STEPS_PER_LIFE = 60


@dataclass(frozen=True)
class Copy:
    """A copied segment, as an upload reads it from the log."""

    base_offset: int
    end_offset: int
    values: dict[int, bytes]
    epochs: tuple[EpochEntry, ...]
    snapshot: bytes

    def epoch_of(self, offset: int) -> int:
        return max(entry.epoch for entry in self.epochs if entry.start_offset <= offset)


@dataclass
class TieredLife:
    """A tiered log, its copies, the checkpoints that its manager keeps, and what must hold."""

    disk: CrashingDisk
    bench: Workbench
    log: Log
    bug: str
    epoch: int = 0
    producer_epoch: int = 0
    start_checkpoint: int = 0
    recovery_checkpoint: int = 0
    flushed_end: int = 0
    start: int = 0
    """Log start that was durable."""
    written: int = 0
    records: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """Leader epoch and value of each record."""
    sequences: dict[int, int] = field(default_factory=dict)
    """Sequence number of each record of the current producer epoch."""
    copies: list[Copy] = field(default_factory=list)
    is_local_only: bool = False

    def checkpoint_with(self, log: Log) -> None:
        async def keep_start() -> None:
            if self.bug != "a log start that is not durable":
                self.start_checkpoint = log.log_start_offset

        async def keep_recovery_point() -> None:
            self.recovery_checkpoint = log.recovery_checkpoint

        log.state.owner = CallbackOwner(
            on_log_start_raised=keep_start, on_offsets_decreased=keep_recovery_point
        )
        self.log = log

    def copy_with(self, offset: int) -> Copy | None:
        """Return the copy of a record that is found by the log's leader epoch."""
        epoch = self.log.epoch_of(Offset(offset))
        for copy in reversed(self.copies):
            if copy.base_offset <= offset < copy.end_offset and copy.epoch_of(offset) == epoch:
                return copy
        return None

    def note_copied(self) -> None:
        """Set the copied offset of the log, as the manager of tiered storage does."""
        if self.bug == "a copied offset above a hole":
            self.log.copied_offset = Offset(max((c.end_offset for c in self.copies), default=0) - 1)
            return
        offset = int(self.log.local_start_offset)
        while offset < self.log.end_offset and self.copy_with(offset):
            offset += 1
        self.log.copied_offset = Offset(offset - 1)
        if self.bug == "deletion of what is not copied":
            self.log.copied_offset = self.log.high_watermark


def begin(seed: int, bug: str = "") -> TieredLife:
    disk = CrashingDisk(SeededRng(seed))
    bench = Workbench(disk, "/orders-2")
    log: Log = run_through(bench.open(CONFIG))
    disk.flush_everything()
    life = TieredLife(disk, bench, log, bug)
    life.checkpoint_with(log)
    return life


def take(life: TieredLife, step: str, argument: int) -> None:
    """Do one thing to the log, and note what must hold from now on."""
    log = life.log
    match step:
        case "append":
            produce(life, argument)
        case "elect":
            life.epoch += 1
            log.assign_epoch(Epoch(life.epoch), log.end_offset)
        case "commit":
            log.update_high_watermark(Offset(log.high_watermark + argument))
        case "roll":
            run_through(log.roll(now_ms=NOW_MS))
        case "flush":
            life.flushed_end = run_through(log.flush())
            life.recovery_checkpoint = log.recovery_checkpoint
        case "copy" if not life.is_local_only:
            upload(life, skipped_count=argument % 5 // 4)
        case "retain":
            life.note_copied()
            run_through(log.delete_local_segments(NOW_MS))
            if life.bug == "a log start that follows the local start":
                log.state.raise_log_start(log.local_start_offset)
            if life.bug == "epochs of the local part alone":
                log.state.epochs.truncate_from_start(log.local_start_offset)
        case "expire":
            offset = Offset(min(log.high_watermark, log.log_start_offset + argument))
            run_through(log.raise_log_start_to(offset))
            life.copies = [copy for copy in life.copies if copy.end_offset > offset]
        case "truncate":  # after an unclean election
            truncate(life, argument)
        case "begin":
            begin_from_copy(life)
        case "disable" if argument % 8 == 0:
            life.is_local_only = True
            log.config = replace(CONFIG, is_tiered=False, retention_bytes=900)
            run_through(log.raise_log_start_to(log.local_start_offset))
            assert log.log_start_offset == log.local_start_offset
            life.copies.clear()
        case "enable" if life.is_local_only:
            life.is_local_only = False
            log.config = CONFIG
            run_through(log.delete_local_segments(NOW_MS))  # makes the log start durable
        case "end":
            end_within(life, argument)
        case "kill" | "cut" | "close":
            restart(life, step)
    log = life.log
    life.start = max(life.start, log.log_start_offset) if step != "begin" else log.log_start_offset
    life.flushed_end = min(life.flushed_end, log.end_offset)
    life.records = {at: one for at, one in life.records.items() if at < log.end_offset}
    life.sequences = {at: one for at, one in life.sequences.items() if at < log.end_offset}


def produce(life: TieredLife, argument: int) -> None:
    log = life.log
    count = 1 + argument % 3
    values = [b"%d" % (life.written + at) + bytes(argument) for at in range(count)]
    life.written += count
    first = max(life.sequences.values(), default=-1) + 1
    batch = build_batch(
        [(NOW_MS, None, value) for value in values],
        producer_id=PRODUCER,
        producer_epoch=life.producer_epoch,
        base_sequence=first,
    )
    end = log.end_offset
    append(log, batch, leader_epoch=life.epoch)
    for at, value in enumerate(values):
        life.records[end + at] = life.epoch, value
        life.sequences[end + at] = first + at


def upload(life: TieredLife, skipped_count: int) -> None:
    """Copy the oldest closed and committed segment that is not copied yet, or the one after."""
    log = life.log
    for segment in log.local_segments()[:-1]:
        start = max(segment.base_offset, log.log_start_offset)
        if segment.end_offset <= start or life.copy_with(start):
            continue
        if skipped_count:
            skipped_count -= 1
            continue
        if segment.end_offset <= log.last_stable_offset:
            source = log.segment_source(segment.base_offset)
            data: bytes = run_through(source.read_log(0, source.size_bytes))
            assert len(run_through(source.offset_index())) % 8 == 0
            assert len(run_through(source.time_index())) % 12 == 0
            assert run_through(source.transaction_index()) == b""
            snapshot: bytes = run_through(source.producer_snapshot())
            values = values_in(data)
            assert (source.base_offset, source.end_offset) == segment[:2]
            life.copies.append(
                Copy(source.base_offset, source.end_offset, values, tuple(source.epochs), snapshot)
            )
        return


def truncate(life: TieredLife, argument: int) -> None:
    log = life.log
    offset = Offset(max(log.log_start_offset, log.end_offset - argument))
    is_below_local = offset < log.local_start_offset
    run_through(log.truncate_to(offset))
    assert log.end_offset <= offset
    if is_below_local:
        assert log.local_start_offset == log.end_offset == offset
        if life.bug == "a truncation without old epochs":
            log.state.epochs.clear()
        forget_producer(life)
    life.epoch += 1


def forget_producer(life: TieredLife) -> None:
    """Begin a new producer epoch, because the log does not know the producer any longer."""
    life.producer_epoch += 1
    life.sequences.clear()


def begin_from_copy(life: TieredLife) -> None:
    """Begin the local log at the end of its last copied segment, as a new follower does."""
    log = life.log
    offset, last = int(log.log_start_offset), None
    while (found := life.copy_with(offset)) is not None and found.end_offset <= log.end_offset:
        if found.values[found.end_offset - 1] != life.records[found.end_offset - 1][1]:
            break
        offset, last = found.end_offset, found
    if last is None or last.end_offset <= max(life.sequences, default=0) - 200:
        return
    snapshot = last.snapshot
    if life.bug == "a beginning without producers":
        snapshot = encode_snapshot(ProducerStates(Offset(offset)))
    epochs = last.epochs[-1:] if life.bug == "a beginning without old epochs" else last.epochs
    run_through(
        log.begin_at(
            Offset(offset),
            log_start_offset=log.log_start_offset,
            epochs=epochs,
            producer_snapshot=snapshot,
            now_ms=NOW_MS,
        )
    )
    assert log.local_start_offset == log.high_watermark == log.end_offset == offset


def end_within(life: TieredLife, argument: int) -> None:
    """Let the process end during a change of the log's start, at any operation of the disk."""
    log = life.log
    offset = Offset(min(log.high_watermark, log.log_start_offset + 3))
    changes: list[Callable[[], Coroutine[Any, Any, object]]] = [
        partial(log.delete_local_segments, NOW_MS),
        partial(log.raise_log_start_to, offset),
        log.flush,
    ]
    life.note_copied()
    life.disk.operations_left = argument % 20
    with suppress(ProcessEnd):
        run_through(changes[argument % 3]())
    life.disk.operations_left = None
    restart(life, "cut" if argument % 2 else "kill")


def restart(life: TieredLife, step: str) -> None:
    """Die, or end in order, and come back."""
    log, end = life.log, life.log.end_offset
    is_clean = step == "close"
    if is_clean:
        run_through(log.close())
        life.flushed_end = log.end_offset
        life.recovery_checkpoint, life.start_checkpoint = log.recovery_point, log.log_start_offset
    high_watermark, local_start = log.high_watermark, log.local_start_offset
    if step == "cut":
        life.disk.crash()
    else:
        life.disk.kill()
    config = log.config
    if life.bug == "a recovery without the copied part":
        config = replace(config, is_tiered=False)
    again: Log = run_through(
        life.bench.open(
            config,
            is_clean=is_clean,
            recovery_point=life.recovery_checkpoint,
            log_start_offset=life.start_checkpoint,
        )
    )
    life.checkpoint_with(again)
    assert again.end_offset >= (life.flushed_end if step == "cut" else end)
    assert again.high_watermark >= again.local_start_offset
    assert step == "cut" or again.local_start_offset <= max(local_start, life.start_checkpoint)
    again.update_high_watermark(min(high_watermark, again.end_offset))


def values_in(data: bytes) -> dict[int, bytes]:
    view = memoryview(data)
    return {
        record.offset: bytes(record.value or b"")
        for at, header in batches(view, is_partial_end_allowed=True)
        for record in scan(view, at, header)
    }


def read_from(log: Log, offset: Offset) -> LogRead:
    return log.read(offset, bytes_max=1 << 20, end_offset=log.end_offset, at_least_one=True)


def check(life: TieredLife) -> None:
    """Hold the log's bounds and the records of both tiers against the list."""
    log = life.log
    start, local_start, end = log.log_start_offset, log.local_start_offset, log.end_offset
    assert start <= local_start <= log.high_watermark <= end
    assert start <= log.last_stable_offset <= log.high_watermark
    assert start >= life.start, "deleted records are back"
    assert start == life.start, "records are gone"
    assert log.local_segments()[0].base_offset <= local_start
    local: dict[int, bytes] = {}
    offset = local_start
    while offset < end:
        read = waited_for(partial(read_from, log, offset))
        assert read.slice is not None
        local |= values_in(bytes_of(read.slice))
        offset = Offset(max(local) + 1)
    for at in range(start, end):
        epoch, value = life.records[at]
        assert log.epoch_of(Offset(at)) == epoch
        if at >= local_start:
            assert local[at] == value
        else:
            copy = life.copy_with(at)
            assert copy is not None, f"record {at} is in neither tier"
            assert copy.values[at] == value, f"record {at} is of another lineage"
    if start < local_start:
        with pytest.raises(RefusedError) as refused:
            read_from(log, start)
        assert refused.value.code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    producer = log.active_producers.get(PRODUCER)
    if life.sequences and max(life.sequences) >= start:
        assert producer is not None
        assert producer.batches[-1].last_sequence == max(life.sequences.values())


STEPS = (
    ["append"] * 8
    + ["commit"] * 5
    + ["copy"] * 5
    + ["retain"] * 4
    + ["expire", "elect", "roll", "flush", "flush", "truncate", "begin"]
    + ["disable", "enable", "kill", "cut", "close", "end"]
)


def live(seed: int, bug: str = "") -> TieredLife:
    life = begin(seed, bug)
    chance = random.Random(seed)
    for _ in range(STEPS_PER_LIFE):
        take(life, chance.choice(STEPS), chance.randrange(60))
        check(life)
    return life


@pytest.mark.parametrize("first_seed", range(0, LIVES, 50))
def test_each_record_of_a_tiered_log_is_local_or_copied(first_seed: int) -> None:
    moved = 0
    for seed in range(first_seed, first_seed + 50):
        life = live(seed)
        moved += life.log.local_start_offset > life.log.log_start_offset
    assert moved > 2, "too few lives end with records that only the copies have"


@pytest.mark.parametrize(
    "bug",
    [
        "deletion of what is not copied",
        "a copied offset above a hole",
        "a log start that follows the local start",
        "a log start that is not durable",
        "epochs of the local part alone",
        "a truncation without old epochs",
        "a beginning without producers",
        "a beginning without old epochs",
        "a recovery without the copied part",
    ],
)
def test_a_planted_mistake_of_a_tiered_log_is_found(bug: str) -> None:
    for seed in range(LIVES):
        try:
            live(seed, bug)
        except (AssertionError, RefusedError, KeyError):
            return
    raise AssertionError(f"{bug} is not found")
