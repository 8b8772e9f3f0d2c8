"""The metadata log of a quorum member on the simulated disk. The invariant checks can read it even
while the member is down.

It keeps a copy of the expected content of the disk, and compares the copy with the result of each
recovery. Invariants: FlushedIsKept, SnapshotAtLogStart, SnapshotHoldsCommitted.
"""

import errno
from collections.abc import Iterable
from enum import Enum, auto
from hashlib import blake2b

from ottla.jepsen.quorum.invariants import Invariants
from ottla.jepsen.quorum.memory_log import MemoryEntry
from ottla.jepsen.world.disk_faults import DiskOperation, FileDamage, damaged
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.walk.stepping import CrashingDisk, ProcessEnd, run_through
from ottla.model.ids import Epoch, Offset, OffsetAndEpoch
from ottla.model.seams import Rng
from ottla.model.settings.quorum import QuorumConfig
from ottla.node.identity import write_initial_vote
from ottla.node.quorum.metadata_log import MetadataLog, open_metadata_log
from ottla.node.quorum_files.snapshot_check import SOUND, check_snapshots, remove_damaged
from ottla.raft.effects import Append, FollowerAppend, LeaderAppend, SnapshotChunk
from ottla.raft.election_state import ElectionState
from ottla.raft.messages import Records
from ottla.raft.snapshot import BOOTSTRAP_ID, footer_batch, opening_batch
from ottla.raft.transitions import Standing
from ottla.raft.voter_checkpoint import VoterVerdict
from ottla.raft.voters import QuorumIdentity, ReplicaKey, VoterSet
from ottla.storage.disk.directory_names import METADATA_DIRECTORY
from ottla.wire.batch import batches, parse_header
from ottla.wire.batch_builder import BatchBuilder
from ottla.wire.records import scan

ROOT = "/meta"
DIRECTORY = f"{ROOT}/{METADATA_DIRECTORY}"
READ_BYTES = 1 << 20
NOW_MS = 1

DOOM_OPERATIONS_MAX = 24
"""Maximum number of disk operations before a scheduled power cut. A snapshot that replaces a log
needs more than a dozen operations."""


class Damage(Enum):
    """Kinds of damage to the files of a stopped voter."""

    LOGS = auto()
    STATE = auto()
    CHECKPOINT = auto()
    STATE_FILES = auto()
    """Damage to both files that store the vote, so that no copy of the vote remains."""
    EPOCHS = auto()
    SNAPSHOTS = auto()
    OLDER_COPY = auto()
    """Damage that replaces one file of a voter by an older copy of it."""


ALARMING = frozenset({Damage.STATE_FILES, Damage.CHECKPOINT, Damage.OLDER_COPY})
"""Kinds of damage after which a voter cannot know whether it still has all acknowledged records."""


class _FrozenClock:
    """Clock that never advances. Only the raft cores of a random walk have clocks that advance."""

    def monotonic_ms(self) -> int:
        """Return the fixed monotonic time in ms."""
        return NOW_MS

    wall_ms = monotonic_ms


