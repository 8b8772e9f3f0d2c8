"""Test subject of the simulator: a day of a tiered topic that writes three times the size of its
brokers' disks, while the object store has faults that last for hours.

No process dies. Nodes poll rarely, so that a simulated day costs minutes of CPU time. Invariants:

- NoSendFails: each record is acknowledged;
- NoDirectoryIsOffline: no write finds a full disk, and no log fails;
- BacklogDrains: all closed segments are copied at the end;
- the invariants of `history.py`, checked by a last read of all records.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from typing import ClassVar

import trio

from ottla.broker.tier import metadata_topic_driver
from ottla.broker.tier.partition_tier_driver import snapshot_of
from ottla.broker.tier.remote_log_manager import uncopied
from ottla.client.producer import open_producer
from ottla.jepsen.world.bugs.mutant import patched
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole import watch
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.history import ClientHistory
from ottla.jepsen.world.whole.machine import Machine, SharedWorld
from ottla.jepsen.world.whole.tier.tiered import TieredCluster, TieredWorkload
from ottla.jepsen.world.whole.workload import ClientWorkload, WorkloadPlan, machine_time_ms
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig, ProducerConfig

HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
WRITE_S = 60.0
VALUE_BYTES = 40_000
DISK_BYTES_MIN = 6_000_000
"""Minimum size in bytes of a broker's disk: enough for the broker's own files, and for the records
of an hour without the store. The disk of a longer run has a third of the size of all records."""

QUIET_END_S = HOUR_S
"""Seconds before the end of the run in which the object store has no fault. Brokers then copy the
segments that were delayed."""

RARELY_S = 60.0
"""Interval in seconds at which nodes poll each other, in place of half a second."""

AT = TopicPartition("orders", 0)


class DayWorkload(TieredWorkload):
    """A client workload with one producer, which writes one large record each minute."""

    def __init__(
        self,
        world: SharedWorld,
        cluster: SimulatedCluster,
        history: ClientHistory,
        plan: WorkloadPlan,
    ) -> None:
        super().__init__(world, cluster, history, plan)
        self.writer = self._machine("day-writer", self._write_all_day)

    @property
    def machines(self) -> list[Machine]:
        """Machines of all clients."""
        return [self.writer]

    async def _write_all_day(self, machine: Machine, is_stopping: trio.Event) -> None:
        config = ProducerConfig(linger_ms=0, enable_metrics_push=False)
        async with open_producer(self._cluster.bootstrap, config) as producer:
            number = 0
            while not is_stopping.is_set():
                await trio.sleep(WRITE_S)
                if self.is_quiet:
                    continue
                value = b"%s/%0*d" % (b"x" * (VALUE_BYTES - 20), 10, number)
                number += 1
                self._history.on_send(AT, value)
                delivery = await producer.send(
                    AT.topic, value, partition=0, timestamp_ms=machine_time_ms()
                )
                try:
                    self._history.on_acknowledged(AT, value, (await delivery).offset)
                except Exception as error:
                    raise Violation("NoSendFails", f"record {number}: {error!r}") from error


class DayCluster(TieredCluster):
    """Search engine that simulates a day of a cluster with a tiered topic. The budget is the number
    of virtual milliseconds."""

    subject = "tiered-day"
    budget = int(DAY_S * 1_000)
    workload = DayWorkload
    controller_counts = (1,)
    only: tuple[str, ...] = ("no fault",)
    settings: ClassVar[dict[str, str]] = {
        **{
            name: value
            for name, value in TieredCluster.settings.items()
            if not name.startswith("log.")
        },
        "broker.heartbeat.interval.ms": "60000",
        "broker.session.timeout.ms": "300000",
        "controller.quorum.fetch.timeout.ms": "300000",
        "controller.quorum.fetch.max.wait.ms": "60000",
        "controller.quorum.election.timeout.ms": "1000",
        "metadata.max.idle.interval.ms": "60000",
        "replica.fetch.wait.max.ms": "29000",
        "replica.lag.time.max.ms": "120000",
        "leader.imbalance.check.interval.seconds": "300",
        "remote.log.manager.task.interval.ms": "60000",
        "log.roll.ms": "604800000",
        "log.local.retention.bytes": "50000",
        "log.retention.ms": "604800000",
        "log.retention.check.interval.ms": "60000",
        "log.index.interval.bytes": "0",
        "log.index.size.max.bytes": "200",
        "replica.high.watermark.checkpoint.interval.ms": "60000",
    }
    required: tuple[str, ...] = ("records are only in the store", "the store was down for an hour")

    def plan_of(self, plan: WorkloadPlan) -> WorkloadPlan:
        """Return the clients' work plan, changed to the producer of `DayWorkload` alone."""
        return replace(
            super().plan_of(plan),
            topics=(AT.topic,),
            partition_count=1,
            producer_count=0,
            reader_count=0,
            member_count=0,
        )

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Run one simulation in which nodes poll rarely, for `budget` virtual milliseconds. Returns
        the outcome, which includes a broken invariant."""
        size_bytes = int(budget / 1_000 / WRITE_S * VALUE_BYTES / 3)
        self._disk_bytes = max(DISK_BYTES_MIN, size_bytes)
        self._fault_s = max(0.0, budget / 1_000 - QUIET_END_S)
        with rare_polls():
            return super().run(chance, budget=budget)

    def watch_more(
        self,
        nursery: trio.Nursery,
        cluster: SimulatedCluster,
        workload: ClientWorkload,
        rare: RareStates,
    ) -> None:
        """Limit the disks, and start the faults of the object store and the observer."""
        assert isinstance(workload, DayWorkload)
        for machine in cluster.broker_machines.values():
            machine.disk.capacity_bytes = self._disk_bytes
        nursery.start_soon(_fail_for_hours, cluster, rare, self._fault_s)
        nursery.start_soon(_watch, cluster, rare, workload)

    def check_end(self, cluster: SimulatedCluster) -> None:
        """Check that no segment still waits for its copy to the object store."""
        super().check_end(cluster)
        for broker in cluster.brokers.values():
            assert broker.tier is not None
            for partition in broker.table:
                log, metadata = partition.log, broker.tier.topic.metadata_of(partition.key)
                if log is None or not partition.is_leader or metadata is None or not log.is_tiered:
                    continue
                waiting = uncopied(snapshot_of(log), metadata)
                if len(waiting) > 1:
                    raise Violation("BacklogDrains", f"{partition}: {len(waiting)} segments wait")


async def _fail_for_hours(cluster: SimulatedCluster, rare: RareStates, duration_s: float) -> None:
    """Inject one fault after the other into the object store, each for an hour. After `duration_s`
    seconds the store has no fault."""
    store = cluster.world.object_store
    with trio.move_on_after(duration_s):
        await _alternate(cluster, rare)
    store.resume()
    store.faults.end()


async def _alternate(cluster: SimulatedCluster, rare: RareStates) -> None:
    store = cluster.world.object_store
    faults = store.faults
    while True:
        await trio.sleep(2 * HOUR_S)
        faults.is_down = True
        await trio.sleep(HOUR_S)
        rare.sometimes("the store was down for an hour")
        faults.end()
        await trio.sleep(HOUR_S)
        store.hang()
        await trio.sleep(HOUR_S)
        rare.sometimes("the store hung for an hour")
        store.resume()
        await trio.sleep(HOUR_S)
        faults.requests_per_s = 1
        faults.failed = faults.lost_response = 0.1
        faults.stale_list_s = 3_000.0
        await trio.sleep(HOUR_S)
        rare.sometimes("the store throttled for an hour")
        faults.end()


async def _watch(cluster: SimulatedCluster, rare: RareStates, workload: DayWorkload) -> None:
    """Check the disks and logs each minute, until cancelled or until an invariant is broken."""
    while True:
        for node, broker in cluster.brokers.items():
            disk = cluster.broker_machines[node].disk
            if disk.refused_count:
                workload.break_run("NoDirectoryIsOffline", f"broker {node}: a full disk")
                return
            for at, log in broker.logs:
                if log.failure is not None:
                    workload.break_run("NoDirectoryIsOffline", f"broker {node}: {at}")
                    return
                if log.is_tiered and log.local_start_offset:
                    rare.sometimes("records are only in the store")
        await trio.sleep(WRITE_S)


@contextmanager
def rare_polls() -> Iterator[None]:
    """Return a context in which readers of the metadata topic and the observers of the run poll at
    long intervals."""
    original = metadata_topic_driver.consumer_config()

    @cache
    def consumer_config() -> ConsumerConfig:
        return replace(
            original, fetch_wait_ms_max=int(RARELY_S * 1_000), request_timeout_ms=150_000
        )

    with ExitStack() as stack:
        stack.enter_context(
            patched(metadata_topic_driver, POLL_S=RARELY_S, consumer_config=consumer_config)
        )
        stack.enter_context(patched(watch, LOOK_S=RARELY_S))
        yield
