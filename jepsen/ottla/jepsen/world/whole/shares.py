"""Test subject of the simulator: clients that use a share group as a queue (KIP-932) while faults
happen.

The share coordinators write a snapshot after a few updates, so that after most failovers both
snapshots and updates are replayed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar, NoReturn

import trio

from ottla.client import share_consumer
from ottla.jepsen.history import Json
from ottla.jepsen.world.bugs.mutant import patched
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.share_workload import (
    DELIVERY_COUNT_LIMIT,
    LOCK_MS,
    ShareWorkload,
)
from ottla.jepsen.world.whole.whole_cluster import WholeCluster
from ottla.jepsen.world.whole.workload import ClientWorkload, WorkloadPlan

LOOK_S = 0.5


class ShareWatch:
    """Observer that counts the rare events that members of the share group encounter."""

    def __init__(self, workload: ShareWorkload, rare: RareStates) -> None:
        self._workload = workload
        self._rare = rare

    async def run(self) -> NoReturn:
        """Read the workload's counts of rare events at intervals, and count them as rare states
        (states that tests should reach) of the run."""
        while True:
            for name, count in self._workload.counts.items():
                if count:
                    self._rare.sometimes(name)
            await trio.sleep(LOOK_S)


class SharesOfCluster(WholeCluster):
    """Search engine that simulates whole nodes, and clients that use a share group as a queue."""

    subject = "shares"
    budget = 10_000
    topics: tuple[str, ...] = ("jobs", "mails")
    controller_counts: tuple[int, ...] = (1, 1, 3)
    is_quiet_at_end = True
    only: tuple[str, ...] = (
        *("kill",) * 3,
        *("client",) * 3,
        *("pause",) * 2,
        *("reassignment",) * 2,
        *("partition",) * 2,
        *("share coordinator",) * 2,
        *("replaced leader",) * 2,
        "restart",
        "breaks",
        "kill alone",
        "kill many",
        "power",
        "slow link",
        "slow disk",
    )
    workload = ShareWorkload
    checkers: tuple[str, ...] = ("log", "shares")
    facts: ClassVar[dict[str, Json]] = {
        "lock_ms": LOCK_MS,
        "delivery_count_limit": DELIVERY_COUNT_LIMIT,
    }
    settings: ClassVar[dict[str, str]] = {
        "group.share.min.record.lock.duration.ms": str(LOCK_MS),
        "group.share.max.delivery.count.limit": str(DELIVERY_COUNT_LIMIT),
        "group.share.min.session.timeout.ms": "6000",
        "group.share.session.timeout.ms": "6000",
        "group.share.min.heartbeat.interval.ms": "1000",
        "group.share.heartbeat.interval.ms": "1000",
        "share.coordinator.state.topic.num.partitions": "2",
        "share.coordinator.state.topic.replication.factor": "2",
        "share.coordinator.snapshot.update.records.per.snapshot": "5",
    }
    required: tuple[str, ...] = (
        "a broker fails over",
        "a partition is reassigned",
        "a share coordinator dies without followers",
        "a record is delivered again",
        "a lock ends before the acknowledgement",
        "a record becomes a dead letter",
        "an acknowledgement is confirmed",
        "an acknowledgement is refused",
    )

    def plan_of(self, plan: WorkloadPlan) -> WorkloadPlan:
        """Return the clients' work plan, changed to several share group members and few other
        clients."""
        return replace(
            plan,
            partition_count=min(2, plan.partition_count),
            producer_count=1,
            member_count=max(2, plan.member_count),
            has_churn=False,
            send_interval_s=max(0.05, plan.send_interval_s),
            age_ms=0,
        )

    def watch_more(
        self,
        nursery: trio.Nursery,
        cluster: SimulatedCluster,
        workload: ClientWorkload,
        rare: RareStates,
    ) -> None:
        """Start the observer that counts rare events of share group members."""
        assert isinstance(workload, ShareWorkload)
        nursery.start_soon(ShareWatch(workload, rare).run)

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Run one simulation of a cluster with a share group, with random choices from `chance` and
        for about `budget` events. Returns the outcome, which includes a broken invariant."""
        with drawn_member_ids(chance.stream("members")):
            return super().run(chance, budget=budget)


class ShareLeadersOfCluster(SharesOfCluster):
    """Search engine that simulates whole nodes and a share group. Partition leaders are replaced
    without noticing it."""

    subject = "share-leaders"
    budget = 15_000
    topics: tuple[str, ...] = ("jobs",)
    only = ("replaced leader",)
    settings: ClassVar[dict[str, str]] = {
        **SharesOfCluster.settings,
        "broker.session.timeout.ms": "1500",
    }
    required = (
        "a replaced leader does not know it",
        "a record is delivered again",
        "an acknowledgement is confirmed",
    )

    def plan_of(self, plan: WorkloadPlan) -> WorkloadPlan:
        """Return the clients' work plan with one partition and three members, so that both leaders
        of the partition have members."""
        return replace(super().plan_of(plan), partition_count=1, member_count=3)


@contextmanager
def drawn_member_ids(chance: Chance) -> Iterator[None]:
    """Return a context in which share consumers draw their member ids from a separate stream of
    random choices."""
    with patched(share_consumer, uuid4=chance.uuid):
        yield
