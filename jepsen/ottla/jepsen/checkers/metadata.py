"""Checker of a metadata history: topics are created, changed and deleted, and every broker
describes them.

The module is pure. It reports one anomaly:

- nonlinearizable: there is no order of a topic's writes into which all descriptions fit.

An acknowledged write is in the metadata log, which has one order. Each broker has a prefix of this
log, which only grows. So there must be one order of each topic's writes into which all descriptions
fit. Descriptions by one broker may never go back in this order. A description must show the latest
state only at the end, when all faults are healed. A refused operation proves nothing.

Values of the operations:

- create: {"topic", "count", "id"?};
- partitions: {"topic", "count"};
- set-config: {"topic", "config"};
- delete: {"topic"};
- describe: {"topic", "broker"} with "id" and "count", or with "config".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ottla.jepsen.checkers.log_reading import indexes
from ottla.jepsen.checkers.picture import PICTURED_MAX, picture
from ottla.jepsen.checkers.verdict import Findings, RunFacts, Verdict
from ottla.jepsen.checkers.wgl import NEVER, ObjectCall, linearize
from ottla.jepsen.history import EventKind, History, Json, Operation

WRITES = ("create", "partitions", "set-config", "delete")

Config: TypeAlias = tuple[tuple[str, Json], ...]


@dataclass(frozen=True, slots=True)
class Version:
    """State of a topic between two consecutive writes (creation, change, deletion)."""

    id: str
    """Id of the topic. If the creation did not return the id, this is "?" and a number until a
    description shows the id."""
    count: int | None
    config: Config = ()


Past: TypeAlias = tuple[Version | None, ...]
"""All versions of a topic so far. An entry is None if the topic did not exist."""

State: TypeAlias = tuple[Past, tuple[int, ...]]
"""State of the search for an order: the versions of a topic, and for each broker the index of the
last version that it described."""


def check_metadata(history: History, facts: RunFacts) -> Verdict:
    """Check a history of operations on topics, each topic separately, and return the verdict."""
    findings = Findings("metadata")
    by_topic: dict[str, list[Operation]] = {}
    for operation in history.operations(*WRITES, "describe"):
        is_write = operation.invoke.f != "describe"
        if operation.kind is EventKind.OK or (is_write and operation.kind is EventKind.INFO):
            by_topic.setdefault(operation.invoke.value["topic"], []).append(operation)
    step_count = judged_count = 0
    pictures: dict[str, Json] = {}
    for topic, operations in sorted(by_topic.items()):
        kept = _without_repetitions(operations)
        judged_count += len(kept)
        found = linearize(*_Topic(kept).search(), steps_max=facts.steps_max)
        step_count += found.step_count
        if found.is_linearizable is not True and len(pictures) < PICTURED_MAX:
            values = [operation.value for operation in kept]
            pictures[topic] = picture(found, kept, values, map(_latest, found.states))
        if found.is_linearizable is False:
            stuck = [kept[place] for place in found.stuck]
            findings.add(
                "nonlinearizable",
                f"{topic}: no order fits {len(kept)} operations; the longest has "
                f"{len(found.order)}, then {stuck[0].invoke.f if stuck else 'none'} does not fit",
                indexes([*stuck, *(kept[place] for place in found.order[-1:])]),
                topic,
            )
        elif found.is_linearizable == "unknown":
            findings.undecided.append(f"{topic}: no order after {facts.steps_max} steps")
    findings.figures["topics"] = len(by_topic)
    findings.figures["answers"] = len(history.operations("describe"))
    findings.figures["judged"] = judged_count
    findings.figures["search_steps"] = step_count
    findings.figures["linear"] = pictures
    return findings.verdict(facts)


class _Topic:
    """One topic as a sequential object, for the search for a valid order of writes and
    descriptions."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations
        brokers = sorted({_broker(operation) for operation in operations})
        self._brokers = {name: place for place, name in enumerate(brokers)}
        self._ids = {
            operation.value["id"]
            for operation in operations
            if operation.invoke.f == "create" and operation.value.get("id") is not None
        }

    def search(self) -> tuple[list[ObjectCall[int]], State, "_Topic"]:
        """Return the arguments of `linearize` (the search for a sequential order): the topic's
        calls, its initial state, and the step function."""
        calls = [
            ObjectCall(
                operation.invoke.index,
                operation.index if operation.kind is EventKind.OK else NEVER,
                place,
            )
            for place, operation in enumerate(self._operations)
        ]
        return calls, ((None,), (0,) * len(self._brokers)), self

    def __call__(self, state: State, place: int) -> list[State]:
        """Return the states to which the operation at index `place` may lead from `state`. The list
        is empty if the operation is impossible."""
        operation = self._operations[place]
        past, shown = state
        if operation.invoke.f == "describe":
            return self._described(past, shown, operation)
        after = _written(past[-1], operation, f"?{place}")
        return [] if after is past[-1] else [((*past, after), shown)]

    def _described(self, past: Past, shown: tuple[int, ...], operation: Operation) -> list[State]:
        """Return one state for each version of the topic that a description may show.

        Only the earliest version that fits is used, because it leaves the most choices for later
        descriptions. The exception is a topic id that no creation returned: it may belong to any
        creation whose id is unknown.
        """
        found: list[State] = []
        bound: set[str] = set()
        body = operation.value
        broker = self._brokers[_broker(operation)]
        is_latest = operation.extra.get("final") or body.get("broker") is None
        for place in range(len(past) - 1 if is_latest else shown[broker], len(past)):
            version = past[place]
            if not self._fits(version, body, past):
                continue
            after = (*shown[:broker], place, *shown[broker + 1 :])
            is_unknown = version is not None and version.id.startswith("?")
            if version is None or not is_unknown or body.get("id") is None:
                found.append((past, after))
                break
            if version.id not in bound:
                bound.add(version.id)
                known = tuple(_known(each, version.id, body["id"]) for each in past)
                found.append((known, after))
        return found

    def _fits(self, version: Version | None, body: Mapping[str, Json], past: Past) -> bool:
        if "id" not in body:
            config = body.get("config")
            if version is None or config is None:
                return version is None and config is None
            known = dict(version.config)
            return all(known.get(name) == value for name, value in config.items())
        if version is None or body["id"] is None:
            return version is None and body["id"] is None
        if version.count not in (None, body["count"]):
            return False
        if version.id.startswith("?"):
            others = {each.id for each in past if each is not None}
            return body["id"] not in self._ids and body["id"] not in others
        return version.id == str(body["id"])


