"""Disks that hold less than was promised when their broker starts, in every order of restarts.

All brokers stop cleanly, or one alone does; files of one broker's replicas are removed, emptied,
cut, flipped, or restored from an older copy; then all start, in any order.  Invariants:
LossIsFound (a damaged replica is named by the start that meets it, which logs and counts it), and
those of every run: nothing that was acknowledged is missing, no reader gets other records than were
written, and the cluster heals by itself, for another replica has everything.

| damage | a start after a clean stop must |
|---|---|
| directory removed; last `.log` emptied, cut, or an older copy | name the replica as lost |
| closed `.log` removed, emptied, halved, or an older copy | name the replica as lost |
| topic id emptied | name nothing: the checkpoints have it, too |
| one checkpoint is an older copy | name nothing: the log has all; epochs are read from batches |
| a byte of a batch is flipped | name it only where it checks: behind the last index entry |

A start does not read what was flushed and closed (nor does Kafka's).  So a flipped byte there is a
legitimate undetected state: readers and followers meet it by the CRC of its batch, report it, and
stop there.  The byte is read right again after a while, as from a disk that misread it, lest such a
reader never ends.  Bytes of a batch that its CRC does not cover are left alone, and so are
flipped bytes of the brokers' own topics, whose coordinators do not load meanwhile.  What a start
after a kill can find of closed segments is the matter of recovery.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import Rare
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.machine import Machine
from ottla.jepsen.world.whole.mercy import Mercy
from ottla.model.ids import NodeId
from ottla.storage.checkpoint_file import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from ottla.storage.checkpoint_topics import CHECKPOINT_TOPICS_FILE
from ottla.storage.clean_shutdown import CLEAN_SHUTDOWN_FILE
from ottla.storage.files import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from ottla.storage.segment_list import CLOSED_SEGMENTS
from ottla.wire.batch import batches

DOWN_MS = (0, 2_000)
BETWEEN_MS = (0, 3_000)
"""Between the starts of two brokers: with the longest, one serves alone for a while."""

MISREAD_MS = (200, 4_000)
"""Time for which a flipped byte is read as it is."""

STOPPED_S_MAX = 20.0
FOUND_S_MAX = 60.0
PASSING_TOPIC = "passing-"
"""Topics that clients make and delete (`workload`)."""

LEFT_SHARES = (0.0, 0.5, 0.9)
"""Part of a log's bytes that is left of it."""

COVERED_FROM = 21
"""Position in a batch from which on its CRC covers it."""

