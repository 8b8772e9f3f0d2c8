"""Search engine `whole`: whole controllers, brokers and clients in one process, in virtual time,
from one seed.

A run starts a cluster and its clients, and the nemesis injects faults. Then it heals all faults and
checks the result. The parameters of a run (number of nodes, their timeouts, the faults, the amount
of work) are drawn from its seed.
"""

from dataclasses import replace
from typing import ClassVar

import trio

from ottla.client.network.tls import TLS
from ottla.client.network.transport import TRANSPORT
from ottla.jepsen.checkers.compacted import COMPACTED_TOPIC
from ottla.jepsen.history import Json
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import Violation, violation_of
from ottla.jepsen.world.whole.client_events import CHECKERS
from ottla.jepsen.world.whole.cluster import SimulatedCluster, quiet_nodes
from ottla.jepsen.world.whole.encryption import JUDGE, Encryption, encryption_chance
from ottla.jepsen.world.whole.ending import EndJudge
from ottla.jepsen.world.whole.faults.nemesis import WorldNemesis
from ottla.jepsen.world.whole.faults.topic_recreations import ORDERS
from ottla.jepsen.world.whole.faults.untrusted_clients import CertificateChanges, EncryptionWatch
from ottla.jepsen.world.whole.history import ClientHistory
from ottla.jepsen.world.whole.loop import Loop, run_in_virtual_time
from ottla.jepsen.world.whole.machine import Machine, SharedWorld, Trouble
from ottla.jepsen.world.whole.net.network import SimulatedNetwork
from ottla.jepsen.world.whole.net.streams import MachineTransport
from ottla.jepsen.world.whole.watch import CompactionWatch, MetadataWatch
from ottla.jepsen.world.whole.workload import ClientWorkload, WorkloadPlan
from ottla.model.errors import OttlaError

START_S_MAX = 60.0
BUDGET = 20_000
EVENTS_PER_S = 1_000
"""Approximate number of events in a run's budget for each virtual second of faults."""

FAULTS_S_MIN = 5.0
LIGHT_INTERVAL_S = 0.1
COMPACTING = {
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    # A segment ends when its index is full: after about a dozen batches.
    "log.index.interval.bytes": "0",
    "log.index.size.max.bytes": "100",
}
"""Settings of simulated brokers that make them compact logs continuously."""

BACKFILLED_MS = 30 * 86_400_000
"""Age in ms of records that a producer copies from another system. It is longer than the expiration
time of producer ids, so an expiration by the records' timestamps would be found."""


