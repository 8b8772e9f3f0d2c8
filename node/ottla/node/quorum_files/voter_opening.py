"""A voter's first step: it compares its files with what it promised, and says what is missing.

Invariant NoAmnesia: a voter that lost what it acknowledged, or its vote, does not vote.  With peers
it catches up first; alone it does not start, for no other replica has what it lost.
"""

import logging

from ottla.model import log_events
from ottla.model.errors import ConfigError
from ottla.model.ids import Offset
from ottla.node.metadata_log import MetadataLog
from ottla.node.quorum_files.snapshot_check import SOUND, SnapshotCheck
from ottla.raft.election_state import ElectionState
from ottla.raft.transitions import Standing
from ottla.raft.voter_checkpoint import VoterCheckpoint, VoterVerdict
from ottla.raft.voters import QuorumIdentity

_LOGGER = logging.getLogger(__name__)

ACCEPT = "`ottla storage accept-loss --config FILE`"
"""Command by which an operator has a damaged voter vote again."""


async def open_voter(
    log: MetadataLog,
    identity: QuorumIdentity,
    *,
    is_state_expected: bool,
    snapshots: SnapshotCheck = SOUND,
) -> ElectionState:
    """Return the epoch, vote and standing with which a voter may begin, durable by then.

    Logs what it lost at ERROR and what was made good at WARNING.  Raises ConfigError if it is the
    only voter and lost anything.
    """
    verdict = await log.judge_voter(is_state_expected=is_state_expected, snapshots=snapshots)
    if verdict.checkpoint.election.standing is not Standing.FULL and not identity.peers:
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
    """Return the losses of a voter as one clause."""
    if verdict.damages:
        return "; ".join(verdict.damages)
    return f"it was damaged earlier, and {missing(verdict.checkpoint)}"


def missing(checkpoint: VoterCheckpoint) -> str:
    """Return the entries that a damaged voter lacks, as a clause."""
    end, promised = checkpoint.flushed.offset, checkpoint.promised_end
    if checkpoint.election.standing is Standing.AMNESIAC:
        return "its epoch and vote are lost"
    if promised < 0:
        return "how far it was flushed is not known"
    if promised > end:
        return f"metadata of the offsets {end} to {Offset(promised - 1)} are lost"
    return f"it has not caught up since, up to offset {end}"


def refused(directory: str, damages: str) -> ConfigError:
    """Return the refusal of a lone voter that was damaged."""
    return ConfigError(
        "metadata.log.dir",
        f"{directory}: {damages}; put the directory back from a backup of the stopped controller,"
        f" or lose for good what is missing with {ACCEPT}",
    )
