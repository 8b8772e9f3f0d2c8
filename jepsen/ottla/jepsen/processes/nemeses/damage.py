"""Disks that are full, files that are gone, and bytes that are not what was written."""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from random import Random

import trio

from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.processes.abilities import Ability
from ottla.jepsen.processes.cluster import ProcessCluster
from ottla.jepsen.processes.disks import closed_segments, flip_bit, protected_bits
from ottla.jepsen.processes.nemeses.nemesis import Nemesis, Told
from ottla.jepsen.processes.nodes import NodeError, ProcessNode

FLIPS = (1, 1, 3)
"""How many bits of one replica are flipped, each in a file of its own."""
INDEX_SUFFIXES = (".index", ".timeindex")


class FullDisk(Nemesis):
    """One node's disk has no room any more; it refuses what it cannot keep, or ends."""

    name = "full-disk"
    needs = frozenset({Ability.IMAGES})

    async def hurt(self, rng: Random) -> Told:
        """Choose a node, and take its room."""
        (victim,) = self.choose(self.cluster.atlas.free(), rng, (1,)) or (None,)
        if victim is None:
            return {}
        if await self.cluster.atlas.why_not_kill([victim]) is not None:
            self.let_go()
            return {}
        victim.may_die = True
        return {"nodes": [victim.name], "bytes": await victim.disk.fill()}

    async def mend(self) -> Told:
        """Make room; a node that ended is started again."""
        (victim,) = self.held
        await victim.disk.make_room()
        ended = victim.pid is None
        told = await self.start_again()
        victim.may_die = False
        return {**told, "ended": ended}


class Flip(Nemesis):
    """Bits of one broker's closed segments and of their indexes are flipped while it is down.

    What was flushed is trusted when a log is opened, as in Kafka: the damage shows when the bytes
    are read, and whoever reads them must be told, never be given them as good.  To heal, the
    operator throws the damaged replicas away, and they come back from those in sync.
    """

    name = "flip"

    def __init__(self, cluster: ProcessCluster, rng: Random, facts: RunFacts) -> None:
        super().__init__(cluster, rng, facts)
        self._damaged: set[Path] = set()

    async def hurt(self, rng: Random) -> Told:
        """Choose a broker, kill it, flip bits on its disk, start it."""
        atlas = self.cluster.atlas
        brokers = [node for node in atlas.free() if node in self.cluster.brokers]
        (victim,) = self.choose(brokers, rng, (1,)) or (None,)
        if victim is None:
            return {}
        if not closed_segments(victim.disk.data) or await atlas.why_not_corrupt(victim):
            self.let_go()
            return {}
        await victim.kill()
        flipped = self._flip(victim, rng)
        victim.start()
        return {"nodes": [victim.name], "flipped": flipped}

    async def mend(self) -> Told:
        """Throw the damaged replicas away; they come back."""
        (victim,) = self.held
        with suppress(NodeError):  # that it hung is noted with the node
            await victim.stop()
        for directory in self._damaged:
            await trio.to_thread.run_sync(shutil.rmtree, directory)
        thrown = sorted(directory.name for directory in self._damaged)
        self._damaged.clear()
        return {**await self.start_again(), "thrown_away": thrown}

    def _flip(self, victim: ProcessNode, rng: Random) -> list[Told]:
        segments = closed_segments(victim.disk.data)
        flipped: list[Told] = []
        for segment in rng.sample(segments, min(rng.choice(FLIPS), len(segments))):
            others = [segment.with_suffix(suffix) for suffix in INDEX_SUFFIXES]
            path = rng.choice([one for one in (segment, segment, *others) if _bits(one)])
            bit = rng.choice(rng.choice(_bits(path)))
            flip_bit(path, bit)
            self._damaged.add(path.parent)
            flipped.append({"file": f"{path.parent.name}/{path.name}", "bit": bit})
        return flipped


class LostFiles(Nemesis):
    """Files of one broker's replicas are removed or cut while it is down.

    The start finds that, names the replicas when it registers, and whole ones fill them again: no
    operator has to do anything.
    """

    name = "lost-files"

    async def hurt(self, rng: Random) -> Told:
        """Choose a broker, stop it, take files from its disk, start it."""
        atlas = self.cluster.atlas
        brokers = [node for node in atlas.free() if node in self.cluster.brokers]
        (victim,) = self.choose(brokers, rng, (1,)) or (None,)
        if victim is None:
            return {}
        if await atlas.why_not_corrupt(victim):
            self.let_go()
            return {}
        with suppress(NodeError):  # that it hung is noted with the node
            await victim.stop()
        taken = await trio.to_thread.run_sync(take_files, victim.disk.data, rng)
        victim.start()
        return {"nodes": [victim.name], "taken": taken}

    async def mend(self) -> Told:
        """Start the broker again where it ended."""
        return await self.start_again()


def take_files(data: Path, rng: Random) -> list[Told]:
    """Remove replicas below a directory, or cut their last segment; return what was done."""
    logs: dict[Path, Path] = {}
    for path in sorted(data.glob("**/*.log")):
        is_replica = not path.parent.name.startswith("__cluster") and "." not in path.parent.name
        if is_replica and path.stat().st_size:
            logs[path.parent] = path
    taken: list[Told] = []
    for directory, log in logs.items():
        kind = rng.choice(("none", "removed", "halved", "emptied"))
        if kind == "removed":
            shutil.rmtree(directory)
        elif kind != "none":
            size = log.stat().st_size // 2 if kind == "halved" else 0
            os.truncate(log, size)
        if kind != "none":
            taken.append({"replica": directory.name, "how": kind})
    return taken


def _bits(path: Path) -> list[range]:
    """Return the bits of a file that may be flipped: the damage must be there to be seen."""
    if path.suffix == ".log":
        return protected_bits(path)
    size = path.stat().st_size if path.exists() else 0
    return [range(8 * size)] if size else []
