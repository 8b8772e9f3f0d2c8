"""Test subject of the simulator: topics that are copied to an object store, deleted locally, and
read from there, while nodes and the store fail.

Segments have about a dozen batches, and local logs keep no copied segment, so that readers from the
start read the store. The store is slow, fails before and after the effect of a request, loses
responses, returns stale listings, throttles, and hangs.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, NoReturn
from uuid import UUID

import trio

from ottla.broker.replicas.partition import Partition
from ottla.broker.tier.partition_tier_driver import snapshot_of
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.object_store import SimulatedObjectStore, StoreOutcome
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.whole_cluster import WholeCluster
from ottla.jepsen.world.whole.workload import ClientWorkload, WorkloadPlan
from ottla.storage.log.log import Log
from ottla.storage.tier.copy_plan import copied_offset
from ottla.storage.tier.object_names import parse_object_key
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_segment import RemoteSegmentState

LOOK_S = 0.1
STORE_FAULTS_S = 9.0
"""Seconds during which the object store has faults. The faults of nodes last longer, so that all
copies can be complete at the end of the run."""
FAULT_S_MAX = 4.0
TIERED_CONFIGS = {"remote.storage.enable": "true"}


class TieredWorkload(ClientWorkload):
    """Clients whose topics are in tiered storage."""

    def break_run(self, invariant: str, detail: str) -> None:
        """End the run with a violation, because an observer has found a broken invariant."""
        self._history.break_(invariant, detail)

    def _topic_configs(self) -> dict[str, str] | None:
        return TIERED_CONFIGS


class StoreNemesis:
    """Nemesis (source of faults) of the simulated object store, which has one fault after the
    other."""

    def __init__(
        self,
        store: SimulatedObjectStore,
        chance: Chance,
        rare: RareStates,
        *,
        failure_weight: int = 1,
    ) -> None:
        """Create the nemesis. `failure_weight` is the weight of failing requests among the kinds of
        faults, which each have the weight 1."""
        self._store = store
        self._chance = chance
        self._rare = rare
        self._kinds: tuple[tuple[str, Callable[[], None]], ...] = (
            *(("the store fails", self._fail),) * failure_weight,
            ("the store is down", self._go_down),
            ("the store hangs", store.hang),
            ("the store throttles", self._throttle),
            ("the store's listings are stale", self._be_stale),
        )

    async def run(self) -> None:
        """Inject faults of the object store for STORE_FAULTS_S seconds, then end all faults."""
        chance = self._chance
        with trio.move_on_after(STORE_FAULTS_S):
            while True:
                await trio.sleep(chance.random() * FAULT_S_MAX)
                name, begin = self._kinds[chance.below(len(self._kinds))]
                begin()
                self._rare.sometimes(name)
                await trio.sleep(chance.random() * FAULT_S_MAX)
                self._end()
        self._end()

    def _end(self) -> None:
        self._store.faults.end()
        self._store.resume()

    def _fail(self) -> None:
        faults = self._store.faults
        faults.failed = faults.lost_response = faults.late = 0.1
        faults.late_s = 5.0
        faults.partial_delete = 0.2

    def _go_down(self) -> None:
        self._store.faults.is_down = True

    def _throttle(self) -> None:
        self._store.faults.requests_per_s = 5

    def _be_stale(self) -> None:
        self._store.faults.stale_list_s = 5.0


class TierWatch:
    """Observer of the tiered logs of running brokers, which checks them during the run.

    No record expires in these runs. So a log always starts at 0, and each record below the local
    start is readable in the store.
    """

    def __init__(
        self, cluster: SimulatedCluster, rare: RareStates, report: Callable[[str, str], None]
    ) -> None:
        """Create the observer. `report` ends the run because of a broken invariant. Its arguments
        are the name of the invariant and the detail."""
        self._cluster = cluster
        self._rare = rare
        self._report = report

    async def run(self) -> None:
        """Check the tiered logs repeatedly until cancelled, or until an invariant is broken."""
        try:
            await self._look_repeatedly()
        except Violation as violation:
            self._report(violation.invariant, violation.detail)

    async def _look_repeatedly(self) -> NoReturn:
        while True:
            for broker in list(self._cluster.brokers.values()):
                assert broker.tier is not None
                for partition in broker.table:
                    if partition.log is not None and partition.log.is_tiered:
                        metadata = broker.tier.topic.metadata_of(partition.key)
                        self._check(partition, partition.log, metadata)
            await trio.sleep(LOOK_S)

    def _check(self, partition: Partition, log: Log, metadata: RemoteMetadata | None) -> None:
        local_start = log.local_start_offset
        if local_start:
            self._rare.sometimes("records are only in the store")
        if log.log_start_offset:
            raise Violation("NothingExpires", f"{partition} starts at {log.log_start_offset}")
        if metadata is None:
            return
        lineage = snapshot_of(log).lineage
        copied = copied_offset(metadata, lineage, local_log_start_offset=log.log_start_offset)
        if copied + 1 < local_start:
            raise Violation(
                "DeletedIsCopied",
                f"{partition} is copied up to {copied}, and begins locally at {local_start}",
            )
        for segment in metadata.all_segments():
            is_own = (
                partition.is_leader
                and segment.broker_id == partition.local_id
                and segment.leader_epochs[-1].epoch == partition.leader_epoch
            )
            if is_own and segment.end_offset >= log.last_stable_offset:
                raise Violation(
                    "OnlyStableIsCopied",
                    f"{partition} copies up to {segment.end_offset}, and is stable up to"
                    f" {log.last_stable_offset}",
                )


def check_copies(cluster: SimulatedCluster, store: SimulatedObjectStore) -> None:
    """Check the objects in the object store. Each completely copied segment must have all its
    objects, and no object may belong to an unknown segment. The second check requires a run in
    which no failed request takes effect late."""
    keys = store.objects.keys()
    known: set[UUID] = set()
    for broker in cluster.brokers.values():
        tier = broker.tier
        assert tier is not None
        for partition in broker.table:
            metadata = tier.topic.metadata_of(partition.key)
            if partition.log is None or not partition.log.is_tiered or metadata is None:
                continue
            for segment in metadata.all_segments():
                known.add(segment.id.segment_id)
                if segment.state is not RemoteSegmentState.COPY_FINISHED:
                    continue
                missing = set(tier.keys_of(segment, partition.topic)) - keys
                if missing:
                    raise Violation(
                        "FinishedIsComplete", f"{partition} lacks the objects {sorted(missing)}"
                    )
    if store.outcomes[StoreOutcome.LATE]:
        return  # such objects are deleted after a day
    for key in sorted(keys):
        name = parse_object_key(key)
        if name is not None and name.names.segment_id not in known:
            raise Violation("NoOrphans", f"the object {key} belongs to no known segment")


class TieredCluster(WholeCluster):
    """Search engine that simulates whole nodes and clients, with topics in an object store."""

    subject = "tiered"
    budget = 12_000
    topics: tuple[str, ...] = ("orders",)
    workload = TieredWorkload
    is_quiet_at_end = True
    only: tuple[str, ...] = (
        *("kill",) * 3,
        *("pause",) * 2,
        *("reassignment",) * 2,
        *("partition",) * 2,
        *("replaced leader",) * 2,
        "restart",
        "breaks",
        "kill many",
        "power",
        "slow link",
        "slow disk",
    )
    settings: ClassVar[dict[str, str]] = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.uri": "memory:",
        "remote.log.manager.task.interval.ms": "300",
        "remote.log.manager.task.retry.backoff.max.ms": "1000",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "2",
        "rlmm.config.remote.log.metadata.topic.min.isr": "1",
        "log.local.retention.bytes": "1",
        "log.retention.check.interval.ms": "500",
        "log.index.interval.bytes": "0",
        "log.index.size.max.bytes": "100",
    }
    required: tuple[str, ...] = (
        "a broker fails over",
        "records are only in the store",
        "the store fails",
        "the store hangs",
        "the store is down",
    )

    def plan_of(self, plan: WorkloadPlan) -> WorkloadPlan:
        """Return the clients' work plan, with few partitions, and with record timestamps of the
        present."""
        return replace(
            plan,
            partition_count=min(2, plan.partition_count),
            has_churn=False,
            age_ms=0,
            record_key_count=0,
        )

    def watch_more(
        self,
        nursery: trio.Nursery,
        cluster: SimulatedCluster,
        workload: ClientWorkload,
        rare: RareStates,
    ) -> None:
        """Start the faults of the object store, and the observer of tiered logs."""
        world = cluster.world
        assert isinstance(workload, TieredWorkload)
        nemesis = StoreNemesis(world.object_store, world.chance.stream("store nemesis"), rare)
        nursery.start_soon(nemesis.run)
        nursery.start_soon(TierWatch(cluster, rare, workload.break_run).run)

    def check_end(self, cluster: SimulatedCluster) -> None:
        """Check that the object store contains all objects of each completely copied segment."""
        check_copies(cluster, cluster.world.object_store)
