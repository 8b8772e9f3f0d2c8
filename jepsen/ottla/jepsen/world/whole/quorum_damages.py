"""Damaged files of a stopped controller, in a whole cluster.

A controller is killed, files of its quorum are removed, emptied, halved or flipped, and it starts
again, perhaps after others were stopped and started.  One controller at a time: a majority of whole
ones stays.  What was acknowledged is judged by the cluster's own invariants.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.disk_faults import FileDamage, damaged
from ottla.jepsen.world.rare import Rare
from ottla.jepsen.world.whole.cluster import METADATA_DIRECTORY, SimulatedCluster
from ottla.jepsen.world.whole.machine import Machine
from ottla.raft.transitions import Standing
from ottla.raft.voter_checkpoint import decode_file
from ottla.storage.directory_names import METADATA_DIRECTORY as LOG_DIRECTORY

DIRECTORY = f"{METADATA_DIRECTORY}/{LOG_DIRECTORY}"

CONTROLLERS_MIN = 3
DOWN_MS = (20, 4_000)

KINDS: Sequence[tuple[str, ...]] = (
    (".log",),
    ("quorum-state",),
    ("voter-checkpoint",),
    ("quorum-state", "voter-checkpoint"),
    ("leader-epoch-checkpoint",),
)
"""Endings of the names of the files that are damaged together."""


class QuorumDamages:
    """Damages the files of one controller at a time."""

    def __init__(
        self,
        chance: Chance,
        rare: Rare,
        counts: Counter[str],
        cluster: SimulatedCluster,
        *,
        wait: Callable[[tuple[int, int]], Awaitable[None]],
    ) -> None:
        self._chance = chance
        self._rare = rare
        self._counts = counts
        self._machines = list(cluster.controller_machines.values())
        self._wait = wait

    async def damage(self) -> None:
        """Kill a controller, damage files of its metadata log's directory, and start it later."""
        machine = self._chance.pick(self._machines)
        if len(self._machines) < CONTROLLERS_MIN or not machine.is_running or machine.has_bad_disk:
            return
        if not all([await self._is_whole(each) for each in self._machines]):
            return
        machine.kill()
        await machine.has_ended.wait()
        kind = self._chance.pick(KINDS)
        self._counts["damaged controllers"] += 1
        for name in await machine.disk.listdir(DIRECTORY):
            if name.endswith(kind):
                await self._hurt(machine, f"{DIRECTORY}/{name}")
        await self._wait(DOWN_MS)
        if not machine.is_running:
            machine.start()
        await self._wait(DOWN_MS)
        if not await self._is_whole(machine):
            self._rare.sometimes("a controller follows without a vote")

    async def _is_whole(self, machine: Machine) -> bool:
        """Return True if a controller votes, as its checkpoint says."""
        path = f"{DIRECTORY}/voter-checkpoint"
        if not machine.disk.exists(path):
            return False
        slot = decode_file(await machine.disk.read_file(path))
        return slot is not None and slot.checkpoint.election.standing is Standing.FULL

    async def _hurt(self, machine: Machine, path: str) -> None:
        before = await machine.disk.read_file(path)
        kind = FileDamage(self._chance.below(len(FileDamage)))
        data = damaged(before, kind, self._chance.below)
        if data is None:
            await machine.disk.unlink(path)
        else:
            await machine.disk.write_atomically(path, data)
