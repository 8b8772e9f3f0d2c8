"""Fault injection of a simulated run: begins and ends each fault of the schedule at the scheduled
moment."""

from collections.abc import Callable, Sequence
from functools import partial

import trio

from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.loop import INSTANTS_PER_S
from ottla.jepsen.world.whole.machine import Machine, SharedWorld
from ottla.testing.world.instances import Instance
from ottla.testing.world.plans import (
    At,
    Fault,
    FaultSchedule,
    FillDisk,
    KillBroker,
    KillFault,
    LoseAnswer,
    MarkMoment,
    PartitionFault,
    PauseFault,
    Request,
    SlowInstance,
    Stop,
    When,
    fault_text,
)
from ottla.testing.world.request_watch import ObservedRequest
from ottla.testing.world.timeline import Timeline
from ottla.testing.world.timeline_event import TimelineEvent


class ScheduleFaults:
    """Injector of the scheduled faults of one simulated run. It implements `RequestListener`."""

    def __init__(
        self,
        shared: SharedWorld,
        cluster: SimulatedCluster,
        timeline: Timeline,
        schedule: FaultSchedule,
    ) -> None:
        self.instances: dict[str, Instance] = {}
        """Started instances by name, in the order of their first start."""
        self.is_healed = False
        """True once all faults have ended and no further fault begins."""
        self.begun_count = 0
        """Number of faults that have begun."""
        self._shared = shared
        self._cluster = cluster
        self._timeline = timeline
        self._started_s = trio.current_time()
        self._pending: list[Fault] = list(schedule.faults)
        """Faults that have not begun, in the order of the schedule."""
        self._marks: dict[tuple[str, str], int] = {}
        self._losses: dict[str, list[tuple[str, int] | None]] = {}
        """Responses that must be lost, by instance. Each is given by API and number, or is None for
        the next response."""
        self.restarts_until_s = 0.0
        """Event-loop time, in seconds, of the last scheduled restart of an instance."""
        self._stop_count = 0
        """Number of clean stops that have begun and not ended."""
        self._ends: dict[int, Callable[[], None]] = {}
        """Functions that end the active faults, by the number of the fault."""

    @property
    def now_s(self) -> float:
        """Virtual seconds since the scenario began."""
        return trio.current_time() - self._started_s

    @property
    def is_active(self) -> bool:
        """True if a fault has begun and has not ended."""
        return bool(self._ends) or self._stop_count > 0

    @property
    def has_pending(self) -> bool:
        """True if at least one scheduled fault has not begun."""
        return bool(self._pending)

    @property
    def has_timed(self) -> bool:
        """True if a fault that has not begun will begin at a fixed time."""
        return any(isinstance(fault.moment, At) for fault in self._pending)

    def begin(self) -> None:
        """Schedule the faults that begin at a fixed time."""
        for fault in list(self._pending):
            if isinstance(fault.moment, At):
                self._later(fault.moment.seconds, partial(self._begin_pending, fault))

    def heal(self) -> None:
        """End all active faults, and begin no further faults. Brokers that are down are started,
        and instances that were killed are started at their time."""
        self.is_healed = True
        self._pending.clear()
        self._losses.clear()
        ends, self._ends = self._ends, {}
        for end in ends.values():
            end()

    # ---- moments

    def on_request(self, call: ObservedRequest, when: When) -> None:
        """Begin the faults that are scheduled for this request or response."""
        instance = self.instances[call.instance]
        name = f"{call.api} {call.number}"
        kind, text = ("request", name) if when == "sent" else ("answer", name)
        self._note_request(instance, call, kind, text)
        for fault in self._matching(instance):
            moment = fault.moment
            if (
                isinstance(moment, Request)
                and not isinstance(fault, LoseAnswer)  # `loses` decides these
                and moment.number == call.number
                and moment.api == call.api
                and moment.when == when
            ):
                if when == "sent":
                    self._begin_pending(fault)
                else:
                    # Until then, all tasks of the instance react to the response, and nothing that
                    # they send arrives.
                    self._later(1 / INSTANTS_PER_S, partial(self._begin_pending, fault))

    def _note_request(
        self, instance: Instance, call: ObservedRequest, kind: str, text: str
    ) -> None:
        """Add an event for each range of records of a request, or one event if the request has no
        records."""
        facts: dict[str, str | int] = {"broker": call.broker, "api": call.api}
        facts["number"] = call.number
        for span in call.records:
            instance.note(kind, f"{text}: {span}", **facts, **span.facts())
        if not call.records:
            instance.note(kind, text, **facts)

    def loses(self, call: ObservedRequest) -> bool:
        """Return whether the response to a request must be lost together with its connection."""
        instance = self.instances[call.instance]
        for fault in self._matching(instance):
            moment = fault.moment
            if (
                isinstance(fault, LoseAnswer)
                and isinstance(moment, Request)
                and (moment.api, moment.number) == (call.api, call.number)
            ):
                self._pending.remove(fault)
                self._note_fault(fault)
                return True
        if self._losses.get(call.instance):
            self._losses[call.instance].pop()
            instance.note("fault", f"the response to {call.api} {call.number} is lost")
            return True
        return False

    def on_mark(self, instance: Instance, name: str) -> bool:
        """Begin the faults that are scheduled for this call of `mark`. Returns True if a fault has
        begun."""
        number = self._marks.get((instance.name, name), 0) + 1
        self._marks[instance.name, name] = number
        begun = False
        for fault in self._matching(instance):
            moment = fault.moment
            if isinstance(moment, MarkMoment) and (moment.name, moment.number) == (name, number):
                self._begin_pending(fault)
                begun = True
        return begun

    def _matching(self, instance: Instance) -> list[Fault]:
        """Return the pending faults whose moments are requests or marks of this instance."""
        if not self._pending:
            return []
        names = list(self.instances)
        index = names.index(instance.name)
        return [
            fault for fault in self._pending if getattr(fault, "instance", 0) % len(names) == index
        ]

    # ---- faults

    def _begin_pending(self, fault: Fault) -> None:
        if fault not in self._pending:
            return
        self._pending.remove(fault)
        self._note_fault(fault)
        if isinstance(fault, KillBroker | FillDisk):
            self._begin_at_broker(fault)
            return
        instance = self._instance(fault.instance)
        if instance is None or not instance.is_running:
            return
        if isinstance(fault, KillFault):
            instance.kill()
            self._restart(instance, fault.restart_after_s)
            self._until(fault.restart_after_s, _nothing)
        elif isinstance(fault, PauseFault):
            instance.pause(fault.seconds)
            self._until(fault.seconds, instance.resume)
        elif isinstance(fault, Stop):
            self._shared.nursery.start_soon(self._stop, instance, fault.restart_after_s)
        elif isinstance(fault, LoseAnswer):
            self._losses.setdefault(instance.name, []).append(None)
        elif isinstance(fault, SlowInstance):
            self._slow(instance, fault)
        else:
            self._part(instance, fault)

    def _begin_at_broker(self, fault: KillBroker | FillDisk) -> None:
        machine = self._broker(fault.broker)
        if isinstance(fault, KillBroker):
            machine.kill()
            self._until(fault.restart_after_s, partial(self._start_broker, machine))
            return
        machine.disk.capacity_bytes = machine.disk.used_bytes
        self._until(fault.seconds, partial(self._empty_disk, machine))

    async def _stop(self, instance: Instance, restart_after_s: float) -> None:
        self._stop_count += 1
        await instance.stop()
        self._stop_count -= 1
        self._restart(instance, restart_after_s)
        self._until(restart_after_s, _nothing)

    def _restart(self, instance: Instance, after_s: float) -> None:
        self.restarts_until_s = max(self.restarts_until_s, trio.current_time() + after_s)
        instance.restart_after(after_s)

    def _slow(self, instance: Instance, fault: SlowInstance) -> None:
        instance.machine.host.slow_s = fault.delay_s
        self._until(fault.seconds, partial(self._hurry, instance))

    def _hurry(self, instance: Instance) -> None:
        instance.machine.host.slow_s = 0.0

    def _part(self, instance: Instance, fault: PartitionFault) -> None:
        network, broker = self._shared.network, self._broker(fault.broker).name
        links = ((instance.name, broker), (broker, instance.name))
        for source, target in links:
            network.cut(source, target)
        self._until(fault.seconds, partial(self._mend, links))

    def _mend(self, links: Sequence[tuple[str, str]]) -> None:
        for source, target in links:
            self._shared.network.mend(source, target)

    def _start_broker(self, machine: Machine) -> None:
        if not machine.is_running:
            self._note(machine.name, "start", "started again")
            machine.start()

    def _empty_disk(self, machine: Machine) -> None:
        machine.disk.capacity_bytes = None
        self._note(machine.name, "note", "the disk has room again")

    def _until(self, seconds: float, end: Callable[[], None]) -> None:
        """Call `end` after a number of virtual seconds. The call is earlier if all faults are
        healed before."""
        self.begun_count += 1
        number = self.begun_count
        self._ends[number] = end

        def end_once() -> None:
            found = self._ends.pop(number, None)
            if found is not None:
                found()

        self._later(seconds, end_once)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._shared.network.call_at(trio.current_time() + seconds, action)

    def _instance(self, index: int) -> Instance | None:
        names = list(self.instances)
        return self.instances[names[index % len(names)]] if names else None

    def _broker(self, index: int) -> Machine:
        machines = list(self._cluster.broker_machines.values())
        return machines[index % len(machines)]

    # ---- timeline

    def _note_fault(self, fault: Fault) -> None:
        text = fault_text(fault, list(self.instances))
        self._note("faults", "fault", text)

    def _note(self, where: str, kind: str, text: str) -> None:
        self._timeline.add(TimelineEvent(self.now_s, where, kind, text))


def _nothing() -> None:
    pass
