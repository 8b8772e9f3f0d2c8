"""Judges committed offsets as registers: written by commits, read by fetches, in one order each.

Pure.  A commit that was acknowledged is on as many replicas as must have it, so commits are
linearizable.  A fetch is answered from a coordinator's memory: one that was deposed and has not
heard of it may answer with what it last knew, and Kafka promises no more.  So a register that fits
no order is tried again with its fetches as old as that allows: as the last commit which the same
node took for the same group (its end, or its beginning where it took so long that the coordinator
may have changed meanwhile).  What fits then is stale-fetch, told and allowed; what does not is
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
"""A commit answered within this time was taken and answered by one coordinator of that time: no
cluster notices that it is gone and has another one serve sooner."""

NOTHING = -1
"""The state of a register into which nothing was committed."""

Access: TypeAlias = tuple[Operation, int]
"""A commit of an offset, or a fetch that told one."""


@dataclass(slots=True)
class RegisterGroup:
    """The registers of one group, and who was seen to be its coordinator."""

    commits: dict[str, list[Access]] = field(default_factory=dict)
    fetches: dict[str, list[Access]] = field(default_factory=dict)
    proofs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """By node: of each commit it took (event with which it ended, since when its answers are)."""

    def add(self, operation: Operation, offsets: Mapping[str, Json]) -> None:
        """Take in a commit or a fetch of so many registers, if it may have happened."""
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
        """Return since when a fetch's answer may be: its beginning, or earlier from who is deposed.

        Where the node is not told it may have been any.
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
    """Search an order for every register."""
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
                    f"{register}: a fetch told what its coordinator had known when it was one",
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
    told = {offset for _, offset in fetches}
    calls: list[ObjectCall[tuple[bool, int]]] = []
    for operation, offset in commits:
        end = operation.index if operation.kind is EventKind.OK else NEVER
        if end == NEVER and offset not in told:
            # Nobody saw it: it comes just before another write, or never, and proves nothing.
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


def _offset(told: Json) -> int:
    return NOTHING if told is None else int(told)
