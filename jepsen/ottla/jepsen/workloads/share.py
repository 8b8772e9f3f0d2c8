"""The share workload: a share group is used as a queue (KIP-932).

The module is pure. Operations of a thread, each with the group it belongs to:

- `join`, value `{"group", "topics"}` -> `{"group", "topics", "member"}`: open a share consumer,
  with a unique name;
- `take`, value `{"group"}` -> `{"group", "member", "keys"}`, with keys `{key: [[offset, value,
  delivery count, age], …]}`: the age in ms is that of the fetch, or null if the client does not
  know it;
- `acknowledge`, value `{"group", "member", "keys": {key: [[offset, type], …]}}` -> the same with
  `[offset, type, outcome]`: true if the broker has confirmed it, false if it was certainly not
  sent, else null. Types: accept, release, reject, renew;
- `start-offsets`, value `{"group"}` -> `{"group", "keys": {key: [start offset | null, lag |
  null]}}`;
- `leave`, `crash`, and `send` as in the queue workload, which provides records to take.

A member acknowledges all records that it took before it takes others. Some wait until their locks
have ended.
"""

from collections import Counter
from random import Random

from ottla.jepsen.history import EventKind, Json
from ottla.jepsen.workloads.crashes import CRASH, Crashes
from ottla.jepsen.workloads.final_reads import FINAL
from ottla.jepsen.workloads.keys import key_of
from ottla.jepsen.workloads.load import (
    JAVA,
    NOTHING_TO_READ,
    OWN,
    SECOND,
    Completion,
    LoadPlan,
    NewTopic,
    Op,
)
from ottla.jepsen.workloads.log_model import sent_of
from ottla.jepsen.workloads.pace import OPS_PER_S_MAX

TOPIC_COUNT = 1
PARTITION_COUNT = 4
LOCK_MS = 15_000
"""Duration in ms of the acquisition locks of the share group. By default, Kafka allows no shorter
duration."""
DELIVERY_COUNT_LIMIT = 10
"""Maximum number of deliveries of a record in the share group. By default, Kafka allows no higher
limit."""
GROUP_SETTINGS = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": str(LOCK_MS),
    "share.delivery.count.limit": str(DELIVERY_COUNT_LIMIT),
}
"""Settings of the share group of the workload."""
FACTS: dict[str, Json] = {"lock_ms": LOCK_MS, "delivery_count_limit": DELIVERY_COUNT_LIMIT}

STAY_NS = 25 * SECOND
AWAY_NS = 2 * SECOND
SEND_SHARE = 0.5
DESCRIBE_SHARE = 0.02
RELEASE_SHARE = 0.1
REJECT_SHARE = 0.03
RENEW_SHARE = 0.03
LATE_ONE_IN = 300
"""Average number of polls per poll that is acknowledged late, after the acquisition locks of its
records have expired."""
LATE_NS = (LOCK_MS + 3_000) * SECOND // 1_000
FINAL_NS = 100 * SECOND
"""Time limit in ns within which the share group must finish all records after all faults are
healed."""


class ShareThread:
    """State of one thread of the share workload. The thread joins and leaves the share group during
    the run."""

    __slots__ = ("held", "is_thrown_out", "late_ns", "member", "turn_ns")

    def __init__(self) -> None:
        self.member: str | None = None
        self.held: dict[tuple[str, int], None] = {}
        """Records that the thread's member has acquired and not finished, by (key, offset)."""
        self.late_ns = 0
        """Time in ns before which the thread does not acknowledge its acquired records."""
        self.turn_ns = 0
        """Time in ns at which the thread joins or leaves the share group next."""
        self.is_thrown_out = False

    def leave(self) -> None:
        """Reset the state of the thread's membership in the share group."""
        self.member = None
        self.held.clear()


