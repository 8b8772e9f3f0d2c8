"""The queue workload: unique values are sent to logs and polled, like Jepsen's for Kafka.

The module is pure. Operations:

- `send`, value `[["send", key, value]]` -> `[["send", key, [offset | null, value]]]`;
- `poll`, value `[["poll"]]` -> `[["poll", {key: [[offset, value], …]}]]`, also if it FAILs;
- `assign`, value `[key, …]`: exactly these keys; new ones are read from their beginning;
- `subscribe`, value `[topic, …]`: these topics, shared with a group;
- `crash`: the client is closed and created again; it has no assignment then;
- `create-topic`, value `topic`.

With record keys in the plan the topics are compacted, and a value's key follows from the value.

An operation sends one value: without transactions, several values in one operation would not be
atomic. Polls carry extra `mode` ("assign" or "subscribe"). They carry `rebalanced`: [key, …] if the
group assigned or revoked keys during the operation.
"""

from dataclasses import dataclass, field
from random import Random

from ottla.jepsen.checkers.compacted import COMPACTED_TOPIC
from ottla.jepsen.history import EventKind
from ottla.jepsen.workloads.crashes import CRASH, Crashes
from ottla.jepsen.workloads.final_reads import FinalReads
from ottla.jepsen.workloads.keys import Topics, partition_of
from ottla.jepsen.workloads.load import NOTHING_TO_READ, Completion, LoadPlan, NewTopic, Op
from ottla.jepsen.workloads.log_model import OffsetModel, read_of
from ottla.jepsen.workloads.pace import OPS_PER_S_MAX

OPEN_TOPICS = 4
VALUES_MAX = 512
"""Maximum number of values that are sent to one key (partition). It is large enough for several
faults while a key is in use, and small enough that a person can read the history."""
CHANGE_ONE_IN = 128
"""Average number of operations per change of the keys (partitions) that a thread reads. After a
change, the thread reads keys from their beginning again, or its whole group rebalances."""
KEYS_MAX = 4
"""Maximum number of keys (partitions) that a thread reads at a time."""
UNSEEN_ONE_IN = 3
"""Average number of changes of a thread's keys (partitions) per change that selects keys that no
client has read to their end (Jepsen's poll-unseen)."""

POLL = Op("poll", [["poll"]])


@dataclass(slots=True)
class QueueReader:
    """The keys (partitions) assigned to one thread, or the topics that the thread is subscribed
    to."""

    keys: frozenset[str] = frozenset()
    is_member: bool = False
    seen: dict[str, int] = field(default_factory=dict)


class QueueLoad:
    """Generator of the operations of the queue workload."""

    name = "queue"
    checkers: tuple[str, ...] = ("log", "cycles", "availability", "servers")
    ops_per_s_max = OPS_PER_S_MAX

    def __init__(self, plan: LoadPlan, *, values_max: int = VALUES_MAX) -> None:
        prefix = plan.prefix + (COMPACTED_TOPIC if plan.record_key_count else "")
        self._topics = Topics(prefix, open_count=OPEN_TOPICS, values_max=values_max)
        self._model = OffsetModel()
        self._crashes = Crashes()
        self._readers = [QueueReader() for _ in plan.kinds]
        self._final = FinalReads(plan.kinds, self._model)

    @property
    def topics(self) -> tuple[NewTopic, ...]:
        """The topics that must be created before the load begins."""
        return self._topics.new_topics

    @property
    def is_caught_up(self) -> bool:
        """True if the final reads (after the load) have reached the end of every key
        (partition)."""
        return self._final.is_caught_up

    def next_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return the thread's next operation: a send or a poll, with equal chance."""
        reader = self._readers[thread]
        if self._crashes.is_due(thread, now_ns, rng):
            return CRASH
        to_make = self._topics.to_make()
        if to_make is not None:
            return Op("create-topic", to_make)
        if not reader.keys or not rng.randrange(CHANGE_ONE_IN) or self._is_over(reader):
            return self._change(rng)
        if rng.random() < 0.5:
            return POLL
        key, value = self._topics.next_value(rng)
        return Op("send", [["send", key, value]])

    def on_completion(self, thread: int, op: Op, done: Completion) -> None:
        """Update the generator's model of the cluster with the outcome (`done`) of an operation."""
        self._model.on_completion(op, done)
        reader = self._readers[thread]
        is_final = "final" in op.extra
        if op.f == "create-topic":
            self._topics.on_made(op.value, is_made=done.kind is EventKind.OK)
        elif op.f == "crash":
            self._readers[thread] = QueueReader()
        elif op.f in ("assign", "subscribe"):
            self._on_change(reader, op, done)
            if is_final and done.kind is EventKind.OK:
                self._final.on_assigned(thread)
        elif done.error == NOTHING_TO_READ:
            reader.keys = frozenset()
        for key, offset in read_of(op, done):
            reader.seen[key] = max(offset, reader.seen.get(key, -1))
            if is_final:
                self._final.on_read(thread, key, offset)

    def final_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return the thread's next operation for reading all records after the load, or None if the
        thread is finished."""
        return self._final.next_op(thread, now_ns)

    def _change(self, rng: Random) -> Op:
        """Return an operation that changes the keys (partitions) that a thread reads: an assignment
        or a subscription."""
        keys = rng.sample(self._topics.keys(), rng.randint(1, KEYS_MAX))
        if not rng.randrange(UNSEEN_ONE_IN):
            unseen = self._model.unseen()
            keys += rng.sample(unseen, min(KEYS_MAX, len(unseen)))
        if rng.random() < 0.5:
            return Op("assign", sorted(set(keys)))
        return Op("subscribe", sorted({partition_of(key)[0] for key in keys}))

    def _on_change(self, reader: QueueReader, op: Op, done: Completion) -> None:
        if done.kind is not EventKind.OK:
            # The client is assigned again before its next poll, whatever it reads now.
            reader.keys = frozenset()
            return
        reader.is_member = op.f == "subscribe"
        before = reader.keys
        keys = op.value
        if reader.is_member:
            keys = [key for topic in op.value for key in self._topics.keys_of(topic)]
        reader.keys = frozenset(keys)
        reader.seen = {key: offset for key, offset in reader.seen.items() if key in before}

    def _is_over(self, reader: QueueReader) -> bool:
        """Return whether all keys (partitions) of a thread's reader are full and read to their
        ends."""
        if not reader.keys.isdisjoint(self._topics.keys()):
            return False
        highest = self._model.highest()
        unseen = set(self._model.unseen())
        if reader.is_member:
            # Other members of its group may have read them.
            return reader.keys.isdisjoint(unseen)
        return all(reader.seen.get(key, -1) >= highest.get(key, -1) for key in reader.keys)
