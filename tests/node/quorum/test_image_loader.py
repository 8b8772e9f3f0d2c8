"""Images from snapshots and batches, whatever happens to the files during the load."""

from pathlib import Path

import pytest
import trio

from ottla.metadata.image import EMPTY
from ottla.metadata.records import config_record, feature_level_record
from ottla.model.errors import NewerReleaseError
from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.model.settings.quorum import QuorumConfig
from ottla.node.clock_driver import RealClock
from ottla.node.quorum.image_loader_driver import ImageLoader
from ottla.node.quorum.metadata_log import MetadataLog, open_metadata_log
from ottla.node.quorum.snapshot_file import SnapshotFile
from ottla.raft.effects import SnapshotChunk
from ottla.raft.voters import Voter, VoterSet
from ottla.storage.disk.real_disk_driver import RealDisk

OLD = OffsetAndEpoch(Offset(50), Epoch(5))
NEW = OffsetAndEpoch(Offset(90), Epoch(6))


class SlowDisk(RealDisk):
    """A disk on which the reading of one snapshot waits."""

    def __init__(self) -> None:
        super().__init__()
        self.slow_name = ""
        self.is_reading = trio.Event()
        self.may_read = trio.Event()

    async def read_file(self, path: str) -> bytes:
        if self.slow_name and self.slow_name in path:
            self.is_reading.set()
            await self.may_read.wait()
        return await super().read_file(path)


async def install(log: MetadataLog, end: OffsetAndEpoch, *names: str) -> None:
    voters = VoterSet((Voter(id=NodeId(101)),))
    file = SnapshotFile(id=end, last_contained_timestamp_ms=1_000, voters=voters)
    data = b"".join(file.batches(config_record(2, "otters", name, "x") for name in names))
    await log.write_chunk(SnapshotChunk(snapshot_id=end, position=0, data=data, is_last=True))


async def test_a_snapshot_that_a_newer_one_replaces_while_it_is_read_is_no_loss(
    tmp_path: Path,
) -> None:
    disk = SlowDisk()
    log = await open_metadata_log(disk, str(tmp_path), config=QuorumConfig(), clock=RealClock())
    await install(log, OLD, "a")
    disk.slow_name = "0050-"
    loader = ImageLoader(log)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(loader.load_latest_snapshot)
        await disk.is_reading.wait()
        await install(log, NEW, "a", "b")
        disk.may_read.set()
    assert loader.applied_end_offset == NEW.offset
    assert dict(loader.image.config(2, "otters").items()) == {"a": "x", "b": "x"}
    await log.close()


async def test_a_snapshot_of_a_newer_release_is_named_as_such(tmp_path: Path) -> None:
    """Its further records could mean something else."""
    log = await open_metadata_log(
        RealDisk(), str(tmp_path), config=QuorumConfig(), clock=RealClock()
    )
    file = SnapshotFile(id=OLD, last_contained_timestamp_ms=1_000, voters=None)
    data = b"".join(file.batches([feature_level_record("ottla.version", 99)]))
    await log.write_chunk(SnapshotChunk(snapshot_id=OLD, position=0, data=data, is_last=True))
    loader = ImageLoader(log)
    with pytest.raises(NewerReleaseError, match=r"level 99 of ottla\.version"):
        await loader.load_latest_snapshot()
    assert loader.image == EMPTY
    await log.close()


async def test_the_only_snapshot_that_is_missing_is_an_error(tmp_path: Path) -> None:
    log = await open_metadata_log(
        RealDisk(), str(tmp_path), config=QuorumConfig(), clock=RealClock()
    )
    await install(log, OLD, "a")
    for path in tmp_path.rglob("*.checkpoint"):
        path.unlink()
    with pytest.raises(FileNotFoundError):
        await ImageLoader(log).load_latest_snapshot()
    await log.close()
