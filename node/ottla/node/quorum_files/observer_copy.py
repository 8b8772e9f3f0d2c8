"""Opens a broker's copy of the metadata. The copy contains no promises of a voter, so a damaged one
can be deleted and fetched again.

The damaged files of a voter are never deleted: see `voter_opening`.
"""

import logging

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.seams import Clock
from ottla.model.settings.quorum import QuorumConfig
from ottla.node.quorum.metadata_log import MetadataLog, open_metadata_log
from ottla.raft.election_state import ElectionState
from ottla.storage.disk.directory_names import METADATA_DIRECTORY
from ottla.storage.disk.disk_seam import Disk

_LOGGER = logging.getLogger(__name__)


async def open_observer_copy(
    disk: Disk, metadata_log_dir: str, *, config: QuorumConfig, clock: Clock
) -> tuple[MetadataLog, ElectionState | None]:
    """Open and return the metadata log and the election state (`quorum-state`) of an observer.
    Damaged files are deleted first.

    Logs the damage once, at WARNING, since nothing is lost: the copy is fetched again.
    """
    try:
        return await _open(disk, metadata_log_dir, config, clock)
    except (CorruptDataError, RefusedError) as error:
        if isinstance(error, RefusedError) and error.code is not ErrorCode.INCONSISTENT_TOPIC_ID:
            raise
        directory = f"{metadata_log_dir}/{METADATA_DIRECTORY}"
        _LOGGER.warning(
            "%s: this node's copy of the metadata is damaged (%s); it is removed and fetched from"
            " the controllers again",
            directory,
            error,
        )
    await disk.remove_tree(directory)
    return await _open(disk, metadata_log_dir, config, clock)


async def _open(
    disk: Disk, metadata_log_dir: str, config: QuorumConfig, clock: Clock
) -> tuple[MetadataLog, ElectionState | None]:
    log = await open_metadata_log(disk, metadata_log_dir, config=config, clock=clock)
    try:
        return log, await log.read_election()
    except BaseException:
        log.abandon()
        raise
