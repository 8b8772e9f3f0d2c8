"""Nemesis (source of faults) that makes nodes' wall clocks jump forward and back, without an effect
on code that uses monotonic time."""

from random import Random

import trio

from ottla.jepsen.processes.abilities import Ability
from ottla.jepsen.processes.nemeses.nemesis import FaultReport, Nemesis

JUMP_BITS = range(6, 22)
"""Exponents of the sizes of clock jumps: powers of two in ms, from 64 ms to 35 min. A leader whose
clock is an hour behind may refuse records as too far in the future
(message.timestamp.after.max.ms)."""
STROBES = 20
STROBE_S = 0.05


class ClockNemesis(Nemesis):
    """A fault in which nodes' wall clocks jump, at times back and forth several times a second."""

    name = "clock"
    needs = frozenset({Ability.CLOCKS})

    async def inject_fault(self, rng: Random) -> FaultReport:
        """Set the wall clocks of randomly chosen nodes to wrong times, and return a report of the
        fault."""
        nodes = sorted(self.cluster.nodes)
        offsets = {
            node: rng.choice((-1, 1)) * rng.randrange(1 << rng.choice(JUMP_BITS))
            for node in rng.sample(nodes, rng.randint(1, len(nodes)))
        }
        is_strobe = rng.random() < 0.25
        if is_strobe:
            for at in range(STROBES):
                self._set(offsets if at % 2 == 0 else {})
                await trio.sleep(STROBE_S)
        self._set(offsets)
        return {
            "nodes": sorted(offsets),
            "clock_offsets_ms": dict(self.cluster.clocks.offsets_ms),
            "strobe": is_strobe,
        }

    async def heal(self) -> FaultReport:
        """Set all wall clocks to the true time, and return a report of the result."""
        self._set({})
        return {"clock_offsets_ms": dict(self.cluster.clocks.offsets_ms)}

    def _set(self, offsets: dict[str, int]) -> None:
        for node in self.cluster.nodes:
            self.cluster.clocks.set(node, offsets.get(node, 0))
