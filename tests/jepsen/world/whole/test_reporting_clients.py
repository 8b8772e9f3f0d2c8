"""Whole clusters in virtual time whose clients ask again and again what to report, under any fault.

Nothing is asked for: brokers take pushes apart in a thread, which is not of the world.
"""

from typing import ClassVar

import trio

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.whole_cluster import WholeCluster
from ottla.jepsen.world.whole.workload import ClientWorkload
from tests.jepsen.search_length import length

SEEDS = (3, 4)[: length(1, 2)]
BUDGET = 6_000
LOOK_S = 0.5


class AskingClients(WholeCluster):
    """Clients ask ten times a second what to report."""

    settings: ClassVar[dict[str, str]] = {
        "client.telemetry": "on",
        "telemetry.unsubscribed.interval.ms": "100",
    }
    instance_count = 0

    def watch_more(
        self,
        nursery: trio.Nursery,
        cluster: SimulatedCluster,
        workload: ClientWorkload,
        rare: RareStates,
    ) -> None:
        nursery.start_soon(self.count, cluster)

    async def count(self, cluster: SimulatedCluster) -> None:
        """Note the most clients that a broker knows at once."""
        while True:
            known = [len(broker.telemetry.instances) for broker in cluster.brokers.values()]
            self.instance_count = max(self.instance_count, *known, 0)
            await trio.sleep(LOOK_S)


def test_a_seed_gives_the_same_run_and_no_client_suffers() -> None:
    for seed in SEEDS:
        engine = AskingClients()
        first = engine.run(Chance(seed), budget=BUDGET)
        assert first.violation is None
        assert engine.instance_count > 0
        again = AskingClients().run(Chance(seed), budget=BUDGET)
        assert (again.trace_hash, again.figures) == (first.trace_hash, first.figures)
