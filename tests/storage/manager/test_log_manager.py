"""Many logs in several directories: found, made, deleted, checkpointed, and failing apart."""

import errno
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.rng import SeededRng
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset, TopicPartition
from ottla.model.settings.broker import BrokerConfig
from ottla.storage.directories.checkpoint_file import parse_checkpoint
from ottla.storage.directories.meta_properties import MetaProperties, format_meta_properties
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log
from ottla.storage.manager import log_recovery_driver
from ottla.storage.manager.log_manager_driver import LogManager, open_log_manager
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch

A0 = TopicPartition("a", 0)
A1 = TopicPartition("a", 1)
TOPIC_ID = UUID(int=1000)
CONFIG = LogConfig()
DIRECTORIES = ("/one", "/two")


class TrioClock:
    """Time is trio's, so that tests with a MockClock never wait."""

    def monotonic_ms(self) -> int:
        return int(trio.current_time() * 1_000)

    wall_ms = monotonic_ms


async def formatted_disk(*paths: str, seed: int = 0) -> SimulatedDisk:
    disk = SimulatedDisk(SeededRng(seed), pause=trio.lowlevel.checkpoint)
    for index, path in enumerate(paths or DIRECTORIES):
        await disk.makedirs(path)
        identity = MetaProperties(
            cluster_id="c", node_id=NodeId(1), directory_id=UUID(int=500 + index)
        )
        await disk.write_atomically(f"{path}/meta.properties", format_meta_properties(identity))
    disk.flush_everything()
    return disk


@asynccontextmanager
async def recovered(
    disk: SimulatedDisk, *paths: str, node_id: int = 1
) -> AsyncIterator[LogManager]:
    config = BrokerConfig(node_id=NodeId(node_id), log_dirs=paths or DIRECTORIES)
    async with open_log_manager(disk, config, TrioClock(), SeededRng(5)) as logs:
        await logs.recover(lambda partition: CONFIG)
        yield logs


def append(log: Log, *values: bytes) -> None:
    batch = build_batch([(1_000, None, value) for value in values])
    log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=Epoch(0), now_ms=1_000)


# ---- whose directory it is


