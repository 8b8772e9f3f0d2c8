"""The replicated log on disk: the end offsets that raft may use, and the state after crashes."""

import errno
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.rng import SeededRng
from ottla.jepsen.world.walk.stepping import CrashingDisk, run_through
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY
from ottla.metadata.records import config_record, encode_record
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.model.settings.quorum import QuorumConfig
from ottla.node.clock_driver import RealClock
from ottla.node.quorum.metadata_log import MetadataLog, open_metadata_log, whole_batches_bytes
from ottla.node.quorum.record_batches import batch_of, replay
from ottla.node.quorum.snapshot_file import SnapshotFile
from ottla.raft.effects import (
    FollowerAppend,
    LeaderAppend,
    LeaderChangeAppend,
    SnapshotChunk,
)
from ottla.raft.election_state import ElectionState
from ottla.raft.snapshot import check_whole
from ottla.raft.voters import ReplicaKey, Voter, VoterSet
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log
from tests.search_length import length

VOTERS = VoterSet((Voter(id=NodeId(101)),))
KEY = ReplicaKey(NodeId(101))


async def opened(directory: Path) -> MetadataLog:
    return await open_metadata_log(
        RealDisk(), str(directory), config=QuorumConfig(), clock=RealClock()
    )


def batch(*names: str) -> bytes:
    return batch_of([config_record(2, "otters", name, "x") for name in names], timestamp_ms=1_000)


def lead(log: MetadataLog, epoch: int, *batches: bytes) -> None:
    """Open an epoch and append in it, as a leader does."""
    log.append(
        LeaderChangeAppend(
            leader_epoch=Epoch(epoch),
            leader_id=NodeId(101),
            voters=(KEY,),
            granting_voters=(KEY,),
        )
    )
    for records in batches:
        log.append(LeaderAppend(leader_epoch=Epoch(epoch), records=records))


def snapshot_of(end: OffsetAndEpoch, *names: str) -> bytes:
    file = SnapshotFile(id=end, last_contained_timestamp_ms=1_000, voters=VOTERS)
    return b"".join(file.batches(config_record(2, "otters", name, "x") for name in names))


