"""Damaged snapshots of a voter: replaced from its other files, fetched again, or refused."""

import logging
from pathlib import Path

import pytest

from ottla.jepsen.quorum.world import identity, voter
from ottla.model.errors import ConfigError
from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.model.settings.endpoints import ConfiguredVoter
from ottla.model.settings.quorum import QuorumConfig
from ottla.node.clock_driver import RealClock, RealRng
from ottla.node.identity import (
    prepare_controller_directory,
    quorum_identity,
    read_meta_properties,
)
from ottla.node.quorum.metadata_log import MetadataLog
from ottla.node.quorum.snapshot_file import SnapshotFile
from ottla.node.quorum_files.accepted_loss import accept_loss
from ottla.node.quorum_files.member_files import open_files
from ottla.raft.effects import LeaderAppend, SnapshotChunk
from ottla.raft.election_state import QUORUM_STATE_FILE, ElectionState, encode
from ottla.raft.snapshot import BOOTSTRAP_ID, file_name
from ottla.raft.transitions import Standing
from ottla.raft.voter_checkpoint import VOTER_CHECKPOINT_FILE
from ottla.raft.voters import VoterSet
from ottla.storage.directories.meta_properties import MetaProperties
from ottla.storage.disk.real_disk_driver import RealDisk
from tests.node.quorum_files.test_voter_opening import (
    DAMAGES,
    ENTRIES,
    VOTED,
    batch,
    config,
    files_of,
    opened,
    used,
)

THREE = (1, 2, 3)
ALONE = (1,)
OWN = OffsetAndEpoch(Offset(ENTRIES), Epoch(2))
FETCHED = OffsetAndEpoch(Offset(40), Epoch(2))
LATER_ENTRIES = 3


def snapshot_of(snapshot_id: OffsetAndEpoch) -> bytes:
    voters = VoterSet(tuple(voter(each) for each in THREE))
    file = SnapshotFile(id=snapshot_id, last_contained_timestamp_ms=1, voters=voters)
    return b"".join(file.batches(()))


