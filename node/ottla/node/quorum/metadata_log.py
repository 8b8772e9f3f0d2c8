"""Replicated metadata log on disk: raft's `LogView`, its snapshots, and the promises of a voter
(its vote and the records that it acknowledged).

This module owns the directory `__cluster_metadata-0`, and writes all files through the interface
`Disk`. Other modules decide which data is written at which time. Invariant: the log starts at
offset 0, or at the end of the earliest snapshot.
"""

import errno
import logging
from collections.abc import Awaitable, Callable, Iterable

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import METADATA_TOPIC_ID, Epoch, Offset, OffsetAndEpoch
from ottla.model.limits import BATCH_HEADER_BYTES, INT32_MAX, KIB, METADATA_BATCH_BYTES_MAX
from ottla.model.seams import Clock
from ottla.model.settings.quorum import QuorumConfig
from ottla.node.quorum.reserved_space import ReservedSpace
from ottla.node.quorum.snapshot_store import SnapshotStore, knows_epoch_below, open_snapshot_store
from ottla.node.quorum_files.checkpoint_file import (
    CheckpointFile,
    create_checkpoint,
    read_voter_files,
)
from ottla.node.quorum_files.log_check import check_epochs, cut_false_batches
from ottla.node.quorum_files.snapshot_check import SOUND, SnapshotCheck
from ottla.raft import election_state, snapshot
from ottla.raft.control_records import leader_change_batch, voter_sets_in, voters_batch
from ottla.raft.effects import (
    Append,
    FollowerAppend,
    LeaderAppend,
    LeaderChangeAppend,
    SnapshotChunk,
    VotersAppend,
)
from ottla.raft.election_state import ElectionState
from ottla.raft.messages import Records
from ottla.raft.voter_checkpoint import VoterVerdict, check_files
from ottla.raft.voter_history import VoterHistory
from ottla.raft.voters import ReplicaKey, VoterSet
from ottla.storage.disk.directory_names import METADATA_DIRECTORY
from ottla.storage.disk.disk_errors import is_disk_full
from ottla.storage.disk.disk_seam import Disk, DiskFile
from ottla.storage.log.log import Log, open_log
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch import batches, parse_header

_LOGGER = logging.getLogger(__name__)

EPOCH_OF_NOTHING = Epoch(0)

ROLL_BYTES = 16 * KIB
"""Number of bytes that are freed from the reserved disk space for an append, in addition to the
size of the data. These bytes are for the first index entries of a new segment, the growth of the
directory, and the rounding to whole disk blocks."""

NO_ROOM = "the metadata log has no room, and nothing is left of reserved.space"
NO_ROOM_TO_VOTE = (
    "there is no room to store votes and epochs: this node sends no responses until there is"
)
NO_ROOM_FOR_SNAPSHOT = "there is no room for the leader's snapshot: this node waits until there is"

VOTERS_SCAN_BYTES = 1 << 20
"""Number of bytes of the metadata log that are read at once to find voter sets at startup. With a
larger value, other tasks wait longer."""

OPENING_BYTES = 256 * KIB
"""Number of bytes that are freed from the reserved disk space to open the metadata log on a full
disk, because opening rewrites the indexes."""


async def open_metadata_log(
    disk: Disk, metadata_log_dir: str, *, config: QuorumConfig, clock: Clock
) -> "MetadataLog":
    """Open and return the metadata log of a formatted directory, after a recovery if necessary."""
    reserve = ReservedSpace(disk, metadata_log_dir)
    while True:
        try:
            return await _open(disk, metadata_log_dir, reserve, config=config, clock=clock)
        except (OSError, RefusedError) as error:
            if not _is_disk_full_error(error) or not reserve.give(OPENING_BYTES):
                raise


