"""Disks that have lost acknowledged records when their broker starts, in every order of restarts.

Either all brokers stop cleanly, or only one does. Files of one broker's replicas are removed,
emptied, truncated, flipped, or replaced by an older copy. Then all brokers start, in any order.
Invariants:

- LossIsFound: a broker that finds a damaged replica at its startup reports, logs and
  counts it;
- EpochsOfBatchesAreKnown: a log knows the epoch of each of its batches, however old the copy of its
  epoch checkpoint is;
- the invariants of every run: no acknowledged record is missing, no reader gets other records than
  were written, and the cluster heals by itself, because another replica has all records.

| damage | a startup after a clean stop must |
|---|---|
| directory removed; last `.log` emptied, truncated, or an older copy | report the replica as lost |
| closed `.log` removed, emptied, halved, or an older copy | report the replica as lost |
| topic id emptied | report nothing: the checkpoints also have it |
| one checkpoint is an older copy | report nothing: the log has all; epochs are read from batches |
| a byte of a batch is flipped | report it only in the checked part: after the last index entry |

A startup does not read flushed and closed segments, as in Kafka. So a flipped byte there may
legitimately remain undetected: readers and followers find it by the CRC of its batch, report it,
and stop there. New consumers read such partitions meanwhile. The byte is corrected later, as on a
disk that misread it, since such a reader would otherwise never end.

Bytes of a batch outside its CRC are not flipped. Neither are bytes of the brokers' internal topics,
because the coordinators could not load meanwhile. The closed segments that a startup after a kill
checks are tested with recovery.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import trio

from ottla.jepsen.world.disk_waits import bytes_of, waited_for
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.faults.cluster_faults import ClusterFaults, FaultContext
from ottla.jepsen.world.whole.machine import Machine
from ottla.jepsen.world.whole.workload import PASSING, ignoring_faults
from ottla.model.errors import CorruptDataError
from ottla.model.ids import NodeId, Offset, TopicPartition
from ottla.storage.directories.checkpoint_file import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from ottla.storage.directories.checkpoint_topics import CHECKPOINT_TOPICS_FILE
from ottla.storage.directories.clean_shutdown import CLEAN_SHUTDOWN_FILE
from ottla.storage.log.log import Log
from ottla.storage.log.log_reader import LogRead
from ottla.storage.segments.files import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from ottla.storage.segments.segment_list import CLOSED_SEGMENTS
from ottla.wire.batch import batches

DOWN_MS = (0, 2_000)
BETWEEN_MS = (0, 3_000)
"""Range of the delay in ms between the starts of two brokers. With the longest delay, one broker
serves alone for a while."""

MISREAD_MS = (200, 8_000)
"""Range of the time in ms for which the fault keeps a byte of a log flipped."""

READ_BYTES = 1 << 20

READ_AGAIN_S = 0.2
STOPPED_S_MAX = 20.0
FOUND_S_MAX = 60.0
LEFT_SHARES = (0.0, 0.5, 0.9)
"""Fractions of a log's bytes that may remain after the damage."""

COVERED_FROM = 21
"""First byte position in a record batch that the batch's CRC covers."""

