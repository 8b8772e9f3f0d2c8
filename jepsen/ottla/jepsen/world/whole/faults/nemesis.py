"""The nemesis of a run: its faults, their frequency, targets and durations.

Each seed draws a subset of the faults and their weights. Every choice is drawn from the run's main
stream of random choices, so that a failing run can be shrunk. Faults stay within the guarantees of
the protocol (`loss_limit.py`).
"""

import errno
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import trio

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.faults.cluster_faults import FaultContext
from ottla.jepsen.world.whole.faults.coordinator_deaths import CoordinatorDeaths
from ottla.jepsen.world.whole.faults.disk_losses import DiskLosses
from ottla.jepsen.world.whole.faults.disk_troubles import DiskTroubles
from ottla.jepsen.world.whole.faults.loss_limit import LossLimit
from ottla.jepsen.world.whole.faults.quorum_damages import QuorumDamages
from ottla.jepsen.world.whole.faults.reassignments import Reassignments
from ottla.jepsen.world.whole.faults.share_faults import ShareFaults
from ottla.jepsen.world.whole.faults.tier_faults import TierFaults
from ottla.jepsen.world.whole.faults.topic_recreations import TopicRecreations
from ottla.jepsen.world.whole.faults.untrusted_clients import CertificateChanges, UntrustedClients
from ottla.jepsen.world.whole.machine import Machine
from ottla.jepsen.world.whole.workload import ClientWorkload

PAUSE_MS = (50, 12_000)
ALONE_MS = (20, 1_000)
DOWN_MS = (20, 6_000)
CUT_MS = (200, 10_000)
SLOW_MS = (500, 8_000)
QUIET_MS = (100, 4_000)
"""Range of the delay in ms between two faults that a nemesis injects."""

SLOW_LINK_S = 0.15
SLOW_DISK_S = 0.2
BREAK_P = 0.02
SKEW_MS_MAX = 3_600_000

OFF = (
    "one file",
    "hung directory",
    "lost directory",
    "no descriptors",
    "full disk",
    "topic made again",
    "late removal",
    "changed setting",
)
"""Names of the faults that a nemesis uses only in runs that name them explicitly."""

ENCRYPTED = ("new certificate", "stranger")
"""Names of the faults for runs with encrypted listeners. They are used unless a run names its
faults explicitly."""

Fault = Callable[[], Awaitable[None]]


