"""A broker's copy of the metadata: it promises nothing, so a damaged one is fetched again.

A voter's damaged files are never thrown away: see `voter_opening`.
"""

import logging

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.seams import Clock
from ottla.model.settings.quorum import QuorumConfig
from ottla.node.metadata_log import MetadataLog, open_metadata_log
from ottla.raft.election_state import ElectionState
from ottla.storage.directory_names import METADATA_DIRECTORY
from ottla.storage.disk_seam import Disk

_LOGGER = logging.getLogger(__name__)


async def open_observer_copy(
    disk: Disk, metadata_log_dir: str, *, config: QuorumConfig, clock: Clock
) -> tuple[MetadataLog, ElectionState | None]:
    """Open an observer's log and `quorum-state`; remove them first if they are damaged.

    Logs the cause at WARNING, once: the copy is whole again when it was fetched.
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
