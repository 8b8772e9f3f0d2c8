"""Several nemeses at a time, in stable periods: now these, then those, and now and then none."""

from random import Random

from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.processes.cluster import ProcessCluster
from ottla.jepsen.processes.nemeses.nemesis import Nemesis, Told

STABLE_S = 20.0
"""Long enough for one state of affairs to become old before the next one."""
NONE_SHARE = 0.25
AT_ONCE_MAX = 3


class Mixer(Nemesis):
    """Draws a new subset of its nemeses each time, a quarter of the time none."""

    name = "mixer"
    interval_s = STABLE_S

    def __init__(
        self, cluster: ProcessCluster, rng: Random, facts: RunFacts, parts: list[Nemesis]
    ) -> None:
        super().__init__(cluster, rng, facts)
        self._parts = parts
        self._at_work: list[Nemesis] = []

    async def hurt(self, rng: Random) -> Told:
        """Have some of the nemeses do one fault each."""
        if rng.random() < NONE_SHARE:
            return {}
        count = rng.randint(1, min(AT_ONCE_MAX, len(self._parts)))
        faults: Told = {}
        for part in rng.sample(self._parts, count):
            self._at_work.append(part)
            told = await part.inject(rng)
            if told:
                faults[part.name] = told
        nodes = {node for told in faults.values() for node in told.get("nodes", ())}
        clocks = faults.get("clock", {})
        offsets = {key: clocks[key] for key in ("clock_offsets_ms",) if key in clocks}
        return {"nodes": sorted(nodes), "faults": faults, **offsets} if faults else {}

    async def heal(self) -> Told:
        """Heal in reverse: what was hurt last is healed first."""
        healed: Told = {}
        while self._at_work:
            part = self._at_work[-1]
            told = await part.heal()
            self._at_work.pop()
            if told:
                healed[part.name] = told
        return healed
