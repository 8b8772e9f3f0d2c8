"""Disks that fail partially or temporarily, and the required behaviour of their brokers meanwhile.

Only one disk has a fault at a time. Invariants:

- TroubleEndsNoNode: a disk fault that leaves a directory usable ends no process;
- FailedFileFailsItsDirectory: a log directory goes offline soon after one of its files has failed;
- LeadershipMoves: a broker no longer leads partitions in an offline directory if other replicas are
  in sync;
- FullDiskIsNoFault: a directory whose disk was full for a while continues to serve;
- HungDiskHoldsItsOwn: while one directory hangs, the broker's other directories acknowledge
  records, the broker follows the metadata, and its session stays alive;
- NoDescriptorIsNoFault: a directory that could not open files for a while continues to serve.
"""

import errno
from uuid import UUID

import trio

from ottla.broker.broker_driver import Broker
from ottla.client.admin import open_admin
from ottla.jepsen.world.disk_faults import DiskFault, DiskOperation
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.faults.calm import CalmCheck
from ottla.jepsen.world.whole.faults.cluster_faults import ClusterFaults, FaultContext
from ottla.jepsen.world.whole.machine import Machine, Trouble
from ottla.jepsen.world.whole.workload import TROUBLE
from ottla.model.ids import NodeId, TopicPartition
from ottla.storage.directories.log_directory_driver import LogDirectory

STRIKE_MS = (500, 6_000)
"""Range of the time in ms within which a broker should use the file that the fault makes fail."""

HANG_MS = (1_000, 15_000)
FULL_MS = (1_000, 15_000)
DESCRIPTORS_MS = (500, 8_000)
GONE_MS = (1_000, 12_000)
ALONE_MS = (0, 4_000)
"""Shortest and longest time in ms for which a broker serves alone, without one of its log
directories, before the other brokers start."""

DOWN_MS = (20, 3_000)

JUDGED_S_MAX = 3.0
"""Longest time in seconds from the failure of a file until its log directory must be offline."""

MOVED_S_MAX = 6.0
FOLLOWED_S_MAX = 6.0
SERVED_S_MAX = 12.0
RESERVED_FOR = ("__cluster_metadata", ".tmp")
ROOMS_BYTES = (30_000, 3_000, 300)
"""Numbers of free bytes that a disk may have left when the fault begins to fill it up."""

MOVED_MS = (1, 3_000)
"""Range of the time in ms after which the log directories of moving replicas are checked."""

EVER = 1_000_000_000