class WholeCluster:
    """Search engine that simulates whole nodes and clients, with any fault."""

    name = "whole"
    subject = "cluster"
    budget = BUDGET
    only: tuple[str, ...] = ()
    """Names of the faults that the nemesis may use. If empty, any fault may be used."""
    directory_counts: tuple[int, ...] = (1,)
    controller_counts: tuple[int, ...] = (3, 3, 1, 5)
    topics: tuple[str, ...] = ("orders", "letters")
    record_key_count = 0
    """Number of record keys in each log of the cluster. Logs are compacted if it is above 0. If it
    is 0, records have no key."""
    is_light = False
    """True if the clients do little work, so that a run needs little CPU time."""
    is_quiet_at_end = False
    """True if clients stop writing at the end of a run, before the check that all ISRs are full."""
    workload: type[ClientWorkload] = ClientWorkload
    serves_admins = False
    """True if controllers also serve Kafka's protocol to clients."""
    checkers: tuple[str, ...] = CHECKERS
    """Names of the checkers that check the clients' history at the end."""
    facts: ClassVar[dict[str, Json]] = {}
    """Facts about every run that a checker of the clients' history needs besides the history."""
    settings: ClassVar[dict[str, str]] = {}
    """Settings of every node, in addition to the settings that are drawn at random."""

    is_encrypted = False
    """True if brokers have encrypted listeners in every run. Otherwise they have them in some
    runs."""
    required: tuple[str, ...] = (
        "a broker fails over",
        "an in-sync set has one member",
        "an in-sync set is full again",
        "another controller is active",
        "a node stops cleanly",
        "all of a kind are killed",
        "a connection breaks",
    )

    def plan_of(self, plan: WorkloadPlan) -> WorkloadPlan:
        """Return the clients' randomly drawn work plan, with the changes that the engine's subject
        needs."""
        return plan

    def watch_more(
        self,
        nursery: trio.Nursery,
        cluster: SimulatedCluster,
        workload: ClientWorkload,
        rare: RareStates,
    ) -> None:
        """Start the observers of the cluster that only this engine's subject needs."""

    def check_end(self, cluster: SimulatedCluster) -> None:
        """Raise Violation if the state of the cluster at the end of a run breaks an invariant of
        this engine's test subject."""

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Run one simulation of a whole cluster, with random choices from `chance` and for about
        `budget` events. Returns the outcome, which includes a broken invariant."""
        run = _ClusterRun(chance, budget, self)
        with quiet_nodes():
            violation = run_in_virtual_time(run.main, seed=chance.stream("loop").below(1 << 62))
        return run.outcome(violation)


class DisksOfCluster(WholeCluster):
    """Search engine that simulates whole nodes and clients, with mainly disk faults. The rest of
    the cluster must continue to work."""

    subject = "disks"
    budget = 25_000
    is_light = True
    only = (
        *("one file",) * 4,
        *("hung directory",) * 4,
        "lost directory",
        "no descriptors",
        "full disk",
        "restart",
    )
    directory_counts = (2, 2, 2, 1)
    required = (
        "a file fails for good",
        "metadata passes a hung disk",
        "other directories acknowledge beside a hung one",
        "a broker starts without one of its directories",
        "a file cannot be opened without a descriptor",
        "a write finds no room",
        "a node starts on a full disk",
        "the last in sync starts without one of its directories",
    )


class DamagedQuorumOfCluster(WholeCluster):
    """Search engine that simulates whole nodes and clients, with controllers whose files are
    damaged while they are down."""

    subject = "damaged-quorum"
    budget = 25_000
    is_light = True
    only = (*("damaged controller",) * 4, "kill", "kill many", "power of all", "partition")
    controller_counts = (3, 3, 5)
    required = ("a controller follows without a vote",)


class NamesOfCluster(WholeCluster):
    """Search engine that simulates whole nodes and clients, with topics that are recreated under
    the same name."""

    subject = "names"
    budget = 25_000
    is_light = True
    only = (
        *("topic made again",) * 3,
        *("late removal",) * 2,
        *("changed setting",) * 2,
        "restart",
        "breaks",
    )
    required = (
        "a topic with a log start above 0 is deleted",
        *(f"a topic is made again{order}" for order in ORDERS[1:]),
        "a topic is made again while its removal waits",
        "a setting changes while a broker starts",
    )


class LossesOfCluster(WholeCluster):
    """Search engine that simulates whole nodes and clients, with disks that have lost acknowledged
    records."""

    subject = "losses"
    budget = 25_000
    is_light = True
    settings: ClassVar[dict[str, str]] = {"log.roll.ms": "2000"}
    only = (*("disk loss",) * 5, "restart", "breaks", "slow link")
    directory_counts = (1, 2)
    required = (
        "a disk has lost acknowledged records",
        "the last broker that stopped loses and starts first",
        "a replica is damaged: removed",
        "a replica is damaged: no topic id",
        "a replica is damaged: cut",
        "a replica is damaged: flipped",
        "a replica is damaged: older",
        "a checkpoint is an older copy",
        "a reader meets a flipped byte",
        *(f"a closed segment is {how}" for how in ("removed", "emptied", "halved")),
    )


class MovesOfCluster(WholeCluster):
    """Search engine that simulates whole nodes and clients, with replicas that move while nodes,
    disks and topics fail."""

    subject = "moves"
    budget = 25_000
    is_light = True
    only = (
        *("moved replicas",) * 4,
        *("kill",) * 2,
        "power",
        "restart",
        "lost directory",
        "one file",
        "hung directory",
        "topic made again",
        "late removal",
    )
    directory_counts = (2,)
    required = (
        "a replica lies in another directory",
        "a broker ends while a replica moves",
        "a move of a replica is cancelled",
    )


class EncryptedCluster(WholeCluster):
    """Search engine that simulates whole nodes and clients, with any fault and encryption."""

    subject = "encrypted"
    budget = 12_000
    is_encrypted = True
    is_light = True
    only: tuple[str, ...] = (
        *("stranger",) * 6,
        *("new certificate",) * 4,
        *("breaks",) * 2,
        "kill",
        "kill many",
        "kill alone",
        "client",
        "pause",
        "partition",
        "power",
        "restart",
        "skew",
        "slow link",
    )
    required = (
        "a broker fails over",
        "all of a kind are killed",
        "a connection breaks",
        "a message comes in pieces",
        "a new certificate is shown",
        "a stranger is refused",
        "a stranger is of another CA",
        "a stranger stops within its handshake",
        "a handshake takes too long",
    )


class CompactedLogsOfCluster(WholeCluster):
    """Search engine that simulates whole nodes and clients, with topics that are compacted
    continuously on every replica."""

    subject = "compacted"
    budget = 12_000
    topics = (f"{COMPACTED_TOPIC}balances", f"{COMPACTED_TOPIC}addresses")
    record_key_count = 5
    required = (
        "a broker fails over",
        "all of a kind are killed",
        "a follower lags behind the compacted part of its leader",
        "a leader has compacted less than its follower",
        "a consumer skips compacted records",
        "group offsets are compacted",
    )


class _ClusterRun:
    """One simulated run of a whole cluster with one seed."""

    def __init__(self, chance: Chance, budget: int, engine: WholeCluster) -> None:
        self._engine = engine
        self._chance = chance
        self._budget = budget
        self._trace = Trace()
        self._rare = RareStates()
        self._history = ClientHistory(
            self._trace,
            lambda: int(trio.current_time() * 1e9),
            record_key_count=engine.record_key_count,
            checkers=engine.checkers,
            facts=engine.facts,
        )
        self._ended_ms = 0
        self._nemesis: WorldNemesis | None = None
        self._watch: MetadataWatch | None = None
        self._workload: ClientWorkload | None = None
        self._encryption: Encryption | None = None
        self._world: SharedWorld

    async def main(self, loop: Loop) -> Violation | None:
        """Run the simulation of one seed. Returns the first broken invariant, or None."""
        violation: Violation | None = None
        network = SimulatedNetwork(self._chance.stream("network"), self._trace, self._rare)
        self._world = world = SharedWorld(loop, network, self._chance)
        try:
            async with trio.open_nursery() as nursery:
                world.nursery = nursery
                nursery.start_soon(network.run)
                try:
                    await self._play(world)
                except* Exception as group:
                    violation = violation_of(_first(group))
                if violation is None:
                    violation = self._history.broken or self._history.events.violation()
                self._trace.add("end", str(violation))
                self._ended_ms = int(trio.current_time() * 1_000)
                world.is_over = True
                loop.resume_all()
                nursery.cancel_scope.cancel()
        except* Exception as group:
            # Errors after the end do not matter. Before it, the error ended the run.
            if violation is None and not world.is_over:
                violation = violation_of(_first(group))
        if violation is None and loop.failure is not None:
            violation = violation_of(loop.failure)
        return violation

    def outcome(self, violation: Violation | None) -> RunOutcome:
        """Return the outcome of the run, which ended with `violation` (None if no invariant
        broke)."""
        history = self._history
        figures = {
            "sent": history.sent_count,
            "acknowledged": history.acknowledged_count,
            "read": history.read_count,
            "commits": history.commit_count,
        }
        if self._nemesis is not None:
            figures.update(self._nemesis.counts)
        if self._watch is not None:
            figures.update(self._watch.counts)
        if self._workload is not None:
            figures["topic changes"] = self._workload.topic_change_count
        if self._encryption is not None:
            figures["encrypted runs"] = 1
            figures.update(self._encryption.counts)
        return RunOutcome(
            engine=self._engine.name,
            subject=self._engine.subject,
            seed=self._chance.seed,
            event_count=self._trace.event_count,
            sim_ms=self._ended_ms,
            figures=figures,
            rare=dict(self._rare.counts),
            trace_hash=self._trace.hash,
            violation=violation,
            decisions=tuple(self._chance.decisions),
        )

    async def _play(self, world: SharedWorld) -> None:
        chance = self._chance
        is_flushed = chance.below(4) == 3
        world.disk_delay_s = chance.pick((0.0, 0.000_5, 0.003))
        world.network.quality.delay_s = chance.pick((0.000_2, 0.001, 0.005))
        world.network.quality.jitter_s = chance.pick((0.000_5, 0.000_1, 0.005))
        world.encryption = self._encryption = self._draw_encryption()
        if world.encryption is not None:
            world.network.quality.split_p = world.encryption.split_p
        plan = self._engine.plan_of(self._draw_plan())
        cluster = self._draw_cluster(world, plan, is_flushed=is_flushed)
        workload = self._engine.workload(world, cluster, self._history, plan)
        self._workload = workload
        await cluster.format()
        cluster.start()
        # The run's own checks use a network without faults.
        judge = world.network.host(JUDGE)
        world.network.on_start(judge)
        TRANSPORT.set(MachineTransport(world.network, world.ports, judge))
        if world.encryption is not None:
            TLS.set(world.encryption.dialer(JUDGE))
        await self._wait_for_start(cluster)
        await workload.create_topics(replication_factor=min(3, len(cluster.broker_machines)))
        self._watch = MetadataWatch(cluster, self._rare)
        if plan.record_key_count:
            world.nursery.start_soon(CompactionWatch(cluster, workload, self._rare).run)
        self._engine.watch_more(world.nursery, cluster, workload, self._rare)
        nemesis = self._nemesis = WorldNemesis(
            chance,
            self._trace,
            self._rare,
            cluster,
            workload,
            is_flushed=is_flushed,
            only=self._engine.only,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch.run)
            nursery.start_soon(self._keep_running, cluster, workload)
            if world.encryption is not None:
                nursery.start_soon(EncryptionWatch(cluster).run)
            for machine in workload.machines:
                machine.start()
            await nemesis.run(max(FAULTS_S_MIN, self._budget / EVENTS_PER_S))
            await nemesis.heal()
            workload.is_quiet = self._engine.is_quiet_at_end
            await EndJudge(cluster, workload, self._history, nemesis.recreations).judge()
            self._engine.check_end(cluster)
            if world.encryption is not None:
                await CertificateChanges(nemesis.context).judge()
            nursery.cancel_scope.cancel()

    def _draw_encryption(self) -> Encryption | None:
        chance = encryption_chance(self._chance, is_demanded=self._engine.is_encrypted)
        if chance is None:
            return None
        return Encryption(chance, self._rare, self._history.break_)

    def _draw_cluster(
        self, world: SharedWorld, plan: WorkloadPlan, *, is_flushed: bool
    ) -> SimulatedCluster:
        chance = self._chance
        controller_count = chance.pick(self._engine.controller_counts)
        broker_count = chance.pick((3, 3, 4, 2))
        settings = {
            "default.replication.factor": str(min(3, broker_count)),
            "offsets.topic.replication.factor": str(min(3, broker_count)),
            "offsets.topic.num.partitions": "2",
            "min.insync.replicas": "2",
            "group.initial.rebalance.delay.ms": chance.pick(("0", "500")),
            "broker.session.timeout.ms": chance.pick(("3000", "1500", "9000")),
            "broker.heartbeat.interval.ms": "500",
            "replica.lag.time.max.ms": chance.pick(("5000", "2000", "10000")),
            "controller.quorum.election.timeout.ms": chance.pick(("1000", "400")),
            "controller.quorum.fetch.timeout.ms": chance.pick(("2000", "800")),
            "metadata.log.max.record.bytes.between.snapshots": chance.pick(
                ("20971520", "4000", "20000")
            ),
            "log.index.size.max.bytes": "4096",
            "log.retention.ms": "-1" if plan.age_ms else "604800000",
            "log.initial.task.delay.ms": "1000",
            "log.retention.check.interval.ms": chance.pick(("300000", "1000")),
            "log.roll.ms": chance.pick(("604800000", "2000")),
            "leader.imbalance.check.interval.seconds": chance.pick(("300", "3")),
        }
        settings |= self._engine.settings
        if is_flushed:
            settings["log.flush.interval.messages"] = "1"
        if self._engine.record_key_count:
            settings |= COMPACTING
        names = [f"broker-{n}" for n in range(1, 5)] + [f"controller-{n}" for n in range(101, 106)]
        drifts = {name: chance.below(401) - 200 for name in names} if chance.below(2) else {}
        return SimulatedCluster(
            world,
            controller_count=controller_count,
            broker_count=broker_count,
            directory_count=chance.pick(self._engine.directory_counts),
            settings=settings,
            drifts_ppm=drifts,
            serves_admins=self._engine.serves_admins,
        )

    def _draw_plan(self) -> WorkloadPlan:
        plan = self._draw_full_plan()
        if not self._engine.is_light:
            return plan
        return replace(
            plan,
            producer_count=1,
            member_count=min(1, plan.member_count),
            send_interval_s=max(LIGHT_INTERVAL_S, plan.send_interval_s),
        )

    def _draw_full_plan(self) -> WorkloadPlan:
        chance = self._chance
        return WorkloadPlan(
            topics=self._engine.topics[: 1 + chance.below(2)],
            partition_count=1 + chance.below(3),
            producer_count=1 + chance.below(3),
            reader_count=1,
            member_count=chance.below(4),
            has_churn=chance.below(3) == 2,
            send_interval_s=chance.pick((0.05, 0.02, 0.2)),
            age_ms=chance.pick((0, 0, BACKFILLED_MS)),
            compression=chance.pick(("none", "none", "lz4", "gzip")),
            record_key_count=self._engine.record_key_count,
        )

    async def _wait_for_start(self, cluster: SimulatedCluster) -> None:
        ends_at = trio.current_time() + START_S_MAX
        while cluster.unready():
            for machine in cluster.machines:
                if machine.failure is not None:
                    raise _first(machine.failure)
            if trio.current_time() > ends_at:
                raise Violation("EverybodyServes", f"a new cluster lacks {cluster.unready()}")
            await trio.sleep(0.1)

    async def _keep_running(self, cluster: SimulatedCluster, workload: ClientWorkload) -> None:
        """Restart processes of nodes and clients that ended by an error that an active fault
        justifies. Any other error ends the run."""
        while True:
            await trio.sleep(0.25)
            if self._history.broken is not None:
                raise self._history.broken
            if self._world.loop.failure is not None:
                raise self._world.loop.failure
            for name, fault in cluster.faults:
                if not isinstance(fault, OSError):
                    raise Violation("NothingEscapes", f"{name}: {fault!r}") from fault
            if self._nemesis is not None and self._nemesis.is_healed:
                # A machine that was about to stop when everything was healed has stopped by now.
                for machine in cluster.machines:
                    if not machine.is_running and machine.failure is None:
                        machine.start()
            for machine in (*cluster.machines, *workload.machines):
                if not machine.is_running and machine.failure is not None:
                    error = _first(machine.failure)
                    if machine.trouble is not None and not isinstance(error, AssertionError):
                        self._judge_end_in_trouble(machine, machine.trouble, error)
                        continue
                    if machine.has_bad_disk and not isinstance(error, AssertionError):
                        continue  # the fault that broke the disk also repairs it
                    if not isinstance(error, OttlaError):
                        raise violation_of(error) from error
                    self._rare.sometimes("a process gives up by itself")
                    self._trace.add("gave up", machine.name, str(error))
                    machine.failure = None
                    self._world.nursery.start_soon(_start_again, machine)

    def _judge_end_in_trouble(self, machine: Machine, trouble: Trouble, error: Exception) -> None:
        if not trouble.allows_end_of(machine):
            raise Violation("TroubleEndsNoNode", f"{machine.name}, {trouble.name}: {error!r}")
        self._rare.sometimes("a process ends by a disk fault")
        if self._nemesis is not None and self._nemesis.is_healed:
            machine.trouble = machine.failure = None
            self._world.nursery.start_soon(_start_again, machine)


async def _start_again(machine: Machine) -> None:
    await trio.sleep(1.0)
    if not machine.is_running:
        machine.start()


def _first(error: BaseException) -> Exception:
    """Return the most important error of an exception group: a bug in preference to a
    RefusedError."""
    if not isinstance(error, BaseExceptionGroup):
        assert isinstance(error, Exception)
        return error
    parts = [_first(part) for part in error.exceptions]
    parts.sort(key=lambda part: isinstance(part, OttlaError | OSError))
    return parts[0]