CHECKPOINTS = (
    CHECKPOINT_TOPICS_FILE,
    CLEANER_OFFSET_FILE,
    CLOSED_SEGMENTS,
    HIGH_WATERMARK_FILE,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
"""Files that an older copy replaces, one at a time."""


@dataclass(frozen=True, slots=True)
class FlippedByte:
    """One byte of a `.log` that is not what was written."""

    machine: Machine
    path: str
    position: int
    written: int
    flipped: int

    def mend(self) -> None:
        """Write the byte again, unless its log was cut or removed."""
        disk = self.machine.disk
        if not disk.exists(self.path):
            return
        file = disk.at(self.path)
        if file.size_bytes > self.position:
            found = file.read_cached(self.position, 1)
            if found == bytes([self.flipped]):
                disk.write(file, self.position, bytes([self.written]))


class DiskLosses:
    """Takes from disks of stopped brokers what they were given."""

    def __init__(
        self,
        chance: Chance,
        rare: Rare,
        counts: Counter[str],
        cluster: SimulatedCluster,
        *,
        mercy: Mercy,
        wait: Callable[[tuple[int, int]], Awaitable[None]],
    ) -> None:
        self._chance = chance
        self._rare = rare
        self._counts = counts
        self._cluster = cluster
        self._mercy = mercy
        self._wait = wait
        self._is_busy = False
        self._flipped: list[FlippedByte] = []
        self._older: dict[tuple[NodeId, str], bytes] = {}
        """Files of brokers' disks as they were after an earlier fault."""

    async def lose(self) -> None:
        """Stop brokers, take from one's disk, and start them in any order."""
        if self._is_busy or not self._cluster.is_in_sync:
            return
        self._is_busy = True
        try:
            await self._lose()
        finally:
            for flipped in self._flipped:
                flipped.mend()
            self._flipped.clear()
            self._is_busy = False

    async def _lose(self) -> None:
        nodes = self._shuffled([*self._cluster.broker_machines])
        victim = self._chance.pick(nodes)
        machine = self._cluster.broker_machines[victim]
        if not self._mercy.wound(machine):
            return
        stopped = nodes if self._chance.below(3) else [victim]
        for node in stopped:
            if not await self._stop(self._cluster.broker_machines[node]):
                await self._start(self._shuffled(stopped))
                return
        damaged_count = 0
        if self._chance.below(5) == 0:
            await self._restore_checkpoint(victim, machine)
        else:
            for directory in self._cluster.log_directories:
                damaged_count += await self._damage(victim, machine, directory)
        starts = self._shuffled(stopped)
        if damaged_count:
            self._counts["losses"] += 1
            self._rare.sometimes("a disk holds less than was promised")
            if len(stopped) > 1 and stopped[-1] == victim == starts[0]:
                self._rare.sometimes("the last broker that stopped loses and starts first")
        await self._start(starts)
        if damaged_count:
            await self._demand_found(victim, machine, damaged_count)
        if self._flipped:
            await self._wait(MISREAD_MS)
        await self._keep_copies(victim, machine)

    async def _keep_copies(self, victim: NodeId, machine: Machine) -> None:
        """Copy the files of a broker that an older copy may replace later."""
        for directory in self._cluster.log_directories:
            for path in machine.disk.files_in(directory):
                if path.endswith((".log", *CHECKPOINTS)) and machine.disk.exists(path):
                    self._older[victim, path] = await machine.disk.read_file(path)

    async def _restore_checkpoint(self, victim: NodeId, machine: Machine) -> None:
        """Replace one checkpoint by its older copy; whatever it is of, nothing is lost."""
        await self._wait(DOWN_MS)
        found = [
            path
            for node, path in sorted(self._older)
            if node == victim and path.endswith(CHECKPOINTS) and machine.disk.exists(path)
        ]
        if found:
            path = self._chance.pick(found)
            await machine.disk.write_atomically(path, self._older[victim, path])
            self._rare.sometimes("a checkpoint is an older copy")

    def _shuffled(self, nodes: list[NodeId]) -> list[NodeId]:
        waiting = list(nodes)
        return [waiting.pop(self._chance.below(len(waiting))) for _ in nodes]

    async def _stop(self, machine: Machine) -> bool:
        """Stop a broker as an operator does; return whether it has ended."""
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
        """Damage some replicas in a directory; return the number of those that lack records."""
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
                # A passing topic may be deleted meanwhile: its replicas are strays, not losses.
                count += is_loss and not name.startswith(PASSING_TOPIC)
        return count

    async def _damage_one(
        self, victim: NodeId, machine: Machine, partition: str, logs: list[str]
    ) -> bool:
        """Damage a replica; return whether a start must find that records are gone."""
        disk = machine.disk
        kind = self._chance.pick(DAMAGES)
        path = logs[-1]
        is_loss = True
        match kind:
            case "removed":
                await disk.remove_tree(partition)
            case "no topic id":
                await disk.write_atomically(f"{partition}/{PARTITION_METADATA}", b"")
                is_loss = False  # a topic id is in two places
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
        """Remove, empty or halve the `.log` of a closed segment."""
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
        """Flip bits of one byte that a CRC covers; a start need not find that."""
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

    async def _demand_found(self, victim: NodeId, machine: Machine, count: int) -> None:
        """Demand that the start names each damaged replica, unless the process ends before."""
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


DAMAGES = ("removed", "no topic id", "cut", "closed", "closed", "flipped", "older")
