"""A member's metadata log on the world's disk, and what a judge sees of it, also while it is down.

Everything that is to be on the disk is mirrored, and compared with what each recovery finds.
Invariants FlushedIsKept, SnapshotAtLogStart, SnapshotHoldsCommitted.
"""

import errno
from collections.abc import Iterable
from enum import Enum, auto
from hashlib import blake2b

from ottla.jepsen.world.disk_faults import DiskOperation, FileDamage, damaged
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.walk.stepping import Doomed, DoomedDisk, run_through
from ottla.model.ids import Epoch, Offset, OffsetAndEpoch
from ottla.model.seams import Rng
from ottla.model.settings.quorum import QuorumConfig
from ottla.node.identity import write_first_vote
from ottla.node.metadata_log import MetadataLog, open_metadata_log
from ottla.node.quorum_files.snapshot_check import SOUND, check_snapshots, remove_damaged
from ottla.raft.effects import Append, FollowerAppend, LeaderAppend, SnapshotChunk
from ottla.raft.election_state import ElectionState
from ottla.raft.messages import Records
from ottla.raft.snapshot import BOOTSTRAP_ID, footer_batch, opening_batch
from ottla.raft.testing.invariants import Invariants
from ottla.raft.testing.memory_log import MemoryEntry
from ottla.raft.transitions import Standing
from ottla.raft.voter_checkpoint import VoterVerdict
from ottla.raft.voters import QuorumIdentity
from ottla.storage.directory_names import METADATA_DIRECTORY
from ottla.wire.batch import batches, parse_header
from ottla.wire.batch_builder import BatchBuilder
from ottla.wire.records import scan

ROOT = "/meta"
DIRECTORY = f"{ROOT}/{METADATA_DIRECTORY}"
READ_BYTES = 1 << 20
NOW_MS = 1

DOOM_OPERATIONS_MAX = 24
"""Operations of a disk among which the power goes: a snapshot that takes a log's place has more
than a dozen."""


class Damage(Enum):
    """Which of a stopped voter's files are damaged."""

    LOGS = auto()
    STATE = auto()
    CHECKPOINT = auto()
    STATE_FILES = auto()
    """Both that remember the vote, so that nothing does."""
    EPOCHS = auto()
    SNAPSHOTS = auto()
    OLDER_COPY = auto()
    """One file, put back from an older copy."""


ALARMING = frozenset({Damage.STATE_FILES, Damage.CHECKPOINT, Damage.OLDER_COPY})
"""Damages after which a voter cannot know that it has all it promised, though it may have."""


class _StillClock:
    """Time that stands still: only the cores of a walk have clocks."""

    def monotonic_ms(self) -> int:
        """Return the one instant there is."""
        return NOW_MS

    wall_ms = monotonic_ms