def cut_footer(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


async def start(
    root: Path, voter_ids: tuple[int, ...] = THREE
) -> tuple[MetadataLog, ElectionState | None]:
    return await open_files(
        RealDisk(), str(root), identity(1, voter_ids), config=QuorumConfig(), clock=RealClock()
    )


async def with_own_snapshot(root: Path, voter_ids: tuple[int, ...] = THREE) -> Path:
    """Return the snapshot that a voter wrote, its log from 0 on beside it."""
    await used(root, voter_ids=voter_ids)
    log, _ = await opened(root, voter_ids=voter_ids)
    log.note_high_watermark(OWN.offset)
    await log.write_snapshot(OWN, [snapshot_of(OWN)])
    await log.close()
    return files_of(root) / file_name(OWN)


async def with_fetched_snapshot(root: Path, voter_ids: tuple[int, ...] = THREE) -> Path:
    """Return a snapshot that took the log's place; three entries follow it."""
    await used(root, voter_ids=voter_ids)
    log, _ = await opened(root, voter_ids=voter_ids)
    chunk = SnapshotChunk(snapshot_id=FETCHED, position=0, data=snapshot_of(FETCHED), is_last=True)
    assert not await log.write_chunk(chunk)
    for at in range(LATER_ENTRIES):
        log.append(LeaderAppend(leader_epoch=Epoch(2), records=batch(f"later {at}")))
    await log.flush()
    await log.close()
    return files_of(root) / file_name(FETCHED)


@pytest.mark.parametrize("voter_ids", [THREE, ALONE])
@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_log_and_an_older_snapshot_stand_for_a_damaged_one(
    tmp_path: Path, damage: str, voter_ids: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    path = await with_own_snapshot(tmp_path, voter_ids)
    DAMAGES[damage](path)

    for _start in range(2):
        log, election = await start(tmp_path, voter_ids)
        assert election == VOTED, "it votes"
        assert (log.end_offset, log.latest_snapshot_id) == (ENTRIES, BOOTSTRAP_ID)
        await log.close()

    warnings = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert len(warnings) == (damage != "removed"), "once, where there is anything to name"
    assert all(path.name in one.getMessage() for one in warnings)


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_voter_with_peers_that_lost_its_snapshot_catches_up_from_nothing(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    DAMAGES[damage](await with_fetched_snapshot(tmp_path))

    for _start in range(2):
        log, election = await start(tmp_path)
        assert election is not None
        assert (election.standing, election.voted) == (Standing.CATCHING_UP, VOTED.voted)
        assert log.end_offset == 0
        await log.close()

    errors = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert any("neither votes nor may lead" in text for text in errors)


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_snapshot_in_a_directory_of_an_earlier_version_is_a_loss(
    tmp_path: Path, damage: str
) -> None:
    DAMAGES[damage](await with_fetched_snapshot(tmp_path))
    (files_of(tmp_path) / QUORUM_STATE_FILE).write_bytes(encode(VOTED))
    (files_of(tmp_path) / VOTER_CHECKPOINT_FILE).unlink()

    log, election = await start(tmp_path)
    await log.close()

    assert election is not None
    assert election.standing is Standing.CATCHING_UP, "nothing but the snapshot shows it"


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_lone_voter_without_its_snapshot_keeps_its_files_until_the_operator_decides(
    tmp_path: Path, damage: str
) -> None:
    path = await with_fetched_snapshot(tmp_path, ALONE)
    whole = path.read_bytes()
    DAMAGES[damage](path)
    before = {one.name: one.read_bytes() for one in files_of(tmp_path).iterdir()}

    for _start in range(2):
        with pytest.raises(ConfigError, match="ottla storage accept-loss"):
            await start(tmp_path, ALONE)
    shown = await accept_loss(RealDisk(), config(tmp_path), RealClock(), is_decided=False)
    assert {one.name: one.read_bytes() for one in files_of(tmp_path).iterdir()} == before

    path.write_bytes(whole)
    log, election = await start(tmp_path, ALONE)
    assert election == VOTED, "put back, nothing is lost"
    assert log.end_offset == FETCHED.offset + LATER_ENTRIES
    await log.close()

    DAMAGES[damage](path)
    decided = await accept_loss(RealDisk(), config(tmp_path), RealClock(), is_decided=True)
    assert shown.damages == decided.damages
    log, election = await start(tmp_path, ALONE)
    assert election == VOTED
    assert log.end_offset == 0
    await log.close()


async def test_older_snapshots_whose_header_is_damaged_are_removed(tmp_path: Path) -> None:
    newest = await with_own_snapshot(tmp_path)
    (files_of(tmp_path) / file_name(BOOTSTRAP_ID)).write_bytes(b"")

    log, election = await start(tmp_path)

    assert election == VOTED
    assert (log.earliest_snapshot_id, newest.exists()) == (OWN, True)
    await log.close()


@pytest.mark.parametrize("damage", DAMAGES)
async def test_the_newest_whole_snapshot_names_the_voters(tmp_path: Path, damage: str) -> None:
    DAMAGES[damage](await with_own_snapshot(tmp_path))
    properties = await read_meta_properties(RealDisk(), str(tmp_path))
    assert properties is not None

    found = await quorum_identity(RealDisk(), str(tmp_path), properties, ())

    assert [one.id for one in found.voters] == [NodeId(each) for each in THREE]
    assert found.voters.is_voter(found.key)


@pytest.mark.parametrize("has_mark", [True, False])
@pytest.mark.parametrize("damage", [*DAMAGES, "footer lost"])
async def test_a_directory_that_was_formatted_with_voters_starts_without_their_snapshot(
    tmp_path: Path, damage: str, has_mark: bool
) -> None:
    {**DAMAGES, "footer lost": cut_footer}[damage](await with_fetched_snapshot(tmp_path))
    path = tmp_path / "meta.properties"
    if not has_mark:
        path.write_text(path.read_text().replace("voter.checkpoint=true", ""))

    async def prepared() -> MetaProperties:
        return await prepare_controller_directory(
            RealDisk(), config(tmp_path), RealRng(), wall_ms=1
        )

    names_voters = damage == "footer lost"
    if not has_mark and not names_voters:
        with pytest.raises(ConfigError, match="lost the snapshot that names the voters"):
            await prepared()
        return
    found = await quorum_identity(
        RealDisk(), str(tmp_path), await prepared(), (ConfiguredVoter(NodeId(1), "host", 1),)
    )
    assert found.is_voter
    assert len(found.voters) == (3 if names_voters else 1)
