"""A machine's real logs: the `storage` package over the simulated disk, which loses and tears data.

After the end of a process its logs are recovered at once, so that the invariant checks can read
them. The next process uses the recovered logs. Invariant: FlushedIsKept.
"""

from enum import Enum
from typing import Any
from uuid import UUID

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.disk_waits import bytes_of, waited_for
from ottla.jepsen.world.invariants.replication import JudgedLog, JudgedRecord, require
from ottla.jepsen.world.walk.replication.replication_batches import NO_RECORD, records_in
from ottla.model.ids import Offset
from ottla.model.run_now import run_now
from ottla.model.seams import Rng
from ottla.storage.log.log import Log, open_log
from ottla.storage.segments.log_config import LogConfig

ROOT = "/data"
READ_BYTES_MAX = 1 << 20
NOW_MS = 1


class DiskReplicaLog:
    """One replica's log, in the form that the invariant checks read."""

    __slots__ = (
        "_durable_offset",
        "_generation",
        "_opened_count",
        "_records",
        "directory",
        "log",
        "topic_id",
    )

    def __init__(self, directory: str, topic_id: UUID, log: Log) -> None:
        self.directory = directory
        self.topic_id = topic_id
        self.log = log
        self._generation = 0
        self._durable_offset = Offset(0)
        """End offset of the data that was flushed before the log was opened and still exists."""
        self._opened_count = 0
        self._records: list[JudgedRecord] = []

    def take(self, log: Log) -> None:
        """Use the recovered log `log` in place of the log of the ended process."""
        self._durable_offset = min(self.recovery_point, log.end_offset)
        self.log = log
        self._opened_count += 1
        self._records = []
        self._generation = 0

    @property
    def records(self) -> list[JudgedRecord]:
        """All records in the replica's log, by offset."""
        log = self.log
        if log.state.generation != self._generation:
            self._generation = log.state.generation
            self._records = []
        if not self._records:
            self._records = [NO_RECORD] * log.log_start_offset
        if len(self._records) < log.end_offset:
            found = waited_for(
                lambda: log.read(
                    Offset(len(self._records)),
                    bytes_max=READ_BYTES_MAX,
                    end_offset=log.end_offset,
                    at_least_one=True,
                )
            )
            assert found.slice is not None
            self._records += [record for _, record in records_in(bytes_of(found.slice))]
        return self._records

    @property
    def cut_count(self) -> int:
        """Number that changes with each truncation of the replica's log and each start of the
        broker's process."""
        return (self._opened_count << 32) + self.log.state.generation

    @property
    def log_start_offset(self) -> Offset:
        """First offset of the log that the replica serves."""
        return self.log.log_start_offset

    @property
    def recovery_point(self) -> Offset:
        """End offset of the replica's data that survives a power cut. A log that was just opened
        knows only the offset in its checkpoint, but the disk may have more flushed data."""
        if self.log.state.generation > 0:
            return self.log.recovery_point
        return max(self.log.recovery_point, self._durable_offset)

    @property
    def high_watermark(self) -> Offset:
        """High watermark of the partition according to the replica's broker."""
        return self.log.high_watermark


class DiskLoss(Enum):
    """Kinds of damage by which a machine's disk loses data of one log."""

    ALL = 0
    TAIL = 1
    HOLE = 2


