"""Checker of committed offsets as registers: commits write a register and fetches read it, in one
order for each register.

The module is pure. An acknowledged commit is on `min.insync.replicas` replicas, so commits are
linearizable. A coordinator answers a fetch from its memory. A deposed coordinator that does not
know its successor may return the offset that it last knew. Kafka does not rule that out.

So a register without a valid order is searched again, and the second search allows stale fetches. A
fetch may then be as old as the last commit that the same node accepted for the same group. Its age
counts from the end of that commit, or from its start if the commit took so long that the
coordinator may have changed.

If the second search finds an order, the anomaly is stale-fetch and allowed. Otherwise it is
nonlinearizable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ottla.jepsen.checkers.log_reading import indexes
from ottla.jepsen.checkers.picture import PICTURED_MAX, picture
from ottla.jepsen.checkers.verdict import Findings, RunFacts
from ottla.jepsen.checkers.wgl import NEVER, Linearization, ObjectCall, linearize
from ottla.jepsen.history import EventKind, Json, Operation

ALLOWED = frozenset({"stale-fetch"})

QUICK_NS_MAX = 1_000_000_000
"""Longest offset commit, in ns, whose age is counted from its end instead of its start. No
cluster replaces a dead coordinator within this time, so one coordinator accepted and answered
the commit."""

NOTHING = -1
"""State of a register (committed offset) before any offset was committed."""

Access: TypeAlias = tuple[Operation, int]
"""One access to a register (committed offset): a commit of an offset, or a fetch that returned an
offset."""


@dataclass(slots=True)
class RegisterGroup:
    """The registers (committed offsets) of one group, and the nodes that were its coordinator."""

    commits: dict[str, list[Access]] = field(default_factory=dict)
    fetches: dict[str, list[Access]] = field(default_factory=dict)
    proofs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Offset commits that each node has accepted. A commit is a pair of event indexes: the event
    that ended it, and the event from which a fetch by that node is valid."""

    def add(self, operation: Operation, offsets: Mapping[str, Json]) -> None:
        """Add an operation that commits or fetches one or more offsets to the group's registers,
        unless it certainly failed."""
        kind = operation.kind
        if operation.invoke.f == "commit" and kind is not EventKind.FAIL:
            for key, offset in offsets.items():
                self.commits.setdefault(key, []).append((operation, _offset(offset)))
            node = operation.extra.get("node")
            if operation.completion is not None and kind is EventKind.OK and node is not None:
                took_ns = operation.completion.time_ns - operation.invoke.time_ns
                since = operation.index + 1 if took_ns <= QUICK_NS_MAX else operation.invoke.index
                self.proofs.setdefault(str(node), []).append((operation.index, since))
        elif operation.invoke.f == "fetch" and kind is EventKind.OK:
            for key, offset in offsets.items():
                self.fetches.setdefault(key, []).append((operation, _offset(offset)))

    def oldest(self, fetch: Operation) -> int:
        """Return the index of the earliest event at which the committed offset that a fetch
        returned may have been current.

        Normally this is the start of the fetch. It is an earlier event if the node that answered
        may have been deposed. If the client does not expose the node, any node may have answered.
        """
        node = fetch.extra.get("node")
        nodes = self.proofs if node is None else [str(node)]
        begin = fetch.invoke.index
        last = [
            max((since for end, since in self.proofs.get(name, ()) if end < begin), default=None)
            for name in nodes
        ]
        return min((since for since in last if since is not None), default=begin)


def check_registers(
    groups: Mapping[str, RegisterGroup], facts: RunFacts, findings: Findings
) -> None:
    """Search for a valid order of the commits and fetches of each register (committed offset), and
    report each register without a valid order."""
    pictures: dict[str, Json] = {}
    step_count = 0
    for name, group in sorted(groups.items()):
        for key in sorted(group.commits.keys() | group.fetches.keys()):
            commits, fetches = group.commits.get(key, []), group.fetches.get(key, [])
            found = _search(commits, fetches, facts)
            step_count += found.step_count
            if found.is_linearizable is True:
                continue
            register = f"{name}/{key}"
            operations = [operation for operation, _ in (*commits, *fetches)]
            if len(pictures) < PICTURED_MAX:
                offsets = [offset for _, offset in (*commits, *fetches)]
                pictures[register] = picture(found, operations, offsets, found.states)
            oldest = {fetch.invoke.index: group.oldest(fetch) for fetch, _ in fetches}
            relaxed = _search(commits, fetches, facts, oldest)
            step_count += relaxed.step_count
            stuck = [operations[place] for place in found.stuck]
            if relaxed.is_linearizable is True:
                findings.add(
                    "stale-fetch",
                    f"{register}: a fetch returned what its coordinator knew before it was deposed",
                    indexes(stuck),
                    key,
                )
            elif relaxed.is_linearizable is False:
                findings.add(
                    "nonlinearizable",
                    f"{register}: no order fits {len(operations)} operations; "
                    f"the longest has {len(found.order)}",
                    indexes([*stuck, *(operations[place] for place in found.order[-1:])]),
                    key,
                )
            else:
                findings.undecided.append(f"{register}: no order after {facts.steps_max} steps")
    findings.figures["registers"] = sum(
        len(group.commits.keys() | group.fetches.keys()) for group in groups.values()
    )
    findings.figures["search_steps"] = step_count
    findings.figures["linear"] = pictures


def _search(
    commits: Sequence[Access],
    fetches: Sequence[Access],
    facts: RunFacts,
    oldest: Mapping[int, int] | None = None,
) -> Linearization[int]:
    fetched = {offset for _, offset in fetches}
    calls: list[ObjectCall[tuple[bool, int]]] = []
    for operation, offset in commits:
        end = operation.index if operation.kind is EventKind.OK else NEVER
        if end == NEVER and offset not in fetched:
            # No fetch returned this offset. So the commit may be placed directly before another
            # write or left out, and proves nothing.
            calls.append(ObjectCall(NEVER, NEVER, (True, offset)))
            continue
        calls.append(ObjectCall(operation.invoke.index, end, (True, offset)))
    for operation, offset in fetches:
        begin = operation.invoke.index if oldest is None else oldest[operation.invoke.index]
        calls.append(ObjectCall(begin, operation.index, (False, offset), is_read=True))
    return linearize(calls, NOTHING, _step, steps_max=facts.steps_max)


def _step(state: int, asked: tuple[bool, int]) -> tuple[int, ...]:
    is_commit, offset = asked
    return (offset,) if is_commit or state == offset else ()


def _offset(value: Json) -> int:
    return NOTHING if value is None else int(value)