class ShareLoad:
    """Generator of the operations of the share workload."""

    name = "share"
    checkers: tuple[str, ...] = ("shares", "availability", "servers")
    ops_per_s_max = OPS_PER_S_MAX

    def __init__(self, plan: LoadPlan) -> None:
        self.group = group_of(plan)
        self._kinds = plan.kinds
        self._topics = [f"{plan.prefix}share-{index}" for index in range(TOPIC_COUNT)]
        self._keys = [
            key_of(topic, partition)
            for topic in self._topics
            for partition in range(PARTITION_COUNT)
        ]
        self._values: Counter[str] = Counter()
        self._ends: dict[str, int] = {}
        """End offset of each key (partition), as far as it is known."""
        self._is_settled = False
        """True if the last description of the share group showed no lag."""
        self._threads = [ShareThread() for _ in plan.kinds]
        self._crashes = Crashes()
        self._final_ns: int | None = None

    @property
    def topics(self) -> tuple[NewTopic, ...]:
        """The topics that must be created before the load begins."""
        return tuple(NewTopic(topic, PARTITION_COUNT) for topic in self._topics)

    @property
    def is_caught_up(self) -> bool:
        """True if the last description of the share group showed no lag, or no record was sent."""
        return self._is_settled or not self._ends

    def next_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return the thread's next operation, or None if the thread must wait."""
        one = self._threads[thread]
        if self._crashes.is_due(thread, now_ns, rng):
            return CRASH
        if one.is_thrown_out:
            one.is_thrown_out, one.turn_ns = False, now_ns + AWAY_NS
        is_late = now_ns < one.late_ns
        if now_ns >= one.turn_ns and not is_late:
            stay_ns = STAY_NS if one.member is None else AWAY_NS
            one.turn_ns = now_ns + stay_ns // 2 + rng.randrange(stay_ns)
            return self._join() if one.member is None else Op("leave", {"group": self.group})
        if one.held and not is_late:
            return self._acknowledge(thread, rng)
        if one.member is None or is_late or rng.random() < SEND_SHARE:
            return self._send(thread, rng)
        if rng.random() < DESCRIBE_SHARE:
            return Op("start-offsets", {"group": self.group})
        one.late_ns = 0 if rng.randrange(LATE_ONE_IN) else now_ns + LATE_NS
        return Op("take", {"group": self.group})

    def on_completion(self, thread: int, op: Op, done: Completion) -> None:
        """Update the generator's model of the share group with the outcome (`done`) of an
        operation."""
        one = self._threads[thread]
        is_ok = done.kind is EventKind.OK
        for key, offset in sent_of(op, done):
            self._note_end(key, offset + 1)
        if op.f == "join":
            one.member = done.value["member"] if is_ok else None
        elif op.f in ("crash", "leave"):
            if op.f == "crash" and one.member is not None:
                one.turn_ns = 0  # it joins again soon
            one.leave()
        elif op.f == "take":
            self._on_taken(one, done)
        elif op.f == "acknowledge":
            self._on_acknowledged(one, done)
        elif op.f == "start-offsets" and is_ok:
            self._on_described(done.value["keys"])

    def final_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return the thread's next operation in the final phase. Returns None if the share group
        has no records left to deliver."""
        if self._final_ns is None:
            self._final_ns, self._is_settled = now_ns, False
        one = self._threads[thread]
        if self.is_caught_up or now_ns - self._final_ns >= FINAL_NS or one.is_thrown_out:
            return None
        if one.member is None:
            return self._final(self._join())
        if one.held:
            return self._final(self._acknowledge(thread, None))
        f = "start-offsets" if rng.random() < 0.1 else "take"
        return Op(f, {"group": self.group}, FINAL)

    def _final(self, op: Op) -> Op:
        return Op(op.f, op.value, FINAL)

    def _join(self) -> Op:
        return Op("join", {"group": self.group, "topics": self._topics})

    def _send(self, thread: int, rng: Random) -> Op | None:
        if self._kinds[thread] == JAVA:
            return None  # its program only consumes
        key = rng.choice(self._keys)
        value = self._values[key]
        self._values[key] += 1
        return Op("send", [["send", key, value]])

    def _acknowledge(self, thread: int, rng: Random | None) -> Op:
        """Return an operation that acknowledges all records that the thread has acquired. If
        `rng` is None, the operation accepts all records; otherwise the acknowledgement types
        are random."""
        one = self._threads[thread]
        keys: dict[str, list[Json]] = {}
        for key, offset in sorted(one.held):
            kind = "accept" if rng is None else self._type(thread, rng)
            keys.setdefault(key, []).append([offset, kind])
        return Op("acknowledge", {"group": self.group, "member": one.member, "keys": keys})

    def _type(self, thread: int, rng: Random) -> str:
        draw = rng.random()
        for kind, share in (("release", RELEASE_SHARE), ("reject", REJECT_SHARE)):
            draw -= share
            if draw < 0:
                return kind
        # Other clients return renewed records from another poll.
        is_renewed = self._kinds[thread] == OWN and draw < RENEW_SHARE
        return "renew" if is_renewed else "accept"

    def _on_taken(self, one: ShareThread, done: Completion) -> None:
        if done.kind is not EventKind.OK:
            one.late_ns = 0
            if done.error is not None and done.error.startswith(NOTHING_TO_READ):
                one.leave()
                one.is_thrown_out = True
            return
        for key, records in done.value["keys"].items():
            for offset, *_ in records:
                one.held[key, offset] = None
                self._note_end(key, offset + 1)
        if not one.held:
            one.late_ns = 0

    def _on_acknowledged(self, one: ShareThread, done: Completion) -> None:
        one.held.clear()
        one.late_ns = 0
        if done.kind is not EventKind.OK:
            return
        for key, acks in done.value["keys"].items():
            for offset, kind, outcome in acks:
                if kind == "renew" and outcome:
                    one.held[key, offset] = None

    def _on_described(self, keys: Json) -> None:
        found = {key: row for key, row in keys.items() if row[0] is not None}
        self._is_settled = all(
            key in found and (found[key][0] >= end or found[key][1] == 0)
            for key, end in self._ends.items()
        )

    def _note_end(self, key: str, end: int) -> None:
        self._ends[key] = max(end, self._ends.get(key, 0))


def group_of(plan: LoadPlan) -> str:
    """Return the id of the share group that the plan's workload uses."""
    return f"{plan.prefix}share"
