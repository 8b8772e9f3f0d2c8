"""A running world: a simulated cluster, the instances of the user's program, and the scenario's
calls."""

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from uuid import UUID

import trio

from ottla.client.admin import Admin
from ottla.jepsen.world.whole.clock import WALL_START_MS
from ottla.jepsen.world.whole.cluster import BROKER_PORT, SimulatedCluster
from ottla.jepsen.world.whole.loop import INSTANTS_PER_S
from ottla.jepsen.world.whole.machine import SharedWorld
from ottla.model.ids import TopicPartition
from ottla.testing.world.databases.store import WorldStore
from ottla.testing.world.errors import CheckFailedError, WorldError
from ottla.testing.world.harness import HarnessClients, Isolation
from ottla.testing.world.instances import Instance, Runtime
from ottla.testing.world.life import HARNESS, LIFE
from ottla.testing.world.nemesis import ScheduleFaults
from ottla.testing.world.plans import FaultSchedule, WorldPlan
from ottla.testing.world.program_modules import (
    Program,
    SharedGlobals,
    check_program,
    imports_of_lives,
)
from ottla.testing.world.records import ScenarioRecord, WrittenRecord
from ottla.testing.world.request_watch import RequestWatch
from ottla.testing.world.settling import LagReader, SettleWait
from ottla.testing.world.timeline import Timeline
from ottla.testing.world.timeline_event import TimelineEvent

NAMES_OF_NODES = ("broker-", "controller-", HARNESS)
FAULTS_S_MAX = 60.0
"""Virtual seconds for which `World.settle` waits for the scheduled faults that begin at a request
or a mark. If such a moment has not occurred by then, it rarely occurs later."""