async def _open(
    disk: Disk,
    metadata_log_dir: str,
    reserve: ReservedSpace,
    *,
    config: QuorumConfig,
    clock: Clock,
) -> "MetadataLog":
    directory = f"{metadata_log_dir}/{METADATA_DIRECTORY}"
    await disk.makedirs(directory)
    snapshots = await open_snapshot_store(disk, directory)
    earliest, latest = snapshots.earliest_id, snapshots.latest_id
    start = Offset(0) if earliest is None else earliest.offset
    # All records below the latest snapshot were flushed before the snapshot was written.  The
    # indexes of a segment that was rolled at that offset may be missing.
    flushed = Offset(0) if latest is None else Offset(max(0, latest.offset - 1))
    if latest is not None and not await knows_epoch_below(disk, directory, latest):
        flushed = Offset(0)
    log = await open_log(
        disk,
        directory,
        config=_log_config(config),
        topic_id=METADATA_TOPIC_ID,
        is_clean=False,
        recovery_point=flushed,
        log_start_offset=start,
        now_ms=clock.wall_ms(),
    )
    metadata_log = MetadataLog(disk, directory, log, snapshots, reserve, config, clock)
    try:
        await metadata_log.recover()
    except BaseException:
        log.abandon()
        raise
    return metadata_log


def _log_config(config: QuorumConfig) -> LogConfig:
    return LogConfig(
        segment_bytes=min(config.segment_bytes, INT32_MAX),
        segment_ms=config.segment_ms,
        max_message_bytes=METADATA_BATCH_BYTES_MAX,
        retention_ms=-1,
        retention_bytes=-1,
    )


