"""Losses that a start detects: every damage to the disk of a stopped broker, no false alarm."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.rng import SeededRng
from ottla.model.ids import NodeId, Offset, TopicIdPartition, TopicPartition
from ottla.model.settings.broker import BrokerConfig
from ottla.storage.log.log import Log
from ottla.storage.losses.log_losses import LossKind, ReplicaPlacement
from ottla.storage.manager.log_manager_driver import LogManager, open_log_manager
from ottla.storage.segments.log_config import LogConfig
from tests.storage.manager.test_log_manager import TrioClock, append, formatted_disk

A0 = TopicPartition("a", 0)
TOPIC_ID = UUID(int=1000)
KEY = TopicIdPartition(TOPIC_ID, 0)
CONFIG = LogConfig()
LOG_FILE = "/one/a-0/00000000000000000000.log"
COUNTED_ON = ReplicaPlacement(TOPIC_ID, A0, UUID(int=500), is_counted_on=True)
NOT_COUNTED_ON = COUNTED_ON._replace(is_counted_on=False)

Damage = Callable[[SimulatedDisk], Awaitable[None]]


@asynccontextmanager
async def started(
    disk: SimulatedDisk,
    placement: ReplicaPlacement | None = COUNTED_ON,
    paths: tuple[str, ...] = ("/one",),
) -> AsyncIterator[LogManager]:
    config = BrokerConfig(node_id=NodeId(1), log_dirs=paths)
    placements = [] if placement is None else [placement]
    async with open_log_manager(disk, config, TrioClock(), SeededRng(5)) as logs:
        await logs.open_logs(lambda partition: CONFIG, placements)
        await logs.settle(lambda partition, topic_id: False, lambda partition: None, placements)
        yield logs


async def written_disk(*, is_clean: bool) -> SimulatedDisk:
    """Return the disk of a broker that stopped with 300 committed records in one log."""
    disk = await formatted_disk("/one")
    async with started(disk, None) as logs:
        log = await logs.create(A0, TOPIC_ID, CONFIG)
        for index in range(300):
            append(log, b"%d" % index)
        log.update_high_watermark(Offset(300))
        await log.keep()
        await logs.checkpoint_high_watermarks()
        if is_clean:
            await logs.shutdown_cleanly(broker_epoch=7)
    return disk


async def remove_directory(disk: SimulatedDisk) -> None:
    await disk.remove_tree("/one/a-0")


async def halve(disk: SimulatedDisk) -> None:
    data = await disk.read_file(LOG_FILE)
    await disk.write_atomically(LOG_FILE, data[: len(data) // 2])


async def empty(disk: SimulatedDisk) -> None:
    await disk.write_atomically(LOG_FILE, b"")


async def delete(disk: SimulatedDisk) -> None:
    await disk.unlink(LOG_FILE)


async def flip(disk: SimulatedDisk) -> None:
    data = bytearray(await disk.read_file(LOG_FILE))
    data[-10] ^= 1
    await disk.write_atomically(LOG_FILE, bytes(data))


async def empty_log_directory(disk: SimulatedDisk) -> None:
    """Remove everything but the identity."""
    await disk.remove_tree("/one/a-0")
    for name in await disk.listdir("/one"):
        if name != "meta.properties":
            await disk.unlink(f"/one/{name}")


async def empty_metadata(disk: SimulatedDisk) -> None:
    await disk.write_atomically("/one/a-0/partition.metadata", b"")


async def forget_all_names(disk: SimulatedDisk) -> None:
    await empty_metadata(disk)
    await disk.unlink("/one/checkpoint-topic-ids")


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (remove_directory, LossKind.MISSING),
        (empty_log_directory, LossKind.MISSING),
        (halve, LossKind.TRUNCATED),
        (empty, LossKind.TRUNCATED),
        (delete, LossKind.TRUNCATED),
        (flip, LossKind.TRUNCATED),
        (forget_all_names, LossKind.UNREADABLE),
    ],
)
async def test_a_replica_that_lost_its_log_is_known_to_have_lost_it(
    damage: Damage,
    kind: LossKind,
    is_clean: bool,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = await written_disk(is_clean=is_clean)
    await damage(disk)
    with caplog.at_level(logging.ERROR):
        async with started(disk) as logs:
            (loss,) = logs.losses.values()
            assert (loss.key, loss.kind, loss.partition) == (KEY, kind, A0)
            if damage not in (empty_log_directory, forget_all_names):
                assert loss.promised_end_offset == 300
            assert loss.found_end_offset < 300
            assert logs.known_losses.found_counts == {kind: 1}
    assert any(
        "a-0" in record.getMessage() and "likely cause" in record.getMessage()
        for record in caplog.records
    )
    # It was not filled up again: the next start has not forgotten it, nor the one after a stop.
    async with started(disk) as logs:
        assert KEY in logs.losses
        assert not logs.known_losses.found_counts
        await logs.shutdown_cleanly(broker_epoch=8)
    async with started(disk) as logs:
        assert KEY in logs.losses
        await logs.forget_losses([KEY])
        assert not logs.losses
    async with started(disk, NOT_COUNTED_ON) as logs:
        assert not logs.losses


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("damage", [empty_metadata, None])
async def test_a_replica_that_has_all_it_promised_lost_nothing(
    damage: Damage | None, is_clean: bool, autojump_clock: MockClock
) -> None:
    disk = await written_disk(is_clean=is_clean)
    if damage is not None:
        await damage(disk)
    async with started(disk) as logs:
        assert not logs.losses
        log = logs.get(A0)
        assert log is not None
        assert (log.topic_id, log.end_offset) == (TOPIC_ID, 300)
    assert not disk.exists("/one/lost-logs")


async def test_a_torn_tail_after_a_kill_is_cut_and_counted_but_no_loss(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = await written_disk(is_clean=False)
    data = await disk.read_file(LOG_FILE)
    await disk.write_atomically(LOG_FILE, data + data[:40])
    async with started(disk) as logs:
        assert not logs.losses
        assert logs.known_losses.cut_bytes == 40
    assert "40 bytes from offset 300 on" in caplog.text


async def test_a_replica_of_a_deleted_topic_lost_nothing(autojump_clock: MockClock) -> None:
    disk = await written_disk(is_clean=True)
    await remove_directory(disk)
    async with started(disk, None) as logs:
        assert not logs.losses


async def test_a_loss_is_forgotten_with_its_topic(autojump_clock: MockClock) -> None:
    disk = await written_disk(is_clean=True)
    await remove_directory(disk)
    async with started(disk) as logs:
        assert logs.losses
    async with started(disk, None) as logs:
        assert not logs.losses
    assert not disk.exists("/one/lost-logs")


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
async def test_a_log_that_was_never_made_is_no_loss(
    is_clean: bool, autojump_clock: MockClock
) -> None:
    disk = await formatted_disk("/one")
    async with started(disk, None) as logs:
        if is_clean:
            await logs.shutdown_cleanly(broker_epoch=7)
    async with started(disk) as logs:
        assert not logs.losses


async def test_an_empty_log_that_was_stopped_cleanly_promised_nothing(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    async with started(disk, None) as logs:
        await logs.create(A0, TOPIC_ID, CONFIG)
        await logs.shutdown_cleanly(broker_epoch=7)
    await remove_directory(disk)
    async with started(disk) as logs:
        assert not logs.losses


async def test_a_log_whose_disk_lost_power_before_it_was_durable_is_no_loss(
    autojump_clock: MockClock,
) -> None:
    for seed in range(10):
        disk = await formatted_disk("/one", seed=seed)
        async with started(disk, None) as logs:
            await logs.create(A0, TOPIC_ID, CONFIG)
            await logs.checkpoint_high_watermarks()
            disk.crash()
        async with started(disk) as logs:
            assert not logs.losses


async def test_a_younger_log_is_missed_within_a_second(autojump_clock: MockClock) -> None:
    """The high watermark's own rhythm is five seconds."""
    disk = await formatted_disk("/one")
    async with started(disk, None) as logs:
        log = await logs.create(A0, TOPIC_ID, CONFIG)
        append(log, b"x")
        log.update_high_watermark(Offset(1))
        await trio.sleep(1.5)
    await remove_directory(disk)
    async with started(disk) as logs:
        assert KEY in logs.losses


