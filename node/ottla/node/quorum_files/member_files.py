"""Opens the files that a quorum member needs at its start. The files of a voter are compared with
its promises: its vote, and the records that it acknowledged."""

from ottla.model.seams import Clock
from ottla.model.settings.quorum import QuorumConfig
from ottla.node.identity import read_meta_properties
from ottla.node.quorum.metadata_log import MetadataLog, open_metadata_log
from ottla.node.quorum_files.observer_copy import open_observer_copy
from ottla.node.quorum_files.snapshot_check import check_snapshots, remove_damaged
from ottla.node.quorum_files.voter_opening import open_voter, refused
from ottla.raft.election_state import ElectionState
from ottla.raft.voters import QuorumIdentity
from ottla.storage.disk.directory_names import METADATA_DIRECTORY
from ottla.storage.disk.disk_seam import Disk


async def open_files(
    disk: Disk,
    metadata_log_dir: str,
    identity: QuorumIdentity,
    *,
    config: QuorumConfig,
    clock: Clock,
) -> tuple[MetadataLog, ElectionState | None]:
    """Open the metadata log. Returns the log, and the election state with which the quorum member
    must start (None if no state is stored).

    Raises ConfigError if the only voter of a quorum is damaged.
    """
    if not identity.keeps_votes:
        return await open_observer_copy(disk, metadata_log_dir, config=config, clock=clock)
    properties = await read_meta_properties(disk, metadata_log_dir)
    directory = f"{metadata_log_dir}/{METADATA_DIRECTORY}"
    snapshots = await check_snapshots(disk, directory)
    if snapshots.is_out_of_reach and identity.is_alone:
        raise refused(directory, "; ".join(snapshots.losses(snapshots.base.offset)))
    await remove_damaged(disk, directory, snapshots)
    log = await open_metadata_log(disk, metadata_log_dir, config=config, clock=clock)
    try:
        election = await open_voter(
            log,
            identity,
            is_state_expected=properties is not None and properties.has_voter_files,
            snapshots=snapshots,
        )
    except BaseException:
        log.abandon()
        raise
    return log, election
