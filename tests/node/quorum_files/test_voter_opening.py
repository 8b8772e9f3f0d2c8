"""Damaged files of a voter and of a broker: noticed, logged, made good or refused."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.jepsen.quorum.world import identity, voter
from ottla.metadata.records import config_record
from ottla.model.errors import ConfigError
from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.quorum import QuorumConfig
from ottla.node.clock_driver import RealClock
from ottla.node.identity import format_directories
from ottla.node.quorum.metadata_log import MetadataLog, open_metadata_log
from ottla.node.quorum.record_batches import batch_of
from ottla.node.quorum.snapshot_file import SnapshotFile
from ottla.node.quorum_files.accepted_loss import accept_loss
from ottla.node.quorum_files.observer_copy import open_observer_copy
from ottla.node.quorum_files.voter_opening import open_voter
from ottla.raft.effects import LeaderAppend
from ottla.raft.election_state import QUORUM_STATE_FILE, ElectionState, encode
from ottla.raft.transitions import Standing
from ottla.raft.voter_checkpoint import VOTER_CHECKPOINT_FILE
from ottla.raft.voters import ReplicaKey, VoterSet
from ottla.storage.disk.real_disk_driver import RealDisk

OWN = NodeId(1)
VOTED = ElectionState(
    epoch=Epoch(2), leader_id=NodeId(2), voted=ReplicaKey(NodeId(2), voter(2).directory_id)
)
ENTRIES = 12
LOG = f"{0:020d}.log"
EPOCHS = "leader-epoch-checkpoint"


def batch(name: str) -> bytes:
    return batch_of([config_record(2, "otters", name, "x")], timestamp_ms=1_000)


def files_of(root: Path) -> Path:
    return root / "__cluster_metadata-0"


async def formatted(root: Path, *, voter_ids: tuple[int, ...] = (1, 2, 3)) -> None:
    await format_directories(
        RealDisk(),
        {str(root): voter(1).directory_id},
        cluster_id="cluster",
        node_id=OWN,
        metadata_log_dir=str(root),
        initial_voters=VoterSet(tuple(voter(each) for each in voter_ids)),
        wall_ms=RealClock().wall_ms(),
    )


async def opened(
    root: Path, *, voter_ids: tuple[int, ...] = (1, 2, 3), is_state_expected: bool = True
) -> tuple[MetadataLog, ElectionState]:
    log = await open_metadata_log(RealDisk(), str(root), config=QuorumConfig(), clock=RealClock())
    try:
        election = await open_voter(
            log, identity(1, voter_ids), is_state_expected=is_state_expected
        )
    except ConfigError:
        log.abandon()
        raise
    return log, election


async def used(root: Path, *, voter_ids: tuple[int, ...] = (1, 2, 3)) -> None:
    """Have a voter write twelve entries of two epochs, vote, and be killed."""
    await formatted(root, voter_ids=voter_ids)
    log, _ = await opened(root, voter_ids=voter_ids)
    for at in range(ENTRIES):
        log.append(LeaderAppend(leader_epoch=Epoch(1 + at // 6), records=batch(f"key {at}")))
        await log.flush()
    await log.write_election(VOTED)
    log.abandon()


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES: dict[str, Callable[[Path], None]] = {
    "removed": Path.unlink,
    "emptied": empty,
    "halved": halve,
    "flipped": flip,
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_voter_with_peers_whose_log_was_damaged_catches_up_and_says_so(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    await used(tmp_path)
    DAMAGES[damage](files_of(tmp_path) / LOG)

    for _start in range(3):
        log, election = await opened(tmp_path)
        log.abandon()
        assert election == ElectionState(
            epoch=VOTED.epoch,
            leader_id=VOTED.leader_id,
            voted=VOTED.voted,
            standing=Standing.CATCHING_UP,
        )

    errors = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    said = [text for text in errors if "neither votes nor may lead" in text]
    assert len(said) == 3, "at each start"
    assert f"was flushed up to {ENTRIES}" in said[0]


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_lost_vote_is_known_from_the_other_file(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    await used(tmp_path)
    DAMAGES[damage](files_of(tmp_path) / QUORUM_STATE_FILE)

    log, election = await opened(tmp_path)

    assert election == VOTED
    assert await log.read_election() == VOTED
    log.abandon()
    assert "quorum-state" in caplog.text


async def test_an_older_quorum_state_does_not_take_a_vote_back(tmp_path: Path) -> None:
    await used(tmp_path)
    older = encode(ElectionState(epoch=Epoch(1)), is_checkpointed=True)
    (files_of(tmp_path) / QUORUM_STATE_FILE).write_bytes(older)

    log, election = await opened(tmp_path)
    log.abandon()

    assert election == VOTED


async def test_an_older_log_is_noticed(tmp_path: Path) -> None:
    await used(tmp_path)
    path = files_of(tmp_path) / LOG
    older = path.read_bytes()
    log, _ = await opened(tmp_path)
    log.append(LeaderAppend(leader_epoch=Epoch(2), records=batch("more")))
    await log.flush()
    log.abandon()
    path.write_bytes(older)

    log, election = await opened(tmp_path)
    log.abandon()

    assert election.standing is Standing.CATCHING_UP


@pytest.mark.parametrize("damage", ["removed", "emptied"])
async def test_a_voter_without_either_file_has_forgotten_its_vote(
    tmp_path: Path, damage: str
) -> None:
    await used(tmp_path)
    for name in (QUORUM_STATE_FILE, VOTER_CHECKPOINT_FILE):
        DAMAGES[damage](files_of(tmp_path) / name)

    log, election = await opened(tmp_path)
    log.abandon()

    assert election == ElectionState(standing=Standing.AMNESIAC)


async def test_a_formatted_directory_without_any_file_is_damaged_and_not_new(
    tmp_path: Path,
) -> None:
    await formatted(tmp_path)
    for name in (QUORUM_STATE_FILE, VOTER_CHECKPOINT_FILE):
        (files_of(tmp_path) / name).unlink()

    log, election = await opened(tmp_path)
    log.abandon()

    assert election.standing is Standing.AMNESIAC


async def test_a_voter_without_its_checkpoint_cannot_know_that_its_log_is_whole(
    tmp_path: Path,
) -> None:
    await used(tmp_path)
    (files_of(tmp_path) / VOTER_CHECKPOINT_FILE).unlink()

    log, election = await opened(tmp_path)
    log.abandon()

    assert election.standing is Standing.CATCHING_UP


@pytest.mark.parametrize("has_voted", [True, False])
async def test_a_directory_of_an_earlier_version_starts_as_before(
    tmp_path: Path, has_voted: bool
) -> None:
    if has_voted:
        await used(tmp_path)
        (files_of(tmp_path) / QUORUM_STATE_FILE).write_bytes(encode(VOTED))
    else:
        await formatted(tmp_path)
        (files_of(tmp_path) / QUORUM_STATE_FILE).unlink()
    (files_of(tmp_path) / VOTER_CHECKPOINT_FILE).unlink()

    for is_first in (True, False):
        log, election = await opened(tmp_path, is_state_expected=False)
        assert election == (VOTED if has_voted else ElectionState()), is_first
        log.abandon()
    (files_of(tmp_path) / VOTER_CHECKPOINT_FILE).unlink()

    log, election = await opened(tmp_path, is_state_expected=False)
    log.abandon()
    assert election.standing is Standing.CATCHING_UP, "it has a checkpoint since its first start"


@pytest.mark.parametrize("damage", DAMAGES)
async def test_the_epochs_below_a_snapshot_are_read_from_the_log_again(
    tmp_path: Path, damage: str
) -> None:
    await used(tmp_path)
    log, _ = await opened(tmp_path)
    file = SnapshotFile(
        id=OffsetAndEpoch(Offset(ENTRIES), Epoch(2)), last_contained_timestamp_ms=1, voters=None
    )
    log.note_high_watermark(Offset(ENTRIES))
    await log.write_snapshot(file.id, file.batches([]))
    await log.close()
    DAMAGES[damage](files_of(tmp_path) / EPOCHS)

    log, election = await opened(tmp_path)

    assert election == VOTED
    assert log.end_offset_for_epoch(Epoch(1)) == OffsetAndEpoch(Offset(6), Epoch(1))
    log.abandon()


# --- alone ----------------------------------------------------------------------------------------


def config(root: Path) -> ControllerConfig:
    return ControllerConfig(node_id=OWN, metadata_log_dir=str(root))


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        *((damage, LOG) for damage in DAMAGES),
        ("removed", VOTER_CHECKPOINT_FILE),
    ],
)
async def test_a_lone_voter_starts_only_by_an_operator_s_decision(
    tmp_path: Path, damage: str, name: str
) -> None:
    await used(tmp_path, voter_ids=(1,))
    DAMAGES[damage](files_of(tmp_path) / name)

    for _start in range(2):
        with pytest.raises(ConfigError, match="ottla storage accept-loss"):
            await opened(tmp_path, voter_ids=(1,))
    shown = await accept_loss(RealDisk(), config(tmp_path), RealClock(), is_decided=False)
    with pytest.raises(ConfigError, match="ottla storage accept-loss"):
        await opened(tmp_path, voter_ids=(1,))
    decided = await accept_loss(RealDisk(), config(tmp_path), RealClock(), is_decided=True)

    assert shown == decided
    log, election = await opened(tmp_path, voter_ids=(1,))
    log.abandon()
    assert election.standing is Standing.FULL
    assert election.voted == VOTED.voted, "its vote was not lost"


async def test_a_lone_voter_without_its_vote_may_be_started_by_decision(tmp_path: Path) -> None:
    await used(tmp_path, voter_ids=(1,))
    for name in (QUORUM_STATE_FILE, VOTER_CHECKPOINT_FILE):
        (files_of(tmp_path) / name).unlink()

    with pytest.raises(ConfigError, match="quorum-state"):
        await opened(tmp_path, voter_ids=(1,))
    await accept_loss(RealDisk(), config(tmp_path), RealClock(), is_decided=True)

    log, election = await opened(tmp_path, voter_ids=(1,))
    log.abandon()
    assert election == ElectionState(epoch=Epoch(2)), "the epoch of its log"


async def test_nothing_is_accepted_where_nothing_is_lost(tmp_path: Path) -> None:
    await used(tmp_path)
    before = (files_of(tmp_path) / VOTER_CHECKPOINT_FILE).read_bytes()

    verdict = await accept_loss(RealDisk(), config(tmp_path), RealClock(), is_decided=True)

    assert verdict.damages == ()
    assert (files_of(tmp_path) / VOTER_CHECKPOINT_FILE).read_bytes() == before


# --- a broker -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [QUORUM_STATE_FILE, "snapshot", "topic id", "first segment"])
@pytest.mark.parametrize("damage", ["emptied", "halved"])
async def test_a_broker_s_damaged_copy_is_removed_once(
    tmp_path: Path, name: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    log, _ = await open_observer_copy(
        RealDisk(), str(tmp_path), config=QuorumConfig(), clock=RealClock()
    )
    for at in range(ENTRIES):
        log.append(LeaderAppend(leader_epoch=Epoch(1), records=batch(f"key {at}")))
    await log.write_election(VOTED)
    file = SnapshotFile(
        id=OffsetAndEpoch(Offset(ENTRIES), Epoch(1)), last_contained_timestamp_ms=1, voters=None
    )
    log.note_high_watermark(Offset(ENTRIES))
    await log.write_snapshot(file.id, file.batches([config_record(2, "otters", "k", "v")]))
    await log.close()
    directory = files_of(tmp_path)
    paths = {
        "snapshot": next(directory.glob("*.checkpoint")),
        "topic id": directory / "partition.metadata",
        "first segment": directory / LOG,
    }
    DAMAGES[damage](paths.get(name, directory / name))

    for _start in range(2):
        log, election = await open_observer_copy(
            RealDisk(), str(tmp_path), config=QuorumConfig(), clock=RealClock()
        )
        if name == "first segment":
            assert log.end_offset == ENTRIES, "its snapshot has what the segment had"
        else:
            assert (log.end_offset, election) == (0, None)
        await log.close()

    warnings = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert len(warnings) == (name != "first segment")