class DiskTroubles(ClusterFaults):
    """Faults of one disk at a time, with checks that the other disks and nodes continue to work."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context)
        self._calm = CalmCheck(context.cluster)
        self._probe_count = 0

    # ---- one file

    async def fail_file(self) -> None:
        """Make one file of a log fail permanently. Its log directory must go offline, and its
        broker must continue."""
        found = self._pick_directory()
        if found is None:
            return
        node, machine, directory = found
        files = [path for path in machine.disk.files_in(directory) if path.endswith(".log")]
        operation = self._chance.pick(
            (DiskOperation.FSYNC, DiskOperation.WRITE, DiskOperation.READ)
        )
        if not files or not self._loss_limit.may_die(machine):
            return
        if operation is DiskOperation.FSYNC and not self._loss_limit.allow_loss(machine):
            return  # data of a failed fsync is lost, as in a power cut
        path = self._chance.pick(files)
        self._counts["failed files"] += 1
        # Data of such a file in the page cache is lost, as in a power cut.
        machine.has_bad_disk = operation is DiskOperation.FSYNC
        with _troubled(machine, "one file fails", has_lost_directory=True) as trouble:
            fault = machine.disk.fail(operation, errno.EIO, path_part=path, times=EVER)
            if operation is DiskOperation.FSYNC and self._chance.below(2):
                self._flush_soon(node, path)
            with trio.move_on_after(self._within_s(STRIKE_MS)):
                while not fault.failed_count:
                    await trio.sleep(0.05)
            if fault.failed_count:
                self._rare.sometimes("a file fails for good")
                await self._demand_failover(node, machine, trouble, directory, path)
            await self._restart_mended(machine, fault)

    def _flush_soon(self, node: NodeId, path: str) -> None:
        """Start a flush of the log to which a file belongs, as a roll of its segment or the age of
        its data would."""
        broker = self._cluster.brokers.get(node)
        if broker is not None:
            for at, log in broker.logs:
                if path.startswith(f"{log.directory}/"):
                    broker.logs.request_flush(at)

    async def _demand_failover(
        self, node: NodeId, machine: Machine, trouble: Trouble, directory: str, path: str
    ) -> None:
        def is_void() -> bool:
            return not trouble.is_on(machine)

        def judged() -> str:
            broker = self._cluster.brokers.get(node)
            found = broker and _directory_of(broker, directory)
            return f"{path} failed, and {directory} serves on" if found and found.is_live else ""

        if not await self._calm.demand(
            "FailedFileFailsItsDirectory",
            judged,
            patience_s=JUDGED_S_MAX,
            troubled=machine,
            is_void=is_void,
        ):
            return
        broker = self._cluster.brokers.get(node)
        found = broker and _directory_of(broker, directory)
        failed_id = found.directory_id if found else None
        if failed_id is not None:
            await self._calm.demand(
                "LeadershipMoves",
                lambda: self._still_led(node, failed_id),
                patience_s=MOVED_S_MAX,
                troubled=machine,
                is_void=is_void,
            )

    def _still_led(self, node: NodeId, directory_id: UUID) -> str:
        """Return a sentence about a partition that a broker still leads in an offline directory,
        although other replicas are in sync. Returns "" if there is no such partition."""
        image = self._cluster.latest_image
        for topic in image.topics.values() if image else ():
            for number, state in topic.partitions.items():
                if state.leader != node or state.directory_of(node) != directory_id:
                    continue
                if any(other != node for other in state.isr):
                    return f"broker {node} leads {topic.name}-{number} in a failed directory"
        return ""

    async def _restart_mended(self, machine: Machine, fault: DiskFault) -> None:
        if machine.has_bad_disk:
            if machine.is_running:
                machine.cut_power()
                await machine.has_ended.wait()
            machine.repair_disk()
        else:
            await self._end(machine)
        machine.disk.faults.take_back(fault)
        await self._start_later(machine)

    # ---- a hung directory

    async def hang(self) -> None:
        """Make all operations on one log directory hang. The broker's other log directories must
        continue."""
        found = self._pick_directory()
        if found is None:
            return
        node, machine, directory = found
        self._counts["hung directories"] += 1
        goes_on = trio.Event()
        with _troubled(machine, f"{directory} hangs") as trouble:
            machine.disk.faults.hang(directory, goes_on.wait)
            try:
                with trio.move_on_after(self._within_s(HANG_MS)):
                    await self._demand_of_others(node, machine, trouble, directory)
                    await trio.sleep_forever()
            finally:
                machine.disk.faults.give_back(directory)
                goes_on.set()

    async def _demand_of_others(
        self, node: NodeId, machine: Machine, trouble: Trouble, directory: str
    ) -> None:
        def is_void() -> bool:
            return not trouble.is_on(machine)

        names = [await self._make_probe_topic() for _ in range(2)]
        if not await self._calm.demand(
            "HungDiskHoldsItsOwn",
            lambda: self._unfollowed(node, names),
            patience_s=FOLLOWED_S_MAX,
            troubled=machine,
            is_void=is_void,
        ):
            return
        self._rare.sometimes("metadata passes a hung disk")
        broker = self._cluster.brokers.get(node)
        served = [at for at in self._workload.partitions if _is_elsewhere(broker, at, directory)]
        delivered = trio.Event()

        async def deliver() -> None:
            while not delivered.is_set():
                try:
                    await self._workload.probe(SERVED_S_MAX, served)
                    delivered.set()
                except* TROUBLE:
                    await trio.sleep(0.5)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(deliver)
            await self._calm.demand(
                "HungDiskHoldsItsOwn",
                lambda: "" if delivered.is_set() else f"{served} do not all acknowledge",
                patience_s=SERVED_S_MAX,
                troubled=machine,
                is_void=is_void,
            )
            nursery.cancel_scope.cancel()
        if served:
            self._rare.sometimes("other directories acknowledge beside a hung one")

    async def _make_probe_topic(self) -> str:
        self._probe_count += 1
        name = f"probe-{self._probe_count}"
        is_made = False
        try:
            async with open_admin(self._cluster.bootstrap, timeout_s=10.0) as admin:
                await admin.create_topic(name, partition_count=2)
                is_made = True
        except* TROUBLE:
            pass
        return name if is_made else ""  # nothing is required of a topic that may not exist

    def _unfollowed(self, node: NodeId, names: list[str]) -> str:
        broker = self._cluster.brokers.get(node)
        if broker is not None:
            image = broker.table.image
            for name in filter(None, names):
                if image.topic(name) is None:
                    return f"broker {node} does not follow the metadata: it lacks {name}"
            if not image.is_active(node):
                return f"broker {node} is fenced"
        return ""

    # ---- a lost directory

    async def lose_directory(self) -> None:
        """Stop a broker, and start it while one of its log directories cannot be read.

        This may happen repeatedly. The broker may be the last in-sync replica and the first to
        start, so that the cluster knows of its logs only what the broker reports.
        """
        found = self._pick_directory()
        if found is None:
            return
        _, machine, directory = found
        if machine.is_paused or not self._loss_limit.may_die(machine):
            return
        self._counts["lost directories"] += 1
        others: list[Machine] = []
        if self._chance.below(2):
            others = [one for one in self._cluster.broker_machines.values() if one is not machine]
            self._rare.sometimes("the last in sync starts without one of its directories")
        with _troubled(machine, f"{directory} is gone", has_lost_directory=True) as trouble:
            for other in others:
                await self._stop(other)
            await (self._stop(machine) if others else self._end(machine))
            machine.disk.faults.lose(directory)
            try:
                for _ in range(1 + self._chance.below(3)):
                    if not machine.is_running:
                        machine.start()
                    trouble.start_count = machine.start_count
                    self._rare.sometimes("a broker starts without one of its directories")
                    await self._wait(GONE_MS)
                    await (self._stop(machine) if others else self._end(machine))
            finally:
                machine.disk.faults.give_back(directory)
            await self._start_later(machine)
            if others:
                await trio.sleep(self._within_s(ALONE_MS))
            for other in others:
                if not other.is_running:
                    other.start()

    async def _stop(self, machine: Machine) -> None:
        if machine.is_running and not machine.is_paused:
            with trio.move_on_after(20):
                await machine.stop()

    async def _end(self, machine: Machine) -> None:
        if self._chance.below(2):
            await self._stop(machine)
        if machine.is_running:
            machine.kill()
            await machine.has_ended.wait()

    # ---- replicas that move

    async def move_replicas(self) -> None:
        """Move replicas of a broker to another log directory of the same broker, and cancel some of
        the moves."""
        node, machine = self._pick_broker()
        broker = self._cluster.brokers.get(node)
        if broker is None or machine.is_paused or len(self._cluster.log_directories) < 2:
            return
        self._counts["moves asked for"] += 1
        start_count = machine.start_count
        wanted: dict[TopicPartition, LogDirectory] = {}
        for at, _log in broker.logs:
            directory = self._chance.pick(broker.logs.directories)
            if directory.is_live and directory is not broker.logs.directory_of(at):
                wanted[at] = directory
                broker.logs.start_move(at, directory)
        await self._wait(MOVED_MS)
        if not machine.is_running or machine.start_count != start_count:
            if wanted:
                self._rare.sometimes("a broker ends while a replica moves")
            return
        for at, directory in wanted.items():
            now = broker.logs.directory_of(at)
            if now is directory:
                self._rare.sometimes("a replica lies in another directory")
            elif now is not None and not self._chance.below(4):
                broker.logs.start_move(at, now)
                self._rare.sometimes("a move of a replica is cancelled")

    # ---- descriptors and space

    async def take_descriptors(self) -> None:
        """Prevent a broker from opening files of logs for a while.

        The broker keeps descriptors in reserve for the metadata log, and for files that are open
        only for a moment.
        """
        node, machine = self._pick_broker()
        if not self._may_trouble(machine):
            return
        self._counts["times without descriptors"] += 1
        with _troubled(machine, "no descriptor is left", may_fail_to_start=True) as trouble:
            number = self._chance.pick((errno.EMFILE, errno.ENFILE))
            faults = [
                machine.disk.fail(DiskOperation.OPEN, number, path_part=f"{path}/", times=EVER)
                for path in self._cluster.log_directories
            ]
            for fault in faults:
                fault.spared_parts = RESERVED_FOR
            await self._wait(DESCRIPTORS_MS)
            for fault in faults:
                machine.disk.faults.take_back(fault)
                if fault.failed_count:
                    self._rare.sometimes("a file cannot be opened without a descriptor")
            self._demand_all_live("NoDescriptorIsNoFault", node, machine, trouble)

    async def fill(self) -> None:
        """Keep the disk of a node full for a while. The node may have to start meanwhile."""
        machine = self._chance.pick(self._cluster.machines)
        if not self._may_trouble(machine):
            return
        self._counts["full disks"] += 1
        with _troubled(machine, "the disk is full") as trouble:
            disk = machine.disk
            refused_count = disk.refused_count
            disk.capacity_bytes = disk.used_bytes + self._chance.below(
                self._chance.pick(ROOMS_BYTES)
            )
            await self._wait(FULL_MS)
            if self._chance.below(2) and self._loss_limit.may_die(machine):
                await self._end(machine)
                if not machine.is_running:
                    machine.start()
                trouble.start_count = machine.start_count
                self._rare.sometimes("a node starts on a full disk")
                await self._wait(FULL_MS)
            if disk.refused_count > refused_count:
                self._rare.sometimes("a write finds no room")
            disk.capacity_bytes = None
            for node, broker_machine in self._cluster.broker_machines.items():
                if machine is broker_machine:
                    self._demand_all_live("FullDiskIsNoFault", node, machine, trouble)
            if not machine.is_running:
                await self._start_later(machine)

    def _demand_all_live(
        self, invariant: str, node: NodeId, machine: Machine, trouble: Trouble
    ) -> None:
        broker = self._cluster.brokers.get(node)
        if broker is None or not trouble.is_on(machine):
            return
        for directory in broker.logs.directories:
            if not directory.is_live:
                raise Violation(invariant, f"broker {node}: {directory.failure}")

    # ---- choices

    def _pick_broker(self) -> tuple[NodeId, Machine]:
        return self._chance.pick([*self._cluster.broker_machines.items()])

    def _pick_directory(self) -> tuple[NodeId, Machine, str] | None:
        """Return a random log directory of a broker that has a second one, with the broker and its
        machine. Returns None if there is no such broker."""
        node, machine = self._pick_broker()
        directories = self._cluster.log_directories
        directory = self._chance.pick(directories)
        if len(directories) < 2 or not self._may_trouble(machine):
            return None
        return node, machine, directory

    def _may_trouble(self, machine: Machine) -> bool:
        """Return whether a fault of a machine's disk may begin: its node serves requests, and no
        disk of the cluster has a fault."""
        return machine.name not in self._cluster.unready() and not any(
            one.trouble is not None or one.has_bad_disk for one in self._cluster.machines
        )

    def _within_s(self, range_ms: tuple[int, int]) -> float:
        shortest, longest = range_ms
        return (shortest + self._chance.below(longest - shortest)) / 1_000

    async def _start_later(self, machine: Machine) -> None:
        await self._wait(DOWN_MS)
        if not machine.is_running:
            machine.start()


class _troubled:  # noqa: N801 - reads as a sentence after `with`
    """Context that marks a machine's disk as faulty. At the end of the run, `heal` removes the
    mark."""

    def __init__(
        self,
        machine: Machine,
        name: str,
        *,
        may_fail_to_start: bool = False,
        has_lost_directory: bool = False,
    ) -> None:
        self._machine = machine
        self._trouble = Trouble(
            name=name,
            start_count=machine.start_count,
            may_fail_to_start=may_fail_to_start,
            has_lost_directory=has_lost_directory,
        )

    def __enter__(self) -> Trouble:
        self._machine.trouble = self._trouble
        return self._trouble

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._machine.trouble is self._trouble:
            self._machine.trouble = None


def _directory_of(broker: Broker, path: str) -> LogDirectory | None:
    return next((one for one in broker.logs.directories if one.path == path), None)


def _is_elsewhere(broker: Broker | None, at: TopicPartition, directory: str) -> bool:
    """Return whether a broker has a replica of a partition in a directory other than
    `directory`."""
    if broker is None:
        return False
    for partition, log in broker.logs:
        if partition == at:
            return not log.directory.startswith(f"{directory}/")
    return False
