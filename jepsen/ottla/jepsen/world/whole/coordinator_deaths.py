"""Brokers that die while a transaction which they coordinate is being ended."""

from collections import Counter
from collections.abc import Awaitable, Callable

import trio

from ottla.broker.transactions.transaction import PREPARED
from ottla.broker.transactions.transaction_shard import TransactionShard
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import Rare
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.machine import Machine
from ottla.jepsen.world.whole.mercy import Mercy

LOOK_S = 0.000_5
WATCHED_S = 2.0


class CoordinatorDeaths:
    """Kills a transaction's coordinator between the first thought of its end and the last."""

    def __init__(
        self,
        chance: Chance,
        rare: Rare,
        counts: Counter[str],
        cluster: SimulatedCluster,
        *,
        mercy: Mercy,
        start_later: Callable[[Machine], Awaitable[None]],
    ) -> None:
        self._chance = chance
        self._rare = rare
        self._counts = counts
        self._cluster = cluster
        self._mercy = mercy
        self._start_later = start_later

    async def kill(self) -> None:
        """Watch for a while; kill the first broker that ends a transaction."""
        is_prepared_first = self._chance.below(2) == 0
        with trio.move_on_after(WATCHED_S):
            while True:
                for node, broker in self._cluster.brokers.items():
                    shards = broker._transactions.shards()
                    if any(_is_ending(shard, is_prepared=is_prepared_first) for shard in shards):
                        await self._end(self._cluster.broker_machines[node], is_prepared_first)
                        return
                await trio.sleep(LOOK_S)

    async def _end(self, machine: Machine, is_prepared: bool) -> None:
        if not machine.is_running or machine.is_paused or not self._mercy.may_die(machine):
            return
        self._counts["crashes"] += 1
        state = "is prepared" if is_prepared else "is about to be prepared"
        self._rare.sometimes(f"a coordinator dies whose transaction {state}")
        machine.kill()
        await self._start_later(machine)


def _is_ending(shard: TransactionShard, *, is_prepared: bool) -> bool:
    """Return whether a transaction is prepared, or its Prepare record is not committed yet."""
    for transaction in shard.transactions.values():
        if is_prepared and transaction.facts.status in PREPARED:
            return True
        if not is_prepared and transaction.pending in PREPARED:
            return True
    return False
