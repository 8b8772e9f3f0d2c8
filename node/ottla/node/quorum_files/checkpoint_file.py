"""Writes and reads the file `voter-checkpoint`, which is written after each flush and is durable
before each vote.

`raft/voter_checkpoint.py` defines the contents of the file and the conclusions from them.
Invariant: one of the file's two slots is durable and undamaged after a power loss at any time.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from ottla.model.errors import CorruptDataError
from ottla.model.ids import NO_OFFSET, Epoch, Offset, OffsetAndEpoch
from ottla.node.quorum_files.snapshot_check import SnapshotCheck
from ottla.raft import election_state
from ottla.raft.election_state import QUORUM_STATE_FILE, ElectionState
from ottla.raft.transitions import Standing
from ottla.raft.trust import EPOCH_MAX
from ottla.raft.voter_checkpoint import (
    FILE_BYTES,
    SLOT_BYTES,
    VOTER_CHECKPOINT_FILE,
    VoterCheckpoint,
    VoterFiles,
    decode_file,
    encode_slot,
)
from ottla.storage.disk.disk_seam import Disk


async def read_voter_files(
    disk: Disk,
    directory: str,
    *,
    is_state_expected: bool,
    end_offset: Offset,
    snapshot_end: Offset,
    epoch_of: Callable[[Offset], Epoch],
    snapshots: SnapshotCheck,
) -> VoterFiles:
    """Return the contents of a stopped voter's files. The recovered metadata log is not
    included."""
    slot, state, is_checkpointed = None, None, False
    with suppress(FileNotFoundError):
        slot = decode_file(await disk.read_file(f"{directory}/{VOTER_CHECKPOINT_FILE}"))
    with suppress(FileNotFoundError, CorruptDataError):
        data = await disk.read_file(f"{directory}/{QUORUM_STATE_FILE}")
        state = election_state.decode(data)
        is_checkpointed = election_state.is_checkpointed(data)
    losses = snapshots.losses(end_offset)
    return VoterFiles(
        checkpoint=None if slot is None else slot.checkpoint,
        election=state,
        is_checkpoint_expected=is_checkpointed,
        is_state_expected=is_state_expected,
        end_offset=end_offset,
        snapshot_end=snapshot_end,
        epoch_of=epoch_of,
        losses=losses,
        made_good=() if losses else snapshots.repairs,
    )


async def epoch_max(disk: Disk, directory: str) -> Epoch:
    """Return the highest leader epoch that a record in this replica's metadata log can have.

    The result is one above the highest stored epoch, because the only voter of a quorum may write
    the first record of an epoch just before it stores the epoch itself. It is `EPOCH_MAX` if the
    stored epoch was lost.
    """
    known: list[ElectionState] = []
    with suppress(FileNotFoundError):
        slot = decode_file(await disk.read_file(f"{directory}/{VOTER_CHECKPOINT_FILE}"))
        if slot is not None:
            known.append(slot.checkpoint.election)
    with suppress(FileNotFoundError, CorruptDataError):
        known.append(
            election_state.decode(await disk.read_file(f"{directory}/{QUORUM_STATE_FILE}"))
        )
    if not known or any(each.standing is Standing.AMNESIAC for each in known):
        return EPOCH_MAX
    return Epoch(max(each.epoch for each in known) + 1)


async def create_checkpoint(
    disk: Disk, directory: str, checkpoint: VoterCheckpoint
) -> "CheckpointFile":
    """Write a new checkpoint file of a voter, durably. Returns the open file."""
    slot = encode_slot(1, checkpoint).ljust(FILE_BYTES, b"\0")
    await disk.write_atomically(f"{directory}/{VOTER_CHECKPOINT_FILE}", slot)
    return CheckpointFile(disk, directory, checkpoint)


class CheckpointFile:
    """Open checkpoint file of one voter of the quorum, with two slots that are written
    alternately."""

    def __init__(self, disk: Disk, directory: str, checkpoint: VoterCheckpoint) -> None:
        """Open a new checkpoint file, written by `create_checkpoint`, whose first slot is
        durable."""
        self._disk = disk
        self._file = disk.open(f"{directory}/{VOTER_CHECKPOINT_FILE}")
        self._sequence = self._durable_sequence = 1
        self._position = SLOT_BYTES
        """Position in bytes of the slot (of two in the file) that may be overwritten next."""
        self.checkpoint = checkpoint
        """Checkpoint that was last written to the file."""

    @property
    def is_durable(self) -> bool:
        """True if the checkpoint that was last written survives a power loss."""
        return self._durable_sequence == self._sequence

    def note_flushed(self, flushed: OffsetAndEpoch) -> None:
        """Write the flushed end offset of the metadata log to the checkpoint file. The written
        offset survives a crash of the process, and after `sync` also a power loss."""
        if flushed != self.checkpoint.flushed:
            self._write(replace(self.checkpoint, flushed=flushed))

    async def lower_to(self, flushed: OffsetAndEpoch) -> None:
        """Lower the flushed end offset in the checkpoint file durably, before the records above it
        are removed from the metadata log."""
        if flushed.offset < self.checkpoint.flushed.offset:
            self.note_flushed(flushed)
            await self.sync()

    async def remember(self, election: ElectionState) -> None:
        """Write the quorum's epoch and leader, and this voter's vote and standing (whether it may
        vote), durably."""
        known = self.checkpoint
        promised_end = known.promised_end
        if election.standing is Standing.FULL:
            promised_end = NO_OFFSET
        self._write(replace(known, election=election, promised_end=promised_end))
        await self.sync()

    async def sync(self) -> None:
        """Make the checkpoint that was last written durable with an fsync."""
        sequence = self._sequence
        if sequence == self._durable_sequence:
            return
        await self._disk.fsync(self._file)
        if sequence == self._sequence:
            self._durable_sequence = sequence
            self._position = SLOT_BYTES - self._position

    def _write(self, checkpoint: VoterCheckpoint) -> None:
        self.checkpoint = checkpoint
        self._sequence += 1
        self._file.pwrite(self._position, [encode_slot(self._sequence, checkpoint)])

    def close(self) -> None:
        """Close the checkpoint file of the voter."""
        self._file.close()
