"""Loading the groups of a partition: an unreadable record costs itself and no other."""

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import trio
from crc32c import crc32c

from ottla.broker.coordinators.effects import Instant
from ottla.broker.coordinators.shard_coordinator_driver import CoordinatorDriver
from ottla.broker.groups.classic.classic_group import ClassicGroup
from ottla.broker.groups.classic.rebalance import Rebalancer
from ottla.broker.groups.group_records import KINDS, offset_key, offset_value
from ottla.broker.groups.shard import GroupShard
from ottla.broker.replicas.partition import Partition
from ottla.model.errors import ErrorCode
from ottla.model.internal_topics import OFFSETS_TOPIC
from ottla.storage.disk.disk_seam import DiskFile
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.wire.batch import CRC_AT, CRC_START
from ottla.wire.batch_builder import build_batch
from ottla.wire.codec import encode
from ottla.wire.compression import Codec
from ottla.wire.messages.offset_commit_value import OffsetCommitValue
from tests.storage.cleaner.cleaning_bench import clean_log, task_of

Pair = tuple[bytes | None, bytes | None]


def commit(offset: int, group_id: str = "g") -> Pair:
    value = OffsetCommitValue(offset=offset, leader_epoch=-1, metadata="", commit_timestamp=1)
    return offset_key(group_id, "orders", 0), offset_value(value)


async def offsets_partition(world: Any) -> Partition:
    await world.add("orders")
    led: Partition = await world.add(OFFSETS_TOPIC)
    return led


def write(world: Any, led: Partition, *pairs: Pair, codec: Codec = Codec.NONE) -> int:
    """Append one batch; return its position in the file."""
    assert led.log is not None
    begins_at = led.log.size_bytes
    now_ms = world.clock.wall_ms()
    built = build_batch([(now_ms, key, value) for key, value in pairs], codec=codec)
    led.append_of_coordinator(bytes(built), now_ms=now_ms, mono_ms=0)
    return begins_at


def overwrite(led: Partition, position: int, data: bytes) -> None:
    """Corrupt bytes of the log, as a bad disk does."""
    assert led.log is not None
    with open(file_of(led).path, "r+b") as file:
        file.seek(position)
        file.write(data)


def file_of(led: Partition) -> DiskFile:
    assert led.log is not None
    part = led.log.read(
        led.log.log_start_offset,
        bytes_max=1,
        end_offset=led.log.end_offset,
        at_least_one=True,
    ).slice
    assert part is not None
    return part.file


@asynccontextmanager
async def loaded(world: Any, make_coordinator: Any) -> AsyncIterator[Any]:
    async with trio.open_nursery() as nursery:
        groups = make_coordinator(world)
        nursery.start_soon(CoordinatorDriver(groups.coordinator).run)
        await groups.publish()
        yield groups
        nursery.cancel_scope.cancel()


async def offsets_after(
    world: Any, make_coordinator: Any, groups: Sequence[str]
) -> tuple[list[tuple[ErrorCode, int]], int]:
    """Load the partition; return the offset of each group, and the number of skipped records."""
    async with loaded(world, make_coordinator) as coordinated:
        found = [await coordinated.fetched(group_id) for group_id in groups]
        skipped = coordinated.coordinator.metrics()["groups.records.skipped"]
        assert not list(coordinated.coordinator.problems())
    return found, skipped


def lies() -> Iterator[Pair]:
    """Yield records of every kind and version with invalid content."""
    yield None, b"no key"
    yield b"", b""
    yield b"\0", None
    for kind, (key_type, value_type) in KINDS.items():
        prefix = kind.to_bytes(2)
        key = prefix + encode(key_type(), 0)
        yield prefix, None
        yield key[:-1], None
        yield key + b"\0", None
        yield prefix + b"\xff" * 40, None
        yield key, b""
        yield key, b"\0"
        yield key, (99).to_bytes(2) + b"\0" * 40
        yield key, b"\xff\xff"
        for version in value_type.VERSIONS:
            value = version.to_bytes(2) + encode(value_type(), version)
            yield key, value[:-1]
            yield key, value + b"\0"
            yield key, version.to_bytes(2) + b"\xff" * 60


async def test_no_record_that_lies_takes_a_group_with_it(
    world: Any, make_coordinator: Any, caplog: pytest.LogCaptureFixture
) -> None:
    led = await offsets_partition(world)
    bad = list(lies())
    write(world, led, commit(1, "before"))
    write(world, led, commit(2, "beside"), *bad, commit(3, "beside too"))
    for pair in bad:
        write(world, led, pair)
    write(world, led, commit(4, "after"))
    with caplog.at_level(logging.ERROR, logger="ottla.broker.groups"):
        found, skipped = await offsets_after(
            world, make_coordinator, ["before", "beside", "beside too", "after"]
        )
    assert found == [(ErrorCode.NONE, offset) for offset in (1, 2, 3, 4)]
    assert skipped == 2 * len(bad)
    first, total = caplog.messages
    assert first.endswith("offset 2: a record of __consumer_offsets has no key")
    assert total.startswith(f"{2 * len(bad)} records or batches of ")


