"""An operator's decision: a damaged voter votes again, without what it lost.

For a quorum of one, and for one of which a majority is damaged: no leader can be elected there, for
none of its voters may be trusted to have all that was committed.
"""

from dataclasses import replace

from ottla.model.errors import ConfigError
from ottla.model.ids import Epoch
from ottla.model.seams import Clock
from ottla.model.settings.controller import ControllerConfig
from ottla.node.identity import read_meta_properties
from ottla.node.metadata_log import open_metadata_log
from ottla.raft.transitions import Standing
from ottla.raft.voter_checkpoint import VoterVerdict
from ottla.storage.disk_seam import Disk


async def accept_loss(
    disk: Disk, config: ControllerConfig, clock: Clock, *, is_decided: bool
) -> VoterVerdict:
    """Return what a stopped controller lost; with `is_decided` have it vote again all the same.

    The log is recovered as by a start.  Raises ConfigError if the directory is not formatted.
    """
    directory = config.metadata_log_dir
    properties = await read_meta_properties(disk, directory)
    if properties is None:
        raise ConfigError("metadata.log.dir", f"{directory} is not formatted")
    is_expected = properties.has_voter_files
    log = await open_metadata_log(disk, directory, config=config.quorum, clock=clock)
    try:
        verdict = await log.judge_voter(is_state_expected=is_expected)
        election = verdict.checkpoint.election
        if is_decided and election.standing is not Standing.FULL:
            await log.open_as_voter(is_state_expected=is_expected)
            epoch = Epoch(max(election.epoch, log.last_epoch))
            if epoch != election.epoch:
                election = replace(election, epoch=epoch, leader_id=None, voted=None)
            await log.write_election(replace(election, standing=Standing.FULL))
    except BaseException:
        log.abandon()
        raise
    await log.close()
    return verdict