class WorldNemesis:
    """Nemesis (source of faults) of a simulated cluster: injects faults into its nodes and clients,
    and heals them."""

    def __init__(
        self,
        chance: Chance,
        trace: Trace,
        rare: RareStates,
        cluster: SimulatedCluster,
        workload: ClientWorkload,
        *,
        is_flushed: bool,
        only: Sequence[str] = (),
    ) -> None:
        """Create the nemesis. `only` names all faults to use; if it is empty, some faults are
        drawn. `is_flushed` is True if brokers flush before they acknowledge."""
        self.counts: Counter[str] = Counter()
        self._chance = chance
        self._trace = trace
        self._rare = rare
        self._cluster = cluster
        self._workload = workload
        self._loss_limit = LossLimit(cluster, rare, is_flushed=is_flushed)
        self._network = cluster.world.network
        self._nursery: trio.Nursery | None = None
        self.is_healed = False
        self.context = FaultContext(
            chance=chance,
            rare=rare,
            counts=self.counts,
            cluster=cluster,
            workload=workload,
            loss_limit=self._loss_limit,
            wait=self._wait,
            start_later=self._start_later,
        )
        disks = DiskTroubles(self.context)
        self.recreations = TopicRecreations(self.context)
        faults: dict[str, Fault] = {
            "kill": self._kill_node,
            "kill many": self._kill_many,
            "kill alone": self._kill_alone,
            "power": self._cut_power,
            "power of all": self._cut_all_power,
            "pause": self._pause,
            "partition": self._partition,
            "slow link": self._slow_link,
            "slow disk": self._slow_disk,
            "bad disk": self._fail_disk,
            "breaks": self._break_connections,
            "restart": self._restart,
            "skew": self._skew,
            "client": self._kill_client,
            "one file": disks.fail_file,
            "hung directory": disks.hang,
            "lost directory": disks.lose_directory,
            "no descriptors": disks.take_descriptors,
            "full disk": disks.fill,
            "topic made again": self.recreations.recreate,
            "late removal": self.recreations.recreate_during_removal,
            "changed setting": self.recreations.change_settings,
        }
        self._faults: list[tuple[str, Fault]] = []
        for name, fault in faults.items():
            if not only:
                weight = 0 if name in OFF else chance.below(4)
            else:
                weight = (1 + chance.below(3)) * only.count(name)
            self._faults += [(name, fault)] * weight
        # No random choice is made for these, so that the runs of other subjects' seeds do not
        # change.
        for name, fault in self._faults_by_name(disks).items():
            self._faults += [(name, fault)] * (only.count(name) if only else name in ENCRYPTED)

    def _faults_by_name(self, disks: DiskTroubles) -> dict[str, Fault]:
        """Return the faults that only some subjects use, by the name of the fault."""
        deaths = CoordinatorDeaths(self.context)
        shares = ShareFaults(self.context)
        tiers = TierFaults(self.context)
        return {
            "moved replicas": disks.move_replicas,
            "disk loss": DiskLosses(self.context).lose,
            "reassignment": Reassignments(self.context).reassign,
            "damaged controller": QuorumDamages(self.context).damage,
            "coordinator": deaths.kill,
            "unfollowed coordinator": deaths.kill_unfollowed,
            "share coordinator": shares.kill_coordinator,
            "replaced leader": shares.replace_leader,
            "death in a copy": tiers.kill_in_state,
            "forked log": tiers.fork,
            "returning leader": tiers.fork_and_return,
            **self._encryption_faults(),
        }

    def _encryption_faults(self) -> dict[str, Fault]:
        if self._cluster.world.encryption is None:
            return {}
        changes, strangers = CertificateChanges(self.context), UntrustedClients(self.context)
        return {"new certificate": changes.change, "stranger": strangers.connect}

    async def run(self, lasting_s: float) -> None:
        """Inject concurrent faults for `lasting_s` seconds."""
        with trio.move_on_after(lasting_s):
            async with trio.open_nursery() as self._nursery:
                while self._faults:
                    await self._wait(QUIET_MS)
                    name, fault = self._chance.pick(self._faults)
                    self._nursery.start_soon(self._strike, name, fault)
                await trio.sleep(lasting_s)

    async def heal(self) -> None:
        """Repair all faults of the cluster. Stopped nodes start, and paused ones resume."""
        network = self._network
        network.heal()
        network.quality.break_p = 0.0
        for host in network.hosts.values():
            host.slow_s = 0.0
        for machine in self._all_machines:
            machine.slow_disk_s = 0.0
            machine.clock.wall_skew_ms = 0
            machine.disk.heal()
            trouble = machine.trouble
            if trouble is not None and trouble.has_lost_directory and machine.is_running:
                machine.kill()
            machine.trouble = None
            if machine.has_bad_disk:
                if machine.is_running:
                    machine.cut_power()
                machine.repair_disk()
            if machine.is_paused:
                machine.resume()
        self.is_healed = True
        await trio.sleep(0.001)
        for machine in self._all_machines:
            if not machine.is_running:
                machine.start()

    @property
    def _all_machines(self) -> list[Machine]:
        return [*self._cluster.machines, *self._workload.machines]

    async def _strike(self, name: str, fault: Fault) -> None:
        self._trace.add("fault", name)
        await fault()

    async def _wait(self, range_ms: tuple[int, int]) -> None:
        """Wait for a random time within a range in ms, mostly near the lower end of the range."""
        shortest, longest = range_ms
        share = self._chance.below(1_000) / 1_000
        await trio.sleep((shortest + (longest - shortest) * share**3) / 1_000)

    # ---- processes

    async def _kill_node(self) -> None:
        await self._kill(self._chance.pick(self._cluster.machines))

    async def _kill_client(self) -> None:
        await self._kill(self._chance.pick(self._workload.machines))

    async def _kill(self, machine: Machine) -> None:
        if machine.is_running and self._loss_limit.may_die(machine):
            self.counts["crashes"] += 1
            machine.kill()
            await self._start_later(machine)

    async def _kill_many(self) -> None:
        """Kill all controllers, all brokers, or both at one moment."""
        whom = self._chance.below(3)
        machines = [
            *(self._cluster.controller_machines.values() if whom != 1 else ()),
            *(self._cluster.broker_machines.values() if whom != 0 else ()),
        ]
        self._rare.sometimes("all of a kind are killed")
        async with trio.open_nursery() as nursery:
            for machine in machines:
                nursery.start_soon(self._kill, machine)

    async def _kill_alone(self) -> None:
        """Kill a broker just after a period in which no follower could fetch from it.

        Only that broker has the records written in the period.
        """
        brokers = [*self._cluster.broker_machines.values()]
        alone = self._chance.pick(brokers)
        others = [one for one in brokers if one is not alone and one.is_running]
        paused = [one for one in others if not one.is_paused]
        for machine in paused:
            machine.pause()
        await self._wait(ALONE_MS)
        if alone.is_running and self._loss_limit.may_die(alone):
            self.counts["crashes"] += 1
            self._rare.sometimes("a broker dies with records that no other has")
            alone.kill()
        for machine in paused:
            if machine.is_paused:
                machine.resume()
        await self._start_later(alone)

    async def _start_later(self, machine: Machine) -> None:
        await self._wait(DOWN_MS)
        if not machine.is_running:
            machine.start()

    async def _restart(self) -> None:
        """Stop a node as an operator does, and start it again."""
        machine = self._chance.pick(self._cluster.machines)
        if machine.is_running and not machine.is_paused:
            self.counts["restarts"] += 1
            with trio.move_on_after(20):
                await machine.stop()
                self._rare.sometimes("a node stops cleanly")
            await self._start_later(machine)

    async def _pause(self) -> None:
        machine = self._chance.pick(self._all_machines)
        if machine.is_running and not machine.is_paused:
            self.counts["pauses"] += 1
            machine.pause()
            await self._wait(PAUSE_MS)
            if machine.is_paused:
                machine.resume()

    # ---- power

    async def _cut_power(self) -> None:
        machine = self._chance.pick(self._cluster.machines)
        if not machine.is_running or not self._loss_limit.may_die(machine):
            return
        if not self._loss_limit.allow_loss(machine):
            return
        self.counts["power cuts"] += 1
        machine.cut_power()
        await self._start_later(machine)

    async def _cut_all_power(self) -> None:
        """Cut the power of all controllers, and also of all brokers if brokers flush before they
        acknowledge."""
        machines = [*self._cluster.controller_machines.values()]
        if self._loss_limit.is_flushed:
            machines += self._cluster.broker_machines.values()
        self._rare.sometimes("the power is cut for all")
        async with trio.open_nursery() as nursery:
            for machine in machines:
                if machine.is_running:
                    self.counts["power cuts"] += 1
                    machine.cut_power()
                    nursery.start_soon(self._start_later, machine)

    # ---- network and disks

    async def _partition(self) -> None:
        """Cut network links: isolate one machine, cut one direction, or split the machines at
        random."""
        names = [machine.name for machine in self._all_machines]
        kind = self._chance.below(4)
        if kind == 0:
            alone = self._chance.pick(names)
            pairs = [(alone, other) for other in names] + [(other, alone) for other in names]
        elif kind == 1:
            alone = self._chance.pick(names)
            if self._chance.below(2):
                pairs = [(alone, other) for other in names]
            else:
                pairs = [(other, alone) for other in names]
        elif kind == 2:
            side = {name for name in names if self._chance.below(2)}
            pairs = [(a, b) for a in names for b in names if (a in side) != (b in side)]
        else:
            pairs = [(self._chance.pick(names), self._chance.pick(names)) for _ in names]
        self.counts["partitions"] += 1
        for source, target in pairs:
            if source != target:
                self._network.cut(source, target)
        await self._wait(CUT_MS)
        self._network.heal()

    async def _slow_link(self) -> None:
        host = self._network.host(self._chance.pick(self._all_machines).name)
        self.counts["slow links"] += 1
        host.slow_s = SLOW_LINK_S
        await self._wait(SLOW_MS)
        host.slow_s = 0.0

    async def _break_connections(self) -> None:
        self.counts["breaking times"] += 1
        self._network.quality.break_p = BREAK_P
        await self._wait(SLOW_MS)
        self._network.quality.break_p = 0.0

    async def _slow_disk(self) -> None:
        machine = self._chance.pick(self._cluster.machines)
        self.counts["slow disks"] += 1
        machine.slow_disk_s = SLOW_DISK_S
        await self._wait(SLOW_MS)
        machine.slow_disk_s = 0.0

    async def _fail_disk(self) -> None:
        """Make calls of a machine's disk fail. Its process ends by itself or is killed, and the
        disk is then repaired. Data of a failed fsync is lost, as in a power cut."""
        machine = self._chance.pick(self._cluster.machines)
        if machine.trouble is not None or not machine.is_running:
            return  # another failure would excuse a violation of the requirements on a faulty disk
        if not self._loss_limit.may_die(machine) or not self._loss_limit.allow_loss(machine):
            return
        operation = self._chance.pick(
            (DiskOperation.FSYNC, DiskOperation.WRITE, DiskOperation.NAME)
        )
        number = self._chance.pick((errno.EIO, errno.ENOSPC))
        times = self._chance.pick((1, 1, 1_000))
        self.counts["disk faults"] += 1
        machine.break_disk(operation, number, skip_count=self._chance.below(20), times=times)
        await self._wait(DOWN_MS)
        if machine.is_running:
            machine.cut_power()
            await machine.has_ended.wait()
        else:
            self._rare.sometimes("a process ends at its disk's failure")
        machine.repair_disk()
        await self._start_later(machine)

    async def _skew(self) -> None:
        """Set a machine's wall clock to a wrong time."""
        machine = self._chance.pick(self._cluster.machines)
        machine.clock.wall_skew_ms = self._chance.below(2 * SKEW_MS_MAX) - SKEW_MS_MAX
        self.counts["skews"] += 1
        await trio.lowlevel.checkpoint()
