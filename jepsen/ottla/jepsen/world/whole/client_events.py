"""Records what clients did as events of `ottla.jepsen.history`, and runs its checkers at the end.

`history.py` checks while a run goes on, and ends it at the first broken promise.  Here the checkers
of real clusters look at the whole history: records that a reader skipped or never read, the order
in real time of unacknowledged records, keys of a group with two owners, committed offsets that fit
no order.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.client.consumer import Consumer
from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.jepsen.checkers.table import judge
from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.history import NO_EXTRA, Event, EventKind, History, Json
from ottla.jepsen.world.violation import Violation
from ottla.model.errors import RefusedError
from ottla.model.ids import TopicPartition

CHECKERS = ("log", "cycles", "groups")

STEPS_MAX = 100_000
"""A register that needs more is left undecided: the next seed is worth more than the time."""

KEPT = {"nonlinearizable": "Linearizable", "realtime-order": "RealTimeOrder"}
"""Names of invariants by anomalies that say what is missing."""

FINAL: Mapping[str, Json] = {"final": True}
SUBSCRIBED: Mapping[str, Json] = {"mode": "subscribe"}


class ClientEvents:
    """Notes what clients did; an operation that is not said to have ended is one of unknown end."""

    def __init__(
        self,
        clock_ns: Callable[[], int],
        *,
        record_key_count: int = 0,
        checkers: Sequence[str] = CHECKERS,
    ) -> None:
        self._clock_ns = clock_ns
        self._checkers = checkers
        self._facts = RunFacts(steps_max=STEPS_MAX, record_key_count=record_key_count)
        self._events: list[Event] = []
        self._process_count = 0
        self._is_ending = False

    def process(self) -> int:
        """Return the number of a client that is new."""
        self._process_count += 1
        return self._process_count - 1

    def final_reads_begin(self) -> None:
        """From here on only final reads succeed: what others do may come after the end they see."""
        self._is_ending = True

    def begins(
        self,
        f: str,
        value: Json = None,
        *,
        process: int | None = None,
        extra: Mapping[str, Json] = NO_EXTRA,
    ) -> Event:
        """Note that an operation begins, of a process of its own if none is given."""
        process = self.process() if process is None else process
        return self._add(process, EventKind.INVOKE, f, value, extra)

    def ends(self, begun: Event, value: Json = None) -> None:
        """Note that an operation succeeded."""
        if begun.extra is FINAL or not self._is_ending:
            told = begun.value if value is None else value
            self._add(begun.process, EventKind.OK, begun.f, told, begun.extra)

    def fails(self, begun: Event, error: str) -> None:
        """Note that an operation certainly did nothing."""
        self._add(begun.process, EventKind.FAIL, begun.f, begun.value, begun.extra, error)

    def does(self, f: str, value: Json) -> None:
        """Note what is done at one instant."""
        self.ends(self.begins(f, value))

    # ---- polls and groups

    def begins_poll(self, process: int, extra: Mapping[str, Json] = NO_EXTRA) -> Event:
        """Note that a consumer begins to poll."""
        return self.begins("poll", [["poll"]], process=process, extra=extra)

    def ends_poll(self, begun: Event, records: Iterable[ConsumerRecord]) -> None:
        """Note what a poll returned."""
        self.ends(begun, [["poll", records_by_key(records)]])

    def begins_as_member(self, f: str, group: str) -> Event:
        """Note that a member of a group begins to do something."""
        return self.begins(f, {"group": group})

    def ends_as_member(
        self, begun: Event, identity: "Identity", consumer: Consumer, keys: Json
    ) -> None:
        """Note what a member did, and in which generation if that is certain."""
        member, generation = identity_of(consumer)
        is_same = (member, generation) == identity
        self.ends(
            begun,
            {
                "group": begun.value["group"],
                "member": member,
                "generation": generation if is_same else None,
                "keys": keys,
            },
        )

    # ---- the end

    def history(self) -> History:
        """Return all that was noted."""
        return History(self._events)

    def violation(self) -> Violation | None:
        """Return the first thing that the judges find, if any; what they cannot decide passes."""
        for verdict in judge(self._checkers, self.history(), self._facts):
            if verdict.valid is False:
                found = verdict.findings[0]
                return Violation(_invariant(found.anomaly), found.detail)
        return None

    def _add(
        self,
        process: int,
        kind: EventKind,
        f: str,
        value: Json,
        extra: Mapping[str, Json],
        error: str | None = None,
    ) -> Event:
        index = len(self._events)
        event = Event(index, self._clock_ns(), process, kind, f, value, error, extra)
        self._events.append(event)
        return event


Identity = tuple[str | None, int | None]
"""A member's id and its generation; None where it is nobody at present."""


def identity_of(consumer: Consumer) -> Identity:
    """Return who a member is."""
    try:
        membership = consumer.group_metadata()
    except RefusedError:
        return None, None
    return membership.member_id, membership.generation_id


def key_of(at: TopicPartition) -> str:
    """Return a partition's name in a history."""
    return f"{at.topic}-{at.partition}"


def records_by_key(records: Iterable[ConsumerRecord]) -> dict[str, list[list[Json]]]:
    """Return [offset, value] of each record by the name of its partition."""
    found: dict[str, list[list[Json]]] = {}
    for record in records:
        key = f"{record.topic}-{record.partition}"
        found.setdefault(key, []).append([record.offset, (record.value or b"").decode()])
    return found


def _invariant(anomaly: str) -> str:
    """Return the name of what an anomaly breaks."""
    kept = KEPT.get(anomaly)
    return kept or "No" + "".join(part[:1].upper() + part[1:] for part in anomaly.split("-"))
