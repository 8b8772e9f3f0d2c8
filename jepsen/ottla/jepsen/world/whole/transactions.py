"""Test subjects of the simulator: clients that write in transactions while faults happen.

In half of the runs the epochs of a producer id are exhausted after a few transactions, as happens
after 32,766 transactions in an old cluster. Some clusters have finalised an earlier
transaction.version.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import ClassVar

from ottla.broker.transactions import transaction, transaction_rules
from ottla.jepsen.checkers.compacted import COMPACTED_TOPIC
from ottla.jepsen.world.bugs.mutant import patched
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome
from ottla.jepsen.world.whole.transactional_workload import (
    INPUT,
    OUTPUT,
    MixedTransactionalWorkload,
    TransactionalWorkload,
)
from ottla.jepsen.world.whole.whole_cluster import COMPACTING, WholeCluster
from ottla.jepsen.world.whole.workload import WorkloadPlan
from ottla.metadata import features
from ottla.storage.producers import producer_state

EPOCHS = 6
"""Producer epoch at which a producer gets a new producer id, in runs that exhaust the epochs. It is
small, so that a few transactions exhaust them."""


class TransactionsOfCluster(WholeCluster):
    """Search engine that simulates whole nodes, and clients that write in transactions. Two
    producers share each transactional id."""

    subject = "transactions"
    budget = 8_000
    topics: tuple[str, ...] = (INPUT, OUTPUT, "accounts")
    controller_counts: tuple[int, ...] = (1, 1, 1, 3)
    only: tuple[str, ...] = (
        *("kill",) * 3,
        *("pause",) * 3,
        *("client",) * 2,
        *("reassignment",) * 2,
        "restart",
        "partition",
        "breaks",
        "kill alone",
        "power",
        "slow link",
        "slow disk",
    )
    workload = TransactionalWorkload
    checkers = ("log", "cycles", "transactions", "producer-ids")
    settings: ClassVar[dict[str, str]] = {
        **COMPACTING,
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": "2",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }
    required: tuple[str, ...] = (
        "a broker fails over",
        "a partition is reassigned",
        "the transactions' state is reassigned",
    )

    def plan_of(self, plan: WorkloadPlan) -> WorkloadPlan:
        """Return the clients' work plan, reduced to few clients. A run then needs little CPU
        time."""
        return replace(
            plan,
            topics=self.topics,
            partition_count=min(2, plan.partition_count),
            producer_count=4 if plan.producer_count == 3 else 2,
            member_count=min(2, plan.member_count),
            has_churn=False,
            send_interval_s=max(0.05, plan.send_interval_s),
            age_ms=0,
        )

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Run one simulation of a cluster with transactions, with random choices from `chance` and
        for about `budget` events. Returns the outcome, which includes a broken invariant."""
        stream = chance.stream("transactions")
        has_few_epochs, version = stream.below(2) == 1, stream.pick((2, 2, 2, 0, 1))
        with _version(version), _few_epochs() if has_few_epochs else ExitStack():
            return super().run(chance, budget=budget)


class CoordinatorsOfCluster(TransactionsOfCluster):
    """Search engine like TransactionsOfCluster, but almost the only faults are transaction
    coordinators that die while they end a transaction."""

    subject = "transactions-coordinators"
    only = (*("coordinator",) * 3, *("kill alone",) * 3, *("unfollowed coordinator",) * 6)
    controller_counts = (1,)
    required = (
        "a coordinator dies whose transaction is prepared",
        "a coordinator dies whose transaction is about to be prepared",
        "a coordinator dies before its followers know of the end",
    )


class ClientVersionsOfCluster(TransactionsOfCluster):
    """Search engine like TransactionsOfCluster, but half of the producers are from before
    transaction version 2.

    Many producers are paused and killed, since only a fenced producer shows whether old and new
    producers fence each other.
    """

    subject = "transactions-clients"
    budget = 20_000
    only = (*("client",) * 3, *("pause",) * 2, "kill", "breaks")
    controller_counts = (1,)
    workload = MixedTransactionalWorkload
    required = ("a broker fails over",)

    def plan_of(self, plan: WorkloadPlan) -> WorkloadPlan:
        """Return the clients' work plan, changed to four producers and no group members."""
        return replace(super().plan_of(plan), member_count=0, producer_count=4)

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Run the simulation of one seed with transaction version 2 in the cluster, and return the
        outcome."""
        with _version(2):
            return WholeCluster.run(self, chance, budget=budget)


class CompactedTransactionsOfCluster(TransactionsOfCluster):
    """Search engine like TransactionsOfCluster, with topics that are compacted continuously."""

    subject = "transactions-compacted"
    topics = (f"{COMPACTED_TOPIC}balances", f"{COMPACTED_TOPIC}addresses")
    record_key_count = 5

    def plan_of(self, plan: WorkloadPlan) -> WorkloadPlan:
        """Return the clients' work plan without movers (consumers that copy records), since
        compaction may remove records before they are read."""
        return replace(super().plan_of(plan), member_count=0)


@contextmanager
def _few_epochs() -> Iterator[None]:
    with ExitStack() as stack:
        for module in (transaction, transaction_rules):
            stack.enter_context(
                patched(module, PRODUCER_EPOCH_MAX=EPOCHS + 1, EXHAUSTED_EPOCH=EPOCHS)
            )
        stack.enter_context(patched(producer_state, LAST_PRODUCER_EPOCH=EPOCHS + 1))
        yield


@contextmanager
def _version(level: int) -> Iterator[None]:
    levels = {**features.INITIAL_LEVELS, features.TRANSACTION_VERSION: level}
    with patched(features, INITIAL_LEVELS=levels):
        yield
