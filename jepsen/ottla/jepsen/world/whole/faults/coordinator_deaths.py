"""Faults that kill a transaction coordinator's broker while it ends a transaction."""

import trio

from ottla.broker.broker_driver import Broker
from ottla.broker.transactions.transaction import PREPARED, Transaction, TransactionStatus
from ottla.broker.transactions.transaction_shard import TransactionShard
from ottla.jepsen.world.whole.faults.cluster_faults import ClusterFaults, FaultContext
from ottla.jepsen.world.whole.machine import Machine
from ottla.model.ids import NodeId
from ottla.model.internal_topics import TRANSACTIONS_TOPIC

LOOK_S = 0.000_5
WATCHED_S = 2.0
UNFOLLOWED_S = 1.0
"""Longest time in seconds for which the followers of a transaction coordinator are cut off. They
stay in sync during this time."""

ALONE_MS_MAX = 50


class CoordinatorDeaths(ClusterFaults):
    """Faults that kill a transaction coordinator's broker between the request to end a transaction
    and the last marker."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context)
        self._start_later = context.start_later

    async def kill(self) -> None:
        """Watch the brokers for a limited time, and kill the first one that is ending a transaction
        as its coordinator."""
        is_prepared_first = self._chance.below(2) == 0
        with trio.move_on_after(WATCHED_S):
            while True:
                for node, broker in self._cluster.brokers.items():
                    shards = broker.core.transactions.shards()
                    if any(_is_ending(shard, is_prepared=is_prepared_first) for shard in shards):
                        await self._end(self._cluster.broker_machines[node], is_prepared_first)
                        return
                await trio.sleep(LOOK_S)

    async def _end(self, machine: Machine, is_prepared: bool) -> None:
        if not machine.is_running or machine.is_paused or not self._loss_limit.may_die(machine):
            return
        self._counts["crashes"] += 1
        state = "is prepared" if is_prepared else "is about to be prepared"
        self._rare.sometimes(f"a coordinator dies whose transaction {state}")
        machine.kill()
        await self._start_later(machine)

    async def kill_unfollowed(self) -> None:
        """Kill the broker of a transaction coordinator that is ending a transaction, before any
        follower has the record of the end.

        All clients are killed as well, so that none repeats the request. The next coordinator
        aborts the transaction, so the killed coordinator must not have made any effect visible.
        """
        with trio.move_on_after(WATCHED_S):
            while True:
                for node, broker in self._cluster.brokers.items():
                    for shard in broker.core.transactions.shards():
                        if any(_is_open(each) for each in shard.transactions.values()):
                            await self._cut_off(node, broker, shard)
                            return
                await trio.sleep(LOOK_S)

    async def _cut_off(self, node: NodeId, broker: Broker, shard: TransactionShard) -> None:
        network, machine = self._cluster.world.network, self._cluster.broker_machines[node]
        self._counts["partitions"] += 1
        for follower in _followers(broker, shard, node):
            name = self._cluster.broker_machines[follower].name
            network.cut(machine.name, name)
            network.cut(name, machine.name)
        dead: list[Machine] = []
        with trio.move_on_after(UNFOLLOWED_S):
            while not (_is_ending(shard, is_prepared=False) or _is_ending(shard, is_prepared=True)):
                await trio.sleep(LOOK_S)
            await trio.sleep(self._chance.below(ALONE_MS_MAX) / 1_000)
            dead = self._kill_with_clients(machine)
        network.heal()
        for each in dead:
            await self._start_later(each)

    def _kill_with_clients(self, machine: Machine) -> list[Machine]:
        if not machine.is_running or machine.is_paused or not self._loss_limit.may_die(machine):
            return []
        self._rare.sometimes("a coordinator dies before its followers know of the end")
        dying = [each for each in self._workload.machines if each.is_running]
        dying.append(machine)
        for each in dying:
            self._counts["crashes"] += 1
            each.kill()
        return dying


def _followers(broker: Broker, shard: TransactionShard, leader: NodeId) -> list[NodeId]:
    topic = broker.member.image.topic(TRANSACTIONS_TOPIC)
    assert topic is not None
    return [each for each in topic.partitions[shard.index].replicas if each != leader]


def _is_open(transaction: Transaction) -> bool:
    """Return whether a transaction is open and has written to several partitions."""
    facts = transaction.facts
    is_ongoing = facts.status is TransactionStatus.ONGOING and transaction.pending is None
    return is_ongoing and len(facts.partitions) > 1


def _is_ending(shard: TransactionShard, *, is_prepared: bool) -> bool:
    """Return whether the transaction coordinator's shard is ending a transaction. With
    `is_prepared`, the transaction's Prepare record must be committed; otherwise it must not be
    committed yet."""
    for transaction in shard.transactions.values():
        if is_prepared and transaction.facts.status in PREPARED:
            return True
        if not is_prepared and transaction.pending in PREPARED:
            return True
    return False