class DiskStore:
    """The replicas' logs on the disk of one simulated machine."""

    def __init__(self, rng: Rng) -> None:
        self._disk = SimulatedDisk(rng)
        run_now(self._disk.makedirs(ROOT))
        run_now(self._disk.fsync_directory("/"))
        self._held: dict[int, DiskReplicaLog] = {}
        self._made_count = 0

    def held(self, index: int) -> JudgedLog | None:
        """Return the log of a partition's replica in the form that the invariant checks read, or
        None if the machine has no such replica."""
        return self._held.get(index)

    def open(self, index: int, topic_id: UUID, config: LogConfig) -> Any:
        """Return the log of a partition's replica on this machine, and create it if it is
        missing."""
        held = self._held.get(index)
        if held is None:
            self._made_count += 1
            directory = f"{ROOT}/t-{index}.{self._made_count}"
            log = self._opened(directory, topic_id, config, (Offset(0), Offset(0)), is_clean=False)
            run_now(self._disk.fsync_directory(ROOT))
            held = self._held[index] = DiskReplicaLog(directory, topic_id, log)
        held.log.config = config
        return held.log

    def delete(self, index: int) -> None:
        """Remove the log of a partition's replica from the disk."""
        held = self._held.pop(index, None)
        if held is not None:
            held.log.abandon()

    def lose(self, index: int, rng: Rng, how: DiskLoss) -> bool:
        """Remove flushed data of a replica from the disk. Returns whether acknowledged records are
        missing.

        Either all data is lost, or all data above an offset that is below the checkpoints. A
        smaller loss would be a torn tail. A hole removes no bytes from the file: the broker uses
        only the offset at which the hole begins.
        """
        held = self._held.get(index)
        if held is None:
            return False
        log = held.log
        promised = max(log.high_watermark, min(held.recovery_point, log.end_offset))
        if promised <= log.log_start_offset:
            return False
        if how is DiskLoss.ALL:
            self.delete(index)
            return True
        left = Offset(log.log_start_offset + rng.below(promised - log.log_start_offset))
        if how is DiskLoss.HOLE:
            log.note_hole(left if log.hole_offset is None else min(left, log.hole_offset))
        else:
            run_now(log.truncate_to(left))
        return True

    def hole_offset_of(self, index: int) -> Offset | None:
        """Return the offset of the first hole (lost records) in a replica's log, or None if it has
        no hole."""
        held = self._held.get(index)
        return None if held is None else held.log.hole_offset

    def indexes(self) -> list[int]:
        """Return the indexes of the partitions that have a log on this disk."""
        return sorted(self._held)

    def end_process(self, rng: Rng, *, is_power_cut: bool) -> bool:
        """End the process that uses the disk, perhaps with a power cut. Returns whether a log has
        become shorter."""
        for held in self._held.values():
            held.log.abandon()
        if is_power_cut:
            self._disk.crash()
        else:
            self._disk.kill()
        is_shorter = False
        for index in self.indexes():
            held = self._held[index]
            old = held.log
            kept_offset = held.recovery_point if is_power_cut else old.end_offset
            high_watermark = rng.below(old.high_watermark + 1)
            log = self._reopened(held, is_clean=False)
            require(
                log.end_offset >= kept_offset,
                "FlushedIsKept",
                f"a log ends at {log.end_offset}, not at {kept_offset} or later",
            )
            log.update_high_watermark(Offset(high_watermark))
            is_shorter |= log.end_offset < old.end_offset
            held.take(log)
        return is_shorter

    def stop_cleanly(self) -> None:
        """Flush and close all logs on the disk, like a clean shutdown of the broker."""
        for held in self._held.values():
            high_watermark = held.log.high_watermark
            run_now(held.log.close())
            log = self._reopened(held, is_clean=True)
            log.update_high_watermark(high_watermark)
            held.take(log)

    def _reopened(self, held: DiskReplicaLog, *, is_clean: bool) -> Log:
        old = held.log
        checkpoints = (old.recovery_checkpoint, old.log_start_offset)
        log = self._opened(
            held.directory, held.topic_id, old.config, checkpoints, is_clean=is_clean
        )
        # A checkpoint may be below the flushed end. This object remembers the flushed end.
        state = log.state
        state.recovery_point = max(log.recovery_point, min(old.recovery_point, log.end_offset))
        log.note_hole(old.hole_offset)  # A restart keeps the known losses.
        return log

    def _opened(
        self,
        directory: str,
        topic_id: UUID,
        config: LogConfig,
        checkpoints: tuple[Offset, Offset],
        *,
        is_clean: bool,
    ) -> Log:
        return run_now(
            open_log(
                self._disk,
                directory,
                config=config,
                topic_id=topic_id,
                is_clean=is_clean,
                recovery_point=checkpoints[0],
                log_start_offset=checkpoints[1],
                now_ms=NOW_MS,
            )
        )