async def test_a_second_process_is_refused_in_one_sentence(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); "
            "print(flush=True); sys.stdin.read()",
            str(tmp_path / ".lock"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    config = BrokerConfig(node_id=NodeId(1), log_dirs=(str(tmp_path),))
    with pytest.raises(ConfigError) as caught:
        async with open_log_manager(RealDisk(), config, TrioClock(), SeededRng(0)):
            pass
    holder.communicate()
    assert str(caught.value) == (
        f"log.dirs: {tmp_path} is in use by another process; stop it or choose another directory"
    )


async def test_the_lock_is_given_up_at_the_end(tmp_path: Path) -> None:
    identity = MetaProperties(cluster_id="c", node_id=NodeId(1), directory_id=UUID(int=500))
    (tmp_path / "meta.properties").write_bytes(format_meta_properties(identity))
    config = BrokerConfig(node_id=NodeId(1), log_dirs=(str(tmp_path),))
    for _ in range(2):
        async with open_log_manager(RealDisk(), config, TrioClock(), SeededRng(0)) as logs:
            assert logs.directories[0].directory_id == UUID(int=500)


@pytest.mark.parametrize(
    ("node_id", "cluster_id", "sentence"),
    [
        (2, "c", "node.id: is 2, but /one belongs to node 1"),
        (1, "d", "log.dirs: /one belongs to cluster c, not to d"),
    ],
)
async def test_a_directory_of_another_node_or_cluster_is_refused(
    node_id: int, cluster_id: str, sentence: str
) -> None:
    config = BrokerConfig(node_id=NodeId(node_id), log_dirs=DIRECTORIES)
    with pytest.raises(ConfigError) as caught:
        async with open_log_manager(
            await formatted_disk(), config, TrioClock(), SeededRng(0), cluster_id=cluster_id
        ):
            pass
    assert str(caught.value) == sentence


async def test_an_added_directory_is_formatted_like_the_others() -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one", "/new") as logs:
        identity = logs.directories[1].identity
    assert identity is not None
    assert identity.cluster_id == "c"
    assert identity.directory_id not in (None, UUID(int=500))
    assert disk.exists("/new/meta.properties")


async def test_nothing_formatted_is_refused() -> None:
    disk = SimulatedDisk(SeededRng(0))
    with pytest.raises(ConfigError, match="no directory is formatted"):
        async with recovered(disk, "/one"):
            pass


# ---- stopping and starting


async def test_a_clean_stop_tells_its_epoch_and_keeps_every_record(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        log = await logs.create(A0, TOPIC_ID, CONFIG)
        append(log, b"x", b"y")
        log.update_high_watermark(Offset(1))
        await logs.shutdown_cleanly(broker_epoch=42)
    disk.crash()
    async with recovered(disk) as logs:
        assert logs.previous_broker_epoch == 42
        assert not disk.exists("/one/.kafka_cleanshutdown")
        log = found(logs, A0)
        assert (log.topic_id, log.end_offset, log.high_watermark) == (TOPIC_ID, 2, 1)


async def test_without_a_clean_stop_there_is_no_epoch_and_what_was_flushed_is_recovered(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        log = await logs.create(A0, TOPIC_ID, CONFIG)
        append(log, b"x", b"y")
        await log.flush()
        append(log, b"z")
    disk.crash()
    async with recovered(disk) as logs:
        assert logs.previous_broker_epoch == -1
        assert found(logs, A0).end_offset in (2, 3)


async def test_a_crash_while_loading_counts_as_unclean(autojump_clock: MockClock) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        await logs.create(A0, TOPIC_ID, CONFIG)
        await logs.shutdown_cleanly(broker_epoch=42)
    async with recovered(disk):
        disk.crash()
    async with recovered(disk) as logs:
        assert logs.previous_broker_epoch == -1


async def test_the_marker_of_a_clean_stop_never_comes_back(autojump_clock: MockClock) -> None:
    """A start was killed between its removal and the flush of that."""
    for seed in range(20):
        disk = await formatted_disk("/one", seed=seed)
        async with recovered(disk, "/one") as logs:
            log = await logs.create(A0, TOPIC_ID, CONFIG)
            append(log, b"flushed")
            await log.roll(now_ms=1_000)
            await logs.shutdown_cleanly(broker_epoch=7)
        await disk.unlink("/one/.kafka_cleanshutdown")
        disk.kill()
        async with recovered(disk, "/one") as logs:
            append(found(logs, A0), b"not flushed")
            disk.crash()
        assert not disk.exists("/one/.kafka_cleanshutdown")


async def test_a_log_that_could_not_be_opened_is_not_trusted_by_the_next_start(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        append(await logs.create(A0, TOPIC_ID, CONFIG), b"x")
        append(await logs.create(A1, TOPIC_ID, CONFIG), b"y")
        directory = logs.directory_of(A0)
        assert directory is not None
    sound = await disk.read_file(f"{directory.path}/{A0}/partition.metadata")
    await disk.write_atomically(f"{directory.path}/{A0}/partition.metadata", b"damaged")
    async with recovered(disk) as logs:
        await logs.shutdown_cleanly(broker_epoch=42)
    assert not disk.exists(f"{directory.path}/.kafka_cleanshutdown")
    await disk.write_atomically(f"{directory.path}/{A0}/partition.metadata", sound)
    async with recovered(disk) as logs:
        assert found(logs, A0).end_offset == 1
        assert not directory.was_clean


@pytest.mark.parametrize("damage", [b"", b"version: 0", b"damaged"])
async def test_a_log_without_its_topic_id_gets_it_back_from_the_checkpoints(
    damage: bytes, autojump_clock: MockClock
) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        log = await logs.create(A0, TOPIC_ID, CONFIG)
        append(log, b"x")
        append(log, b"y")
        log.update_high_watermark(Offset(2))
        await log.delete_records_before(Offset(1))
        await logs.shutdown_cleanly(broker_epoch=41)
        path = f"{log.directory}/partition.metadata"
    sound = await disk.read_file(path)
    await disk.write_atomically(path, damage)
    async with recovered(disk) as logs:
        log = found(logs, A0)
        assert (log.topic_id, log.log_start_offset, log.end_offset) == (TOPIC_ID, 1, 2)
        assert not logs.losses
    assert await disk.read_file(path) == sound


async def test_leaving_before_recovery_keeps_the_clean_marker() -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        await logs.shutdown_cleanly(broker_epoch=42)
    config = BrokerConfig(node_id=NodeId(1), log_dirs=DIRECTORIES)
    for _ in range(2):
        async with open_log_manager(disk, config, TrioClock(), SeededRng(5)) as logs:
            assert logs.previous_broker_epoch == 42
            await logs.shutdown_cleanly(broker_epoch=43)


async def test_each_recovery_thread_tells_the_segments_of_its_log(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """remainingSegmentsToRecover has the tag threadNum, as in Kafka."""
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        for index in range(4):
            log = await logs.create(TopicPartition("a", index), TOPIC_ID, CONFIG)
            for _ in range(3):
                append(log, b"x" * 10_000)
                await log.roll(now_ms=0)
            await log.flush()
    monkeypatch.setattr(log_recovery_driver, "CHECKED_BYTES_MIN", 0)
    config = BrokerConfig(node_id=NodeId(1), log_dirs=DIRECTORIES, recovery_threads_per_dir=2)
    seen: set[tuple[int, ...]] = set()
    async with open_log_manager(disk, config, TrioClock(), SeededRng(5)) as logs:

        async def look() -> None:
            seen.add(tuple(logs.directories[0].progress.segment_counts_by_thread))
            await trio.lowlevel.checkpoint()

        disk._pause = look
        await logs.recover(lambda partition: CONFIG)
        for directory in logs.directories:
            assert directory.progress.segment_counts_by_thread == [0, 0]
    assert max(counts[0] for counts in seen if counts) > 0
    assert max(counts[1] for counts in seen if counts) > 0


async def test_recovery_tells_how_far_it_is(autojump_clock: MockClock) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        for index in range(4):
            log = await logs.create(TopicPartition("a", index), TOPIC_ID, CONFIG)
            append(log, b"x" * 10_000)
            await log.flush()
    seen: list[tuple[int, int, int]] = []
    config = BrokerConfig(node_id=NodeId(1), log_dirs=DIRECTORIES, recovery_threads_per_dir=1)
    async with open_log_manager(disk, config, TrioClock(), SeededRng(5)) as logs:

        async def look() -> None:
            progress = logs.directories[0].progress
            counts = progress.remaining_log_count, progress.remaining_segment_count
            seen.append((*counts, progress.bytes_done))
            await trio.lowlevel.checkpoint()

        disk._pause = look
        await logs.recover(lambda partition: CONFIG)
        for directory in logs.directories:
            progress = directory.progress
            assert progress.remaining_log_count == progress.remaining_segment_count == 0
            assert progress.bytes_done == progress.bytes_total > 20_000
    assert {segments for _, segments, _ in seen} == {0, 1, 2}
    assert any(logs == 2 and 0 < done < progress.bytes_total for logs, _, done in seen)
    assert [done for _, _, done in seen] == sorted(done for _, _, done in seen)


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "meta.properties.tmp"])
async def test_a_corrupt_checkpoint_only_costs_work(name: str, autojump_clock: MockClock) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        log = await logs.create(A0, TOPIC_ID, CONFIG)
        append(log, b"x")
        await log.flush()
    await disk.write_atomically(f"/one/{name}", b"\0\0\0\0")
    async with recovered(disk) as logs:
        assert found(logs, A0).end_offset == 1


async def test_the_metadata_log_is_left_to_the_quorum(autojump_clock: MockClock) -> None:
    disk = await formatted_disk()
    await disk.makedirs("/one/__cluster_metadata-0")
    async with recovered(disk) as logs:
        assert len(logs) == 0
    assert await disk.listdir("/one/__cluster_metadata-0") == []


async def test_a_log_the_cluster_no_longer_places_here_is_set_aside(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        await logs.create(A0, TOPIC_ID, CONFIG)
        await logs.create(A1, TOPIC_ID, CONFIG)
        await logs.shutdown_cleanly(broker_epoch=1)
    config = BrokerConfig(node_id=NodeId(1), log_dirs=("/one",))
    async with open_log_manager(disk, config, TrioClock(), SeededRng(5)) as logs:
        await logs.recover(
            lambda partition: CONFIG,
            lambda partition, topic_id: (partition, topic_id) == (A0, TOPIC_ID),
        )
        assert [partition for partition, _ in logs] == [A1]
    names = await disk.listdir("/one")
    assert "a-0" not in names
    assert any(name.startswith("a-0.") and name.endswith("-stray") for name in names)


async def test_one_partition_in_two_directories_is_refused(autojump_clock: MockClock) -> None:
    disk = await formatted_disk()
    for path in DIRECTORIES:
        async with recovered(disk, path) as logs:
            await logs.create(A0, TOPIC_ID, CONFIG)
            await logs.shutdown_cleanly(broker_epoch=1)
    with pytest.RaisesGroup(
        pytest.RaisesExc(ConfigError, match="a-0 has logs in both"), flatten_subgroups=True
    ):
        async with recovered(disk):
            pass


async def test_an_older_log_in_a_second_directory_is_said_and_removed(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = await formatted_disk()
    for path, count in (("/one", 1), ("/two", 2)):
        async with recovered(disk, path) as logs:
            log = await logs.create(A0, TOPIC_ID, CONFIG)
            for index in range(count):
                append(log, b"%d" % index)
            await logs.shutdown_cleanly(broker_epoch=1)
    async with recovered(disk) as logs:
        assert found(logs, A0).end_offset == 2
        assert not disk.exists("/one/a-0")
    errors = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert len(errors) == 1
    assert "a-0 has logs in both /one and /two" in errors[0]
    assert "the log in /two is the later one" in errors[0]


# ---- making and deleting


async def test_partitions_go_where_the_fewest_are(autojump_clock: MockClock) -> None:
    async with recovered(await formatted_disk()) as logs:
        for index in range(4):
            await logs.create(TopicPartition("a", index), TOPIC_ID, CONFIG)
        paths = [
            directory.path
            for index in range(4)
            if (directory := logs.directory_of(TopicPartition("a", index)))
        ]
        assert sorted(paths) == ["/one", "/one", "/two", "/two"]
        wanted = TopicPartition("b", 0)
        await logs.create(wanted, TOPIC_ID, CONFIG, directory_id=UUID(int=501))
        directory = logs.directory_of(wanted)
        assert directory is not None
        assert directory.path == "/two"


async def test_a_cordoned_directory_takes_a_log_only_where_no_other_one_can(
    autojump_clock: MockClock,
) -> None:
    async with recovered(await formatted_disk()) as logs:

        async def place_of(index: int, directory_id: UUID | None = None) -> str:
            at = TopicPartition("a", index)
            await logs.create(at, TOPIC_ID, CONFIG, directory_id=directory_id)
            directory = logs.directory_of(at)
            assert directory is not None
            return directory.path

        one, two = logs.directories
        one.is_cordoned = True
        assert [await place_of(index) for index in range(3)] == ["/two"] * 3
        assert one.directory_id is not None
        assert await place_of(3, one.directory_id) == "/one", "where the cluster knows it"
        two.is_cordoned = True
        assert await place_of(4) == "/one", "the one with fewer logs, as ever"


async def test_a_full_directory_takes_a_new_log_only_where_none_has_room(
    autojump_clock: MockClock,
) -> None:
    async with recovered(await formatted_disk()) as logs:
        one, two = logs.directories
        one.free_space.note_refused()
        for index in range(3):
            at = TopicPartition("a", index)
            await logs.create(at, TOPIC_ID, CONFIG)
            assert logs.directory_of(at) is two
        two.free_space.note_refused()
        await logs.create(TopicPartition("b", 0), TOPIC_ID, CONFIG)
        assert logs.directory_of(TopicPartition("b", 0)) is one, "the one with fewer logs"


async def test_creating_twice_gives_the_same_log_and_never_another_topics(
    autojump_clock: MockClock,
) -> None:
    async with recovered(await formatted_disk()) as logs:
        log = await logs.create(A0, TOPIC_ID, CONFIG)
        assert await logs.create(A0, TOPIC_ID, CONFIG) is log
        with pytest.raises(RefusedError) as caught:
            await logs.create(A0, UUID(int=2000), CONFIG)
        assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


async def test_a_created_partition_survives_a_crash_with_its_topic_id(
    autojump_clock: MockClock,
) -> None:
    for seed in range(10):
        disk = await formatted_disk(seed=seed)
        async with recovered(disk) as logs:
            await logs.create(A0, TOPIC_ID, CONFIG)
            await trio.sleep(1)
        disk.crash()
        async with recovered(disk) as logs:
            assert found(logs, A0).topic_id == TOPIC_ID


async def test_a_deleted_partition_frees_its_name_at_once_and_its_space_later(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        append(await logs.create(A0, TOPIC_ID, CONFIG), b"old")
        await logs.delete(A0)
        assert logs.get(A0) is None
        assert len([name for name in await disk.listdir("/one") if name.endswith("-delete")]) == 1
        assert (await logs.create(A0, UUID(int=2000), CONFIG)).end_offset == 0
        await trio.sleep(61)
        assert not [name for name in await disk.listdir("/one") if name.endswith("-delete")]
        await logs.delete(A1)  # one that is not here is fine


async def test_a_deletion_makes_room_on_a_full_disk(autojump_clock: MockClock) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        append(await logs.create(A0, TOPIC_ID, CONFIG), b"x" * 1_000)
        disk.capacity_bytes = disk.used_bytes
        await logs.delete(A0)
        await trio.sleep(61)
        assert disk.used_bytes < disk.capacity_bytes - 1_000


async def test_a_deletion_cut_by_a_crash_goes_on_at_the_next_start(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        await logs.create(A0, TOPIC_ID, CONFIG)
        await logs.delete(A0)
    disk.crash()
    async with recovered(disk, "/one") as logs:
        assert logs.get(A0) is None
        await trio.sleep(1)
        assert not [name for name in await disk.listdir("/one") if name.endswith("-delete")]


# ---- failing


async def test_a_directory_that_fails_takes_only_its_own_logs(autojump_clock: MockClock) -> None:
    disk = await formatted_disk()
    async with recovered(disk) as logs:
        await logs.create(A0, TOPIC_ID, CONFIG)
        await logs.create(A1, TOPIC_ID, CONFIG)
        failed: list[str] = []
        logs.on_directory_failed = lambda directory: failed.append(directory.path)
        disk.fail(DiskOperation.FSYNC, errno.EIO, path_part="/one/", times=1_000)
        await trio.sleep(120)
        assert failed == ["/one"]
        with pytest.raises(RefusedError) as caught:
            logs.get(A0)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert found(logs, A1).failure is None
        created = await logs.create(TopicPartition("b", 0), TOPIC_ID, CONFIG)
        assert created.directory == "/two/b-0"


async def test_a_full_disk_takes_nothing_offline_and_checkpoints_go_on_once_it_has_room(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        log = await logs.create(A0, TOPIC_ID, CONFIG)
        append(log, b"x")
        log.update_high_watermark(Offset(1))
        disk.capacity_bytes = disk.used_bytes
        with pytest.raises(RefusedError) as caught:
            await logs.create(A1, TOPIC_ID, CONFIG)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        await trio.sleep(120)
        assert logs.directories[0].is_live
        await logs.delete(A1)  # what was begun of it
        disk.heal()
        await trio.sleep(10)
        data = await disk.read_file("/one/replication-offset-checkpoint")
        assert parse_checkpoint(data) == {A0: 1}
        assert (await logs.create(A1, TOPIC_ID, CONFIG)).topic_id == TOPIC_ID


async def test_the_last_directory_takes_the_broker_along(autojump_clock: MockClock) -> None:
    disk = await formatted_disk("/one")
    with pytest.RaisesGroup(
        pytest.RaisesExc(OSError, match="every log directory failed"), flatten_subgroups=True
    ):
        async with recovered(disk, "/one") as logs:
            logs.fail_directory(logs.directories[0], "asked for")
            await trio.sleep_forever()


async def test_a_directory_that_cannot_be_read_at_the_start_is_left_out(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk()
    disk.fail(DiskOperation.READ, errno.EIO, path_part="/one/meta.properties", times=1_000)
    async with recovered(disk) as logs:
        assert [directory.is_live for directory in logs.directories] == [False, True]
    with pytest.raises(ConfigError, match="no directory can be used"):
        async with recovered(disk, "/one"):
            pass


def found(logs: LogManager, partition: TopicPartition) -> Log:
    log = logs.get(partition)
    assert log is not None
    return log