class SimulatedWorld:
    """A running simulated world. `world.run` creates it and passes it to the scenario."""

    def __init__(
        self, shared: SharedWorld, cluster: SimulatedCluster, plan: WorldPlan, timeline: Timeline
    ) -> None:
        self.bootstrap = ",".join(f"{host}:{BROKER_PORT}" for host, _ in cluster.bootstrap)
        """Addresses of the brokers, for the setting `bootstrap.servers` of clients."""
        self.plan = plan
        self.timeline = timeline
        """Events of the run so far."""
        self.shared = shared
        """The simulated machines and their network."""
        self.cluster = cluster
        """The simulated nodes of the cluster."""
        self.is_ending = False
        """True once the world no longer restarts failed instances."""
        self.warnings: list[str] = []
        """Warnings about the program, which are complete at the end of the run."""
        self._patches = ExitStack()
        self._has_copied_modules = False
        self._shared_globals: dict[str, SharedGlobals] = {}
        """Global variables of programs whose instances share their modules, by package."""
        self._folder = tempfile.TemporaryDirectory(prefix="ottla-world-")
        self._started_s = trio.current_time()
        self._stores: dict[str, WorldStore] = {}
        self._nemesis: ScheduleFaults
        self._watch: RequestWatch
        self._clients: HarnessClients
        self._lag: LagReader

    def open(self, schedule: FaultSchedule, nursery: trio.Nursery) -> None:
        """Start the scenario's clock and the fault injection of a schedule."""
        self._started_s = trio.current_time()
        self.timeline.now_s = lambda: self.now_s
        self._nemesis = ScheduleFaults(self.shared, self.cluster, self.timeline, schedule)
        self._watch = RequestWatch(self._nemesis, self._topic_name)
        self.shared.ports.on_connection = self._watch.on_connection
        self._clients = HarnessClients(self.bootstrap, nursery)
        self._lag = LagReader(self._clients)
        self._nemesis.begin()

    def close(self) -> None:
        """Delete the folders of the instances. Also find global variables of modules that several
        lives (runs of a program) have shared."""
        self.is_ending = True
        ended_s = self.now_s
        self.timeline.now_s = lambda: ended_s  # the report must not refer to the whole world
        self._patches.close()
        if sum(one.start_count for one in self._nemesis.instances.values()) > 1:
            found = [shared.warning() for shared in self._shared_globals.values()]
            self.warnings = [text for text in found if text is not None]
        self._folder.cleanup()

    @property
    def seed(self) -> int:
        """Seed of the run's random choices."""
        return self.plan.seed

    @property
    def now_s(self) -> float:
        """Virtual seconds since the scenario began."""
        return trio.current_time() - self._started_s

    @property
    def instances(self) -> dict[str, Instance]:
        """Instances by name, in the order of their first start."""
        return dict(self._nemesis.instances)

    # ---- topics and records

    async def create_topic(
        self,
        name: str,
        partition_count: int = 1,
        *,
        replication_factor: int | None = None,
        configs: dict[str, str] | None = None,
    ) -> None:
        """Create a topic, and wait until every broker knows it. Each broker has a replica, up to
        three, unless `replication_factor` is given. Raises RefusedError if the topic exists."""
        await self._clients.create_topic(
            name,
            partition_count=partition_count,
            replication_factor=replication_factor or min(3, self.plan.brokers),
            configs=configs,
        )
        self.note(f"created topic {name} with {partition_count} partitions")

    async def produce(
        self, topic: str, records: Sequence[ScenarioRecord | bytes]
    ) -> list[WrittenRecord]:
        """Write records to a topic, and return them with their offsets once all in-sync replicas
        have them. A `bytes` object is written as a record with this value and no key."""
        made = [ScenarioRecord(value=one) if isinstance(one, bytes) else one for one in records]
        now_ms = WALL_START_MS + int(trio.current_time() * 1_000)
        written = await self._clients.write(topic, made, now_ms)
        for one in written:
            self.timeline.add(
                TimelineEvent(
                    self.now_s,
                    HARNESS,
                    "produce",
                    f"{one.topic}-{one.partition}@{one.offset}",
                    {"topic": one.topic, "partition": one.partition, "offset": one.offset},
                )
            )
        return written

    async def read(
        self, topic: str, *, isolation: Isolation = "read_committed"
    ) -> list[WrittenRecord]:
        """Return all records of a topic, sorted by partition and offset."""
        partitions = await self._clients.partitions(topic)
        return await self._clients.read(await self._clients.start_offsets(partitions), isolation)

    async def group_lag(self, group: str) -> int:
        """Return the number of records that a consumer group has not committed. Its partitions are
        those with a committed offset and those assigned to a member."""
        return sum((await self._lag.of(group)).lags.values())

    async def group_lags(self, group: str) -> dict[TopicPartition, int]:
        """Return the lag of a group by partition. Partitions without lag are left out."""
        return (await self._lag.of(group)).lags

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Admin]:
        """Yield an admin client of the cluster, which the scenario may use like any other admin
        client."""
        yield await self._clients.admin()

    def store(self, name: str = "store", *, latency_s: float = 0.001) -> WorldStore:
        """Return the database with this name, which the scenario and all instances share.
        `latency_s` is the virtual time of each of its calls; it counts at the first call only."""
        if name not in self._stores:
            self._stores[name] = WorldStore(name, latency_s=latency_s, timeline=self.timeline)
        return self._stores[name]

    # ---- instances

    def start(
        self,
        name: str,
        program: Program,
        *arguments: object,
        runtime: Runtime = "asyncio",
        restarts: bool = True,
        modules: Sequence[str] = (),
    ) -> Instance:
        """Start an instance of a program: an async function, called with `arguments`.

        `runtime` is the async library of the program. An instance that ends with an exception is
        started again after 1 virtual second, unless `restarts` is false. `modules` are the names of
        modules or packages of the program. Each start of the instance loads them again, as a new
        process would, so that no module global survives a kill. Raises WorldError if the name is in
        use or is the name of a node, or if the program is not in `modules`.
        """
        if not name or name in self._nemesis.instances or name.startswith(NAMES_OF_NODES):
            raise WorldError(f"the name {name!r} is in use or empty; give the instance another")
        if runtime not in ("asyncio", "trio"):
            raise WorldError(f"a program runs in 'asyncio' or 'trio', not in {runtime!r}")
        if isinstance(modules, str):
            modules = (modules,)
        if modules:
            check_program(program, modules)
            if not self._has_copied_modules:
                self._patches.enter_context(imports_of_lives())
            self._has_copied_modules = True
        else:
            shared = SharedGlobals(program)
            self._shared_globals.setdefault(shared.package, shared)
        directory = Path(self._folder.name) / name
        directory.mkdir()
        instance = Instance(
            self,
            name,
            directory,
            program,
            arguments,
            runtime=runtime,
            restarts=restarts,
            modules=tuple(modules),
        )
        self._nemesis.instances[name] = instance
        self._watch.add_instance(name)
        instance.machine.start()
        return instance

    async def settle(
        self, within_s: float = 120.0, until: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        """Run the program through the faults of the schedule, end all faults, wait until no
        consumer group has any lag, and stop all instances cleanly.

        With `until`, the program is settled when this async function returns True, instead of when
        there is no lag. Raises CheckFailedError if the program is not settled within a number of
        virtual seconds after the last fault has ended.
        """
        await self._pass_faults(until)
        self._nemesis.heal()
        # A killed instance that is not started yet looks like one that has ended.
        await trio.sleep_until(self._nemesis.restarts_until_s + 1 / INSTANTS_PER_S)
        self.note("all faults have ended")
        settling = SettleWait(self._lag, until, self._change_count)
        is_settled = await settling.wait(
            trio.current_time() + within_s, is_done=lambda: self._has_only_ended(until)
        )
        if not is_settled and not self._has_only_ended(until):
            raise CheckFailedError(
                f"the program has not settled within {within_s:g} s after the last fault: "
                f"{settling.reason}{self._troubles()}",
                check="settles",
            )
        self.note("settled")
        await self.stop_all()

    async def stop_all(self) -> None:
        """Stop all instances cleanly, at the same time, and wait for their end."""
        self.is_ending = True
        async with trio.open_nursery() as nursery:
            for instance in self._nemesis.instances.values():
                nursery.start_soon(instance.stop)
        self.is_ending = False

    async def sleep(self, seconds: float) -> None:
        """Wait for a number of virtual seconds."""
        await trio.sleep(seconds)

    def _topic_name(self, topic_id: UUID) -> str:
        image = self.cluster.latest_image
        topic = None if image is None else image.topics.get(topic_id)
        return str(topic_id) if topic is None else topic.name

    def note(self, text: str) -> None:
        """Add a note of the scenario to the timeline."""
        self.timeline.add(TimelineEvent(self.now_s, HARNESS, "note", text))

    def on_mark(self, instance: str, name: str) -> bool:
        """Handle a call of `mark` by an instance. Returns True if a fault begins at this call."""
        found = self._nemesis.instances[instance]
        return not self.shared.is_over and self._nemesis.on_mark(found, name)

    async def _pass_faults(self, until: Callable[[], Awaitable[bool]] | None) -> None:
        """Wait until all faults of the schedule have begun and ended. A fault is not awaited if it
        can no longer begin, because the program has no work left."""
        nemesis = self._nemesis
        settling = SettleWait(self._lag, until, self._change_count)
        ends_s = trio.current_time() + FAULTS_S_MAX
        while nemesis.has_pending or nemesis.is_active:
            if trio.current_time() >= ends_s and not nemesis.has_timed:
                return
            if nemesis.has_timed or nemesis.is_active:
                await trio.sleep(0.5)
            elif await settling.wait(ends_s, is_done=lambda: nemesis.is_active):
                return

    def _change_count(self) -> int:
        return self._watch.change_count

    def _has_only_ended(self, until: Callable[[], Awaitable[bool]] | None) -> bool:
        """Return True if every instance has ended, and none will be started again. Waiting longer
        then changes nothing."""
        instances = self._nemesis.instances.values()
        return until is None and all(one.has_ended and one.failure is None for one in instances)

    def _troubles(self) -> str:
        """Return the last failure of each instance that is failing, as the end of a message."""
        return "".join(
            f"; {one.name} failed with {type(one.failure).__name__}: {one.failure}"
            for one in self._nemesis.instances.values()
            if one.failure is not None
        )


def mark(name: str) -> None:
    """Mark a point of a program, at which a fault of the schedule may begin.

    Does nothing outside of a simulated world.

    A kill takes effect at the next `await` that waits. Data that the program sends before that
    `await` is not delivered.
    """
    life = LIFE.get()
    if life is not None:
        life.on_mark(name)
