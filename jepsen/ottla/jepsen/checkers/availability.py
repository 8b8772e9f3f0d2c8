"""Checker of availability: nearly all operations succeed while no fault is active, and operations
succeed again soon after a fault.

The module is pure. Source: rule R9 (`checkers/__init__.py`). A fault lasts from its "start" event
to its "end" event. Calm time is time without an active fault.

- unavailable: of the operations that began and ended in calm time after recovery, too few
  succeeded.
- slow-recovery: after the end of a fault, a kind of operation or a written key needed too much calm
  time until it succeeded again. The bound applies to the 99th percentile over all faults.
- too-slow and too-few-faults: the run had too few operations or faults to show anything, so its
  verdict is unknown.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from ottla.jepsen.checkers.log_figures import NS_PER_S, quantile
from ottla.jepsen.checkers.verdict import Findings, RunFacts, Verdict
from ottla.jepsen.history import Event, EventKind, History, Operation

NOT_LOAD = frozenset({"crash", "settle", "assigned", "revoked", "lost"})
"""Names of history events that are not requests to the cluster, such as the crash of a client."""

NOTES_FROM = 1_000_000
"""Lowest process number reserved for history events that are not operations of a client."""


class CalmTimes:
    """Times of a run during which no fault was active."""

    def __init__(self, faults: Sequence[tuple[int, int]]) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        for start, end in sorted(faults):
            if self.ends and start <= self.ends[-1]:
                self.ends[-1] = max(self.ends[-1], end)
            else:
                self.starts.append(start)
                self.ends.append(end)
        self._disturbed = [0]
        """For each fault of the run, the total duration in ns of all faults before it."""
        for start, end in zip(self.starts, self.ends, strict=True):
            self._disturbed.append(self._disturbed[-1] + end - start)

    def since_start_ns(self, time_ns: int) -> int:
        """Return the fault-free time in ns from the start of the run to `time_ns`."""
        begun = bisect_right(self.starts, time_ns)
        if begun == 0:
            return time_ns
        within = min(time_ns, self.ends[begun - 1]) - self.starts[begun - 1]
        return time_ns - self._disturbed[begun - 1] - within

    def is_calm(self, begin_ns: int, end_ns: int) -> bool:
        """Return whether no fault was active between two times (in ns since the start of the
        run)."""
        begun = bisect_right(self.starts, end_ns)
        return begun == 0 or self.ends[begun - 1] < begin_ns


def check_availability(history: History, facts: RunFacts) -> Verdict:
    """Return the verdict on the availability of the cluster: the fraction of operations in the
    history that succeeded, and the time that the cluster needed to recover from faults."""
    findings = Findings("availability")
    operations = [
        operation
        for operation in history.operations()
        if operation.invoke.f not in NOT_LOAD
        and operation.invoke.process < NOTES_FROM
        and not operation.extra.get("final")
    ]
    faults = list(fault_windows(history))
    calm = CalmTimes([(start, end) for _, start, end in faults])
    last_ns = max((_ended_ns(operation) for operation in operations), default=0)
    recoveries = _recoveries(operations, calm, last_ns)
    _judge_recoveries(recoveries, facts, findings)
    _judge_calm(operations, calm, recoveries, facts, findings)
    _judge_amount(operations, len(faults), last_ns, facts, findings)
    return findings.verdict(facts)


def fault_windows(history: History) -> Iterator[tuple[str, int, int]]:
    """Yield (fault, start_ns, end_ns) of every fault in the history. A fault without an end lasts
    until the end of the history."""
    open_: dict[object, Event] = {}
    for event in history.nemesis():
        value = event.value if isinstance(event.value, Mapping) else {}
        name = value.get("id", event.f)
        if value.get("phase") == "start":
            open_[name] = event
        elif value.get("phase") == "end" and name in open_:
            yield event.f, open_.pop(name).time_ns, event.time_ns
    for event in open_.values():
        yield event.f, event.time_ns, history.end_ns


def is_success(operation: Operation) -> bool:
    """Return whether the cluster served an operation. True if the operation succeeded, or was
    refused for a valid reason.

    An operation may be refused because its own earlier attempt already succeeded. It counts as
    served, because the cluster responded.
    """
    return operation.kind is EventKind.OK or bool(operation.extra.get("refused"))


def _ended_ns(operation: Operation) -> int:
    return (operation.completion or operation.invoke).time_ns


def _served(operation: Operation) -> Iterator[str]:
    """Yield the names of the services that a client operation uses: its kind of operation, and each
    key (partition) to which it sends records."""
    if operation.invoke.f in ("send", "txn"):
        yield from {f"send {step[1]}" for step in operation.invoke.value if step[0] == "send"}
    yield operation.invoke.f


def _recoveries(
    operations: Sequence[Operation], calm: CalmTimes, last_ns: int
) -> list[tuple[int, float, str]]:
    """Return (end_ns, seconds, service) for each fault of the run. `end_ns` is the end of the
    fault. `seconds` is the fault-free time until every service in use had succeeded again.
    `service` is the last service to succeed."""
    tried: dict[str, list[int]] = {}
    succeeded: dict[str, list[int]] = {}
    for operation in operations:
        for need in _served(operation):
            tried.setdefault(need, []).append(operation.invoke.time_ns)
            if is_success(operation):
                succeeded.setdefault(need, []).append(_ended_ns(operation))
    for times in succeeded.values():
        times.sort()
    found: list[tuple[int, float, str]] = []
    for place, end_ns in enumerate(calm.ends):
        next_ns = calm.starts[place + 1] if place + 1 < len(calm.starts) else last_ns
        worst = (0.0, "")
        for need, begun in tried.items():
            at = bisect_right(begun, end_ns)
            if at == len(begun) or begun[at] >= next_ns:
                continue
            times = succeeded.get(need, [])
            first = bisect_right(times, end_ns)
            # The service never succeeded again: count until its last attempt.
            recovered_ns = times[first] if first < len(times) else begun[-1]
            took_ns = calm.since_start_ns(recovered_ns) - calm.since_start_ns(end_ns)
            worst = max(worst, (took_ns / NS_PER_S, need))
        found.append((end_ns, *worst))
    return found


def _judge_recoveries(
    recoveries: Sequence[tuple[int, float, str]], facts: RunFacts, findings: Findings
) -> None:
    took_ms = sorted(int(took_s * 1_000) for _, took_s, _ in recoveries)
    p99_s = quantile(took_ms, 0.99) / 1_000
    findings.figures["recovery_s"] = {"p50": quantile(took_ms, 0.5) / 1_000, "p99": p99_s}
    findings.figures["recovery_over_time"] = [
        [round(end_ns / NS_PER_S, 3), round(took_s, 3), need] for end_ns, took_s, need in recoveries
    ]
    if p99_s > facts.recovery_s_max:
        end_ns, took_s, need = max(recoveries, key=lambda recovery: recovery[1])
        findings.add(
            "slow-recovery",
            f"after the fault that ended at {end_ns / NS_PER_S:.1f} s it took {took_s:.1f} s "
            f"until {need} succeeded, more than {facts.recovery_s_max:g} s",
        )


def _judge_calm(
    operations: Sequence[Operation],
    calm: CalmTimes,
    recoveries: Sequence[tuple[int, float, str]],
    facts: RunFacts,
    findings: Findings,
) -> None:
    """Report anomalies in the times that services needed to recover, and in the operations that ran
    while no fault was active."""
    grace_ns = [min(took_s, facts.recovery_s_max) * NS_PER_S for _, took_s, _ in recoveries]
    touched = [
        (start, int(end + grace))
        for start, end, grace in zip(calm.starts, calm.ends, grace_ns, strict=True)
    ]
    undisturbed = CalmTimes(touched)
    counted = [
        operation
        for operation in operations
        if operation.completion is not None
        and undisturbed.is_calm(operation.invoke.time_ns, _ended_ns(operation))
    ]
    failed = [operation for operation in counted if not is_success(operation)]
    share = 1.0 if not counted else 1 - len(failed) / len(counted)
    findings.figures["calm_operations"] = len(counted)
    findings.figures["calm_ok_share"] = round(share, 6)
    if share < facts.ok_share_minimum:
        findings.add(
            "unavailable",
            f"while all was well {len(failed)} of {len(counted)} operations failed: "
            f"{share:.4f} is less than {facts.ok_share_minimum}",
            [operation.index for operation in failed[:20]],
        )


def _judge_amount(
    operations: Sequence[Operation],
    fault_count: int,
    last_ns: int,
    facts: RunFacts,
    findings: Findings,
) -> None:
    ok_count = sum(operation.kind is EventKind.OK for operation in operations)
    seconds = facts.seconds or last_ns / NS_PER_S
    rate = ok_count / seconds if seconds else 0.0
    kinds = {kind: sum(operation.kind is kind for operation in operations) for kind in EventKind}
    findings.figures["operations"] = {
        kind.value: kinds[kind] for kind in (EventKind.OK, EventKind.FAIL, EventKind.INFO)
    }
    findings.figures["ops_per_s"] = round(rate, 1)
    findings.figures["faults"] = fault_count
    if rate < facts.ops_per_s_minimum:
        findings.add_shortage(
            "too-slow",
            f"{rate:.1f} operations per second, {facts.ops_per_s_minimum:g} are required",
        )
    if fault_count < facts.faults_minimum:
        findings.add_shortage(
            "too-few-faults", f"{fault_count} faults, {facts.faults_minimum} are required"
        )
