"""The metadata workload: topics are created, changed, deleted and described by every broker.

The module is pure. Operations:

- `create`, value `{"topic", "count"}` -> with `"id"`;
- `partitions`, value `{"topic", "count"}`: the new number of partitions;
- `set-config`, value `{"topic", "config": {name: value}}`: values are unique within a topic's name;
- `delete`, value `{"topic"}`;
- `describe`, value `{"topic", "part"}`: a request to one chosen broker; for `part` "topic" ->
  `{"topic", "broker", "id", "count"}`, both null if the topic does not exist, for "config" ->
  `{"topic", "broker", "config": {name: value | null} | null}`, where a null value is the default;
- `crash`, and `settle` before the final reads.

Guarantees of Kafka, and their limits. An acknowledged write is in the metadata log, which has one
order: acknowledged writes are linearizable. A broker shows a prefix of that log, which grows. It
may lag, so there is no guarantee about one broker relative to another.

- A refusal is not a read. A deposed controller that does not know its successor refuses at once, on
  the basis of an old state.
- A refusal does not prove that the write did not happen. A broker forwards a request until it gets
  a response. If the response to a first attempt is lost, the second attempt meets a topic that
  exists (TOPIC_ALREADY_EXISTS), is deleted (UNKNOWN_TOPIC_OR_PARTITION) or is as large
  (INVALID_PARTITIONS). Such refusals are INFO.
- A repeated attempt may take effect twice. So an operation that can take effect twice (create and
  delete, settings back and forth) is done to a name by one thread alone, which abandons the name
  after an unknown outcome. All threads together create and enlarge one more topic, where a second
  attempt is refused.

The user of librdkafka cannot choose the broker of a request, so its threads only write.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

from ottla.jepsen.history import EventKind
from ottla.jepsen.workloads.crashes import CRASH, Crashes
from ottla.jepsen.workloads.final_reads import FINAL
from ottla.jepsen.workloads.load import OWN, Completion, LoadPlan, NewTopic, Op
from ottla.jepsen.workloads.pace import OPS_PER_S_MAX

DESCRIBE_SHARE = 0.9
RACE_SHARE = 0.015
"""Fraction of the metadata workload's operations that write to the single topic that all threads
create and enlarge."""
LIFE_WRITES = 40
"""Number of writes to one topic between its creation and its deletion. With a smaller number, the
cluster creates and deletes logs more often."""
NAME_LIVES = 3
"""Number of times that a topic is created and deleted under one name before another name is
used."""
PARTITIONS_MAX = 4
RACE_PARTITIONS_MAX = 8
RACE_UNKNOWN_MAX = 8
CONFIG = "retention.ms"
FIRST_VALUE = 86_400_000
SETTLE_S = 2.0
"""Seconds for which the workload waits after all faults are healed. A broker's metadata may still
lag then."""


@dataclass(slots=True)
class Name:
    """State of one topic, known to the only thread that creates, changes and deletes topics with
    its name."""

    topic: str
    count: int = 0
    """Number of partitions of the topic, or 0 if the topic does not exist."""
    writes: int = 0
    lives: int = 0
    value: int = FIRST_VALUE
    is_uncertain: bool = False


class MetadataLoad:
    """Generator of the operations of the metadata workload."""

    name = "metadata"
    checkers: tuple[str, ...] = ("metadata", "availability", "servers")
    ops_per_s_max = 2 * OPS_PER_S_MAX  # Threads of librdkafka are idle most of the time.
    topics: tuple[NewTopic, ...] = ()

    def __init__(self, plan: LoadPlan) -> None:
        self._prefix = plan.prefix
        self._crashes = Crashes()
        self._name_count = 0
        self._names = [self._new_name() for _ in plan.kinds]
        self._race = f"{plan.prefix}race-0"
        self._race_count = 1
        self._race_size = 0
        self._race_unknown = 0
        self._readers = [thread for thread, kind in enumerate(plan.kinds) if kind == OWN]
        self._made: dict[str, None] = {}
        """Names of every topic that any thread tried to create, in order."""
        self._left: dict[int, list[tuple[str, str]]] = {}

    @property
    def is_caught_up(self) -> bool:
        """True if every thread has described all its topics after the end of all faults."""
        return len(self._left) >= len(self._readers) and not any(self._left.values())

    def next_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return the thread's next operation, or None if the thread must wait."""
        if self._crashes.is_due(thread, now_ns, rng):
            return CRASH
        draw = rng.random()
        if draw < DESCRIBE_SHARE:
            if thread not in self._readers:
                return None
            topics = [name.topic for name in self._names]
            topic = self._race if rng.random() < RACE_SHARE else rng.choice(topics)
            return _describe(topic, rng.choice(["topic", "config"]))
        if draw < DESCRIBE_SHARE + RACE_SHARE:
            return self._race_op(thread, rng)
        return self._own_op(thread, rng)

    def on_completion(self, thread: int, op: Op, done: Completion) -> None:
        """Update the generator's model of the cluster with the outcome (`done`) of an operation."""
        if op.f == "describe":
            if "final" in op.extra and done.kind is EventKind.OK:
                self._left[thread].remove((op.value["topic"], op.value["part"]))
            return
        if not isinstance(op.value, dict):
            return
        if op.value["topic"] == self._race:
            self._on_race(op, done)
            return
        name = self._names[thread]
        if op.value["topic"] != name.topic:
            return
        if done.kind is EventKind.INFO:
            name.is_uncertain = True
        elif done.kind is EventKind.OK:
            name.writes += 1
            if op.f == "delete":
                name.count, name.writes = 0, 0
                name.lives += 1
            elif "count" in op.value:
                name.count = op.value["count"]

    def final_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return an operation that describes the thread's next topic in the final phase, or None if
        the thread has described all its topics."""
        if thread not in self._readers:
            return None
        if thread not in self._left:
            mine = list(self._made)[self._readers.index(thread) :: len(self._readers)]
            self._left[thread] = [(topic, part) for topic in mine for part in ("topic", "config")]
            return Op("settle", SETTLE_S, FINAL)
        if not self._left[thread]:
            return None
        return _describe(*self._left[thread][0], is_final=True)

    def _own_op(self, thread: int, rng: Random) -> Op:
        name = self._names[thread]
        if name.is_uncertain or name.lives >= NAME_LIVES:
            name = self._names[thread] = self._new_name()
        if not name.count:
            self._made[name.topic] = None
            return Op("create", {"topic": name.topic, "count": rng.randint(1, 2)})
        if name.writes >= LIFE_WRITES:
            return Op("delete", {"topic": name.topic})
        if name.count < PARTITIONS_MAX and rng.random() < 1 / LIFE_WRITES:
            return Op("partitions", {"topic": name.topic, "count": name.count + 1})
        name.value += 1
        return Op("set-config", {"topic": name.topic, "config": {CONFIG: str(name.value)}})

    def _race_op(self, thread: int, rng: Random) -> Op:
        if self._race_size >= RACE_PARTITIONS_MAX or self._race_unknown >= RACE_UNKNOWN_MAX:
            self._new_race()
        self._made[self._race] = None
        if not self._race_size:
            return Op("create", {"topic": self._race, "count": 1})
        return Op("partitions", {"topic": self._race, "count": self._race_size + rng.randint(1, 2)})

    def _on_race(self, op: Op, done: Completion) -> None:
        if done.kind is EventKind.OK:
            self._race_size = max(self._race_size, op.value["count"])
        elif done.kind is EventKind.INFO:
            self._race_unknown += 1

    def _new_race(self) -> None:
        self._race = f"{self._prefix}race-{self._race_count}"
        self._race_count += 1
        self._race_size = 0
        self._race_unknown = 0

    def _new_name(self) -> Name:
        self._name_count += 1
        return Name(f"{self._prefix}m{self._name_count - 1}")


def _describe(topic: str, part: str, *, is_final: bool = False) -> Op:
    value: dict[str, Any] = {"topic": topic, "part": part}
    return Op("describe", value, FINAL) if is_final else Op("describe", value)
