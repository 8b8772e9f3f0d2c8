"""A leader never appends a batch twice, however the log got its copy.

Random histories of two replicas and one idempotent producer: batches, fetches of several of them,
failovers with the truncation that follows, rolls, deleted records, kills and stops. After each step
all batches that a client may send again (five) are sent again: each is known, or refused, and never
stored.
"""

from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from ottla.jepsen.world.disk_waits import bytes_of, waited_for
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset, ProducerId
from ottla.model.limits import PRODUCER_BATCHES_KEPT
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch
from tests.storage.log.workbench import NOW_MS, Workbench, append

CONFIG = LogConfig(segment_bytes=600)
STEPS = 60


class SentBatch(NamedTuple):
    """A batch in the leader's log."""

    data: bytes
    sequence: int
    base_offset: int
    end_offset: int


class Pair:
    """A leader, a follower, and the batches of the leader's log."""

    def __init__(self, benches: list[Workbench], logs: list[Log], chance: Random) -> None:
        self.benches = benches
        self.logs = logs
        self.chance = chance
        self.leader = 0
        self.epoch = 0
        self.sent: list[SentBatch] = []
        self.sent_count = 0
        """Number of batches by sequence: a truncated batch that is sent again counts once."""

    @property
    def leading(self) -> Log:
        return self.logs[self.leader]

    @property
    def following(self) -> Log:
        return self.logs[1 - self.leader]

    async def produce(self) -> None:
        last = self.sent[-1] if self.sent else None
        count = 1 + len(self.sent) * 7 % 3  # what is sent again is the same
        start = 0 if last is None else last.sequence + last.end_offset - last.base_offset
        data = build_batch(
            [(NOW_MS, None, b"v" * 20)] * count,
            producer_id=ProducerId(7),
            producer_epoch=0,
            base_sequence=start,
        )
        info = append(self.leading, data, leader_epoch=self.epoch)
        assert not info.is_duplicate
        self.sent.append(SentBatch(data, start, info.base_offset, info.end_offset))
        self.sent_count = max(self.sent_count, len(self.sent))

    async def replicate(self) -> None:
        source, target = self.leading, self.following
        if target.end_offset == source.end_offset:
            return
        size = self.chance.choice([1, 200, 1_000])
        read = waited_for(
            lambda: source.read(
                target.end_offset,
                bytes_max=size,
                end_offset=source.end_offset,
                at_least_one=True,
            )
        )
        assert read.slice is not None
        target.append_as_follower(memoryview(bytes_of(read.slice)), now_ms=NOW_MS)
        committed = target.end_offset
        target.update_high_watermark(committed)
        source.update_high_watermark(committed)

    async def fail_over(self) -> None:
        self.leader = 1 - self.leader
        self.epoch += 1
        end = self.leading.end_offset
        self.leading.assign_epoch(Epoch(self.epoch), end)
        self.sent = [each for each in self.sent if each.end_offset <= end]
        await self.following.truncate_to(end)

    async def roll(self) -> None:
        await self.chance.choice(self.logs).roll(now_ms=NOW_MS)

    async def delete(self) -> None:
        committed = min(log.end_offset for log in self.logs)
        offset = Offset(self.chance.randint(0, committed))
        for log in self.logs:
            if offset <= log.high_watermark:
                await log.delete_records_before(offset)

    async def restart(self) -> None:
        at = self.chance.randrange(2)
        log = self.logs[at]
        high_watermark = log.high_watermark
        is_clean = self.chance.random() < 0.5
        if is_clean:
            await log.close()
        else:
            log.abandon()
        self.logs[at] = await self.benches[at].open(
            CONFIG,
            is_clean=is_clean,
            recovery_point=log.recovery_checkpoint,
            log_start_offset=log.log_start_offset,
        )
        self.logs[at].update_high_watermark(high_watermark)

    def send_again(self) -> None:
        end = self.leading.end_offset
        # Five are in flight at most, whether a truncation took them or not.
        for each in self.sent[max(0, self.sent_count - PRODUCER_BATCHES_KEPT) :]:
            try:
                info = append(self.leading, each.data, leader_epoch=self.epoch)
            except RefusedError as error:
                # After a kill the batches of deleted records may be known no longer, but the last.
                assert error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                assert each.base_offset < self.leading.log_start_offset
            else:
                assert (info.is_duplicate, info.base_offset) == (True, each.base_offset)
        assert self.leading.end_offset == end


@pytest.mark.parametrize("seed", range(20))
async def test_a_leader_never_takes_again_what_its_log_holds(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    benches = [Workbench(RealDisk(), str(tmp_path / f"replica-{at}" / "t-0")) for at in range(2)]
    pair = Pair(benches, [await bench.open(CONFIG) for bench in benches], chance)
    try:
        deeds = [pair.produce] * 4 + [pair.replicate] * 4
        deeds += [pair.fail_over, pair.roll, pair.delete, pair.restart]
        for _ in range(STEPS):
            await chance.choice(deeds)()
            pair.send_again()
    finally:
        for bench in benches:
            bench.let_go()
