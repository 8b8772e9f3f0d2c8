"""Nemesis that damages the quorum files of one controller while the controller is down.

A majority of intact controllers remains, so nothing is lost and no operator is needed. The damaged
controller follows without voting until it has all committed records, and then votes again.
"""

from pathlib import Path
from random import Random

from ottla.jepsen.processes.cluster import ProcessCluster
from ottla.jepsen.processes.nemeses.nemesis import FaultReport, Nemesis
from ottla.jepsen.processes.nodes import ProcessNode
from ottla.raft.transitions import Standing
from ottla.raft.voter_checkpoint import VOTER_CHECKPOINT_FILE, decode_file
from ottla.storage.disk.directory_names import METADATA_DIRECTORY

CONTROLLERS_MIN = 3

PATTERNS = (
    ("*.log",),
    ("*.log",),
    ("quorum-state",),
    (VOTER_CHECKPOINT_FILE,),
    ("quorum-state", VOTER_CHECKPOINT_FILE),
    ("leader-epoch-checkpoint",),
)
"""Patterns of the names of a controller's files that are damaged together. The log is drawn twice
as often as the other files."""

DAMAGES = ("removed", "emptied", "halved", "flipped")


class DamagedQuorum(Nemesis):
    """A fault that kills a controller, damages its quorum files, and starts it again.

    The damaged files are lost or truncated."""

    name = "damaged-quorum"

    async def inject_fault(self, rng: Random) -> FaultReport:
        """Kill a random controller while all controllers vote, damage its files and start it again.
        Returns a report of the fault."""
        if not _all_vote(self.cluster):
            return {}
        free = [
            node for node in self.cluster.fault_limits.free() if node in self.cluster.controllers
        ]
        (victim,) = self.choose(free, rng, (1,)) or (None,)
        if victim is None:
            return {}
        await victim.kill()
        patterns, damage = rng.choice(PATTERNS), rng.choice(DAMAGES)
        files = sorted(path for pattern in patterns for path in _directory_of(victim).glob(pattern))
        for path in files:
            _damage_file(path, damage, rng)
        victim.start()
        return {"nodes": [victim.name], damage: [path.name for path in files]}

    async def heal_fault(self) -> FaultReport:
        """Wait until the damaged controller serves requests, and return a report of the result. The
        controller catches up by itself."""
        return await self.start_again()


def _directory_of(node: ProcessNode) -> Path:
    return node.disk.data / METADATA_DIRECTORY


def _all_vote(cluster: ProcessCluster) -> bool:
    """Return whether all controllers may vote. A controller may vote if it has all records that it
    acknowledged, according to its voter checkpoint file."""
    controllers = cluster.controllers
    return len(controllers) >= CONTROLLERS_MIN and all(map(_votes, controllers))


def _votes(node: ProcessNode) -> bool:
    try:
        slot = decode_file((_directory_of(node) / VOTER_CHECKPOINT_FILE).read_bytes())
    except FileNotFoundError:
        return False
    return slot is not None and slot.checkpoint.election.standing is Standing.FULL


def _damage_file(path: Path, damage: str, rng: Random) -> None:
    data = bytearray(path.read_bytes())
    match damage:
        case "removed":
            path.unlink()
            return
        case "emptied":
            data.clear()
        case "halved":
            del data[len(data) // 2 :]
        case _:
            if data:
                data[rng.randrange(len(data))] ^= 0x55
    path.write_bytes(data)