class MetadataLog:
    """Metadata log, snapshots and election state of one replica of the quorum, on disk."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        log: Log,
        snapshots: SnapshotStore,
        reserve: ReservedSpace,
        config: QuorumConfig,
        clock: Clock,
    ) -> None:
        self.directory = directory
        self._config = config
        self._disk = disk
        self._log = log
        self._snapshots = snapshots
        self._reserve = reserve
        self.awaits_flush = False
        """True if the disk was too full for the last flush to write all files besides the metadata
        log."""
        self.is_out_of_space = False
        """True if the disk was too full for the last append to the metadata log, and the reserved
        disk space is used up."""
        self._clock = clock
        self._unsaid = {NO_ROOM_TO_VOTE, NO_ROOM_FOR_SNAPSHOT}
        self._part: DiskFile | None = None
        self.promises: CheckpointFile | None = None
        """Checkpoint file with the promises of a voter (its vote, and the records that it
        acknowledged). None for an observer."""
        self.found: VoterVerdict | None = None
        """Result of the check whether this voter's files were complete when it started. None for an
        observer."""
        self._history = VoterHistory()

    async def recover(self) -> None:
        """Complete an operation that a crash interrupted, so that the metadata log and the
        snapshots match."""
        latest = self.latest_snapshot_id
        await cut_false_batches(self._disk, self._log, latest, epoch_min=EPOCH_OF_NOTHING)
        if latest is not None and not self._is_continued_from(latest):
            await self._start_at(latest)
        else:
            await self._drop_log_after_gap(Offset(0) if latest is None else latest.offset)
        # The crash happened after the log was truncated and before these snapshots were deleted.
        useless = [one for one in self._snapshots.ids if one.offset < self.start_offset]
        await self._snapshots.remove(useless)
        await self._learn_voters(latest)
        await self._log.flush()

    async def _drop_log_after_gap(self, snapshot_end: Offset) -> None:
        """Empty the metadata log if it starts after the end of the latest snapshot, because the
        records between them are missing."""
        if self.start_offset <= snapshot_end:
            return
        _LOGGER.error(
            "the metadata log begins at offset %s, and no snapshot holds what is below: its %s"
            " entries are dropped",
            self.start_offset,
            self.end_offset - self.start_offset,
        )
        await self._log.truncate_fully_and_start_at(snapshot_end)

    def _is_continued_from(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Return whether the metadata log contains the records of a snapshot, or starts at the end
        of the snapshot.

        Otherwise, the log ends before the snapshot, or in an older epoch, because a crash
        interrupted the replacement of the log by the snapshot.
        """
        return (
            snapshot_id.offset <= self._log.end_offset
            and snapshot_id.epoch <= max(self._log.last_epoch, EPOCH_OF_NOTHING)
        ) or (self._log.log_start_offset == self._log.end_offset == snapshot_id.offset)

    # --- state that raft's core reads --------------------------------------------------------

    @property
    def start_offset(self) -> Offset:
        """First offset that is still in the metadata log."""
        return self._log.log_start_offset

    @property
    def end_offset(self) -> Offset:
        """Offset after the last record in the metadata log."""
        return self._log.end_offset

    @property
    def flushed_offset(self) -> Offset:
        """Offset after the last record of the metadata log that survives a power loss."""
        return min(self._log.recovery_point, self._log.end_offset)

    @property
    def last_epoch(self) -> Epoch:
        """Leader epoch of the last record in the metadata log. If the log is empty, the epoch of
        the latest snapshot, or 0 without a snapshot."""
        epoch = self._log.last_epoch
        if epoch >= 0 and self.end_offset > self.start_offset:
            return epoch
        latest = self.latest_snapshot_id
        return EPOCH_OF_NOTHING if latest is None else latest.epoch

    def end_offset_for_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        """Return the largest leader epoch up to `epoch` in the metadata log, and the end offset of
        this epoch."""
        if epoch >= self.last_epoch:
            return OffsetAndEpoch(self.end_offset, self.last_epoch)
        found = self._log.end_offset_for_epoch(epoch)
        if found.epoch > epoch or found.offset <= self.start_offset:
            earliest = self.earliest_snapshot_id
            below = EPOCH_OF_NOTHING
            if earliest is not None and self.start_offset > 0:
                below = earliest.epoch
            return OffsetAndEpoch(self.start_offset, below)
        return found

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """Id of the latest complete snapshot (end offset and epoch of its records), or None without
        a snapshot."""
        return self._snapshots.latest_id

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        """Id of the earliest complete snapshot (end offset and epoch of its records), or None
        without a snapshot."""
        return self._snapshots.earliest_id

    @property
    def voters(self) -> VoterSet | None:
        """Last voter set in the metadata log or in the latest snapshot, committed or not. None if
        no voter set is stored."""
        return self._history.latest

    @property
    def voters_offset(self) -> Offset:
        """Offset of the record that contains the current voter set (`voters`), or NO_OFFSET."""
        return self._history.latest_offset

    def voters_at(self, end_offset: Offset) -> VoterSet | None:
        """Return the voter set that a snapshot of the records before `end_offset` must contain, or
        None if no voter set is stored."""
        return self._history.at(end_offset)

    def has_voter_below(self, key: ReplicaKey, end_offset: Offset) -> bool:
        """Return whether a voter set in the metadata log before `end_offset` contains the replica
        `key`."""
        return self._history.has_voter_below(key, end_offset)

    def snapshot_size_bytes(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Return the size in bytes of a metadata snapshot's file, or None if the file does not
        exist."""
        return self._snapshots.size_bytes(snapshot_id)

    # --- effects of raft's core --------------------------------------------------------------

    def append(self, append: Append) -> None:
        """Append the batches of an `Append` effect of raft to the metadata log. Raises OSError,
        which ends the process, if the disk fails.

        Batches that were damaged on the network are not appended; raft's core requests them again.
        If the disk is too full, batches are not appended and `is_out_of_space` is set; a leader
        must then resign.
        """
        while True:
            try:
                self._append(append)
            except RefusedError as refusal:
                if not _is_disk_full_error(refusal):
                    raise OSError(errno.EIO, refusal.message, self.directory) from refusal
                if self._reserve.give(_size_of(append) + ROLL_BYTES):
                    continue
                if not self.is_out_of_space:
                    _LOGGER.error(NO_ROOM)
                self.is_out_of_space = True
            else:
                if self.is_out_of_space:
                    _LOGGER.warning("the metadata log has room again")
                self.is_out_of_space = False
            return

    def _append(self, append: Append) -> None:
        match append:
            case LeaderAppend():
                self._append_as_leader(_view(append.records), append.leader_epoch)
            case LeaderChangeAppend():
                batch = leader_change_batch(append, timestamp_ms=self._clock.wall_ms())
                self._append_as_leader(memoryview(batch), append.leader_epoch)
            case VotersAppend():
                batch = voters_batch(append, timestamp_ms=self._clock.wall_ms())
                offset = self.end_offset
                self._append_as_leader(memoryview(batch), append.leader_epoch)
                self._history.add([(offset, append.voters)])
            case FollowerAppend():
                self._append_as_follower(_view(append.records), append.epoch_max)

    async def truncate_to(self, offset: Offset) -> None:
        """Truncate the metadata log to an offset. Only uncommitted records are removed."""
        await self._promise_at_most(self._log.high_watermark)
        await self._log.truncate_to(offset)
        self._history.truncate_to(offset)
        self._note_flushed()

    async def flush(self) -> Offset:
        """Make all records durable that were appended to the metadata log so far. Returns the end
        offset of the durable records.

        If the disk is full, some files other than the log may remain unwritten until the next
        flush. `awaits_flush` is then set.
        """
        try:
            await self._flush()
            self.awaits_flush = False
        except RefusedError as refusal:
            if not _is_disk_full_error(refusal):
                raise
            if not self.awaits_flush:
                _LOGGER.error("the metadata log has no room to flush")
            self.awaits_flush = True
        self._note_flushed()
        return self.flushed_offset

    async def _flush(self) -> None:
        while True:
            try:
                await self._log.flush()
            except RefusedError as refusal:
                if not _is_disk_full_error(refusal) or not self._reserve.give(ROLL_BYTES):
                    raise
            else:
                return

    async def write_election(self, state: ElectionState) -> bool:
        """Write the quorum's epoch, this voter's vote, and the leader durably.

        Returns True if the disk is full and the caller must repeat the call.
        """
        path = f"{self.directory}/{election_state.QUORUM_STATE_FILE}"
        if self.promises is not None:
            await self.promises.remember(state)
        data = election_state.encode(state, is_checkpointed=self.promises is not None)
        while True:
            try:
                await self._disk.write_atomically(path, data)
            except OSError as error:
                if not is_disk_full(error):
                    raise
                if not self._reserve.give(len(data) + ROLL_BYTES, is_for_election=True):
                    self._log_once(NO_ROOM_TO_VOTE)
                    return True
            else:
                self._unsaid.add(NO_ROOM_TO_VOTE)
                return False

    @property
    def reserved_bytes(self) -> int:
        """Number of bytes left in the disk space that is reserved for the metadata log if its disk
        is full."""
        return self._reserve.left_bytes

    def when_disk_full(self, listener: Callable[[], None]) -> None:
        """Set a function that is called each time the metadata log finds its disk full."""
        self._reserve.on_needed = listener

    async def keep_reserve(self) -> None:
        """Refill the disk space that is reserved for the metadata log if its disk is full. Raises
        OSError if the disk fails."""
        await self._reserve.keep()

    async def read_election(self) -> ElectionState | None:
        """Return the election state (epoch, vote, leader) that was written last, or None at the
        first start."""
        try:
            path = f"{self.directory}/{election_state.QUORUM_STATE_FILE}"
            return election_state.decode(await self._disk.read_file(path))
        except FileNotFoundError:
            return None

    async def write_chunk(self, chunk: SnapshotChunk) -> bool:
        """Write one chunk of the leader's snapshot to disk. After the last chunk, the snapshot
        replaces the metadata log.

        Returns True if the disk is full and the caller must repeat the call.
        """
        if chunk.position == 0:
            if self._part is not None:
                self._part.close()
            self._part = self._snapshots.begin(chunk.snapshot_id)
        assert self._part is not None
        if not self._has_written(self._part, chunk):
            return True
        if chunk.is_last:
            part, self._part = self._part, None
            # The snapshot is checked before it replaces the log, so that damage does not destroy
            # the log.
            snapshot.check_whole(await self._disk.read(part, 0, part.size_bytes))
            await self._promise_at_most(chunk.snapshot_id.offset)
            await self._snapshots.install(part, chunk.snapshot_id)
            await self._start_at(chunk.snapshot_id)
            self._note_flushed()
            await self._learn_voters(chunk.snapshot_id)
        return False

    def _has_written(self, part: DiskFile, chunk: SnapshotChunk) -> bool:
        while True:
            try:
                part.pwrite(chunk.position, [_view(chunk.data)])
            except OSError as error:
                if not is_disk_full(error):
                    raise
                if not self._reserve.give(len(chunk.data) + ROLL_BYTES):
                    self._log_once(NO_ROOM_FOR_SNAPSHOT)
                    return False
            else:
                self._unsaid.add(NO_ROOM_FOR_SNAPSHOT)
                return True

    def _log_once(self, sentence: str) -> None:
        """Log a message about a failing disk operation once. It is logged again only if the
        operation has succeeded in the meantime."""
        if sentence in self._unsaid:
            self._unsaid.remove(sentence)
            _LOGGER.error(sentence)

    def note_high_watermark(self, offset: Offset) -> None:
        """Record the quorum's high watermark. Records above it are never deleted from the metadata
        log."""
        self._log.update_high_watermark(offset)

    # --- reading -----------------------------------------------------------------------------

    async def read(self, offset: Offset, *, end_offset: Offset, bytes_max: int) -> bytes:
        """Return whole batches of the metadata log in `[offset, end_offset)`, up to `bytes_max`
        bytes. The first batch is returned even if it is larger.

        Waits for the disk only if the batches are not in the page cache.
        """
        if offset >= end_offset:
            return b""
        data = await self._log.read_bytes(offset, bytes_max=bytes_max, end_offset=end_offset)
        data = bytes(data)
        return data[: whole_batches_bytes(data)]

    async def read_snapshot(
        self, snapshot_id: OffsetAndEpoch, *, position: int, bytes_max: int
    ) -> bytes:
        """Return a range of bytes of a metadata snapshot's file, or b"" if the file no longer
        exists."""
        return await self._snapshots.read(snapshot_id, position=position, bytes_max=bytes_max)

    async def read_whole_snapshot(self, snapshot_id: OffsetAndEpoch) -> bytes:
        """Return the complete contents of a metadata snapshot's file."""
        return await self._snapshots.read_whole(snapshot_id)

    # --- snapshots of this node --------------------------------------------------------------

    async def write_snapshot(
        self,
        snapshot_id: OffsetAndEpoch,
        batches: Iterable[bytes],
        *,
        give_way: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Write a snapshot of this node's metadata image. Then delete expired snapshots, and the
        log below the earliest remaining snapshot. `give_way` is awaited between batches, so that
        other tasks can run.
        """
        if snapshot_id in self._snapshots:
            return
        await self._log.flush()
        await self._snapshots.write(snapshot_id, batches, give_way=give_way)
        await self.forget_old()

    async def forget_old(self) -> None:
        """Delete expired snapshots, and the part of the metadata log below the earliest remaining
        snapshot."""
        ids = self._snapshots.ids
        # If the leader's snapshot has replaced the log in the meantime, earlier snapshots are
        # useless.
        useless = sum(one.offset < self.start_offset for one in ids)
        expired = snapshot.expired_count(
            self._config,
            self._snapshots.kept,
            log_bytes=self._log.size_bytes,
            wall_ms=self._clock.wall_ms(),
        )
        await self._snapshots.remove(ids[: max(useless, expired)])
        earliest = self.earliest_snapshot_id
        if earliest is not None and earliest.offset > self.start_offset:
            await self._log.delete_records_before(earliest.offset)
            await self._log.delete_old_segments(self._clock.wall_ms())

    # --- promises of a voter -----------------------------------------------------------------

    async def open_as_voter(
        self, *, is_state_expected: bool, snapshots: SnapshotCheck = SOUND
    ) -> VoterVerdict:
        """Open the files that contain a voter's promises, and maintain them while the log is open.
        Returns the verdict on the completeness of these files.

        `is_state_expected` is True if the directory was formatted with the files of a voter.
        `snapshots` is the result of the snapshot check, which ran before the log was opened. The
        verdict is durable on return.
        """
        verdict = await self.judge_voter(is_state_expected=is_state_expected, snapshots=snapshots)
        self.found = verdict
        while self.promises is None:
            try:
                self.promises = await create_checkpoint(
                    self._disk, self.directory, verdict.checkpoint
                )
            except OSError as error:
                if not is_disk_full(error) or not self._reserve.give(ROLL_BYTES):
                    raise
        if verdict.is_state_stale:
            await self.write_election(verdict.checkpoint.election)
        return verdict

    async def judge_voter(
        self, *, is_state_expected: bool, snapshots: SnapshotCheck = SOUND
    ) -> VoterVerdict:
        """Return the verdict whether the files of this voter are complete, without changing them.

        `is_state_expected` is True if the directory was formatted with the files of a voter.
        """
        latest = self.latest_snapshot_id
        files = await read_voter_files(
            self._disk,
            self.directory,
            is_state_expected=is_state_expected,
            end_offset=self.end_offset,
            snapshot_end=Offset(0) if latest is None else latest.offset,
            epoch_of=self._epoch_of,
            snapshots=snapshots,
        )
        return check_files(files)

    def _epoch_of(self, offset: Offset) -> Epoch:
        """Return the leader epoch of the record at an offset of the metadata log. If the log starts
        after that record, return the epoch of the snapshot that ends with the record."""
        if offset >= self.start_offset:
            return self._log.epoch_of(offset)
        return self.last_epoch if offset == self.end_offset - 1 else EPOCH_OF_NOTHING

    def _below(self, end_offset: Offset) -> OffsetAndEpoch:
        epoch = self._epoch_of(Offset(end_offset - 1)) if end_offset else EPOCH_OF_NOTHING
        return OffsetAndEpoch(end_offset, epoch)

    def _note_flushed(self) -> None:
        """Write the flushed end offset of the metadata log to the voter's checkpoint file, before
        raft counts the flushed records as acknowledged by this voter."""
        if self.promises is not None:
            self.promises.note_flushed(self._below(self.flushed_offset))

    async def _promise_at_most(self, end_offset: Offset) -> None:
        """Lower the durable end offset up to which this voter has acknowledged records, before the
        uncommitted records above `end_offset` are removed."""
        if self.promises is not None:
            await self.promises.lower_to(self._below(end_offset))

    async def close(self) -> None:
        """Close the metadata log cleanly. If the disk is full, abandon the log instead, so that the
        next start checks it."""
        await self._close_log()
        if self.promises is not None:
            await self.promises.sync()
            self.promises.close()

    async def _close_log(self) -> None:
        while True:
            try:
                await self._log.close()
            except RefusedError as refusal:
                if not _is_disk_full_error(refusal):
                    raise
                if self._reserve.give(ROLL_BYTES):
                    continue
                _LOGGER.error("the metadata log is not closed in order: its disk is full")
                self._log.abandon()
            return

    def abandon(self) -> None:
        """Close the files of the metadata log as they are, without a flush."""
        self._log.abandon()
        if self.promises is not None:
            self.promises.close()

    async def _start_at(self, snapshot_id: OffsetAndEpoch) -> None:
        """Empty the metadata log, so that it starts at the end offset of a snapshot."""
        await self._log.truncate_fully_and_start_at(snapshot_id.offset)
        await self._snapshots.remove(one for one in self._snapshots.ids if one != snapshot_id)

    async def _learn_voters(self, snapshot_id: OffsetAndEpoch | None) -> None:
        """Read the quorum's voter sets from the latest snapshot and from all records after it."""
        if snapshot_id is None:
            self._history.start_with(None)
        else:
            data = await self.read_whole_snapshot(snapshot_id)
            self._history.start_with(snapshot.voters_of(data))
        offset = self.start_offset if snapshot_id is None else snapshot_id.offset
        offset = Offset(max(offset, self.start_offset))
        while offset < self.end_offset:
            records = await self.read(
                offset, end_offset=self.end_offset, bytes_max=VOTERS_SCAN_BYTES
            )
            self._history.add(
                one for one in voter_sets_in(records) if one[0] > self._history.latest_offset
            )
            offset = max(header.end_offset for _, header in batches(records))

    def _append_as_leader(self, records: memoryview, epoch: Epoch) -> None:
        now_ms = self._clock.wall_ms()
        self._log.append_as_leader(
            records, leader_epoch=epoch, now_ms=now_ms, origin=AppendOrigin.RAFT
        )

    def _append_as_follower(self, records: memoryview, epoch_max: Epoch) -> None:
        try:
            check_epochs(records, self.last_epoch, epoch_max)
            sets = voter_sets_in(records)
            self._log.append_as_follower(records, now_ms=self._clock.wall_ms())
            self._history.add(sets)
        except (RefusedError, CorruptDataError) as error:
            if isinstance(error, RefusedError) and error.code is not ErrorCode.CORRUPT_MESSAGE:
                raise
            _LOGGER.warning("metadata log: the leader's batches came damaged: %s", error)


def _is_disk_full_error(error: OSError | RefusedError) -> bool:
    # Code compiled by mypyc keeps only the context of `raise ... from`, not the cause.
    cause = error if isinstance(error, OSError) else error.__cause__ or error.__context__
    return isinstance(cause, OSError) and is_disk_full(cause)


def _size_of(append: Append) -> int:
    if isinstance(append, LeaderAppend | FollowerAppend):
        return len(_view(append.records))
    return 0


def whole_batches_bytes(data: bytes) -> int:
    """Return the total size in bytes of the complete record batches at the start of `data`."""
    at = 0
    while len(data) - at >= BATCH_HEADER_BYTES:
        end = at + parse_header(data, at).size_bytes
        if end > len(data):
            break
        at = end
    return at


def _view(records: Records) -> memoryview:
    if isinstance(records, bytes | memoryview):
        return memoryview(records)
    return memoryview(records.read())
