"""Records the operations of simulated clients as events of `ottla.jepsen.history`, and runs its
checkers at the end of a run.

`history.py` checks during a run, and ends the run at the first broken guarantee. Here the checkers
that are also used for real clusters check the whole history. They find records that a reader
skipped or never read, violations of real-time order by unacknowledged records, partitions of a
group with two owners, and committed offsets that fit no order.
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
"""Maximum number of search steps of the linearizability check of one partition. Beyond it, the
check is undecided, so that the time is used for other seeds."""

KEPT = {"nonlinearizable": "Linearizable", "realtime-order": "RealTimeOrder"}
"""Names of the invariants whose name does not follow from the anomaly that a checker reports, by
anomaly. For every other anomaly, the name of the invariant is "No" followed by the name of the
anomaly."""

FINAL: Mapping[str, Json] = {"final": True}
SUBSCRIBED: Mapping[str, Json] = {"mode": "subscribe"}


class ClientEvents:
    """Recorder of client operations as events of a history. An operation without a recorded end has
    an unknown outcome."""

    def __init__(
        self,
        clock_ns: Callable[[], int],
        *,
        record_key_count: int = 0,
        checkers: Sequence[str] = CHECKERS,
        facts: Mapping[str, Json] = NO_EXTRA,
    ) -> None:
        """Create the recorder. `facts` are additional properties of the run that the checkers need,
        by their names in RunFacts."""
        self._clock_ns = clock_ns
        self._checkers = checkers
        self._facts = RunFacts(steps_max=STEPS_MAX, record_key_count=record_key_count, **facts)
        self._events: list[Event] = []
        self._process_count = 0
        self._is_ending = False

    def process(self) -> int:
        """Return an unused process number for a new client."""
        self._process_count += 1
        return self._process_count - 1

    def final_reads_begin(self) -> None:
        """Stop recording all operations except successful final reads. Other operations may end
        after the end offsets that the final reads see."""
        self._is_ending = True

    def begins(
        self,
        f: str,
        value: Json = None,
        *,
        process: int | None = None,
        extra: Mapping[str, Json] = NO_EXTRA,
    ) -> Event:
        """Record the start of a client operation of kind `f`, and return the event. If `process` is
        None, the operation gets a new process number."""
        process = self.process() if process is None else process
        return self._add(process, EventKind.INVOKE, f, value, extra)

    def ends(self, begun: Event, value: Json = None) -> None:
        """Record that the operation which `begun` started has succeeded, with its result."""
        if begun.extra is FINAL or not self._is_ending:
            outcome = begun.value if value is None else value
            self._add(begun.process, EventKind.OK, begun.f, outcome, begun.extra)

    def fails(self, begun: Event, error: str) -> None:
        """Record that the operation which `begun` started certainly had no effect."""
        self._add(begun.process, EventKind.FAIL, begun.f, begun.value, begun.extra, error)

    def does(self, f: str, value: Json) -> None:
        """Record a client operation that starts and ends at one instant."""
        self.ends(self.begins(f, value))

    # ---- polls and groups

    def begins_poll(self, process: int, extra: Mapping[str, Json] = NO_EXTRA) -> Event:
        """Record the start of a consumer's poll, and return the event."""
        return self.begins("poll", [["poll"]], process=process, extra=extra)

    def ends_poll(self, begun: Event, records: Iterable[ConsumerRecord]) -> None:
        """Record that a consumer's poll has succeeded, with the records that it returned."""
        self.ends(begun, [["poll", records_by_key(records)]])

    def begins_as_member(self, f: str, group: str) -> Event:
        """Record the start of an operation of a group member, and return the event."""
        return self.begins(f, {"group": group})

    def ends_as_member(
        self, begun: Event, identity: "Identity", consumer: Consumer, keys: Json
    ) -> None:
        """Record the result of a group member's operation, with the member's generation if that is
        certain."""
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
        """Return the recorded history of client operations."""
        return History(self._events)

    def violation(self) -> Violation | None:
        """Return the first violation that a checker finds in the recorded history, or None if there
        is none. An undecided result is not a violation."""
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
"""Member id and generation of a group member. Each is None if the member currently has none."""


def identity_of(consumer: Consumer) -> Identity:
    """Return the member id and the generation of a consumer in a group."""
    try:
        membership = consumer.group_metadata()
    except RefusedError:
        return None, None
    return membership.member_id, membership.generation_id


def key_of(at: TopicPartition) -> str:
    """Return the key of a partition in a history ("topic-partition")."""
    return f"{at.topic}-{at.partition}"


def records_by_key(records: Iterable[ConsumerRecord]) -> dict[str, list[list[Json]]]:
    """Return the offset and value of each record, grouped by the key that names its partition."""
    found: dict[str, list[list[Json]]] = {}
    for record in records:
        key = f"{record.topic}-{record.partition}"
        found.setdefault(key, []).append([record.offset, (record.value or b"").decode()])
    return found


def _invariant(anomaly: str) -> str:
    """Return the name of the invariant that an anomaly violates."""
    kept = KEPT.get(anomaly)
    return kept or "No" + "".join(part[:1].upper() + part[1:] for part in anomaly.split("-"))