async def test_a_compacted_log_is_loaded_to_its_end_over_gaps_and_emptied_batches(
    world: Any, make_coordinator: Any
) -> None:
    led = await offsets_partition(world)
    log = led.log
    assert log is not None
    for turn in range(4):
        for group_id in ("a", "b"):
            write(world, led, *(commit(turn * 10 + n, group_id) for n in range(5)))
        write(world, led, *([(commit(0, "gone")[0], None)] * 3))
        await log.roll(now_ms=0)
    log.update_high_watermark(log.end_offset)
    task = task_of(log, now_ms=1)
    await clean_log(RealDisk(), log, replace(task, now_ms=1 << 50))
    assert log.size_bytes < 1_000

    found, skipped = await offsets_after(world, make_coordinator, ["a", "b", "gone"])

    assert found == [(ErrorCode.NONE, 34), (ErrorCode.NONE, 34), (ErrorCode.NONE, -1)]
    assert skipped == 0


@pytest.mark.parametrize("seed", range(20))
async def test_no_noise_takes_a_group_with_it(world: Any, make_coordinator: Any, seed: int) -> None:
    random = Random(seed)
    led = await offsets_partition(world)
    write(world, led, commit(1, "before"))
    for _ in range(200):
        kind = random.choice([*KINDS, 9, 17]).to_bytes(2)
        version = random.randrange(6).to_bytes(2)
        key = kind + random.randbytes(random.randrange(20))
        write(world, led, (key, version + random.randbytes(random.randrange(60))))
    write(world, led, commit(2, "after"))
    found, _ = await offsets_after(world, make_coordinator, ["before", "after"])
    assert found == [(ErrorCode.NONE, 1), (ErrorCode.NONE, 2)]


@pytest.mark.parametrize(
    ("at", "damage"),
    [
        pytest.param(70, b"\xff\xff\xff", id="its records"),
        pytest.param(17, b"\0\0\0\0", id="its CRC"),
        pytest.param(16, b"\x07", id="its magic"),
        pytest.param(8, b"\x7f\xff\xff\xff", id="its length, too large"),
        pytest.param(8, b"\0\0\0\0", id="its length, too small"),
        pytest.param(0, b"\0" * 61, id="its header"),
        pytest.param(23, b"\x7f\xff\xff\xff", id="its last offset"),
        pytest.param(57, b"\x7f\xff\xff\xff", id="its count"),
    ],
)
async def test_a_malformed_batch_is_skipped_alone(
    world: Any, make_coordinator: Any, at: int, damage: bytes
) -> None:
    led = await offsets_partition(world)
    assert led.log is not None
    led.log.config = replace(led.log.config, index_interval_bytes=0)
    write(world, led, commit(1, "before"))
    # Batches of which none is remembered as recent, so that the file is what is read.
    for offset in range(100):
        write(world, led, commit(offset, "many"))
    damaged_at = write(world, led, commit(2, "damaged"))
    for offset in range(100):
        write(world, led, commit(offset, "many"))
    write(world, led, commit(3, "after"))
    overwrite(led, damaged_at + at, damage)
    found, skipped = await offsets_after(world, make_coordinator, ["before", "damaged", "after"])
    assert found == [(ErrorCode.NONE, 1), (ErrorCode.NONE, -1), (ErrorCode.NONE, 3)]
    assert skipped >= 1


async def test_a_compressed_batch_that_does_not_unpack_is_skipped(
    world: Any, make_coordinator: Any
) -> None:
    led = await offsets_partition(world)
    write(world, led, commit(1, "before"))
    built = bytearray(build_batch([(world.clock.wall_ms(), *commit(2, "damaged"))]))
    built[21:23] = (Codec.ZSTD.value).to_bytes(2)
    built[CRC_AT : CRC_AT + 4] = crc32c(built[CRC_START:]).to_bytes(4)
    led.append_of_coordinator(bytes(built), now_ms=world.clock.wall_ms(), mono_ms=0)
    write(world, led, commit(3, "after"))
    found, skipped = await offsets_after(world, make_coordinator, ["before", "damaged", "after"])
    assert found == [(ErrorCode.NONE, 1), (ErrorCode.NONE, -1), (ErrorCode.NONE, 3)]
    assert skipped == 1


async def test_a_record_that_breaks_the_replay_itself_is_skipped(
    world: Any, make_coordinator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    led = await offsets_partition(world)
    write(world, led, commit(1, "before"))
    write(world, led, commit(2, "unforeseen"))
    write(world, led, commit(3, "after"))
    replay = GroupShard.replay

    def break_down(shard: GroupShard, key: bytes | None, *rest: Any) -> None:
        if key is not None and b"unforeseen" in key:
            raise RuntimeError("planted")
        replay(shard, key, *rest)

    monkeypatch.setattr(GroupShard, "replay", break_down)
    found, skipped = await offsets_after(world, make_coordinator, ["before", "after"])
    assert found == [(ErrorCode.NONE, 1), (ErrorCode.NONE, 3)]
    assert skipped == 1


async def test_a_group_that_cannot_be_resumed_takes_no_other_with_it(
    world: Any, make_coordinator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    led = await offsets_partition(world)
    write(world, led, commit(1, "unfit"), commit(2, "fit"))
    resume = Rebalancer.resume

    def break_down(rebalancer: Rebalancer, group: ClassicGroup, now: Instant) -> None:
        if group.group_id == "unfit":
            raise RuntimeError("planted")
        resume(rebalancer, group, now)

    monkeypatch.setattr(Rebalancer, "resume", break_down)
    found, _ = await offsets_after(world, make_coordinator, ["unfit", "fit"])
    assert found == [(ErrorCode.NONE, 1), (ErrorCode.NONE, 2)]
