"""All files with which a member of the quorum begins, a voter's compared with its promises."""

from ottla.model.seams import Clock
from ottla.model.settings.quorum import QuorumConfig
from ottla.node.identity import read_meta_properties
from ottla.node.metadata_log import MetadataLog, open_metadata_log
from ottla.node.quorum_files.observer_copy import open_observer_copy
from ottla.node.quorum_files.snapshot_check import check_snapshots, remove_damaged
from ottla.node.quorum_files.voter_opening import open_voter, refused
from ottla.raft.election_state import ElectionState
from ottla.raft.voters import QuorumIdentity
from ottla.storage.directory_names import METADATA_DIRECTORY
from ottla.storage.disk_seam import Disk


async def open_files(
    disk: Disk,
    metadata_log_dir: str,
    identity: QuorumIdentity,
    *,
    config: QuorumConfig,
    clock: Clock,
) -> tuple[MetadataLog, ElectionState | None]:
    """Open the log, and read what this member must never forget.

    Raises ConfigError if a lone voter is damaged.
    """
    if not identity.is_voter:
        return await open_observer_copy(disk, metadata_log_dir, config=config, clock=clock)
    properties = await read_meta_properties(disk, metadata_log_dir)
    directory = f"{metadata_log_dir}/{METADATA_DIRECTORY}"
    snapshots = await check_snapshots(disk, directory)
    if snapshots.is_out_of_reach and not identity.peers:
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
