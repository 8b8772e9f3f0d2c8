"""Support for an operator's decision that a damaged voter of the quorum may vote again, although it
has lost data.

A decision is needed for a quorum of one voter, and for a quorum in which a majority is damaged.
Such a quorum cannot elect a leader, because no damaged voter can be trusted to have all committed
records.
"""

from dataclasses import replace

from ottla.model.errors import ConfigError
from ottla.model.ids import Epoch
from ottla.model.seams import Clock
from ottla.model.settings.controller import ControllerConfig
from ottla.node.identity import read_meta_properties
from ottla.node.quorum.metadata_log import open_metadata_log
from ottla.node.quorum_files.checkpoint_file import read_voter_files
from ottla.node.quorum_files.snapshot_check import SnapshotCheck, check_snapshots, remove_damaged
from ottla.raft.transitions import Standing
from ottla.raft.voter_checkpoint import VoterVerdict, check_files
from ottla.storage.disk.directory_names import METADATA_DIRECTORY
from ottla.storage.disk.disk_seam import Disk


async def accept_loss(
    disk: Disk, config: ControllerConfig, clock: Clock, *, is_decided: bool
) -> VoterVerdict:
    """Check the files of a stopped controller, and return the verdict on their completeness. If
    `is_decided`, accept the loss of data in these files, and make the controller a full voter
    again.

    The log is recovered as at startup. If the snapshot before the start of the log is lost and
    `is_decided` is False, nothing is changed. Raises ConfigError if the directory is not formatted.
    """
    directory = config.metadata_log_dir
    properties = await read_meta_properties(disk, directory)
    if properties is None:
        raise ConfigError("metadata.log.dir", f"{directory} is not formatted")
    is_expected = properties.has_voter_files
    files = f"{directory}/{METADATA_DIRECTORY}"
    snapshots = await check_snapshots(disk, files)
    if snapshots.is_out_of_reach and not is_decided:
        return await _verdict_without_log(disk, files, snapshots, is_state_expected=is_expected)
    await remove_damaged(disk, files, snapshots)
    log = await open_metadata_log(disk, directory, config=config.quorum, clock=clock)
    try:
        verdict = await log.judge_voter(is_state_expected=is_expected, snapshots=snapshots)
        election = verdict.checkpoint.election
        if is_decided and election.standing is not Standing.FULL:
            await log.open_as_voter(is_state_expected=is_expected, snapshots=snapshots)
            epoch = Epoch(max(election.epoch, log.last_epoch))
            if epoch != election.epoch:
                election = replace(election, epoch=epoch, leader_id=None, voted=None)
            await log.write_election(replace(election, standing=Standing.FULL))
    except BaseException:
        log.abandon()
        raise
    await log.close()
    return verdict


async def _verdict_without_log(
    disk: Disk, directory: str, snapshots: SnapshotCheck, *, is_state_expected: bool
) -> VoterVerdict:
    """Return the verdict on the files of a voter whose metadata log begins after a lost snapshot.
    Changes no file."""
    end_offset, epoch = snapshots.base
    files = await read_voter_files(
        disk,
        directory,
        is_state_expected=is_state_expected,
        end_offset=end_offset,
        snapshot_end=end_offset,
        epoch_of=lambda _: epoch,
        snapshots=snapshots,
    )
    return check_files(files)
