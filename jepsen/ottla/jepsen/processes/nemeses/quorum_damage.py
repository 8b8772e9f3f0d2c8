"""Files of one controller's quorum that are damaged while it is down.

A majority of whole controllers stays, so nothing is lost and no operator is needed: the victim
follows until it has all that was committed, and votes again.
"""

from pathlib import Path
from random import Random

from ottla.jepsen.processes.cluster import ProcessCluster
from ottla.jepsen.processes.nemeses.nemesis import Nemesis, Told
from ottla.jepsen.processes.nodes import ProcessNode
from ottla.raft.transitions import Standing
from ottla.raft.voter_checkpoint import VOTER_CHECKPOINT_FILE, decode_file
from ottla.storage.directory_names import METADATA_DIRECTORY

CONTROLLERS_MIN = 3

PATTERNS = (
    ("*.log",),
    ("*.log",),
    ("quorum-state",),
    (VOTER_CHECKPOINT_FILE,),
    ("quorum-state", VOTER_CHECKPOINT_FILE),
    ("leader-epoch-checkpoint",),
)
"""Files that are damaged together; the log twice as often."""

DAMAGES = ("removed", "emptied", "halved", "flipped")


class DamagedQuorum(Nemesis):
    """A controller is killed, loses files of its quorum in whole or in part, and starts again."""

    name = "damaged-quorum"

    async def hurt(self, rng: Random) -> Told:
        """Choose a controller while all vote, kill it, damage its files and start it."""
        if not _all_vote(self.cluster):
            return {}
        free = [node for node in self.cluster.atlas.free() if node in self.cluster.controllers]
        (victim,) = self.choose(free, rng, (1,)) or (None,)
        if victim is None:
            return {}
        await victim.kill()
        patterns, damage = rng.choice(PATTERNS), rng.choice(DAMAGES)
        files = sorted(path for pattern in patterns for path in _directory_of(victim).glob(pattern))
        for path in files:
            _hurt(path, damage, rng)
        victim.start()
        return {"nodes": [victim.name], damage: [path.name for path in files]}

    async def mend(self) -> Told:
        """Wait until it serves; it catches up by itself."""
        return await self.start_again()


def _directory_of(node: ProcessNode) -> Path:
    return node.disk.data / METADATA_DIRECTORY


def _all_vote(cluster: ProcessCluster) -> bool:
    """Return True if every controller has all that it promised, as its checkpoint says."""
    controllers = cluster.controllers
    return len(controllers) >= CONTROLLERS_MIN and all(map(_votes, controllers))


def _votes(node: ProcessNode) -> bool:
    try:
        slot = decode_file((_directory_of(node) / VOTER_CHECKPOINT_FILE).read_bytes())
    except FileNotFoundError:
        return False
    return slot is not None and slot.checkpoint.election.standing is Standing.FULL


def _hurt(path: Path, damage: str, rng: Random) -> None:
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