class DiskLog:
    """A metadata log on its own disk. The invariant checks can read it even while its quorum member
    is down."""

    def __init__(
        self, config: QuorumConfig, identity: QuorumIdentity, rng: Rng, invariants: Invariants
    ) -> None:
        self.rng = rng
        self._is_voter = identity.is_voter
        self.disk = CrashingDisk(rng)
        self.election: ElectionState | None = None
        """Content of the file `quorum-state` when the log was opened, or None if there was no
        usable file."""
        self.damages: tuple[str, ...] = ()
        """Kinds of damage to the voter's files that the member found when it opened the log."""
        self.has_snapshot_damage = False
        """True if the member found damaged or missing snapshots when it opened the log."""
        self.standing = Standing.FULL
        """Voting rights of the quorum member after its log was last opened."""
        self.was_cut_while_recovered = False
        self.is_failing = False
        """True if a disk fault was injected since the quorum member's process began."""
        self._config = config
        self._voters = identity.voters
        self._invariants = invariants
        self._entries: list[MemoryEntry] = []
        """Expected entries of the log from offset 0, including entries in a snapshot."""
        self._coming: list[MemoryEntry] = []
        """Entries that are being appended to the log. Some of them may survive a power cut."""
        self._promised = Offset(0)
        """Offset below which every recovery of the log must find all entries."""
        self._lacks_snapshots = False
        """True if some snapshots of the log were damaged. A complete log that begins at offset 0
        needs no snapshot."""
        self._formerly: dict[str, bytes] = {}
        """Older copies of files in the log's directory, by file name, with which damage may replace
        the files."""
        run_through(self.disk.makedirs(DIRECTORY))
        if self._is_voter:
            run_through(write_initial_vote(self.disk, ROOT))
        self._log = self._opened()
        run_through(self._log.write_snapshot(BOOTSTRAP_ID, self._batches_of(BOOTSTRAP_ID)))
        self.disk.flush_everything()

    # --- read by the core and the judge -------------------------------------------------------

    @property
    def start_offset(self) -> Offset:
        """First offset that is still in the log."""
        return self._log.start_offset

    @property
    def end_offset(self) -> Offset:
        """Offset after the last entry appended to the log."""
        return self._log.end_offset

    @property
    def flushed_offset(self) -> Offset:
        """Offset after the last entry of the log that survives a power cut."""
        return self._log.flushed_offset

    @property
    def last_epoch(self) -> Epoch:
        """Epoch of the last entry in the log."""
        return self._log.last_epoch

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """Id of the newest intact snapshot, or None if there is no intact snapshot."""
        return self._log.latest_snapshot_id

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        """Id of the oldest intact snapshot that is still kept, or None if there is no intact
        snapshot."""
        return self._log.earliest_snapshot_id

    @property
    def voters(self) -> VoterSet | None:
        """Last voter set in the log or its snapshot, or None if neither has one."""
        return self._log.voters

    @property
    def voters_offset(self) -> Offset:
        """Offset of the record with the last voter set, or NO_OFFSET if no record has one."""
        return self._log.voters_offset

    def has_voter_below(self, key: ReplicaKey, end_offset: Offset) -> bool:
        """Return whether a voter set before `end_offset` in the log includes the replica `key`."""
        return self._log.has_voter_below(key, end_offset)

    def end_offset_for_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        """Return the largest epoch in the log that is not above `epoch`, and its end offset."""
        return self._log.end_offset_for_epoch(epoch)

    def snapshot_size_bytes(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Return the size in bytes of a snapshot's file, or None if there is no such snapshot."""
        return self._log.snapshot_size_bytes(snapshot_id)

    def entry(self, offset: int) -> MemoryEntry | None:
        """Return the entry at an offset, from the log or a snapshot, or None if neither has it."""
        return self._entries[offset] if 0 <= offset < len(self._entries) else None

    def read(self, offset: Offset, bytes_max: int) -> bytes:
        """Return whole batches of the log from an offset on, up to `bytes_max` bytes."""
        end_offset = self._log.end_offset
        data: bytes = run_through(
            self._log.read(offset, end_offset=end_offset, bytes_max=bytes_max)
        )
        return data

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, bytes_max: int) -> bytes:
        """Return up to `bytes_max` bytes of a snapshot's file from byte `position` on."""
        data: bytes = run_through(
            self._log.read_snapshot(snapshot_id, position=position, bytes_max=bytes_max)
        )
        return data

    # --- called by a driver -------------------------------------------------------------------

    def append(self, append: Append) -> None:
        """Append entries to the log without flushing them."""
        self._coming = self._entries_of(append)
        self._log.append(append)
        if self._log.is_out_of_space:
            raise OSError(errno.ENOSPC, "no room in the log", self._log.directory)
        self._entries += self._coming
        self._coming = []
        assert self._log.end_offset == len(self._entries)
        self._promise()

    def truncate_to(self, offset: Offset) -> None:
        """Remove the log's entries from `offset` on, which were never committed."""
        self._promised = min(self._promised, offset)
        run_through(self._log.truncate_to(offset))
        self._cut(self._log.end_offset)

    def flush(self) -> Offset:
        """Make all entries of the log durable, and return the end offset of the log."""
        end_offset: Offset = run_through(self._log.flush())
        self._promise()
        return end_offset

    def write_election(self, state: ElectionState) -> None:
        """Write epoch, vote and leader of the quorum member to the file `quorum-state`."""
        self._demand_room(run_through(self._log.write_election(state)))

    def write_chunk(self, chunk: SnapshotChunk) -> None:
        """Write a chunk of the leader's snapshot to disk. After the last chunk, the snapshot
        replaces the log."""
        if chunk.is_last:
            self._promised = min(self._promised, chunk.snapshot_id.offset)
        self._demand_room(run_through(self._log.write_chunk(chunk)))
        if chunk.is_last:
            self._check_snapshot(chunk.snapshot_id)
            self._entries = self._invariants.committed[: chunk.snapshot_id.offset]
            self._promise()

    def snapshot_at(self, offset: Offset) -> None:
        """Write a snapshot of all entries of the log below the offset."""
        snapshot_id = OffsetAndEpoch(offset, self._entries[offset - 1].epoch)
        run_through(self._log.write_snapshot(snapshot_id, self._batches_of(snapshot_id)))
        self._promise()

    def fail(self, operation: DiskOperation, skip_count: int) -> None:
        """Make one call of the log's disk fail, after `skip_count` successful ones."""
        self.is_failing = True
        self.disk.fail(operation, skip_count=skip_count)

    def fill(self, room_bytes: int) -> None:
        """Fill the log's disk, so that only `room_bytes` of space remain."""
        self.is_failing = True
        self.disk.capacity_bytes = self.disk.used_bytes + room_bytes

    def heal(self) -> None:
        """Remove the injected faults of the log's disk. A log that has failed remains failed until
        it is opened again."""
        self.disk.heal()

    def note_high_watermark(self, offset: Offset) -> None:
        """Set the log's high watermark to `offset`."""
        self._log.note_high_watermark(offset)
        self._promise()

    def crash(self, survivor_count: int) -> None:
        """Cut the power of the log's machine, perhaps a second time during the recovery, and
        compare the recovered log with the expected content."""
        self._log.abandon()
        self.disk.operations_left = None
        self.disk.heal()
        self.is_failing = False
        self.disk.crash()
        self.was_cut_while_recovered = False
        if self.rng.below(4) == 0:
            self.disk.operations_left = self.rng.below(DOOM_OPERATIONS_MAX)
            try:
                self._opened().abandon()
            except ProcessEnd:
                self.was_cut_while_recovered = True
            self.disk.operations_left = None
            self.disk.crash()
        was_full = self.standing is Standing.FULL
        self._log = self._opened()
        if was_full and self.standing is not Standing.FULL:
            raise Violation("NoFalseAlarm", f"a power loss took {self.election} its vote")
        self._compare()
        self._coming = []
        self._promise()

    # --- inside -------------------------------------------------------------------------------

    def _demand_room(self, must_try_again: bool) -> None:
        if must_try_again:
            raise OSError(errno.ENOSPC, "no room", self._log.directory)

    def _opened(self) -> MetadataLog:
        snapshots = SOUND
        if self._is_voter:
            snapshots = run_through(check_snapshots(self.disk, DIRECTORY))
            run_through(remove_damaged(self.disk, DIRECTORY, snapshots))
        log: MetadataLog = run_through(
            open_metadata_log(self.disk, ROOT, config=self._config, clock=_FrozenClock())
        )
        if not self._is_voter:
            self.election = run_through(log.read_election())
            return log
        verdict: VoterVerdict = run_through(
            log.open_as_voter(is_state_expected=True, snapshots=snapshots)
        )
        self.election = verdict.checkpoint.election
        self.damages = verdict.damages
        self.has_snapshot_damage = bool(snapshots.damaged) or snapshots.is_out_of_reach
        self.standing = self.election.standing
        return log

    # --- damage -------------------------------------------------------------------------------

    def copy_file(self) -> None:
        """Keep a copy of one file of the log. Damage of the kind OLDER_COPY may later replace the
        file by this copy."""
        with self.disk.quietly():
            names = self._names_of_damage()
            name = names[self.rng.below(len(names))]
            self._formerly = {name: bytes(run_through(self.disk.read_file(f"{DIRECTORY}/{name}")))}

    def damage(self, kind: Damage) -> bool:
        """Damage files of the stopped voter and open the log. Returns whether acknowledged records
        were lost.

        Raises Violation(DamageIsNoticed) if the voter may vote although acknowledged records are
        missing. Raises Violation(NoFalseAlarm) if it may not vote although nothing is missing.
        """
        promised, election = self._log.flushed_offset, self.election
        last_epoch = self._log.last_epoch
        was_full = self.standing is Standing.FULL
        self._log.abandon()
        self.heal()
        self.is_failing = False
        with self.disk.quietly():
            self._damage_files(kind)
            self.disk.flush_everything()
            self._log = self._opened()
        has_lost = (
            self._log.end_offset < promised
            or self._log.last_epoch < last_epoch
            or _knowledge_of(self.election) < _knowledge_of(election)
        )
        if has_lost and self.standing is Standing.FULL:
            raise Violation(
                "DamageIsNoticed",
                f"a voter that promised {promised} and {election} votes with"
                f" {self._log.end_offset} and {self.election}",
            )
        has_lost |= self._log.last_epoch != last_epoch  # no CRC covers the epoch of a batch
        is_alarm_due = has_lost or not was_full or kind in ALARMING
        if self.standing is not Standing.FULL and not is_alarm_due:
            raise Violation(
                "NoFalseAlarm",
                f"{kind} took {self.election} its vote: {self.damages}",
            )
        self._take_what_is_there()
        return self.standing is not Standing.FULL

    def _names_of_damage(self) -> list[str]:
        """Return the names of the log's files that an injected damage may affect."""
        names: list[str] = run_through(self.disk.listdir(DIRECTORY))
        wanted = (
            ".log",
            ".checkpoint",
            "quorum-state",
            "leader-epoch-checkpoint",
            "voter-checkpoint",
        )
        return [name for name in names if name.endswith(wanted)]

    def _damage_files(self, kind: Damage) -> None:
        names = self._names_of_damage()
        match kind:
            case Damage.OLDER_COPY:
                for name, data in self._formerly.items():
                    self._replace(name, data)
            case Damage.LOGS:
                logs = [name for name in names if name.endswith(".log")]
                for name in logs:
                    if self.rng.below(2):
                        # A flipped byte below a snapshot is found by its CRC when it is fetched.
                        self._damage_file(name, is_flipped=name == logs[-1])
            case Damage.SNAPSHOTS:
                self._lacks_snapshots = True
                names = [name for name in names if name.endswith(".checkpoint")]
                for name in names[-1:] if self.rng.below(2) else names:
                    self._damage_file(name)
            case Damage.STATE_FILES:
                for name in ("quorum-state", "voter-checkpoint"):
                    self._damage_file(name, is_whole=True)
            case Damage.CHECKPOINT:
                self._damage_file("voter-checkpoint")
            case Damage.STATE:
                self._damage_file("quorum-state")
            case Damage.EPOCHS:
                if "leader-epoch-checkpoint" in names:
                    self._damage_file("leader-epoch-checkpoint")

    def _damage_file(self, name: str, *, is_whole: bool = False, is_flipped: bool = True) -> None:
        """Remove, empty or halve one file of the log, or flip one of its bytes. With `is_whole`, no
        readable data remains. `is_flipped` allows flipped bytes."""
        if not self.disk.exists(f"{DIRECTORY}/{name}"):
            return  # a voter that has lost its vote keeps no quorum-state
        before = run_through(self.disk.read_file(f"{DIRECTORY}/{name}"))
        kind = FileDamage(self.rng.below(2 if is_whole else 3 + is_flipped))
        data = damaged(before, kind, self.rng.below)
        if data is None:
            run_through(self.disk.unlink(f"{DIRECTORY}/{name}"))
        else:
            self._replace(name, data)

    def _replace(self, name: str, data: bytes) -> None:
        run_through(self.disk.write_atomically(f"{DIRECTORY}/{name}", data))

    def _take_what_is_there(self) -> None:
        """Adopt the damaged log as the expected content. Later comparisons then ignore the lost
        entries."""
        log, found = self._log, self._invariants.committed[: self._log.start_offset]
        self._promised = Offset(0)
        at = log.start_offset
        with self.disk.quietly():
            while at < log.end_offset:
                data = run_through(log.read(at, end_offset=log.end_offset, bytes_max=READ_BYTES))
                for offset, entry in entries_in(data):
                    found.append(entry)
                    at = Offset(offset + 1)
        self._entries = found
        self._promise()

    def _promise(self) -> None:
        """Store the flushed entries as entries that every later recovery of the log must find."""
        self._promised = max(self._promised, self._log.flushed_offset)

    def _cut(self, offset: int) -> None:
        del self._entries[offset:]

    def _entries_of(self, append: Append) -> list[MemoryEntry]:
        """Return the entries that a pending append adds to the log."""
        if isinstance(append, FollowerAppend):
            return [entry for _, entry in entries_in(_bytes_of(append.records))]
        epoch = append.leader_epoch
        if isinstance(append, LeaderAppend):
            found = entries_in(_bytes_of(append.records))
            return [entry._replace(epoch=epoch) for _, entry in found]
        return [MemoryEntry(epoch, f"control {self._log.end_offset}", True)]

    def _compare(self) -> None:
        """Check FlushedIsKept: the log contains all required entries, and no entry that was not
        written."""
        log = self._log
        start_offset, end_offset = log.start_offset, log.end_offset
        if end_offset < self._promised:
            raise Violation(
                "FlushedIsKept", f"a log ends at {end_offset}, not at {self._promised} or later"
            )
        latest, earliest = log.latest_snapshot_id, log.earliest_snapshot_id
        if latest is None and self._lacks_snapshots and start_offset == 0:
            self._compare_entries(start_offset, end_offset)
            return
        if earliest is None or (start_offset > 0 and earliest.offset < start_offset):
            raise Violation(
                "SnapshotAtLogStart", f"a log begins at {start_offset}, its snapshot is {earliest}"
            )
        assert latest is not None
        if latest.offset > 0:
            self._check_snapshot(latest)
        if start_offset == end_offset == latest.offset:
            self._entries = self._invariants.committed[:end_offset]
        self._compare_entries(start_offset, end_offset)

    def _compare_entries(self, at: Offset, end_offset: Offset) -> None:
        written = [*self._entries, *self._coming]
        while at < end_offset:
            data = run_through(self._log.read(at, end_offset=end_offset, bytes_max=READ_BYTES))
            for offset, entry in entries_in(data):
                if written[offset : offset + 1] != [entry]:
                    raise Violation(
                        "FlushedIsKept",
                        f"a log has {entry} at {offset}, not {written[offset : offset + 1]}",
                    )
                at = Offset(offset + 1)
        self._entries = written[:end_offset]

    def _check_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Check SnapshotHoldsCommitted: a snapshot contains the state of the committed entries that
        it replaces."""
        with self.disk.quietly():
            data = run_through(self._log.read_whole_snapshot(snapshot_id))
        said = [
            _text(record.value)
            for at, header in batches(data)
            if not header.is_control
            for record in scan(data, at, header)
        ]
        committed = self._invariants.committed[: snapshot_id.offset]
        if len(committed) < snapshot_id.offset or said != [digest_of(committed)]:
            raise Violation("SnapshotHoldsCommitted", f"{snapshot_id} has other data")

    def _batches_of(self, snapshot_id: OffsetAndEpoch) -> list[bytes]:
        epoch = snapshot_id.epoch
        opening = opening_batch(
            self._voters, last_contained_timestamp_ms=NOW_MS, leader_epoch=epoch
        )
        builder = BatchBuilder()
        builder.append(NOW_MS, None, digest_of(self._entries[: snapshot_id.offset]).encode())
        base = parse_header(opening).end_offset
        data = builder.build(base_offset=base, leader_epoch=epoch)
        end = Offset(base + 1)
        return [
            opening,
            data,
            footer_batch(base_offset=end, timestamp_ms=NOW_MS, leader_epoch=epoch),
        ]


def _knowledge_of(election: ElectionState | None) -> tuple[int, int]:
    if election is None:
        return (0, 0)
    return election.epoch, (election.voted is not None) + (election.leader_id is not None)


def entries_in(data: bytes) -> list[tuple[Offset, MemoryEntry]]:
    """Return the records in complete batches as (offset, entry) pairs, which the invariant checks
    can compare."""
    found: list[tuple[Offset, MemoryEntry]] = []
    for at, header in batches(data):
        for record in scan(data, at, header):
            value = f"control {record.offset}" if header.is_control else _text(record.value)
            entry = MemoryEntry(header.partition_leader_epoch, value, header.is_control)
            found.append((record.offset, entry))
    return found


def digest_of(entries: Iterable[MemoryEntry]) -> str:
    """Return the digest of the log entries that a snapshot contains."""
    hasher = blake2b(digest_size=12)
    for entry in entries:
        hasher.update(f"{entry.epoch}/{entry.value};".encode())
    return hasher.hexdigest()


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode()


def _bytes_of(records: Records) -> bytes:
    return bytes(records) if isinstance(records, bytes | memoryview) else bytes(records.read())
