"""Test subject of the simulator: tiered topics with retention, unclean leader elections and
deletions, whose leaders die in each state of a copy and of a deletion.

The times of tiered storage that are hours in production are seconds here, so that a run of half a
minute contains uploads that hang until their deadline, abandoned copies and orphans.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import ClassVar

import trio

from ottla.broker.tier import (
    deleted_topics,
    deleted_topics_driver,
    orphans,
    partition_tier_driver,
    remote_log_manager,
)
from ottla.broker.tier.partition_tier_driver import snapshot_of
from ottla.jepsen.world.bugs.mutant import patched
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.faults.tier_faults import FORKED, STATES
from ottla.jepsen.world.whole.tier.bucket_check import BucketLogs
from ottla.jepsen.world.whole.tier.expiring_clients import FADING, ExpiringWorkload
from ottla.jepsen.world.whole.tier.lineage_watch import LineageWatch
from ottla.jepsen.world.whole.tier.tiered import StoreNemesis, TieredCluster
from ottla.jepsen.world.whole.workload import ClientWorkload
from ottla.model.ids import Offset
from ottla.storage.tier.expiry_plan import ExpiryInput
from ottla.storage.tier.object_names import SegmentNames, SegmentObject

ORPHAN_AGE_MS = 14_000
"""Minimum age in ms of an orphan (an object without a segment) in this subject; production uses a
day. It is longer than the longest upload, including the late effect of the last request."""

ORPHANS_S = 2.0
ORPHAN_S = 10.0
"""Longest delay in seconds until the upload of an orphan takes effect."""

IMAGE_AGE_MS_MAX = 3_000
DELETION_S = 4.0
ABANDONED_COPY_MS = 12_000


class ExpiringCluster(TieredCluster):
    """Search engine that simulates whole nodes and clients with tiered topics. The topics expire,
    have unclean elections, and are deleted."""

    subject = "tiered-expiring"
    budget = 15_000
    is_light = True
    workload = ExpiringWorkload
    controller_counts: tuple[int, ...] = (1, 1, 3)
    only: tuple[str, ...] = (
        *("death in a copy",) * 6,
        *("forked log",) * 2,
        "kill",
        "pause",
        "partition",
        "replaced leader",
        "reassignment",
        "restart",
        "breaks",
        "slow disk",
    )
    settings: ClassVar[dict[str, str]] = {
        **TieredCluster.settings,
        "broker.session.timeout.ms": "1500",
        "remote.log.manager.copy.timeout.ms": "6000",
        "replica.lag.time.max.ms": "2000",
        "leader.imbalance.check.interval.seconds": "3",
    }
    required: tuple[str, ...] = (
        "a broker fails over",
        "the log start moves",
        "a tiered leader is alone",
        "an unclean leader is elected in the tier",
        "an unclean leader is elected beside its predecessor",
        "the bucket has segments that overlap",
        "the store fails",
        "the store hangs",
        "the store is down",
        "the store throttles",
        "the store's listings are stale",
        *(f"a leader dies when {state}" for state in STATES),
    )

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Run one simulation with short times of tiered storage, with random choices from `chance`
        and for about `budget` events. Returns the outcome, which includes a broken invariant."""
        with short_times():
            return super().run(chance, budget=budget)

    def watch_more(
        self,
        nursery: trio.Nursery,
        cluster: SimulatedCluster,
        workload: ClientWorkload,
        rare: RareStates,
    ) -> None:
        """Start the faults of the object store, and the observer that compares local logs with
        copied segments."""
        world = cluster.world
        stream = world.chance.stream("store nemesis")
        nemesis = StoreNemesis(world.object_store, stream, rare, failure_weight=4)
        nursery.start_soon(nemesis.run)
        expiring = self.watch_lineages(nursery, cluster, workload, rare)
        nursery.start_soon(_add_orphan, cluster, expiring, world.chance.stream("orphan"))

    def watch_lineages(
        self,
        nursery: trio.Nursery,
        cluster: SimulatedCluster,
        workload: ClientWorkload,
        rare: RareStates,
    ) -> ExpiringWorkload:
        """Start the observer that compares local logs with copied segments. Returns the workload
        that uses the observer."""
        assert isinstance(workload, ExpiringWorkload)
        store = cluster.world.object_store
        workload.watch = LineageWatch(cluster, store, rare, workload.break_run)
        nursery.start_soon(workload.watch.run)
        self._workload, self._rare = workload, rare
        return workload

    def check_end(self, cluster: SimulatedCluster) -> None:
        """Check the copied segments, and the logs that a restore from the object store would
        produce."""
        super().check_end(cluster)
        logs = BucketLogs(cluster.world.object_store, cluster.cluster_id)
        for topic in (*self.topics, FADING, FORKED):
            found = self._workload.watch.leader_of(topic, 0)
            if found is not None and logs.check(found[0], snapshot_of(found[1]).lineage):
                self._rare.sometimes("the bucket has segments that overlap")


async def _add_orphan(
    cluster: SimulatedCluster, workload: ExpiringWorkload, chance: Chance
) -> None:
    """Simulate the upload of a broker that no longer exists. The upload takes effect late."""
    await trio.sleep(ORPHAN_S * chance.random())
    while (found := workload.watch.leader_of(FORKED, 0)) is None:
        await trio.sleep(ORPHANS_S)
    names = SegmentNames(
        cluster_id=cluster.cluster_id,
        topic=FORKED,
        topic_id=found[0].topic_id,
        partition=0,
        start_offset=Offset(0),
        segment_id=chance.uuid(),
    )
    cluster.world.object_store.add_late_upload(names.key(SegmentObject.LOG), b"late")


@contextmanager
def short_times() -> Iterator[None]:
    """Return a context in which tiered storage waits seconds instead of minutes or days."""
    with ExitStack() as stack:
        for module, times in (
            (
                partition_tier_driver,
                {
                    "ORPHANS_S": ORPHANS_S,
                    "DELETION_S": DELETION_S,
                },
            ),
            (orphans, {"ORPHAN_AGE_MS": ORPHAN_AGE_MS}),
            (deleted_topics, {"ORPHAN_AGE_MS": ORPHAN_AGE_MS}),
            (
                deleted_topics_driver,
                {
                    "FIRST_SEARCH_S": ORPHANS_S,
                    "SEARCH_S": ORPHANS_S,
                    "IMAGE_AGE_MS_MAX": IMAGE_AGE_MS_MAX,
                },
            ),
            (
                remote_log_manager,
                {"ExpiryInput": partial(ExpiryInput, abandoned_copy_ms=ABANDONED_COPY_MS)},
            ),
        ):
            stack.enter_context(patched(module, **times))
        yield
