"""Judges a metadata history: topics that are made, changed and deleted, as every broker shows them.

Pure.  An acknowledged write is in the metadata log, which has one order; a broker shows a prefix of
it that only grows.  So for each topic there must be one order of its writes, and for each broker a
place in it for every answer, none before an earlier answer's.  Only at the end, when all is healed,
must an answer be the latest.  A refusal says nothing.  nonlinearizable: there is no such order.

Values: create {"topic", "count", "id"?}, partitions {"topic", "count"}, set-config {"topic",
"config"}, delete {"topic"}, describe {"topic", "broker"} with "id" and "count", or with "config".
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
    """A topic between two writes."""

    id: str
    """Of a creation that did not tell it: "?" and its place, until somebody sees it."""
    count: int | None
    config: Config = ()


Past: TypeAlias = tuple[Version | None, ...]
"""All versions so far; None where there is no such topic."""

State: TypeAlias = tuple[Past, tuple[int, ...]]
"""The versions, and which of them each broker has shown last."""


def check_metadata(history: History, facts: RunFacts) -> Verdict:
    """Judge every topic by itself."""
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
    """One topic as an object of which calls have an order."""

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
        """Return the calls, the state before them, and what takes it on."""
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
        """Return the states that an operation may lead to."""
        operation = self._operations[place]
        past, shown = state
        if operation.invoke.f == "describe":
            return self._described(past, shown, operation)
        after = _written(past[-1], operation, f"?{place}")
        return [] if after is past[-1] else [((*past, after), shown)]

    def _described(self, past: Past, shown: tuple[int, ...], operation: Operation) -> list[State]:
        """Return a state for each version that may have been meant.

        The first that fits leaves most to come.  But an id that no creation was told may be that
        of any whose own id is not known.
        """
        found: list[State] = []
        bound: set[str] = set()
        told = operation.value
        broker = self._brokers[_broker(operation)]
        is_latest = operation.extra.get("final") or told.get("broker") is None
        for place in range(len(past) - 1 if is_latest else shown[broker], len(past)):
            version = past[place]
            if not self._fits(version, told, past):
                continue
            after = (*shown[:broker], place, *shown[broker + 1 :])
            is_unknown = version is not None and version.id.startswith("?")
            if version is None or not is_unknown or told.get("id") is None:
                found.append((past, after))
                break
            if version.id not in bound:
                bound.add(version.id)
                known = tuple(_known(each, version.id, told["id"]) for each in past)
                found.append((known, after))
        return found

    def _fits(self, version: Version | None, told: Mapping[str, Json], past: Past) -> bool:
        if "id" not in told:
            config = told.get("config")
            if version is None or config is None:
                return version is None and config is None
            known = dict(version.config)
            return all(known.get(name) == value for name, value in config.items())
        if version is None or told["id"] is None:
            return version is None and told["id"] is None
        if version.count not in (None, told["count"]):
            return False
        if version.id.startswith("?"):
            others = {each.id for each in past if each is not None}
            return told["id"] not in self._ids and told["id"] not in others
        return version.id == str(told["id"])


def _written(before: Version | None, operation: Operation, unknown_id: str) -> Version | None:
    """Return the version after a write; the one before it where the write is impossible."""
    told = operation.value
    f = operation.invoke.f
    if f == "create":
        if before is not None:
            return before
        given = told.get("id")
        config = tuple(sorted((told.get("config") or {}).items()))
        return Version(unknown_id if given is None else str(given), told.get("count"), config)
    if before is None:
        return None
    if f == "delete":
        return None
    if f == "partitions":
        is_more = before.count is None or told["count"] > before.count
        return Version(before.id, told["count"], before.config) if is_more else before
    config = tuple(sorted({**dict(before.config), **told["config"]}.items()))
    return Version(before.id, before.count, config)


def _latest(state: State) -> str:
    """Return the newest version of a state, as a picture tells it."""
    version = state[0][-1]
    if version is None:
        return "no such topic"
    return f"{version.count} partitions, {dict(version.config)}"


def _known(version: Version | None, unknown_id: str, found: Json) -> Version | None:
    if version is None or version.id != unknown_id:
        return version
    return Version(str(found), version.count, version.config)


def _broker(operation: Operation) -> str:
    """Return who answered; writes and answers of the latest state have a place of their own."""
    return str(operation.value.get("broker")) if operation.invoke.f == "describe" else "None"


def _without_repetitions(operations: Sequence[Operation]) -> list[Operation]:
    """Leave out answers that repeat what the same broker had answered before.

    An answer is needed where it differs from that broker's last one of its kind, where the last one
    of the other kind has changed since, or where another answer ran beside one of the two: a
    topic's id, count and settings never return to what they were in one life, so what holds before
    and after any other answer held at it too.
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
    """Return the broker that answered, and whether it showed the topic or its settings."""
    return _broker(answer), "id" in answer.value


def _said(answer: Operation) -> Json:
    told = answer.value
    return (told["id"], told["count"]) if "id" in told else _frozen(told.get("config"))


def _differ(before: Operation | None, again: Operation, others: Sequence[Operation]) -> bool:
    """Return whether another answer differs that ran between or beside two equal ones."""
    return before is not None and any(
        other.index > before.invoke.index
        and other.invoke.index < again.index
        and _said(other) != _said(again)
        for other in others
    )


def _frozen(config: Mapping[str, Json] | None) -> Json:
    return None if config is None else tuple(sorted(config.items()))
