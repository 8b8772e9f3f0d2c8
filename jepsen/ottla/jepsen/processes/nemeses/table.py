"""The nemeses (kinds of faults) by name, and their construction."""

from collections.abc import Callable, Mapping
from random import Random

from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.processes.cluster import ProcessCluster
from ottla.jepsen.processes.nemeses import partitions
from ottla.jepsen.processes.nemeses.clock import ClockNemesis
from ottla.jepsen.processes.nemeses.damage import Flip, FullDisk, LostFiles
from ottla.jepsen.processes.nemeses.endings import Kill, KillAll, Pause, RollingRestart
from ottla.jepsen.processes.nemeses.links import Loss, Reset, Slow
from ottla.jepsen.processes.nemeses.membership import ChangedVoters
from ottla.jepsen.processes.nemeses.mixer import Mixer
from ottla.jepsen.processes.nemeses.nemesis import Nemesis
from ottla.jepsen.processes.nemeses.power import PowerCutAll, PowerNemesis
from ottla.jepsen.processes.nemeses.quorum_damage import DamagedQuorum
from ottla.jepsen.processes.nemeses.stores import StoreServerFault

KINDS: tuple[type[Nemesis], ...] = (
    Kill,
    KillAll,
    Pause,
    *partitions.KINDS,
    Loss,
    Slow,
    Reset,
    ClockNemesis,
    PowerNemesis,
    PowerCutAll,
    FullDisk,
    Flip,
    LostFiles,
    DamagedQuorum,
    ChangedVoters,
    RollingRestart,
    StoreServerFault,
)

UNMIXED = frozenset({Flip.name, LostFiles.name, ChangedVoters.name, RollingRestart.name})
"""Names of the nemeses (kinds of faults) that the nemesis `mixer` leaves out. They act like an
operator, who waits until the cluster is healthy."""


def _mixer(cluster: ProcessCluster, rng: Random, facts: RunFacts) -> Nemesis:
    parts = [kind(cluster, rng, facts) for kind in KINDS if _mixes(kind, cluster)]
    return Mixer(cluster, rng, facts, parts)


def _mixes(kind: type[Nemesis], cluster: ProcessCluster) -> bool:
    is_possible = all(ability in cluster.abilities for ability in kind.needs)
    is_promised = cluster.fault_limits.flush or not kind.needs_flush
    is_there = cluster.store is not None or not kind.needs_store
    return is_possible and is_promised and is_there and kind.name not in UNMIXED


CLASSES: Mapping[str, type[Nemesis]] = {kind.name: kind for kind in KINDS} | {Mixer.name: Mixer}
"""Nemesis classes (kinds of faults) by name. Their `needs`, `needs_flush` and `needs_store`
can be read before a cluster exists."""

NEMESES: Mapping[str, Callable[[ProcessCluster, Random, RunFacts], Nemesis]] = {
    **CLASSES,
    Mixer.name: _mixer,
}
