"""Checker of dependency cycles between operations: no chain of dependencies may lead from an
operation back to itself.

The module is pure. Source: Adya's anomalies G0 and G1c, found by the method of Elle. Operation A
comes before B in four cases:

- wr: B read a record that A wrote;
- ww: A's record is directly before B's in a log;
- process: one process did A before B;
- realtime: A ended before B began.

A cycle of ww edges alone is G0; a cycle with at least one wr edge is G1c. A cycle that needs
process edges has the suffix -process, and one that needs realtime edges -realtime. Only the weakest
of these three levels is reported.

Kafka's transactions do not order records, so ww edges are left out unless the facts of the run
include them. With ww edges, G0 and G1c are allowed. Without ww edges, G1c is a failure.
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
"""Kinds of edges between operations (reasons for their order), strongest first."""

LEVELS: tuple[tuple[str, frozenset[Why]], ...] = (
    ("", frozenset()),
    ("-process", frozenset({"process"})),
    ("-realtime", frozenset({"process", "realtime"})),
)
"""For each level of dependency cycles, the suffix of its name, and the kinds of edges that it may
use in addition to ww and wr. The weakest level comes first."""

G0 = frozenset(f"G0{suffix}" for suffix, _ in LEVELS)
G1C = frozenset(f"G1c{suffix}" for suffix, _ in LEVELS)

COMPONENTS_REPORTED_MAX = 32


class OrderGraph:
    """Graph of the operations of a history, and of points in time between them.

    There are three kinds of edges:

    - from an operation to the point at which the operation ended;
    - from a point to the next point;
    - from a point to the operations that began before the next point.

    The number of realtime edges is therefore linear in the number of operations, not quadratic.
    """

    def __init__(self, reading: LogReading, *, has_ww: bool) -> None:
        self._reading = reading
        self.operations: list[Operation] = []
        self.edges: list[list[tuple[int, Why]]] = []
        self._node: dict[int, int] = {}
        """Graph node (a number) of each operation, by the index of the operation's invocation
        event."""
        self._add_operations(reading)
        self._add_realtime()
        self._add_values(reading, has_ww=has_ww)

    def successors(self) -> list[list[int]]:
        """Return the successors of each graph node, without the kinds of edges."""
        return [[other for other, _ in edges] for edges in self.edges]

    def why(self, node: int, other: int) -> Why:
        """Return the strongest kind of the edges from one graph node to another."""
        whys = {why for to, why in self.edges[node] if to == other}
        return next(why for why in WHYS if why in whys)

    def reason(self, node: int, other: int) -> str:
        """Return a sentence that explains why the operation of one graph node precedes the
        operation of another node."""
        first, second = self.operations[node], self.operations[other]
        why = self.why(node, other)
        if why == "process":
            return f"the process of {second.index} did {first.index} before"
        sent = self._reading.sends_of.get(first.invoke.index, ())
        if why == "wr":
            records = self._reading.poll_of(second)
            for send in sent:
                if records is not None and any(
                    v == send.value for _, v in records.get(send.key, ())
                ):
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
    """Return the verdict on the dependencies between the operations of a history."""
    findings = Findings("cycles")
    reading = LogReading.of(history, facts)
    if not facts.ww_edges and _is_in_time(reading):
        findings.figures["operations"] = len(reading.sends_of) + len(reading.polls)
        return findings.verdict(facts, allowed=G0)
    graph = OrderGraph(reading, has_ww=facts.ww_edges)
    findings.figures["operations"] = len(graph.operations)
    findings.figures["edges"] = sum(len(edges) for edges in graph.edges)
    for component in strongly_connected(graph.successors())[:COMPONENTS_REPORTED_MAX]:
        _name(graph, component, findings)
    return findings.verdict(facts, allowed=G0 | G1C if facts.ww_edges else G0)


def _is_in_time(reading: LogReading) -> bool:
    """Return whether every edge leads forward in time, so that cycles are impossible.

    That is the case if each operation either only sends or only polls, and no record was read
    before its send began. Each operation is then placed at one moment: the beginning of a send, or
    the end of a poll. Every edge leads to a later moment.
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
    """Report one cycle for each anomaly within one strongly connected component of the graph: the
    weakest cycle with only ww edges (G0), and the weakest cycle with at least one wr edge (G1c)."""
    kinds: tuple[tuple[str, frozenset[Why], Why], ...] = (
        ("G0", frozenset({"ww"}), "ww"),
        ("G1c", frozenset({"ww", "wr"}), "wr"),
    )
    for name, basis, needed in kinds:
        for suffix, more in LEVELS:
            cycle = _cycle_with(graph, component, basis | more, needed)
            if cycle is not None:
                _report_cycle(graph, cycle, f"{name}{suffix}", findings)
                break


def _cycle_with(
    graph: OrderGraph, component: Sequence[int], whys: frozenset[Why], needed: Why
) -> list[int] | None:
    """Return a cycle in the graph that uses only the kinds of edges in `whys`, and has at least one
    edge of kind `needed`. Returns None if the graph has no such cycle."""
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
                    # The nodes of a component reach each other, so a way back exists.
                    return [node, *(shortest_way(other, node, successors) or [])]
    return None


def _report_cycle(graph: OrderGraph, cycle: Sequence[int], name: str, findings: Findings) -> None:
    """Report a dependency cycle. `cycle` is its list of graph nodes; the last node equals the
    first. Two edges that meet in the node of a point in time are reported as one edge."""
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
        f"{len({op.index for op in operations})} operations form a cycle: "
        f"{graph.operations[start].index} {' '.join(steps)}: {'; '.join(reasons)}",
        indexes(operations),
    )


def _begun(operation: Operation) -> int:
    return operation.invoke.index
