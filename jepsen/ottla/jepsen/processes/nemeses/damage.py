"""Nemeses (sources of faults) that damage nodes' disks: full disks, lost files and flipped bits."""

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
from ottla.jepsen.processes.nemeses.nemesis import FaultReport, Nemesis
from ottla.jepsen.processes.nodes import NodeError, ProcessNode

FLIPS = (1, 1, 3)
"""Possible numbers of flipped bits in one replica. A nemesis chooses one of these numbers at
random. Each bit is in a different file."""
INDEX_SUFFIXES = (".index", ".timeindex")


class FullDisk(Nemesis):
    """A fault in which one node's disk is full: the node refuses writes or ends."""

    name = "full-disk"
    needs = frozenset({Ability.IMAGES})

    async def inject_fault(self, rng: Random) -> FaultReport:
        """Fill the disk of a random node, and return a report of the fault."""
        (victim,) = self.choose(self.cluster.fault_limits.free(), rng, (1,)) or (None,)
        if victim is None:
            return {}
        if await self.cluster.fault_limits.reason_not_to_kill([victim]) is not None:
            self.release_nodes()
            return {}
        victim.may_die = True
        return {"nodes": [victim.name], "bytes": await victim.disk.fill()}

    async def heal_fault(self) -> FaultReport:
        """Delete the file that fills the disk, and restart the node if it ended. Returns a report
        of the result."""
        (victim,) = self.held
        await victim.disk.make_room()
        ended = victim.pid is None
        report = await self.start_again()
        victim.may_die = False
        return {**report, "ended": ended}


class Flip(Nemesis):
    """A fault that flips bits in closed segments and indexes of one broker while it is down.

    A broker trusts flushed data when it opens a log, as in Kafka. The damage shows when the bytes
    are read, and the reader must get an error and never the damaged bytes. To heal the fault, the
    harness deletes the damaged replicas, as an operator would. They are then copied from in-sync
    replicas.
    """

    name = "flip"

    def __init__(self, cluster: ProcessCluster, rng: Random, facts: RunFacts) -> None:
        super().__init__(cluster, rng, facts)
        self._damaged: set[Path] = set()

    async def inject_fault(self, rng: Random) -> FaultReport:
        """Kill a random broker, flip bits on its disk, and start it again. Returns a report of the
        fault."""
        fault_limits = self.cluster.fault_limits
        brokers = [node for node in fault_limits.free() if node in self.cluster.brokers]
        (victim,) = self.choose(brokers, rng, (1,)) or (None,)
        if victim is None:
            return {}
        if not closed_segments(victim.disk.data) or await fault_limits.reason_not_to_corrupt(
            victim
        ):
            self.release_nodes()
            return {}
        await victim.kill()
        flipped = self._flip(victim, rng)
        victim.start()
        return {"nodes": [victim.name], "flipped": flipped}

    async def heal_fault(self) -> FaultReport:
        """Delete the damaged replicas, which are then copied again. Returns a report of the
        result."""
        (victim,) = self.held
        with suppress(NodeError):  # a hang is recorded with the node
            await victim.stop()
        for directory in self._damaged:
            await trio.to_thread.run_sync(shutil.rmtree, directory)
        thrown = sorted(directory.name for directory in self._damaged)
        self._damaged.clear()
        return {**await self.start_again(), "thrown_away": thrown}

    def _flip(self, victim: ProcessNode, rng: Random) -> list[FaultReport]:
        segments = closed_segments(victim.disk.data)
        flipped: list[FaultReport] = []
        for segment in rng.sample(segments, min(rng.choice(FLIPS), len(segments))):
            others = [segment.with_suffix(suffix) for suffix in INDEX_SUFFIXES]
            path = rng.choice([one for one in (segment, segment, *others) if _bits(one)])
            bit = rng.choice(rng.choice(_bits(path)))
            flip_bit(path, bit)
            self._damaged.add(path.parent)
            flipped.append({"file": f"{path.parent.name}/{path.name}", "bit": bit})
        return flipped


class LostFiles(Nemesis):
    """A fault that removes or truncates files of one broker's replicas while the broker is down.

    The broker detects the damage at its startup and lists the damaged replicas when it registers.
    They are then copied from complete replicas, without an operator.
    """

    name = "lost-files"

    async def inject_fault(self, rng: Random) -> FaultReport:
        """Stop a random broker, remove files from its disk, and start it again. Returns a report of
        the fault."""
        fault_limits = self.cluster.fault_limits
        brokers = [node for node in fault_limits.free() if node in self.cluster.brokers]
        (victim,) = self.choose(brokers, rng, (1,)) or (None,)
        if victim is None:
            return {}
        if await fault_limits.reason_not_to_corrupt(victim):
            self.release_nodes()
            return {}
        with suppress(NodeError):  # a hang is recorded with the node
            await victim.stop()
        taken = await trio.to_thread.run_sync(take_files, victim.disk.data, rng)
        victim.start()
        return {"nodes": [victim.name], "taken": taken}

    async def heal_fault(self) -> FaultReport:
        """Restart the broker if it ended, and return a report of the result."""
        return await self.start_again()


def take_files(data: Path, rng: Random) -> list[FaultReport]:
    """Remove random replicas below a data directory, or truncate their last segment. Returns a
    report for each damaged replica."""
    logs: dict[Path, Path] = {}
    for path in sorted(data.glob("**/*.log")):
        is_replica = not path.parent.name.startswith("__cluster") and "." not in path.parent.name
        if is_replica and path.stat().st_size:
            logs[path.parent] = path
    taken: list[FaultReport] = []
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
    """Return the ranges of bits of a file that may be flipped. Readers detect a flip of any of
    these bits."""
    if path.suffix == ".log":
        return protected_bits(path)
    size = path.stat().st_size if path.exists() else 0
    return [range(8 * size)] if size else []
