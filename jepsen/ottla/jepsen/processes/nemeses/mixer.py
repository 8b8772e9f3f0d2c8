"""Nemesis (source of faults) that injects several other faults at once, in a new combination in
each period."""

from random import Random

from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.processes.cluster import ProcessCluster
from ottla.jepsen.processes.nemeses.nemesis import FaultReport, Nemesis

STABLE_S = 20.0
"""Length in seconds of each period with a constant combination of faults. It is long enough for
leases, sessions and elections to become stable."""
NONE_SHARE = 0.25
AT_ONCE_MAX = 3


class Mixer(Nemesis):
    """Nemesis that uses a new random subset of the other nemeses in each period.

    The subset is empty in a quarter of the periods."""

    name = "mixer"
    interval_s = STABLE_S

    def __init__(
        self, cluster: ProcessCluster, rng: Random, facts: RunFacts, parts: list[Nemesis]
    ) -> None:
        super().__init__(cluster, rng, facts)
        self._parts = parts
        self._at_work: list[Nemesis] = []

    async def inject_fault(self, rng: Random) -> FaultReport:
        """Choose a random subset of the other nemeses, and inject one fault of each. Returns the
        reports of the faults."""
        if rng.random() < NONE_SHARE:
            return {}
        count = rng.randint(1, min(AT_ONCE_MAX, len(self._parts)))
        faults: FaultReport = {}
        for part in rng.sample(self._parts, count):
            self._at_work.append(part)
            report = await part.inject(rng)
            if report:
                faults[part.name] = report
        nodes = {node for report in faults.values() for node in report.get("nodes", ())}
        clocks = faults.get("clock", {})
        offsets = {key: clocks[key] for key in ("clock_offsets_ms",) if key in clocks}
        return {"nodes": sorted(nodes), "faults": faults, **offsets} if faults else {}

    async def heal(self) -> FaultReport:
        """Heal the active faults in reverse order of their injection. Returns a report of each
        result."""
        healed: FaultReport = {}
        while self._at_work:
            part = self._at_work[-1]
            report = await part.heal()
            self._at_work.pop()
            if report:
                healed[part.name] = report
        return healed