async def test_records_deleted_on_purpose_are_no_loss(autojump_clock: MockClock) -> None:
    disk = await written_disk(is_clean=True)
    async with started(disk) as logs:
        log = logs.get(A0)
        assert isinstance(log, Log)
        await log.delete_records_before(Offset(300))
        await logs.shutdown_cleanly(broker_epoch=8)
    await remove_directory(disk)
    async with started(disk) as logs:
        assert not logs.losses


async def test_a_follower_that_cut_below_its_checkpoint_lost_nothing(
    autojump_clock: MockClock,
) -> None:
    """An unclean election moved the cluster back; a kill follows before the next checkpoint."""
    disk = await written_disk(is_clean=False)
    async with started(disk) as logs:
        log = logs.get(A0)
        assert isinstance(log, Log)
        await log.truncate_to(Offset(100))
    async with started(disk) as logs:
        assert not logs.losses


async def test_a_log_in_another_directory_is_not_missing(autojump_clock: MockClock) -> None:
    disk = await formatted_disk("/one", "/two")
    paths = ("/one", "/two")
    async with started(disk, None, paths) as logs:
        log = await logs.create(A0, TOPIC_ID, CONFIG, directory_id=UUID(int=501))
        append(log, b"x")
        log.update_high_watermark(Offset(1))
        await logs.shutdown_cleanly(broker_epoch=7)
    async with started(disk, COUNTED_ON, paths) as logs:
        assert not logs.losses


async def test_a_log_in_a_directory_that_was_replaced_is_missing(
    autojump_clock: MockClock,
) -> None:
    disk = await written_disk(is_clean=True)
    await remove_directory(disk)
    async with started(disk, COUNTED_ON._replace(directory_id=UUID(int=999))) as logs:
        assert logs.losses[KEY].kind is LossKind.MISSING
        assert "not one of log.dirs" in logs.losses[KEY].reason


async def test_a_restored_directory_makes_up_for_its_loss(autojump_clock: MockClock) -> None:
    disk = await written_disk(is_clean=True)
    await disk.rename("/one/a-0", "/one/backup")
    async with started(disk) as logs:
        assert KEY in logs.losses
    await disk.rename("/one/backup", "/one/a-0")
    async with started(disk) as logs:
        assert not logs.losses


async def test_a_damaged_file_of_losses_is_reported(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = await written_disk(is_clean=True)
    for data in (b"", b"[]", b'{"version": 1, "losses": []}', b'{"version": 0, "losses": [1]}'):
        await disk.write_atomically("/one/lost-logs", data)
        caplog.clear()
        async with started(disk) as logs:
            assert not logs.losses
        assert "lost-logs is ignored" in caplog.text
