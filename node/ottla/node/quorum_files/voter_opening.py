"""Compares a voter's files with its promises (its vote, and the records that it acknowledged) when
the voter starts, and logs missing data.

Invariant NoAmnesia: a voter that has lost its vote, or records that it acknowledged, does not vote.
If it has peers, it first catches up. The only voter of a quorum does not start, because no other
replica has the lost data.
"""

import logging
from dataclasses import replace

from ottla.model import log_events
from ottla.model.errors import ConfigError
from ottla.model.ids import Offset
from ottla.node.quorum.metadata_log import MetadataLog
from ottla.node.quorum_files.snapshot_check import SOUND, SnapshotCheck
from ottla.raft.election_state import ElectionState
from ottla.raft.transitions import Standing
from ottla.raft.voter_checkpoint import VoterCheckpoint, VoterVerdict
from ottla.raft.voters import QuorumIdentity

_LOGGER = logging.getLogger(__name__)

ACCEPT = "`ottla storage accept-loss --config FILE`"
"""Command with which an operator permits a damaged voter of the quorum to vote again."""


async def open_voter(
    log: MetadataLog,
    identity: QuorumIdentity,
    *,
    is_state_expected: bool,
    snapshots: SnapshotCheck = SOUND,
) -> ElectionState:
    """Compare a voter's files with its promises, and return the epoch, vote and standing (whether
    it may vote) with which the voter may start. The returned values are durable.

    Logs lost data at ERROR and repairs at WARNING. Raises ConfigError if this is the only voter and
    it has lost any data.
    """
    verdict = await log.judge_voter(is_state_expected=is_state_expected, snapshots=snapshots)
    if log.voters is not None:
        identity = replace(identity, voters=log.voters)
    if verdict.checkpoint.election.standing is not Standing.FULL and identity.is_alone:
        raise refused(log.directory, damages_of(verdict))
    verdict = await log.open_as_voter(is_state_expected=is_state_expected, snapshots=snapshots)
    election = verdict.checkpoint.election
    for repair in verdict.repairs:
        _LOGGER.warning("%s: %s", log.directory, repair)
    if election.standing is not Standing.FULL:
        _LOGGER.error(
            "%s: %s; controller %s neither votes nor may lead until it has caught up with a leader"
            " that was elected without it; it has the metadata up to offset %s",
            log.directory,
            damages_of(verdict),
            identity.node_id,
            log.end_offset,
            extra=log_events.event(
                "quorum.damaged",
                node=identity.node_id,
                promised=verdict.checkpoint.promised_end,
                end=log.end_offset,
            ),
        )
    return election


def damages_of(verdict: VoterVerdict) -> str:
    """Return a clause of a log message that lists the data that a voter of the quorum has lost,
    derived from the verdict on its files."""
    if verdict.damages:
        return "; ".join(verdict.damages)
    return f"it was damaged earlier, and {missing(verdict.checkpoint)}"


def missing(checkpoint: VoterCheckpoint) -> str:
    """Return the records of the metadata log that a damaged voter lacks, as a clause of a log
    message."""
    end, promised = checkpoint.flushed.offset, checkpoint.promised_end
    if checkpoint.election.standing is Standing.AMNESIAC:
        return "its epoch and vote are lost"
    if promised < 0:
        return "its flushed end offset is not known"
    if promised > end:
        return f"metadata of the offsets {end} to {Offset(promised - 1)} are lost"
    return f"it has not caught up since, up to offset {end}"


def refused(directory: str, damages: str) -> ConfigError:
    """Return the error with which the only voter of a quorum refuses to start if its files are
    damaged."""
    return ConfigError(
        "metadata.log.dir",
        f"{directory}: {damages}; put the directory back from a backup of the stopped controller,"
        f" or accept the loss of the missing records with {ACCEPT}",
    )
