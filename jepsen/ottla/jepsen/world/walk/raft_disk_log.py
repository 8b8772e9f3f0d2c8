"""A member's metadata log on the world's disk, and what a judge sees of it, also while it is down.

Everything that is to be on the disk is mirrored, and compared with what each recovery finds.
Invariants FlushedIsKept, SnapshotAtLogStart, SnapshotHoldsCommitted.
"""

import errno
from collections.abc import Iterable
from hashlib import blake2b

from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.walk.stepping import Doomed, DoomedDisk, run_through
from ottla.model.ids import Epoch, Offset, OffsetAndEpoch
from ottla.model.seams import Rng
from ottla.model.settings.quorum import QuorumConfig
from ottla.node.metadata_log import MetadataLog, open_metadata_log
from ottla.raft.effects import Append, FollowerAppend, LeaderAppend, SnapshotChunk
from ottla.raft.election_state import ElectionState
from ottla.raft.messages import Records
from ottla.raft.snapshot import BOOTSTRAP_ID, footer_batch, opening_batch
from ottla.raft.testing.invariants import Invariants
from ottla.raft.testing.memory_log import MemoryEntry
from ottla.raft.voters import VoterSet
from ottla.storage.directory_names import METADATA_DIRECTORY
from ottla.wire.batch import batches, parse_header
from ottla.wire.batch_builder import BatchBuilder
from ottla.wire.records import scan

ROOT = "/meta"
READ_BYTES = 1 << 20
NOW_MS = 1

DOOM_OPERATIONS_MAX = 24
"""Operations of a disk among which the power goes: a snapshot that takes a log's place has more
than a dozen."""


class _StillClock:
    """Time that stands still: only the cores of a walk have clocks."""

    def monotonic_ms(self) -> int:
        """Return the one instant there is."""
        return NOW_MS

    wall_ms = monotonic_ms


class DiskLog:
    """A metadata log on a disk of its own, and what a judge sees of it, also while it is down."""

    def __init__(
        self, config: QuorumConfig, voters: VoterSet, rng: Rng, invariants: Invariants
    ) -> None:
        self.rng = rng
        self.disk = DoomedDisk(rng)
        self.election: ElectionState | None = None
        """What the file `quorum-state` said when the log was opened."""
        self.was_cut_while_recovered = False
        self.is_failing = False
        """Whether its disk was asked to fail since the process began."""
        self._config = config
        self._voters = voters
        self._invariants = invariants
        self._entries: list[MemoryEntry] = []
        """From offset 0 on, those a snapshot stands for included."""
        self._coming: list[MemoryEntry] = []
        """What is being appended: a power cut may leave some of it."""
        self._promised = Offset(0)
        """The end of what every recovery must find."""
        run_through(self.disk.makedirs(f"{ROOT}/{METADATA_DIRECTORY}"))
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
        self._log = self._opened()
        self.election = run_through(self._log.read_election())
        self._compare()
        self._coming = []
        self._promise()

    # --- inside -------------------------------------------------------------------------------

    def _demand_room(self, must_try_again: bool) -> None:
        if must_try_again:
            raise OSError(errno.ENOSPC, "no room", self._log.directory)

    def _opened(self) -> MetadataLog:
        log: MetadataLog = run_through(
            open_metadata_log(self.disk, ROOT, config=self._config, clock=_StillClock())
        )
        return log

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
