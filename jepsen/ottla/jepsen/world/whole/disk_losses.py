"""Disks that hold less than was promised when their broker starts, in every order of restarts.

All brokers stop cleanly, or one alone does; files of one broker's replicas are removed, emptied,
halved, or come back from an older copy; then all start, in any order.  Invariants:
LossIsFound (a damaged replica is named by the start that meets it, which logs and counts it), and
those of every run: nothing that was acknowledged is missing, and the cluster heals by itself, for
another replica has everything.
"""

from collections import Counter
from collections.abc import Awaitable, Callable

import trio

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import Rare
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.machine import Machine
from ottla.jepsen.world.whole.mercy import Mercy
from ottla.model.ids import NodeId
from ottla.storage.files import PARTITION_METADATA

DOWN_MS = (0, 2_000)
BETWEEN_MS = (0, 3_000)
"""Between the starts of two brokers: with the longest, one serves alone for a while."""

STOPPED_S_MAX = 20.0
FOUND_S_MAX = 60.0
PASSING_TOPIC = "passing-"
"""Topics that clients make and delete (`workload`)."""

LEFT_SHARES = (0.0, 0.5, 0.9)
"""Part of a log's bytes that is left of it."""


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

    async def lose(self) -> None:
        """Stop brokers, take from one's disk, and start them in any order."""
        if self._is_busy or not self._cluster.is_in_sync:
            return
        self._is_busy = True
        try:
            await self._lose()
        finally:
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
        for directory in self._cluster.log_directories:
            damaged_count += await self._damage(machine, directory)
        starts = self._shuffled(stopped)
        if damaged_count:
            self._counts["losses"] += 1
            self._rare.sometimes("a disk holds less than was promised")
            if len(stopped) > 1 and stopped[-1] == victim == starts[0]:
                self._rare.sometimes("the last broker that stopped loses and starts first")
        await self._start(starts)
        if damaged_count:
            await self._demand_found(victim, machine, damaged_count)

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

    async def _damage(self, machine: Machine, directory: str) -> int:
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
                is_loss = await self._damage_one(machine, partition, files[-1])
                # A passing topic may be deleted meanwhile: its replicas are strays, not losses.
                count += is_loss and not name.startswith(PASSING_TOPIC)
        return count

    async def _damage_one(self, machine: Machine, partition: str, log: str) -> bool:
        """Damage a replica; return whether records are gone: a topic id is in two places."""
        disk = machine.disk
        kind = self._chance.below(4)
        if kind == 0:
            await disk.remove_tree(partition)
        elif kind == 1:
            await disk.write_atomically(f"{partition}/{PARTITION_METADATA}", b"")
        else:
            data = await disk.read_file(log)
            left = int(len(data) * self._chance.pick(LEFT_SHARES))
            await disk.write_atomically(log, data[:left])
        self._rare.sometimes(f"a replica is damaged: {DAMAGES[kind]}")
        return kind != 1

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


DAMAGES = ("removed", "no topic id", "cut", "cut")
