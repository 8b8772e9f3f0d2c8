"""Check that a simulated run depends only on its plan, its seed and its faults."""

from dataclasses import dataclass
from typing import TypeAlias

from ottla.jepsen.world.trace import Part, listening
from ottla.testing.world.errors import NondeterminismError
from ottla.testing.world.plans import FaultSchedule, WorldPlan
from ottla.testing.world.run import RunReport, Scenario, run
from ottla.testing.world.runtime.guards import ClockRead, reads_of_clocks_and_chance

EVENTS_SHOWN = 5
"""Number of events before the first difference between two runs that an error message shows."""

Happening: TypeAlias = tuple[str, tuple[Part, ...]]
"""One step of a simulated run, for comparison with another run: its kind (`network` or `call`) and
its parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordedRun:
    """One simulated run, with all of its steps in order."""

    happenings: list[Happening]
    report: RunReport | None
    failure: BaseException | None


def check_determinism(
    scenario: Scenario,
    plan: WorldPlan | None = None,
    faults: FaultSchedule | None = None,
) -> RunReport:
    """Run a scenario twice and return the report of the second run.

    Raises NondeterminismError if the runs differ. Its message names the first difference: a network
    message, or a program's call of a clock or of a random function. Raises the scenario's exception
    if both runs fail in the same way.
    """
    first = _recorded(scenario, plan, faults)
    second = _recorded(scenario, plan, faults)
    for number, (one, other) in enumerate(zip(first.happenings, second.happenings, strict=False)):
        if one != other:
            raise NondeterminismError(_difference(first.happenings, number, one, other))
    if len(first.happenings) != len(second.happenings):
        number = min(len(first.happenings), len(second.happenings))
        longer = max(first.happenings, second.happenings, key=len)
        raise NondeterminismError(_difference(longer, number, longer[number], None))
    if type(first.failure) is not type(second.failure):
        raise NondeterminismError(
            f"the network was equal in two runs with the same seed, but one ended with "
            f"{first.failure!r} and the other with {second.failure!r}: the scenario itself depends "
            f"on something outside of the world"
        )
    if second.failure is not None:
        raise second.failure
    assert first.report is not None
    assert second.report is not None
    if first.report.digest != second.report.digest:
        raise NondeterminismError(_timeline_difference(first.report, second.report))
    return second.report


def _recorded(
    scenario: Scenario, plan: WorldPlan | None, faults: FaultSchedule | None
) -> _RecordedRun:
    happenings: list[Happening] = []

    def on_read(read: ClockRead) -> None:
        happenings.append(("call", (read.process, read.function, read.caller)))

    report: RunReport | None = None
    failure: BaseException | None = None
    with (
        listening(lambda parts: happenings.append(("network", parts))),
        reads_of_clocks_and_chance(on_read),
    ):
        try:
            report = run(scenario, plan, faults)
        except (Exception, BaseExceptionGroup) as error:
            failure = error
    return _RecordedRun(happenings=happenings, report=report, failure=failure)


def _difference(
    happenings: list[Happening], number: int, one: Happening, other: Happening | None
) -> str:
    lines = ["two runs with the same plan, faults and seed differ.", "Both runs had:"]
    lines.extend(
        f"  {_text(shown)}" for shown in happenings[max(0, number - EVENTS_SHOWN) : number]
    )
    lines.append(f"Then one run had:\n  {_text(one)}")
    lines.append(f"and the other:\n  {'its end' if other is None else _text(other)}")
    calls = [shown for shown in happenings[:number] if shown[0] == "call"]
    if calls:
        lines.append(f"The last call of a clock or random function was:\n  {_text(calls[-1])}")
    lines.append(
        "Programs differ by state of a module that an earlier run has changed, by the order of a "
        "set of texts or objects (sort it), by compiled code with a clock or random numbers of its "
        "own, and by files outside of the instance's folder."
    )
    return "\n".join(lines)


def _timeline_difference(first: RunReport, second: RunReport) -> str:
    ones, others = list(first.timeline), list(second.timeline)
    for one, other in zip(ones, others, strict=False):
        if (one.at_s, one.where, one.kind, one.text) != (
            other.at_s,
            other.where,
            other.kind,
            other.text,
        ):
            return (
                f"two runs with the same plan, faults and seed have different timelines: at "
                f"{one.at_s:.3f} s {one.where} {one.kind} {one.text!r} in one run, at "
                f"{other.at_s:.3f} s {other.where} {other.kind} {other.text!r} in the other"
            )
    return (
        f"two runs with the same plan, faults and seed have different timelines: {len(ones)} and "
        f"{len(others)} events"
    )


def _text(happening: Happening) -> str:
    kind, parts = happening
    if kind == "call":
        process, function, caller = parts
        return f"{process!s} calls {function!s} at {caller!s}"
    if parts and isinstance(parts[0], int):
        return f"{parts[0] / 1e6:.6f} s  " + " ".join(str(part) for part in parts[1:])
    return " ".join(str(part) for part in parts)
