"""Faults that damage files of a stopped controller, in a whole cluster.

A controller is killed, files of its quorum are removed, emptied, halved or flipped, and it starts
again, perhaps after other controllers were stopped and started. Only one controller is damaged at a
time, so that a majority of intact controllers remains. The cluster's own invariants check that no
acknowledged record is lost.
"""

from collections.abc import Sequence

from ottla.jepsen.world.disk_faults import FileDamage, damaged
from ottla.jepsen.world.whole.cluster import METADATA_DIRECTORY
from ottla.jepsen.world.whole.faults.cluster_faults import ClusterFaults, FaultContext
from ottla.jepsen.world.whole.machine import Machine
from ottla.raft.transitions import Standing
from ottla.raft.voter_checkpoint import decode_file
from ottla.storage.disk.directory_names import METADATA_DIRECTORY as LOG_DIRECTORY

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
"""Suffixes of a controller's files that are damaged together, one tuple per kind of damage."""


class QuorumDamages(ClusterFaults):
    """Faults that damage the files of one controller at a time."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context)
        self._machines = list(context.cluster.controller_machines.values())
        self._left: dict[Machine, bytes | None] = {}
        """Content of each damaged controller's voter checkpoint directly after the damage, or None
        if the file was missing."""

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
                await self._damage_file(machine, f"{DIRECTORY}/{name}")
        self._left[machine] = await self._checkpoint_of(machine)
        await self._wait(DOWN_MS)
        if not machine.is_running:
            machine.start()
        await self._wait(DOWN_MS)
        if await self._standing_of(machine) is not Standing.FULL:
            self._rare.sometimes("a controller follows without a vote")

    async def _is_whole(self, machine: Machine) -> bool:
        """Return True if the damaged controller on a machine may vote again, according to a
        checkpoint written after the damage."""
        if machine in self._left and await self._checkpoint_of(machine) == self._left[machine]:
            return False
        return await self._standing_of(machine) is Standing.FULL

    async def _standing_of(self, machine: Machine) -> Standing | None:
        data = await self._checkpoint_of(machine)
        slot = None if data is None else decode_file(data)
        return None if slot is None else slot.checkpoint.election.standing

    async def _checkpoint_of(self, machine: Machine) -> bytes | None:
        path = f"{DIRECTORY}/voter-checkpoint"
        return await machine.disk.read_file(path) if machine.disk.exists(path) else None

    async def _damage_file(self, machine: Machine, path: str) -> None:
        before = await machine.disk.read_file(path)
        kind = FileDamage(self._chance.below(len(FileDamage)))
        data = damaged(before, kind, self._chance.below)
        if data is None:
            await machine.disk.unlink(path)
        else:
            await machine.disk.write_atomically(path, data)
