"""Records that read_committed returns, against a list of batches that is searched every time."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from ottla.jepsen.world.disk_waits import waited_for
from ottla.model.errors import RefusedError
from ottla.model.ids import Epoch, Offset, ProducerId
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import ControlType, build_batch, build_end_transaction_marker
from tests.storage.log.workbench import NOW_MS, Workbench, append

PRODUCERS = (11, 12, 13, 14)
STEPS = 400
CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=200)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    bench = Workbench(RealDisk(), str(tmp_path / "orders-2"))
    yield bench
    bench.let_go()


@dataclass
class Transaction:
    producer_id: int
    first_offset: int
    marker_offset: int | None = None
    is_abort: bool = False


class Life:
    """A log, and all transactions that were ever in it."""

    def __init__(self, bench: Workbench, seed: int) -> None:
        self.bench = bench
        self.random = random.Random(seed)
        self.transactions: list[Transaction] = []
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.forgotten_end = 0
        """Markers below it were loaded from a snapshot, which has open transactions only."""
        self.seen: set[str] = set()

    async def live(self) -> None:
        log = await self.bench.open(CONFIG)
        for _ in range(STEPS):
            log = await self.step(log)
            self.check(log)

    async def step(self, log: Log) -> Log:
        kind = self.random.random()
        producer_id = self.random.choice(PRODUCERS)
        if kind < 0.45:
            self.write(log, producer_id)
        elif kind < 0.65:
            self.end(log, producer_id)
        elif kind < 0.75:
            append(log, build_batch([(NOW_MS, None, b"plain" * 5)]))
        elif kind < 0.92:
            span = log.end_offset - log.high_watermark
            log.update_high_watermark(Offset(log.high_watermark + self.random.randint(0, span)))
        elif kind < 0.95:
            await self.truncate(log)
        elif kind < 0.97:
            self.seen.add("killed")
            log = await self.restarted(log, await self.bench.kill_and_open(log))
        elif kind < 0.99:
            self.seen.add("closed")
            self.forgotten_end = log.end_offset
            log = await self.restarted(log, await self.bench.close_and_open(log))
        else:
            await log.roll(now_ms=NOW_MS)
        return log

    async def restarted(self, old: Log, new: Log) -> Log:
        assert new.end_offset == old.end_offset
        new.update_high_watermark(old.high_watermark)
        return new

    def open_of(self, producer_id: int) -> Transaction | None:
        for each in self.transactions:
            if each.producer_id == producer_id and each.marker_offset is None:
                return each
        return None

    def write(self, log: Log, producer_id: int) -> None:
        epoch, sequence = self.epochs[producer_id], self.sequences[producer_id]
        guard = log.begin_verification(
            producer_id, epoch=epoch, sequence=sequence, is_bumping=True, now_ms=NOW_MS
        )
        is_open = self.open_of(producer_id) is not None
        assert (guard is None) is is_open
        batch = build_batch(
            [(NOW_MS, None, b"v" * 20)] * 2,
            producer_id=ProducerId(producer_id),
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        if not is_open:
            with pytest.raises(RefusedError):
                append(log, batch, guard=None)
            self.transactions.append(Transaction(producer_id, log.end_offset))
        append(log, batch, guard=guard)
        self.sequences[producer_id] = sequence + 2

    def end(self, log: Log, producer_id: int) -> None:
        self.epochs[producer_id] += 1
        self.sequences[producer_id] = 0
        is_abort = self.random.random() < 0.5
        open_one = self.open_of(producer_id)
        if open_one is not None:
            open_one.marker_offset, open_one.is_abort = log.end_offset, is_abort
            self.seen.add("aborted" if is_abort else "committed")
        marker = build_end_transaction_marker(
            ControlType.ABORT if is_abort else ControlType.COMMIT,
            timestamp_ms=NOW_MS,
            producer_id=ProducerId(producer_id),
            producer_epoch=self.epochs[producer_id],
            coordinator_epoch=Epoch(0),
        )
        append(log, marker, origin=AppendOrigin.COORDINATOR, transaction_version=2)

    async def truncate(self, log: Log) -> None:
        offset = self.random.randint(log.high_watermark, log.end_offset)
        await log.truncate_to(Offset(offset))
        end = log.end_offset
        self.transactions = [each for each in self.transactions if each.first_offset < end]
        for each in self.transactions:
            if each.marker_offset is not None and each.marker_offset >= end:
                each.marker_offset = None
                self.seen.add("opened again by a truncation")
        self.forgotten_end = end
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        for producer_id, producer in log.active_producers.items():
            self.epochs[producer_id] = producer.epoch
            last = producer.batches[-1].last_sequence if producer.batches else -1
            self.sequences[producer_id] = last + 1

    def check(self, log: Log) -> None:
        high_watermark = log.high_watermark
        open_firsts = [each.first_offset for each in self.transactions if not each.marker_offset]
        undecided = [
            each.first_offset
            for each in self.transactions
            if each.marker_offset and each.marker_offset >= high_watermark
        ]
        latest = min([high_watermark, *open_firsts])
        earliest = min([latest, *undecided])
        stable = log.last_stable_offset
        assert earliest <= stable <= latest
        if self.forgotten_end <= high_watermark:
            assert stable == earliest
            self.seen.add("held back by a marker" if earliest < latest else "exact")
        if stable < high_watermark:
            self.seen.add("held back")
        offset = self.random.randint(0, log.end_offset)
        end_offset = self.random.randint(offset, log.end_offset)
        found = waited_for(partial(log.aborted_transactions, Offset(offset), Offset(end_offset)))
        due = [
            (each.producer_id, each.first_offset)
            for each in sorted(self.transactions, key=lambda each: each.first_offset)
            if each.marker_offset is not None
            and each.is_abort
            and each.marker_offset >= offset
            and each.first_offset < end_offset
        ]
        assert found == due


@pytest.mark.parametrize("seed", range(4))
async def test_read_committed_sees_what_a_search_of_all_batches_allows(
    bench: Workbench, seed: int
) -> None:
    life = Life(bench, seed)
    await life.live()
    assert life.seen >= {"aborted", "committed", "killed", "closed", "held back", "exact"}
    assert "held back by a marker" in life.seen