CHECKPOINTS = (
    CHECKPOINT_TOPICS_FILE,
    CLEANER_OFFSET_FILE,
    CLOSED_SEGMENTS,
    HIGH_WATERMARK_FILE,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
"""Names of the checkpoint files of a log directory. The fault replaces one at a time by an older
copy."""


@dataclass(frozen=True, slots=True)
class FlippedByte:
    """One byte of a `.log` file that differs from the byte that was written."""

    machine: Machine
    path: str
    position: int
    written: int
    flipped: int

    def repair(self) -> None:
        """Write the original byte back in place of the flipped one, unless the log was truncated or
        removed since."""
        disk = self.machine.disk
        if not disk.exists(self.path):
            return
        file = disk.at(self.path)
        if file.size_bytes > self.position:
            found = file.read_cached(self.position, 1)
            if found == bytes([self.flipped]):
                disk.write(file, self.position, bytes([self.written]))


class DiskLosses(ClusterFaults):
    """Faults that remove flushed data from the disks of stopped brokers."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context)
        self._is_busy = False
        self._flipped: list[FlippedByte] = []
        self._older: dict[tuple[NodeId, str], bytes] = {}
        """Older copies of files on brokers' disks, by broker and path. A fault may replace a file
        by its copy."""

    async def lose(self) -> None:
        """Stop brokers, damage the disk of one of them, and start all of them in any order."""
        if self._is_busy or not self._cluster.is_in_sync:
            return
        self._is_busy = True
        try:
            await self._lose()
        finally:
            for flipped in self._flipped:
                flipped.repair()
            self._flipped.clear()
            self._is_busy = False

    async def _lose(self) -> None:
        nodes = self._shuffled([*self._cluster.broker_machines])
        victim = self._chance.pick(nodes)
        machine = self._cluster.broker_machines[victim]
        if not self._loss_limit.allow_loss(machine):
            return
        stopped = nodes if self._chance.below(3) else [victim]
        for node in stopped:
            if not await self._stop(self._cluster.broker_machines[node]):
                await self._start(self._shuffled(stopped))
                return
        damaged_count, restored = 0, ""
        if self._chance.below(3) == 0:
            restored = await self._restore_checkpoint(victim, machine)
        else:
            for directory in self._cluster.log_directories:
                damaged_count += await self._damage(victim, machine, directory)
        starts = self._shuffled(stopped)
        if damaged_count:
            self._counts["losses"] += 1
            self._rare.sometimes("a disk has lost acknowledged records")
            if len(stopped) > 1 and stopped[-1] == victim == starts[0]:
                self._rare.sometimes("the last broker that stopped loses and starts first")
        await self._start(starts)
        if damaged_count:
            await self._demand_found(victim, machine, damaged_count)
        if restored.endswith(LEADER_EPOCH_CHECKPOINT):
            await self._demand_epochs(victim, machine, restored.rsplit("/", 1)[0])
        if self._flipped:
            await self._read_flipped()
        await self._keep_copies(victim, machine)

    async def _keep_copies(self, victim: NodeId, machine: Machine) -> None:
        """Copy the `.log` and checkpoint files of the broker `victim`, so that a later fault can
        replace the current files by these copies."""
        for directory in self._cluster.log_directories:
            for path in machine.disk.files_in(directory):
                if path.endswith((".log", *CHECKPOINTS)) and machine.disk.exists(path):
                    self._older[victim, path] = await machine.disk.read_file(path)

    async def _restore_checkpoint(self, victim: NodeId, machine: Machine) -> str:
        """Replace one checkpoint file of a broker by its older copy, which loses no records.
        Returns its path."""
        await self._wait(DOWN_MS)
        found = [
            path
            for node, path in sorted(self._older)
            if node == victim and path.endswith(CHECKPOINTS) and machine.disk.exists(path)
            if await machine.disk.read_file(path) != self._older[node, path]
        ]
        if not found:
            return ""
        epochs = [path for path in found if path.endswith(LEADER_EPOCH_CHECKPOINT)]
        path = self._chance.pick(epochs if epochs and self._chance.below(2) else found)
        await machine.disk.write_atomically(path, self._older[victim, path])
        self._rare.sometimes("a checkpoint is an older copy")
        return path

    def _shuffled(self, nodes: list[NodeId]) -> list[NodeId]:
        waiting = list(nodes)
        return [waiting.pop(self._chance.below(len(waiting))) for _ in nodes]

    async def _stop(self, machine: Machine) -> bool:
        """Stop a machine's broker as an operator does. Returns whether its process has ended."""
        if machine.is_running and not machine.is_paused:
            with trio.move_on_after(STOPPED_S_MAX):
                await machine.stop()
        return not machine.is_running and machine.failure is None

    async def _start(self, nodes: list[NodeId]) -> None:
        for node in nodes:
            machine = self._cluster.broker_machines[node]
            await self._wait(BETWEEN_MS)
            if not machine.is_running:
                machine.start()

    async def _damage(self, victim: NodeId, machine: Machine, directory: str) -> int:
        """Damage some replicas in a log directory of the broker `victim`. Returns the number of
        replicas that lack records."""
        await self._wait(DOWN_MS)
        disk, count = machine.disk, 0
        logs = sorted(path for path in disk.files_in(directory) if path.endswith(".log"))
        by_partition: dict[str, list[str]] = {}
        for path in logs:
            by_partition.setdefault(path.rsplit("/", 1)[0], []).append(path)
        is_all = self._chance.below(4) == 0
        for partition, files in by_partition.items():
            sizes = [len(await disk.read_file(path)) for path in files]
            name = partition.rsplit("/", 1)[1]
            if "." in name or not sizes[-1] or name.startswith("__cluster"):
                continue
            if is_all or self._chance.below(2):
                is_loss = await self._damage_one(victim, machine, partition, files)
                # A topic with the prefix PASSING may be deleted meanwhile. Its replicas are then
                # strays, not losses.
                count += is_loss and not name.startswith(PASSING)
        return count

    async def _damage_one(
        self, victim: NodeId, machine: Machine, partition: str, logs: list[str]
    ) -> bool:
        """Damage the replica of one partition. Returns whether the broker must report missing
        records at its next startup."""
        disk = machine.disk
        kind = self._chance.pick(DAMAGES)
        path = logs[-1]
        is_loss = True
        match kind:
            case "removed":
                await disk.remove_tree(partition)
            case "no topic id":
                await disk.write_atomically(f"{partition}/{PARTITION_METADATA}", b"")
                is_loss = False  # a topic id is stored in two places
            case "cut":
                data = await disk.read_file(path)
                left = int(len(data) * self._chance.pick(LEFT_SHARES))
                await disk.write_atomically(path, data[:left])
            case "closed":
                is_loss = await self._damage_closed(machine, partition, logs[:-1])
            case "flipped":
                is_loss = await self._flip(machine, self._chance.pick(logs))
            case _:
                path = self._chance.pick(logs)
                older = self._older.get((victim, path), b"")
                is_loss = bool(older) and len(older) < len(await disk.read_file(path))
                if not is_loss:
                    return False
                await disk.write_atomically(path, older)
        self._rare.sometimes(f"a replica is damaged: {kind}")
        return is_loss

    async def _damage_closed(self, machine: Machine, partition: str, logs: list[str]) -> bool:
        """Remove, empty or halve the `.log` file of a closed segment of a replica. Returns whether
        a file was damaged."""
        disk = machine.disk
        directory = partition.rsplit("/", 1)[0]
        if not logs or not disk.exists(f"{directory}/{CLEAN_SHUTDOWN_FILE}"):
            return False
        path = self._chance.pick(logs)
        data = await disk.read_file(path)
        if not data:
            return False
        how = self._chance.pick(("removed", "emptied", "halved"))
        if how == "removed":
            await disk.unlink(path)
        else:
            await disk.write_atomically(path, data[: len(data) // 2] if how == "halved" else b"")
        self._rare.sometimes(f"a closed segment is {how}")
        return True

    async def _flip(self, machine: Machine, path: str) -> bool:
        """Flip bits of one byte of a `.log` file that a CRC covers. A startup need not find the
        damage. Returns whether a byte was flipped."""
        data = bytearray(await machine.disk.read_file(path))
        if data and not path.rsplit("/", 2)[1].startswith("__"):
            start, header = self._chance.pick(list(batches(data)))
            size = header.size_bytes - COVERED_FROM
            position = start + COVERED_FROM + self._chance.below(size)
            written = data[position]
            data[position] ^= 1 << self._chance.below(8)
            await machine.disk.write_atomically(path, bytes(data))
            self._flipped.append(FlippedByte(machine, path, position, written, data[position]))
        return False

    async def _read_flipped(self) -> None:
        """Read the partitions with a flipped byte from their start, until the byte is corrected."""
        names = {flipped.path.rsplit("/", 2)[1] for flipped in self._flipped}
        async with trio.open_nursery() as nursery:
            for at in self._workload.partitions:
                if f"{at.topic}-{at.partition}" in names:
                    nursery.start_soon(self._read, at)
            await self._wait(MISREAD_MS)
            nursery.cancel_scope.cancel()

    async def _read(self, at: TopicPartition) -> None:
        while True:
            with suppress(CorruptDataError), ignoring_faults():
                await self._workload.read_from_start(at)
            self._rare.sometimes("a reader meets a flipped byte")
            await trio.sleep(READ_AGAIN_S)

    async def _demand_epochs(self, victim: NodeId, machine: Machine, directory: str) -> None:
        """Require that the logs in the damaged directory know the leader epochs of their batches.
        The check is skipped if the broker's process ends first."""
        start_count = machine.start_count
        with trio.move_on_after(FOUND_S_MAX):
            while machine.is_running and machine.start_count == start_count:
                broker = self._cluster.brokers.get(victim)
                if broker is not None and broker.lifecycle.lifecycle.broker_epoch >= 0:
                    for _, log in broker.logs:
                        if log.directory == directory:
                            check_epochs(log)
                    return
                await trio.sleep(0.01)

    async def _demand_found(self, victim: NodeId, machine: Machine, count: int) -> None:
        """Require that the broker `victim` reports `count` damaged replicas at its startup. The
        check is skipped if the broker's process ends first."""
        start_count, found_count = machine.start_count, 0
        with trio.move_on_after(FOUND_S_MAX):
            while machine.is_running and machine.start_count == start_count:
                broker = self._cluster.brokers.get(victim)
                if broker is not None and broker.lifecycle.lifecycle.broker_epoch >= 0:
                    found_count = broker.logs.known_losses.found_counts.total()
                    if found_count < count:
                        raise Violation(
                            "LossIsFound",
                            f"broker {victim}: {found_count} of {count} lost replicas are found",
                        )
                    return
                await trio.sleep(0.01)


def check_epochs(log: Log) -> None:
    """Check that a log knows the leader epoch of each of its batches."""
    offset = log.log_start_offset
    while offset < log.end_offset:
        read = waited_for(partial(_read_at, log, offset))
        if read.slice is None:
            return
        for _, header in batches(memoryview(bytes_of(read.slice)), is_partial_end_allowed=True):
            known = log.epoch_of(Offset(header.base_offset))
            is_kept = header.base_offset >= log.log_start_offset
            if is_kept and known != header.partition_leader_epoch:
                raise Violation(
                    "EpochsOfBatchesAreKnown",
                    f"{log.directory}: batch at {header.base_offset} is of epoch "
                    f"{header.partition_leader_epoch}, the log says {known}",
                )
            offset = max(offset, Offset(header.end_offset))


def _read_at(log: Log, offset: Offset) -> LogRead:
    return log.read(offset, bytes_max=READ_BYTES, end_offset=log.end_offset, at_least_one=True)


DAMAGES = ("removed", "no topic id", "cut", "closed", "closed", "flipped", "flipped", "older")
