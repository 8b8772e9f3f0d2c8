"""Judges the order between operations: what nobody may have seen before it was done, goes round.

Pure.  Source: Adya's G0 and G1c, found as Elle finds them.  An operation comes before another if
that read what it wrote (wr), if its record lies next before the other's in a log (ww), if one
process did it first (process), or if it had ended before the other began (realtime).  What goes
round by ww alone is G0; with at least one wr it is G1c; the weakest of plain, -process and
-realtime that goes round is told.  Kafka's transactions keep no order of records, so ww is left out
unless the facts ask for it: then G0 and G1c are allowed, without it G1c is a failure.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

from ottla.jepsen.checkers.graph import shortest_way, strongly_connected
from ottla.jepsen.checkers.log_reading import LogReading, indexes
from ottla.jepsen.checkers.verdict import Findings, RunFacts, Verdict
from ottla.jepsen.history import EventKind, History, Operation

Why: TypeAlias = Literal["ww", "wr", "process", "realtime"]

WHYS: tuple[Why, ...] = ("wr", "ww", "process", "realtime")
"""Strongest first."""

LEVELS: tuple[tuple[str, frozenset[Why]], ...] = (
    ("", frozenset()),
    ("-process", frozenset({"process"})),
    ("-realtime", frozenset({"process", "realtime"})),
)
"""What may be used beside ww and wr, weakest first."""

G0 = frozenset(f"G0{suffix}" for suffix, _ in LEVELS)
G1C = frozenset(f"G1c{suffix}" for suffix, _ in LEVELS)

COMPONENTS_TOLD_MAX = 32


class OrderGraph:
    """Operations and moments, and what comes before what.

    Moments stand between operations: an operation leads to the moment at which it ended, that to
    the next one, and each moment to the operations that began before the next: as many edges as
    operations, not as their square.
    """

    def __init__(self, reading: LogReading, *, has_ww: bool) -> None:
        self._reading = reading
        self.operations: list[Operation] = []
        self.edges: list[list[tuple[int, Why]]] = []
        self._node: dict[int, int] = {}
        """By the index of the invocation."""
        self._add_operations(reading)
        self._add_realtime()
        self._add_values(reading, has_ww=has_ww)

    def successors(self) -> list[list[int]]:
        """Return the graph by nodes alone."""
        return [[other for other, _ in edges] for edges in self.edges]

    def why(self, node: int, other: int) -> Why:
        """Return what one edge is, the strongest word for it."""
        whys = {why for to, why in self.edges[node] if to == other}
        return next(why for why in WHYS if why in whys)

    def reason(self, node: int, other: int) -> str:
        """Return what makes one operation come before another, as a sentence."""
        first, second = self.operations[node], self.operations[other]
        why = self.why(node, other)
        if why == "process":
            return f"the process of {second.index} did {first.index} before"
        sent = self._reading.sends_of.get(first.invoke.index, ())
        if why == "wr":
            told = self._reading.poll_of(second)
            for send in sent:
                if told is not None and any(v == send.value for _, v in told.get(send.key, ())):
                    return f"{second.index} read {send.value!r} of {send.key}, by {first.index}"
        for send in sent:
            at = self._reading.keys[send.key].offset_min(send)
            for later in self._reading.sends_of.get(second.invoke.index, ()):
                end = self._reading.keys[later.key].offset_min(later)
                if later.key == send.key and at is not None and end is not None and at < end:
                    return (
                        f"{send.key} has {send.value!r} of {first.index} at {at} "
                        f"and {later.value!r} of {second.index} at {end}"
                    )
        return f"{first.index} before {second.index}"

    def _add_operations(self, reading: LogReading) -> None:
        seen = [poll.operation for poll in reading.polls]
        sent = [sends[0].operation for sends in reading.sends_of.values()]
        last_of: dict[int, int] = {}
        each = {operation.invoke.index: operation for operation in (*seen, *sent)}
        for operation in sorted(each.values(), key=_begun):
            if operation.kind is EventKind.FAIL:
                continue
            node = len(self.operations)
            self._node[operation.invoke.index] = node
            self.operations.append(operation)
            self.edges.append([])
            before = last_of.get(operation.invoke.process)
            if before is not None:
                self.edges[before].append((node, "process"))
            last_of[operation.invoke.process] = node

    def _add_realtime(self) -> None:
        moments = [(operation.invoke.index, 0, n) for n, operation in enumerate(self.operations)]
        moments += [
            (operation.index, 1, n)
            for n, operation in enumerate(self.operations)
            if operation.kind is EventKind.OK
        ]
        moments.sort()
        latest: int | None = None
        for _, is_end, node in moments:
            if not is_end:
                if latest is not None:
                    self.edges[latest].append((node, "realtime"))
                continue
            moment = len(self.edges)
            self.edges.append([])
            self.edges[node].append((moment, "realtime"))
            if latest is not None:
                self.edges[latest].append((moment, "realtime"))
            latest = moment

    def _add_values(self, reading: LogReading, *, has_ww: bool) -> None:
        for poll in reading.polls:
            reader = self._node.get(poll.operation.invoke.index)
            if reader is None or not poll.is_ok:
                continue
            writers: set[int] = set()
            for key, records in poll.records.items():
                sends = reading.keys[key].sends
                for _, value in records:
                    send = sends.get(value)
                    if send is not None:
                        writers.add(self._node.get(send.operation.invoke.index, reader))
            for writer in sorted(writers - {reader}):
                self.edges[writer].append((reader, "wr"))
        for log in reading.keys.values() if has_ww else ():
            before: int | None = None
            for offset in sorted(log.values):
                send = log.sends.get(log.values[offset])
                node = None if send is None else self._node.get(send.operation.invoke.index)
                if node is not None and before is not None and node != before:
                    self.edges[before].append((node, "ww"))
                before = before if node is None else node


def check_cycles(history: History, facts: RunFacts) -> Verdict:
    """Judge what operations depend on."""
    findings = Findings("cycles")
    reading = LogReading.of(history, facts)
    if not facts.ww_edges and _is_in_time(reading):
        findings.figures["operations"] = len(reading.sends_of) + len(reading.polls)
        return findings.verdict(facts, allowed=G0)
    graph = OrderGraph(reading, has_ww=facts.ww_edges)
    findings.figures["operations"] = len(graph.operations)
    findings.figures["edges"] = sum(len(edges) for edges in graph.edges)
    for component in strongly_connected(graph.successors())[:COMPONENTS_TOLD_MAX]:
        _name(graph, component, findings)
    return findings.verdict(facts, allowed=G0 | G1C if facts.ww_edges else G0)


def _is_in_time(reading: LogReading) -> bool:
    """Return whether nothing can go round, for the simple reason that nothing goes back in time.

    That is so when each operation only sends or only polls, and none was seen before it began: each
    has a moment, the beginning of what sends and the end of what polls, and every edge leads to a
    later moment.
    """
    for poll in reading.polls:
        end = poll.operation.index
        if poll.operation.invoke.index in reading.sends_of:
            return False
        if not poll.is_ok:
            continue
        for key, records in poll.records.items():
            begun = reading.keys[key].begun
            if records and max(begun.get(value, -1) for _, value in records) > end:
                return False
    return True


def _name(graph: OrderGraph, component: Sequence[int], findings: Findings) -> None:
    """Tell the weakest cycle of ww, and of wr, among nodes that reach each other."""
    kinds: tuple[tuple[str, frozenset[Why], Why], ...] = (
        ("G0", frozenset({"ww"}), "ww"),
        ("G1c", frozenset({"ww", "wr"}), "wr"),
    )
    for name, basis, needed in kinds:
        for suffix, more in LEVELS:
            cycle = _cycle_with(graph, component, basis | more, needed)
            if cycle is not None:
                _tell(graph, cycle, f"{name}{suffix}", findings)
                break


def _cycle_with(
    graph: OrderGraph, component: Sequence[int], whys: frozenset[Why], needed: Why
) -> list[int] | None:
    """Return a cycle over some kinds of edges that has at least one of the kind needed."""
    place = {node: number for number, node in enumerate(component)}
    used = [
        [place[other] for other, why in graph.edges[node] if why in whys and other in place]
        for node in component
    ]
    for smaller in strongly_connected(used):
        within = frozenset(component[number] for number in smaller)

        def successors(node: int, within: frozenset[int] = within) -> list[int]:
            return [other for other, why in graph.edges[node] if why in whys and other in within]

        for node in sorted(within):
            for other, why in graph.edges[node]:
                if why == needed and other in within:
                    # They reach each other, so there is a way back.
                    return [node, *(shortest_way(other, node, successors) or [])]
    return None


def _tell(graph: OrderGraph, cycle: Sequence[int], name: str, findings: Findings) -> None:
    """Tell a cycle, its first node again at the end: a step to a moment and on is one step."""
    count = len(graph.operations)
    steps: list[str] = []
    reasons: list[str] = []
    for node, other in pairwise(cycle):
        if other < count:
            why = graph.why(node, other)
            steps.append(f"-{why}-> {graph.operations[other].index}")
            if node < count and why != "realtime":
                reasons.append(graph.reason(node, other))
            else:
                reasons.append(f"{graph.operations[other].index} began after one before it ended")
    operations = [graph.operations[node] for node in cycle if node < count]
    start = next(node for node in cycle if node < count)
    findings.add(
        name,
        f"{len({op.index for op in operations})} operations go round: "
        f"{graph.operations[start].index} {' '.join(steps)}: {'; '.join(reasons)}",
        indexes(operations),
    )


def _begun(operation: Operation) -> int:
    return operation.invoke.index