async def test_an_empty_log_ends_in_epoch_zero(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    assert (log.start_offset, log.end_offset, log.last_epoch) == (0, 0, 0)
    assert log.end_offset_for_epoch(Epoch(3)) == (0, 0)
    await log.close()


async def test_epochs_end_where_the_next_one_begins(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    lead(log, 2, batch("a", "b"))
    lead(log, 5, batch("c"))
    assert log.end_offset_for_epoch(Epoch(1)) == (0, 0)
    assert log.end_offset_for_epoch(Epoch(2)) == (3, 2)
    assert log.end_offset_for_epoch(Epoch(4)) == (3, 2)
    assert log.end_offset_for_epoch(Epoch(5)) == (5, 5)
    assert log.end_offset_for_epoch(Epoch(9)) == (5, 5)
    await log.close()


async def test_only_what_was_flushed_counts_as_flushed(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    lead(log, 1, batch("a"))
    assert log.flushed_offset == 0
    assert await log.flush() == 2
    lead(log, 2)
    assert log.flushed_offset == 2
    await log.close()


async def test_a_read_gives_whole_batches_and_at_least_one(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    lead(log, 1, batch("a"), batch("b"), batch("c"))
    one = await log.read(Offset(1), end_offset=log.end_offset, bytes_max=1)
    two = await log.read(Offset(1), end_offset=log.end_offset, bytes_max=2 * len(one) + 5)
    assert len(two) == 2 * len(one)
    assert whole_batches_bytes(two[:-1]) == len(one)
    assert await log.read(log.end_offset, end_offset=log.end_offset, bytes_max=1_000) == b""
    await log.close()


async def test_a_follower_takes_batches_as_they_are_and_leaves_damaged_ones_out(
    tmp_path: Path,
) -> None:
    leader, follower = await opened(tmp_path / "leader"), await opened(tmp_path / "follower")
    lead(leader, 4, batch("a"))
    data = await leader.read(Offset(0), end_offset=leader.end_offset, bytes_max=10_000)
    damaged = data[:-1] + bytes([data[-1] ^ 1])
    follower.append(FollowerAppend(records=damaged, epoch_max=Epoch(4)))
    assert follower.end_offset == 0
    follower.append(FollowerAppend(records=data, epoch_max=Epoch(4)))
    assert (follower.end_offset, follower.last_epoch) == (2, 4)
    assert await follower.read(Offset(0), end_offset=Offset(2), bytes_max=10_000) == data
    await leader.close()
    await follower.close()


async def test_a_truncated_log_forgets_the_epochs_that_are_gone(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    lead(log, 1, batch("a"))
    lead(log, 3, batch("b"))
    await log.truncate_to(Offset(2))
    assert (log.end_offset, log.last_epoch) == (2, 1)
    assert log.flushed_offset <= 2
    await log.close()


async def test_the_election_state_is_remembered(tmp_path: Path) -> None:
    state = ElectionState(epoch=Epoch(7), leader_id=None, voted=KEY)
    log = await opened(tmp_path)
    assert await log.read_election() is None
    await log.write_election(state)
    await log.close()
    log = await opened(tmp_path)
    assert await log.read_election() == state
    await log.close()


async def test_the_leaders_snapshot_takes_the_place_of_the_log(tmp_path: Path) -> None:
    end = OffsetAndEpoch(Offset(50), Epoch(6))
    data = snapshot_of(end, "a", "b")
    log = await opened(tmp_path)
    lead(log, 1, batch("z"))
    for at in range(0, len(data), 100):
        piece = data[at : at + 100]
        await log.write_chunk(
            SnapshotChunk(snapshot_id=end, position=at, data=piece, is_last=at + 100 >= len(data))
        )
    assert (log.start_offset, log.end_offset, log.last_epoch) == (50, 50, 6)
    assert log.latest_snapshot_id == end
    assert log.voters == VOTERS, "its own next snapshot names them too"
    assert log.snapshot_size_bytes(end) == len(data)
    assert await log.read_snapshot(end, position=10, bytes_max=7) == data[10:17]
    await log.close()
    log = await opened(tmp_path)
    assert (log.start_offset, log.end_offset, log.last_epoch) == (50, 50, 6)
    await log.close()


async def test_a_crash_between_snapshot_and_log_is_finished_at_the_next_start(
    tmp_path: Path,
) -> None:
    log = await opened(tmp_path)
    lead(log, 1, batch("z"))
    await log.close()
    end = OffsetAndEpoch(Offset(50), Epoch(6))
    directory = tmp_path / "__cluster_metadata-0"
    (directory / "00000000000000000050-0000000006.checkpoint").write_bytes(snapshot_of(end, "a"))
    (directory / "00000000000000000070-0000000006.checkpoint.part").write_bytes(b"cut o")
    log = await opened(tmp_path)
    assert (log.start_offset, log.end_offset, log.last_epoch) == (50, 50, 6)
    assert log.latest_snapshot_id == end
    assert not list(directory.glob("*.part"))
    await log.close()


async def test_an_older_snapshot_that_outlived_its_part_of_the_log_is_none_to_go_on_from(
    tmp_path: Path,
) -> None:
    """The leader's snapshot is installed and the log emptied; the crash comes before the rest."""
    end = OffsetAndEpoch(Offset(50), Epoch(6))
    data = snapshot_of(end, "a")
    log = await opened(tmp_path)
    await log.write_chunk(SnapshotChunk(snapshot_id=end, position=0, data=data, is_last=True))
    await log.close()
    old = OffsetAndEpoch(Offset(7), Epoch(1))
    path = tmp_path / "__cluster_metadata-0" / "00000000000000000007-0000000001.checkpoint"
    path.write_bytes(snapshot_of(old, "z"))

    log = await opened(tmp_path)

    assert (log.start_offset, log.earliest_snapshot_id) == (50, end)
    assert not path.exists()
    await log.close()


async def test_a_snapshot_of_many_batches_is_whole_and_says_what_went_in() -> None:
    end = OffsetAndEpoch(Offset(9), Epoch(2))
    names = [f"key.{number}.{'x' * 1_000}" for number in range(3_000)]
    data = snapshot_of(end, *names)
    check_whole(data)
    delta = MetadataDelta(EMPTY)
    assert replay(delta, data) is not None
    assert set(delta.image.config(2, "otters")) == set(names)


@pytest.mark.parametrize(("retention_bytes", "kept"), [(-1, [2, 4, 6]), (0, [6])])
async def test_the_log_below_the_oldest_snapshot_kept_goes_with_the_others(
    tmp_path: Path, retention_bytes: int, kept: list[int]
) -> None:
    config = QuorumConfig(retention_bytes_max=retention_bytes, retention_ms_max=-1)
    log = await open_metadata_log(RealDisk(), str(tmp_path), config=config, clock=RealClock())
    for epoch in (1, 2, 3):
        lead(log, epoch, batch("a"))
        log.note_high_watermark(log.end_offset)
        end = OffsetAndEpoch(log.end_offset, Epoch(epoch))
        await log.write_snapshot(end, [snapshot_of(end, "a")])
    names = sorted(path.name for path in (tmp_path / "__cluster_metadata-0").glob("*.checkpoint"))
    assert [int(name.split("-")[0]) for name in names] == kept
    assert log.start_offset == kept[0]
    assert log.end_offset_for_epoch(Epoch(0)) == (kept[0], kept[0] // 2)
    await log.close()
    log = await open_metadata_log(RealDisk(), str(tmp_path), config=config, clock=RealClock())
    assert (log.end_offset, log.last_epoch) == (6, 3)
    await log.close()


async def test_a_file_that_only_looks_like_a_snapshot_is_named(tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    (directory / "00000000000000000050-0000000006.checkpoint").write_bytes(b"otter")
    with pytest.raises(CorruptDataError, match=r"0050-0000000006.checkpoint is no snapshot"):
        await opened(tmp_path)


async def test_a_flipped_bit_below_the_high_watermark_is_never_applied(tmp_path: Path) -> None:
    data = bytearray(batch("a"))
    data[-1] ^= 1
    with pytest.raises(CorruptDataError):
        replay(MetadataDelta(EMPTY), bytes(data))


async def test_records_too_many_for_one_batch_are_refused() -> None:
    huge = config_record(2, "otters", "a", "x" * (9 << 20))
    assert len(encode_record(huge)) > 8 << 20
    with pytest.raises(RefusedError) as caught:
        batch_of([huge], timestamp_ms=0)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


async def test_a_full_disk_ends_the_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await opened(tmp_path)

    def refuse(*_arguments: object, **_named: object) -> None:
        raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")

    monkeypatch.setattr(Log, "append_as_leader", refuse)
    with pytest.raises(OSError, match="no space left") as caught:
        lead(log, 1)
    assert caught.value.errno == errno.EIO
    await trio.lowlevel.checkpoint()
    log.abandon()


@pytest.mark.parametrize("seed", range(length(20, 60)))
async def test_a_segment_rolled_right_at_the_latest_snapshot_is_checked_by_the_next_start(
    seed: int,
) -> None:
    disk = SimulatedDisk(SeededRng(seed))
    await disk.makedirs("/meta/__cluster_metadata-0")
    disk.flush_everything()
    config = QuorumConfig(segment_bytes=64 << 10, retention_ms_max=-1)
    log = await open_metadata_log(disk, "/meta", config=config, clock=RealClock())
    segments = log._log.state.segments
    lead(log, 1)
    while len(segments) == 1:
        log.note_high_watermark(await log.flush())
        end = OffsetAndEpoch(log.end_offset, log.last_epoch)
        await log.write_snapshot(end, [snapshot_of(end, "a")])
        log.append(LeaderAppend(leader_epoch=Epoch(1), records=batch(*["x" * 200] * 30)))
    await disk.fsync(segments[1].file)
    await disk.fsync_directory(log.directory)
    assert segments[1].base_offset == end.offset
    places = [segments[0].offset_index.entry_at(at) for at in range(segments[0].offset_index.count)]

    log.abandon()
    disk.crash()
    again = await open_metadata_log(disk, "/meta", config=config, clock=RealClock())

    index = again._log.state.segments[0].offset_index
    assert [index.entry_at(at) for at in range(index.count)] == places
    again.abandon()


@pytest.mark.parametrize("steps", range(1, 6))
def test_of_two_that_write_the_same_snapshot_none_tears_what_the_other_has_finished(
    steps: int,
) -> None:
    disk = CrashingDisk(SeededRng(0))
    run_through(disk.makedirs("/meta/__cluster_metadata-0"))
    opening = open_metadata_log(disk, "/meta", config=QuorumConfig(), clock=RealClock())
    log: MetadataLog = run_through(opening)
    lead(log, 1, batch("a"))
    log.note_high_watermark(run_through(log.flush()))
    end = OffsetAndEpoch(log.end_offset, log.last_epoch)
    file = SnapshotFile(id=end, last_contained_timestamp_ms=1_000, voters=VOTERS)
    batches = list(file.batches([config_record(2, "otters", "a", "x")]))
    first, second = log.write_snapshot(end, batches), log.write_snapshot(end, batches)

    for _ in range(steps):
        first.send(None)
    with suppress(StopIteration):
        second.send(None)
    run_through(first)

    assert run_through(log.read_whole_snapshot(end)) == b"".join(batches)
    second.close()
