"""One run of a scenario in a new simulated world, in virtual time. It depends only on the plan, its
seed and the faults."""

import sys
import warnings
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import trio

from ottla.client.network.transport import TRANSPORT
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.whole.clock import WALL_START_MS
from ottla.jepsen.world.whole.cluster import SimulatedCluster, quiet_nodes
from ottla.jepsen.world.whole.loop import Loop, run_in_virtual_time
from ottla.jepsen.world.whole.machine import Machine, SharedWorld
from ottla.jepsen.world.whole.net.network import SimulatedNetwork
from ottla.jepsen.world.whole.net.streams import MachineTransport
from ottla.model.errors import OttlaError
from ottla.testing.world.errors import (
    CheckFailedError,
    ClusterFailedError,
    SharedGlobalsWarning,
)
from ottla.testing.world.failure_files import (
    FailingRun,
    RuleChoices,
    current_test,
    drawn_run_to_replay,
    failure_folder,
)
from ottla.testing.world.instances import described
from ottla.testing.world.life import HARNESS
from ottla.testing.world.plans import FaultSchedule, WorldPlan
from ottla.testing.world.runtime.guards import collect_garbage, enter, guarded, note_failed_run
from ottla.testing.world.runtime.sources import Sources
from ottla.testing.world.search.shrinking import SHRINK_LIMIT
from ottla.testing.world.timeline import TIMELINE, Timeline
from ottla.testing.world.timeline_event import TimelineEvent
from ottla.testing.world.world import SimulatedWorld

Scenario: TypeAlias = Callable[[SimulatedWorld], Awaitable[object]]

START_S_MAX = 60.0
TIMELINE_LINES = 40
"""Number of lines of the timeline in the note that is added to a scenario's exception."""

NODE_RESTART_AFTER_S = 1.0
"""Virtual seconds after which a node is started again if it ended itself, for example after a disk
fault."""