def _written(before: Version | None, operation: Operation, unknown_id: str) -> Version | None:
    """Return the version of a topic after a write, or None if the topic does not exist then. An
    impossible write leaves the version unchanged."""
    body = operation.value
    f = operation.invoke.f
    if f == "create":
        if before is not None:
            return before
        given = body.get("id")
        config = tuple(sorted((body.get("config") or {}).items()))
        return Version(unknown_id if given is None else str(given), body.get("count"), config)
    if before is None:
        return None
    if f == "delete":
        return None
    if f == "partitions":
        is_more = before.count is None or body["count"] > before.count
        return Version(before.id, body["count"], before.config) if is_more else before
    config = tuple(sorted({**dict(before.config), **body["config"]}.items()))
    return Version(before.id, before.count, config)


def _latest(state: State) -> str:
    """Return the newest version of a topic in a search state, as text for a picture of the
    search."""
    version = state[0][-1]
    if version is None:
        return "no such topic"
    return f"{version.count} partitions, {dict(version.config)}"


def _known(version: Version | None, unknown_id: str, found: Json) -> Version | None:
    if version is None or version.id != unknown_id:
        return version
    return Version(str(found), version.count, version.config)


def _broker(operation: Operation) -> str:
    """Return the id of the broker that answered a describe operation, as text. Returns "None" for
    writes, and for descriptions that must show the latest state."""
    return str(operation.value.get("broker")) if operation.invoke.f == "describe" else "None"


def _without_repetitions(operations: Sequence[Operation]) -> list[Operation]:
    """Drop descriptions that repeat an earlier description by the same broker.

    There are two kinds of description: of the topic, and of its settings. A description is kept in
    three cases:

    - it differs from the last one of its kind by that broker;
    - the broker's description of the other kind has changed since then;
    - a different description of its kind was concurrent with one of the two, or came between them.

    The id, count and settings of a topic never return to an earlier value while the topic exists.
    So a version that is valid before and after a dropped description was also valid at its time.
    """
    others: dict[tuple[str, bool], list[Operation]] = {}
    for operation in operations:
        if operation.invoke.f == "describe" and not operation.extra.get("final"):
            others.setdefault(_part(operation), []).append(operation)
    last: dict[tuple[str, bool], Operation] = {}
    changed_since: dict[tuple[str, bool], bool] = {}
    kept: list[Operation] = []
    for operation in sorted(operations, key=lambda operation: operation.index):
        if operation.invoke.f != "describe" or operation.extra.get("final"):
            kept.append(operation)
            continue
        part = _part(operation)
        before = last.get(part)
        is_new = before is None or _said(before) != _said(operation)
        if is_new or changed_since.get(part, False) or _differ(before, operation, others[part]):
            kept.append(operation)
            changed_since[part] = False
            last[part] = operation
        if is_new:
            changed_since[part[0], not part[1]] = True
    return kept


def _part(answer: Operation) -> tuple[str, bool]:
    """Return the broker that answered a describe operation, and True if the broker described the
    topic's settings, or False if it described the topic itself."""
    return _broker(answer), "id" in answer.value


def _said(answer: Operation) -> Json:
    body = answer.value
    return (body["id"], body["count"]) if "id" in body else _frozen(body.get("config"))


def _differ(before: Operation | None, again: Operation, others: Sequence[Operation]) -> bool:
    """Return whether a different description by the same broker separates two equal ones.

    The different description (from `others`) came between the two, or was concurrent with one of
    them.
    """
    return before is not None and any(
        other.index > before.invoke.index
        and other.invoke.index < again.index
        and _said(other) != _said(again)
        for other in others
    )


def _frozen(config: Mapping[str, Json] | None) -> Json:
    return None if config is None else tuple(sorted(config.items()))
