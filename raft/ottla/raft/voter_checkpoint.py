"""Checkpoint of a voter's promises: its flushed log end, its epoch and its vote.

Pure. A truncated log, a lost vote, or a file restored from an older copy looks like the file of a
voter that has made fewer promises. The checkpoint is an independent copy of the voter's promises.
The checkpoint, the log and `quorum-state` each reveal losses in the other two. Invariant: a voter
whose files do not contain all its promises neither votes nor stands for election.

The file has two slots: one that is durable, and one that is being written until it is durable, too.
It is written after each flush, before the flush is acknowledged, and made durable a little later,
because a further fsync for each append would double the time of a commit. After a power failure it
may therefore contain the end of an earlier flush, never of a later one; after the end of a process
it is exact. It is made durable before the log is shortened, and with each vote.

Rejected alternatives: writing the log end before the flush, because after a power failure it could
not be distinguished from a promise; using `leader-epoch-checkpoint` instead, because after a
truncation it may be older than the log.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from ottla.model.ids import NO_OFFSET, ZERO_UUID, Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.model.values import frozen
from ottla.raft.election_state import ElectionState
from ottla.raft.transitions import Standing
from ottla.raft.voters import ReplicaKey
from ottla.wire.crc import crc32c

VOTER_CHECKPOINT_FILE = "voter-checkpoint"
"""Name of the voter checkpoint file in the metadata log's directory."""

SLOT_BYTES = 512
"""Size in bytes of a slot in the voter checkpoint file: one disk sector, which the disk writes
completely or not at all."""

FILE_BYTES = 2 * SLOT_BYTES

WRITTEN_AGAIN = f"it is written again from {VOTER_CHECKPOINT_FILE}"

_MAGIC = b"OVC1"
_FIELDS = struct.Struct(">4sQqiqiiiB16s")
_CRC = struct.Struct(">I")
_NONE = -1


@frozen(kw_only=True)
class VoterCheckpoint:
    """Promises of a voter to other replicas: the flushed end of its log, and its vote."""

    flushed: OffsetAndEpoch = OffsetAndEpoch(Offset(0), Epoch(0))
    """End offset of the entries that the voter has acknowledged, and the epoch of the last
    acknowledged entry."""
    election: ElectionState = ElectionState()
    promised_end: Offset = NO_OFFSET
    """End offset up to which the voter had acknowledged entries before it lost some of them, or -1
    if it is unknown. Used only while the voter's standing is not FULL."""


class Slot(NamedTuple):
    """One slot of the voter checkpoint file: a checkpoint and its sequence number, which is the
    number of earlier writes."""

    sequence: int
    checkpoint: VoterCheckpoint


def encode_slot(sequence: int, checkpoint: VoterCheckpoint) -> bytes:
    """Return the bytes of a slot of the voter checkpoint file, without its padding."""
    election = checkpoint.election
    voted = election.voted
    fields = _FIELDS.pack(
        _MAGIC,
        sequence,
        checkpoint.flushed.offset,
        checkpoint.flushed.epoch,
        checkpoint.promised_end,
        election.epoch,
        _NONE if election.leader_id is None else election.leader_id,
        _NONE if voted is None else voted.id,
        election.standing.value,
        (ZERO_UUID if voted is None else voted.directory_id).bytes,
    )
    return fields + _CRC.pack(crc32c(fields))


def decode_file(data: bytes) -> Slot | None:
    """Return the newest complete slot of a voter checkpoint file, or None if no slot is
    complete."""
    slots = [_decode_slot(data[at : at + SLOT_BYTES]) for at in (0, SLOT_BYTES)]
    return max((slot for slot in slots if slot is not None), key=_sequence_of, default=None)


def _sequence_of(slot: Slot) -> int:
    return slot.sequence


def _decode_slot(data: bytes) -> Slot | None:
    if len(data) < _FIELDS.size + _CRC.size:
        return None
    body = data[: _FIELDS.size]
    if _CRC.unpack_from(data, _FIELDS.size)[0] != crc32c(body):
        return None
    magic, sequence, end, end_epoch, promised, epoch, leader, voted, standing, directory = (
        _FIELDS.unpack(body)
    )
    if magic != _MAGIC or standing > Standing.AMNESIAC.value:
        return None
    election = ElectionState(
        epoch=Epoch(epoch),
        leader_id=None if leader == _NONE else NodeId(leader),
        voted=None if voted == _NONE else ReplicaKey(NodeId(voted), UUID(bytes=directory)),
        standing=Standing(standing),
    )
    checkpoint = VoterCheckpoint(
        flushed=OffsetAndEpoch(Offset(end), Epoch(end_epoch)),
        election=election,
        promised_end=Offset(promised),
    )
    return Slot(sequence, checkpoint)


# --- comparison of a voter's files ---------------------------------------------------------------


@frozen(kw_only=True)
class VoterFiles:
    """Contents of a stopped voter's files, and the end of its log. `check_files` checks them."""

    checkpoint: VoterCheckpoint | None
    """Newest checkpoint in the voter checkpoint file, or None if no slot of the file is
    complete."""
    election: ElectionState | None
    """State in the voter's `quorum-state` file, or None if the file is incomplete."""
    is_checkpoint_expected: bool
    """True if `quorum-state` records that a voter checkpoint must exist beside it."""
    is_state_expected: bool
    """True if the directory was formatted with both `quorum-state` and the voter checkpoint."""
    end_offset: Offset
    """End offset of the voter's log, after its recovery."""
    snapshot_end: Offset
    """End offset of the newest snapshot, which replaces all entries below it. 0 without a
    snapshot."""
    epoch_of: Callable[[Offset], Epoch]
    """Function that returns the epoch of the log's entry at an offset, or of the last entry in the
    newest snapshot."""
    losses: tuple[str, ...] = ()
    """Losses of data that were found before the voter's log was opened. Each entry is one clause of
    a log message."""
    made_good: tuple[str, ...] = ()
    """Damage to the voter's files that was found before its log was opened and that lost no data.
    Each entry is one clause of a log message."""