DISK_DELAY_S = 0.0
"""Average duration in virtual seconds of each disk call of a simulated node. With 0, disk calls
take no virtual time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """Summary of a run. Two runs with the same plan, faults and seed have equal reports."""

    digest: str
    """Hash of all steps of the run: each message with its arrival time, and each event of the
    timeline."""
    seconds: float
    """Virtual seconds from the start of the cluster to the end of the scenario."""
    event_count: int
    """Number of events of the run that the digest covers."""
    timeline: Timeline


def run(
    scenario: Scenario,
    plan: WorldPlan | None = None,
    faults: FaultSchedule | None = None,
    *,
    timeout_s: float = 3_600.0,
) -> RunReport:
    """Run a scenario in a new simulated world, and return a report.

    Raises the scenario's exception, with notes about the faults and the timeline. Raises
    CheckFailedError if the scenario does not end within `timeout_s` virtual seconds, and
    ClusterFailedError if a node of the cluster fails by a bug of Ottla.
    """
    replayed = drawn_run_to_replay()
    if replayed is not None and current_test() in ("", replayed.test):
        plan, faults = replayed.plan, replayed.faults
    plan, faults = plan or WorldPlan(), faults or FaultSchedule()
    SHRINK_LIMIT.check(plan, faults)
    try:
        return WorldRun(scenario, plan, faults, timeout_s).run()
    except Exception:
        SHRINK_LIMIT.note_failure(plan, faults)
        raise


def default_settings(plan: WorldPlan) -> dict[str, str]:
    """Return the settings of simulated nodes that differ from Kafka's defaults. With them, internal
    topics fit the number of brokers, and rebalances begin without a delay."""
    replicas = str(min(3, plan.brokers))
    return {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "share.coordinator.state.topic.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(2, plan.brokers)),
        "share.coordinator.state.topic.min.isr": str(min(2, plan.brokers)),
        "min.insync.replicas": str(min(2, plan.brokers)),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
        # An idle controller writes a record every 500 ms by default, which each node then fetches.
        "metadata.max.idle.interval.ms": "5000",
    }


class WorldRun:
    """One run of a scenario in a simulated world."""

    def __init__(
        self, scenario: Scenario, plan: WorldPlan, faults: FaultSchedule, timeout_s: float
    ) -> None:
        self.timeline = Timeline(wall_ms=WALL_START_MS)
        self.trace = Trace()
        self._scenario = scenario
        self._plan = plan
        self._faults = faults
        self._timeout_s = timeout_s
        self._chance = Chance(plan.seed, is_logged=False)
        self._failure: BaseException | None = None
        self._seconds = 0.0
        self.rules: Callable[[], RuleChoices] | None = None
        """Function that returns the choices of a state machine so far. None for other tests."""
        self._warnings: list[str] = []
        self._names: list[str] = []
        """Names of the instances that the scenario started."""

    def run(self) -> RunReport:
        """Run the scenario and return the report. Raises the scenario's exception."""
        with untraced(), quiet_nodes(), guarded(self._chance):
            run_in_virtual_time(self._main, seed=self._chance.stream("loop").below(1 << 62))
        for event in self.timeline:
            self.trace.add(int(event.at_s * 1e6), event.where, event.kind, event.text)
        if self._failure is not None:
            self.explain(self._failure, self._names)
            note_failed_run()
            raise self._failure
        for text in self._warnings:
            warnings.warn(text, SharedGlobalsWarning, stacklevel=3)
        return RunReport(
            digest=self.trace.hash,
            seconds=self._seconds,
            event_count=self.trace.event_count,
            timeline=self.timeline,
        )

    async def _main(self, loop: Loop) -> None:
        enter(Sources(HARNESS, self._chance))
        network = SimulatedNetwork(self._chance.stream("network"), self.trace, RareStates())
        shared = SharedWorld(loop, network, self._chance)
        shared.disk_delay_s = DISK_DELAY_S
        try:
            async with trio.open_nursery() as nursery:
                shared.nursery = nursery
                nursery.start_soon(network.run)
                nursery.start_soon(collect_garbage)
                try:
                    await self._play(shared, nursery)
                except (Exception, BaseExceptionGroup) as error:
                    self._failure = error
                self._seconds = trio.current_time()
                self._failure = self._failure or loop.failure
                shared.is_over = True
                loop.resume_all()
                nursery.cancel_scope.cancel()
        except* Exception as group:
            # After the end, tasks are cancelled, and their errors do not matter.
            if not shared.is_over:
                self._failure = self._failure or group

    async def _play(self, shared: SharedWorld, nursery: trio.Nursery) -> None:
        plan = self._plan
        cluster = SimulatedCluster(
            shared,
            controller_count=plan.controllers,
            broker_count=plan.brokers,
            directory_count=1,
            settings=default_settings(plan) | dict(plan.settings),
            drifts_ppm={},
        )
        await cluster.format()
        cluster.start()
        host = shared.network.host(HARNESS)
        shared.network.on_start(host)
        TRANSPORT.set(MachineTransport(shared.network, shared.ports, host))
        await self._wait_for_start(cluster)
        world = SimulatedWorld(shared, cluster, plan, self.timeline)
        TIMELINE.set(self.timeline)
        for machine in cluster.machines:
            nursery.start_soon(self._keep_running, world, machine)
        try:
            world.open(self._faults, nursery)
            with trio.move_on_after(self._timeout_s) as timeout:
                await self._scenario(world)
            if timeout.cancelled_caught:
                raise CheckFailedError(
                    f"the scenario has not ended after {self._timeout_s:g} virtual seconds",
                    check="timeout",
                )
        finally:
            self._names = list(world.instances)
            world.close()
            self._warnings = world.warnings
        check_nodes(cluster)

    async def _wait_for_start(self, cluster: SimulatedCluster) -> None:
        ends_s = trio.current_time() + START_S_MAX
        while cluster.unready():
            for machine in cluster.machines:
                if machine.failure is not None:
                    raise machine.failure
            if trio.current_time() > ends_s:
                raise ClusterFailedError(f"the cluster has not started: {cluster.unready()}")
            await trio.sleep(0.02)

    async def _keep_running(self, world: SimulatedWorld, machine: Machine) -> None:
        """Start a simulated node again after each failure. Raises ClusterFailedError if the cause
        is a bug of Ottla."""
        while True:
            await machine.has_ended.wait()
            if machine.failure is not None:
                text = described(machine.failure)
                self.timeline.add(TimelineEvent(world.now_s, machine.name, "error", text))
                if not isinstance(_first(machine.failure), OttlaError | OSError):
                    raise ClusterFailedError(f"{machine.name}: {text}") from machine.failure
            await trio.sleep(NODE_RESTART_AFTER_S)
            if not machine.is_running and machine.failure is not None:
                machine.start()

    def explain(self, error: BaseException, names: Sequence[str]) -> None:
        """Add the faults and the end of the timeline to an exception, and save the failing run.
        `names` are the names of the instances in their order."""
        error.add_note(f"Cluster: {self._plan}")
        error.add_note(f"Faults:\n{_indented(self._faults.text(names))}")
        lines = self.timeline.as_text(lines_max=TIMELINE_LINES)
        error.add_note(f"Last events of the run, in virtual seconds:\n{lines}")
        folder = failure_folder()
        if folder is not None:
            run = FailingRun(
                test=current_test(),
                plan=self._plan,
                faults=self._faults,
                rules=None if self.rules is None else self.rules(),
                error=described(error),
            )
            path = run.save(folder, self.timeline)
            error.add_note(
                f"To repeat this run: ottla world replay {path}\n"
                f"To look at its timeline: {path.with_suffix('.html')}"
            )


@contextmanager
def untraced() -> Iterator[None]:
    """Return a context in which Hypothesis does not trace lines. Hypothesis's phase `explain` would
    make runs ten times slower, and would only list lines of the simulator. Debuggers and coverage
    tools still trace."""
    tracer = sys.gettrace()
    owner = type(getattr(tracer, "__self__", None)).__module__
    if not owner.startswith("hypothesis."):
        yield
        return
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)


def check_nodes(cluster: SimulatedCluster) -> None:
    """Raise ClusterFailedError if a node of the cluster had an unexpected exception."""
    for name, fault in cluster.faults:
        if not isinstance(fault, OSError):
            raise ClusterFailedError(f"{name}: {described(fault)}") from fault


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