class DiskLog:
    """A metadata log on a disk of its own, and what a judge sees of it, also while it is down."""

    def __init__(
        self, config: QuorumConfig, identity: QuorumIdentity, rng: Rng, invariants: Invariants
    ) -> None:
        self.rng = rng
        self._is_voter = identity.is_voter
        self.disk = DoomedDisk(rng)
        self.election: ElectionState | None = None
        """What the file `quorum-state` said when the log was opened."""
        self.damages: tuple[str, ...] = ()
        """What the log's voter lost, as it was opened."""
        self.has_snapshot_damage = False
        """True if snapshots were found damaged or missing, as it was opened."""
        self.standing = Standing.FULL
        """What this log's voter may do, as the log was opened."""
        self.was_cut_while_recovered = False
        self.is_failing = False
        """Whether its disk was asked to fail since the process began."""
        self._config = config
        self._voters = identity.voters
        self._invariants = invariants
        self._entries: list[MemoryEntry] = []
        """From offset 0 on, those a snapshot stands for included."""
        self._coming: list[MemoryEntry] = []
        """What is being appended: a power cut may leave some of it."""
        self._promised = Offset(0)
        """The end of what every recovery must find."""
        self._lacks_snapshots = False
        """True if some were damaged: a whole log that begins at 0 needs none."""
        self._formerly: dict[str, bytes] = {}
        """A file of the directory as it was once, by name."""
        run_through(self.disk.makedirs(DIRECTORY))
        if self._is_voter:
            run_through(write_first_vote(self.disk, ROOT))
        self._log = self._opened()
        run_through(self._log.write_snapshot(BOOTSTRAP_ID, self._batches_of(BOOTSTRAP_ID)))
        self.disk.flush_everything()

    # --- what the core and the judge read -----------------------------------------------------

    @property
    def start_offset(self) -> Offset:
        """The first offset still in the log."""
        return self._log.start_offset

    @property
    def end_offset(self) -> Offset:
        """One past the last offset appended."""
        return self._log.end_offset

    @property
    def flushed_offset(self) -> Offset:
        """One past the last offset that survives a power cut."""
        return self._log.flushed_offset

    @property
    def last_epoch(self) -> Epoch:
        """The epoch of the last entry."""
        return self._log.last_epoch

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The newest whole snapshot."""
        return self._log.latest_snapshot_id

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The oldest whole snapshot kept."""
        return self._log.earliest_snapshot_id

    def end_offset_for_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        """Return the largest epoch up to `epoch` that the log holds, and where it ends."""
        return self._log.end_offset_for_epoch(epoch)

    def snapshot_size_bytes(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Return how long a snapshot's file is."""
        return self._log.snapshot_size_bytes(snapshot_id)

    def entry(self, offset: int) -> MemoryEntry | None:
        """Return what the log, or a snapshot of it, has at an offset."""
        return self._entries[offset] if 0 <= offset < len(self._entries) else None

    def read(self, offset: Offset, bytes_max: int) -> bytes:
        """Return whole batches from an offset on."""
        end_offset = self._log.end_offset
        data: bytes = run_through(
            self._log.read(offset, end_offset=end_offset, bytes_max=bytes_max)
        )
        return data

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, bytes_max: int) -> bytes:
        """Return a range of a snapshot's file."""
        data: bytes = run_through(
            self._log.read_snapshot(snapshot_id, position=position, bytes_max=bytes_max)
        )
        return data

    # --- what a driver does -------------------------------------------------------------------

    def append(self, append: Append) -> None:
        """Append without flushing."""
        self._coming = self._entries_of(append)
        self._log.append(append)
        if self._log.lacks_room:
            raise OSError(errno.ENOSPC, "no room in the log", self._log.directory)
        self._entries += self._coming
        self._coming = []
        assert self._log.end_offset == len(self._entries)
        self._promise()

    def truncate_to(self, offset: Offset) -> None:
        """Cut off what was never committed."""
        self._promised = min(self._promised, offset)
        run_through(self._log.truncate_to(offset))
        self._cut(self._log.end_offset)

    def flush(self) -> Offset:
        """Make all durable and return its end."""
        end_offset: Offset = run_through(self._log.flush())
        self._promise()
        return end_offset

    def write_election(self, state: ElectionState) -> None:
        """Remember epoch, vote and leader."""
        self._demand_room(run_through(self._log.write_election(state)))

    def write_chunk(self, chunk: SnapshotChunk) -> None:
        """Write a part of the leader's snapshot; the last one takes the log's place."""
        if chunk.is_last:
            self._promised = min(self._promised, chunk.snapshot_id.offset)
        self._demand_room(run_through(self._log.write_chunk(chunk)))
        if chunk.is_last:
            self._check_snapshot(chunk.snapshot_id)
            self._entries = self._invariants.committed[: chunk.snapshot_id.offset]
            self._promise()

    def snapshot_at(self, offset: Offset) -> None:
        """Write a snapshot of all below an offset."""
        snapshot_id = OffsetAndEpoch(offset, self._entries[offset - 1].epoch)
        run_through(self._log.write_snapshot(snapshot_id, self._batches_of(snapshot_id)))
        self._promise()

    def fail(self, operation: DiskOperation, skip_count: int) -> None:
        """Have one call to the disk fail, after some that do not."""
        self.is_failing = True
        self.disk.fail(operation, skip_count=skip_count)

    def fill(self, room_bytes: int) -> None:
        """Leave the disk little room."""
        self.is_failing = True
        self.disk.capacity_bytes = self.disk.used_bytes + room_bytes

    def heal(self) -> None:
        """Take back what was asked of the disk; one that failed stays so until it is opened."""
        self.disk.heal()

    def note_high_watermark(self, offset: Offset) -> None:
        """Tell the log what is committed."""
        self._log.note_high_watermark(offset)
        self._promise()

    def crash(self, survivor_count: int) -> None:
        """Lose power, perhaps once more while the log is recovered; compare what is left."""
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
            except Doomed:
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
            open_metadata_log(self.disk, ROOT, config=self._config, clock=_StillClock())
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
        """Keep a copy of one file, which may be put back later."""
        with self.disk.quietly():
            names = self._names_of_damage()
            name = names[self.rng.below(len(names))]
            self._formerly = {name: bytes(run_through(self.disk.read_file(f"{DIRECTORY}/{name}")))}

    def damage(self, kind: Damage) -> bool:
        """Damage files of the stopped voter, open the log; return whether promises were lost.

        Raises Violation(DamageIsNoticed) if it may vote with less than it promised, or
        Violation(NoFalseAlarm) if it may not, and the damaged files hold nothing that is missing.
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
        """Return the files that may be damaged."""
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
                        # A flipped batch below a snapshot is met when it is fetched, by its CRC.
                        self._hurt(name, is_flipped=name == logs[-1])
            case Damage.SNAPSHOTS:
                self._lacks_snapshots = True
                names = [name for name in names if name.endswith(".checkpoint")]
                for name in names[-1:] if self.rng.below(2) else names:
                    self._hurt(name)
            case Damage.STATE_FILES:
                for name in ("quorum-state", "voter-checkpoint"):
                    self._hurt(name, is_whole=True)
            case Damage.CHECKPOINT:
                self._hurt("voter-checkpoint")
            case Damage.STATE:
                self._hurt("quorum-state")
            case Damage.EPOCHS:
                if "leader-epoch-checkpoint" in names:
                    self._hurt("leader-epoch-checkpoint")

    def _hurt(self, name: str, *, is_whole: bool = False, is_flipped: bool = True) -> None:
        """Remove, empty, halve or flip a file; with `is_whole` leave nothing that can be read."""
        if not self.disk.exists(f"{DIRECTORY}/{name}"):
            return  # one that has forgotten its vote keeps no quorum-state
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
        """Mirror the damaged log as it is: what was lost is compared no longer."""
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
        """Expect of every recovery what the log calls flushed now."""
        self._promised = max(self._promised, self._log.flushed_offset)

    def _cut(self, offset: int) -> None:
        del self._entries[offset:]

    def _entries_of(self, append: Append) -> list[MemoryEntry]:
        """Return what an append will have added."""
        if isinstance(append, FollowerAppend):
            return [entry for _, entry in entries_in(_bytes_of(append.records))]
        epoch = append.leader_epoch
        if isinstance(append, LeaderAppend):
            found = entries_in(_bytes_of(append.records))
            return [entry._replace(epoch=epoch) for _, entry in found]
        return [MemoryEntry(epoch, f"control {self._log.end_offset}", True)]

    def _compare(self) -> None:
        """FlushedIsKept: what was promised is there, and nothing else than what was written."""
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
        """SnapshotHoldsCommitted: it says of what it stands for what was committed there."""
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
    """Return the records of whole batches as the judge's entries."""
    found: list[tuple[Offset, MemoryEntry]] = []
    for at, header in batches(data):
        for record in scan(data, at, header):
            value = f"control {record.offset}" if header.is_control else _text(record.value)
            entry = MemoryEntry(header.partition_leader_epoch, value, header.is_control)
            found.append((record.offset, entry))
    return found


def digest_of(entries: Iterable[MemoryEntry]) -> str:
    """Return what a snapshot says of all that it stands for."""
    hasher = blake2b(digest_size=12)
    for entry in entries:
        hasher.update(f"{entry.epoch}/{entry.value};".encode())
    return hasher.hexdigest()


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode()


def _bytes_of(records: Records) -> bytes:
    return bytes(records) if isinstance(records, bytes | memoryview) else bytes(records.read())
