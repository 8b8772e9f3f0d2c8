"""Wall clocks that jump, there and back; what goes by monotonic time must not care."""

from random import Random

import trio

from ottla.jepsen.processes.abilities import Ability
from ottla.jepsen.processes.nemeses.nemesis import Nemesis, Told

JUMP_BITS = range(6, 22)
"""Jumps are drawn by magnitude, from 64 ms to 35 min: a leader whose clock is an hour behind may
refuse records as from the future (message.timestamp.after.max.ms)."""
STROBES = 20
STROBE_S = 0.05


class ClockNemesis(Nemesis):
    """Some nodes' wall clocks jump; now and then to and fro several times a second."""

    name = "clock"
    needs = frozenset({Ability.CLOCKS})

    async def hurt(self, rng: Random) -> Told:
        """Choose nodes and how far their clocks jump."""
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

    async def heal(self) -> Told:
        """Set all clocks right."""
        self._set({})
        return {"clock_offsets_ms": dict(self.cluster.clocks.offsets_ms)}

    def _set(self, offsets: dict[str, int]) -> None:
        for node in self.cluster.nodes:
            self.cluster.clocks.set(node, offsets.get(node, 0))
