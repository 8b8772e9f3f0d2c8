"""Nemesis of the object store of tiered topics: its server is killed, paused or slowed."""

from random import Random

from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.processes.cluster import ProcessCluster
from ottla.jepsen.processes.nemeses.nemesis import FaultReport, Nemesis

KINDS = ("kill", "pause", "slow")


class StoreServerFault(Nemesis):
    """A fault of the object store of tiered topics: its server is killed, paused or slowed."""

    name = "store"
    needs_store = True

    def __init__(self, cluster: ProcessCluster, rng: Random, facts: RunFacts) -> None:
        super().__init__(cluster, rng, facts)
        self._active: str | None = None
        self._deck: list[str] = []

    async def inject_fault(self, rng: Random) -> FaultReport:
        """Kill, pause or slow down the server, and return a report of the fault."""
        store = self.cluster.store
        assert store is not None, "the run opens a store for this nemesis"
        if not self._deck:
            self._deck = rng.sample(KINDS, len(KINDS))
        self._active = self._deck.pop()
        if self._active == "kill":
            store.kill()
        elif self._active == "pause":
            store.pause()
        else:
            store.slow_down()
        return {"store": self._active, "copied_segments": store.count_copied_segments()}

    async def heal(self) -> FaultReport:
        """Let the server run again. Returns a report with the number of copied segments, empty if
        there is no active fault."""
        store, healed = self.cluster.store, self._active
        if store is None or healed is None:
            return {}
        store.resume()
        await store.start()
        self._active = None
        return {"healed": healed, "copied_segments": store.count_copied_segments()}