@frozen(kw_only=True)
class VoterVerdict:
    """Result of checking a voter's files, with the voter's resulting standing."""

    checkpoint: VoterCheckpoint
    """Voter checkpoint that must be written before the voter starts."""
    damages: tuple[str, ...] = ()
    """Promises to other replicas that the voter can no longer keep. Each entry is one clause of a
    log message."""
    repairs: tuple[str, ...] = ()
    """Damage to files that could be repaired from the voter's other files. Each entry is one clause
    of a log message."""
    is_state_stale: bool = False
    """True if `quorum-state` must be written again before the voter starts."""


def check_files(files: VoterFiles) -> VoterVerdict:
    """Check the files of a stopped voter. Returns the remaining state, and the promises to other
    replicas that the voter can no longer keep."""
    kept, state = files.checkpoint, files.election
    damages = [*files.losses]
    repairs = [*files.made_good]
    if kept is None:
        election = _without_checkpoint(files, damages)
    else:
        election = _with_checkpoint(kept, files, damages, repairs)
    promised = NO_OFFSET if kept is None else max(kept.promised_end, NO_OFFSET)
    standing = _lowest(kept, state)
    if damages:
        if kept is not None:
            promised = max(promised, kept.flushed.offset)
        if kept is None and state is None:
            standing = Standing.AMNESIAC
        elif standing is Standing.FULL:
            standing = Standing.CATCHING_UP
    election = ElectionState(
        epoch=election.epoch,
        leader_id=election.leader_id,
        voted=election.voted,
        standing=standing,
        was_voter=state is not None and state.was_voter,
    )
    end = files.end_offset
    flushed = OffsetAndEpoch(end, files.epoch_of(Offset(end - 1)) if end else Epoch(0))
    return VoterVerdict(
        checkpoint=VoterCheckpoint(flushed=flushed, election=election, promised_end=promised),
        damages=tuple(damages),
        repairs=tuple(repairs),
        is_state_stale=bool(damages or repairs or not files.is_checkpoint_expected),
    )


def _lowest(kept: VoterCheckpoint | None, state: ElectionState | None) -> Standing:
    """Return the lower one of two standings, stored in the voter checkpoint and in `quorum-state`.
    Either file may be out of date."""
    found = [Standing.FULL.value]
    if kept is not None:
        found.append(kept.election.standing.value)
    if state is not None:
        found.append(state.standing.value)
    return Standing(max(found))


def _without_checkpoint(files: VoterFiles, damages: list[str]) -> ElectionState:
    state = files.election
    if state is not None:
        if files.is_checkpoint_expected:
            damages.append(f"{VOTER_CHECKPOINT_FILE} is gone or damaged")
        return state  # written by a version without checkpoints, unless a checkpoint is expected
    if files.is_state_expected or files.end_offset > 0:
        damages.append(f"quorum-state and {VOTER_CHECKPOINT_FILE} are gone or damaged")
    return ElectionState()


def _with_checkpoint(
    kept: VoterCheckpoint, files: VoterFiles, damages: list[str], repairs: list[str]
) -> ElectionState:
    election, state = kept.election, files.election
    # The checkpoint is written first, so no valid quorum-state is ahead of it.
    is_later = state is not None and _knowledge(state) > _knowledge(election)
    if state is None:
        repairs.append(f"quorum-state is gone or damaged; {WRITTEN_AGAIN}")
    elif is_later and files.is_checkpoint_expected:
        damages.append(
            f"{VOTER_CHECKPOINT_FILE} knows epoch {election.epoch}, and quorum-state a later vote,"
            f" leader or epoch, {state.epoch}"
        )
    elif not is_later and _knowledge(state) < _knowledge(election):
        repairs.append(
            f"quorum-state is older: a crash came between the two, or it was put back;"
            f" {WRITTEN_AGAIN}"
        )
    if is_later and not files.is_checkpoint_expected:
        assert state is not None
        return state  # a version without checkpoints ran in the meantime, and continued from here
    _compare_log(kept.flushed, files, damages)
    if is_later:
        assert state is not None
        return state
    return election


def _knowledge(state: ElectionState) -> tuple[int, int]:
    """Return a sort key for states in `quorum-state`, which is higher if the voter knew more.
    Within an epoch, vote and leader never change once set."""
    return state.epoch, (state.voted is not None) + (state.leader_id is not None)


def _compare_log(flushed: OffsetAndEpoch, files: VoterFiles, damages: list[str]) -> None:
    if files.end_offset < flushed.offset:
        damages.append(
            f"the metadata log ends at offset {files.end_offset}, and was flushed up to"
            f" {flushed.offset}"
        )
    elif flushed.offset > files.snapshot_end:
        epoch = files.epoch_of(Offset(flushed.offset - 1))
        if epoch != flushed.epoch:
            damages.append(
                f"the metadata log has epoch {epoch} at offset {flushed.offset - 1}, and was"
                f" flushed there in epoch {flushed.epoch}"
            )
