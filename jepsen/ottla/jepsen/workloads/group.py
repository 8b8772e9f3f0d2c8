"""The group workload: members join, leave and crash, while each partition has at most one reader.

The module is pure. Operations of a thread, each with the group it belongs to:

- `join`, value `{"group", "topics", "protocol", "instance"}`: `protocol` is one of PROTOCOLS,
  `instance` the name of a static member, or null;
- `poll`, value `{"group"}` -> `{"group", "member", "generation", "keys"}`, with keys `{key:
  [[offset, value], …]}`;
- `commit`, value `{"group"}` -> the same with keys `{key: next_offset}`: the position of the
  member;
- `fetch`, value `{"group"}` -> `{"group", "keys": {key: offset | null}}`: the committed offsets;
- `leave`, `crash`, and `send` as in the queue workload, which provides records to read.

Rebalance callbacks of a member are recorded when they run: `assigned`, `revoked` and `lost` with
`{"group", "member", "generation", "keys": [key, …]}`. A generation is null if the client does not
expose it (librdkafka), or if it changed during the operation. Commits and fetches have extra
`node`, the coordinator's address, if the client exposes it.

Guarantee of Kafka: within one generation (KIP-848: epoch) a partition belongs to one member. A
member that was cut off may continue to read under an older generation, but its commits are refused.
A committed offset is therefore never overwritten from an older generation, and a new owner begins
at the last acknowledged commit.
"""

from collections import Counter
from random import Random
from typing import Final

from ottla.jepsen.history import EventKind, Json
from ottla.jepsen.workloads.crashes import CRASH, Crashes
from ottla.jepsen.workloads.final_reads import FINAL
from ottla.jepsen.workloads.keys import key_of
from ottla.jepsen.workloads.load import NOTHING_TO_READ, SECOND, Completion, LoadPlan, NewTopic, Op
from ottla.jepsen.workloads.log_model import sent_of
from ottla.jepsen.workloads.pace import OPS_PER_S_MAX
from ottla.jepsen.workloads.subscribers import CONSUMER

RANGE: Final = "range"
COOPERATIVE: Final = "cooperative-sticky"
PROTOCOLS = (RANGE, COOPERATIVE, CONSUMER)
"""Group protocols: the classic protocol with an assignor that stops all members, the classic
protocol with a cooperative assignor, and the consumer protocol of KIP-848."""

TOPIC_COUNT = 2
PARTITION_COUNT = 4
STATIC_ONE_IN = 4
"""Average number of group members per static member. A static member keeps its instance name when
it crashes or leaves."""
STAY_NS = 20 * SECOND
AWAY_NS = 2 * SECOND
SEND_SHARE = 0.3
COMMIT_SHARE = 0.25
FETCH_SHARE = 0.05
FINAL_NS = 60 * SECOND
"""Time limit in ns for the final phase of the workload, in which groups read all remaining records.
At the limit, threads stop reading."""


class GroupLoad:
    """Generator of the operations of the group workload."""

    name = "group"
    checkers: tuple[str, ...] = ("groups", "availability", "servers")
    ops_per_s_max = OPS_PER_S_MAX

    def __init__(self, plan: LoadPlan) -> None:
        self._prefix = plan.prefix
        self._topics = [f"{plan.prefix}group-{index}" for index in range(TOPIC_COUNT)]
        self._keys = [
            key_of(topic, partition)
            for topic in self._topics
            for partition in range(PARTITION_COUNT)
        ]
        # Each group has members of both client kinds if there are enough threads.
        ranks = [plan.kinds[:thread].count(kind) for thread, kind in enumerate(plan.kinds)]
        self._protocols = [PROTOCOLS[rank % len(PROTOCOLS)] for rank in ranks]
        self._values: Counter[str] = Counter()
        self._sent: dict[str, int] = {}
        self._read: dict[tuple[str, str], int] = {}
        """Highest offset that each group has read, by group and key (partition)."""
        self._is_in: dict[int, bool] = {}
        self._turn_ns: dict[int, int] = {}
        """Time in ns at which each thread joins or leaves its group next."""
        self._is_thrown_out: set[int] = set()
        """Numbers of the threads whose members were removed from their group. They join again
        soon."""
        self._crashes = Crashes()
        self._final_ns: int | None = None

    @property
    def topics(self) -> tuple[NewTopic, ...]:
        """The topics that must be created before the load begins."""
        return tuple(NewTopic(topic, PARTITION_COUNT) for topic in self._topics)

    @property
    def is_caught_up(self) -> bool:
        """True if every group has read every record that was sent."""
        return all(self._is_group_caught_up(protocol) for protocol in set(self._protocols))

    def next_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return the thread's next operation, or None if the thread must wait."""
        if self._crashes.is_due(thread, now_ns, rng):
            return CRASH
        is_in = self._is_in.get(thread, False)
        if thread in self._is_thrown_out:
            self._is_thrown_out.discard(thread)
            self._turn_ns[thread] = now_ns + AWAY_NS
        if now_ns >= self._turn_ns.get(thread, 0):
            stay_ns = AWAY_NS if is_in else STAY_NS
            self._turn_ns[thread] = now_ns + stay_ns // 2 + rng.randrange(stay_ns)
            return Op("leave", {"group": self._group(thread)}) if is_in else self._join(thread)
        if not is_in or rng.random() < SEND_SHARE:
            key = rng.choice(self._keys)
            value = self._values[key]
            self._values[key] += 1
            return Op("send", [["send", key, value]])
        return Op(self._member_f(rng), {"group": self._group(thread)})

    def on_completion(self, thread: int, op: Op, done: Completion) -> None:
        """Update the generator's model of the cluster with the outcome (`done`) of an operation."""
        for key, offset in sent_of(op, done):
            self._sent[key] = max(offset, self._sent.get(key, -1))
        if op.f == "poll" and done.value is not None:
            self._on_read(done.value)
        elif op.f == "join":
            self._is_in[thread] = done.kind is EventKind.OK
        elif done.error is not None and done.error.startswith(NOTHING_TO_READ):
            self._is_in[thread] = False
            self._is_thrown_out.add(thread)
        elif op.f in ("crash", "leave"):
            if op.f == "crash" and self._is_in.get(thread, False):
                # The thread joins again like one that left.
                self._turn_ns[thread] = 0
            self._is_in[thread] = False

    def final_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return the thread's next poll in the final phase (after all faults), or None if its group
        has read all records."""
        if self._final_ns is None:
            self._final_ns = now_ns
        is_late = now_ns - self._final_ns >= FINAL_NS
        if is_late or self._is_group_caught_up(self._protocols[thread]):
            return None
        if thread in self._is_thrown_out:
            # Other members of the group continue to read. The partitions of this one are reassigned
            # only when its session has expired.
            return None
        if not self._is_in.get(thread, False):
            join = self._join(thread)
            return Op(join.f, join.value, FINAL)
        f = "commit" if rng.random() < COMMIT_SHARE else "poll"
        return Op(f, {"group": self._group(thread)}, FINAL)

    def _member_f(self, rng: Random) -> str:
        draw = rng.random()
        if draw < COMMIT_SHARE:
            return "commit"
        return "fetch" if draw < COMMIT_SHARE + FETCH_SHARE else "poll"

    def _join(self, thread: int) -> Op:
        is_static = thread % STATIC_ONE_IN == STATIC_ONE_IN - 1
        value: dict[str, Json] = {
            "group": self._group(thread),
            "topics": self._topics,
            "protocol": self._protocols[thread],
            "instance": f"{self._prefix}member-{thread}" if is_static else None,
        }
        return Op("join", value)

    def _group(self, thread: int) -> str:
        return self._name_of(self._protocols[thread])

    def _name_of(self, protocol: str) -> str:
        return f"{self._prefix}group-{protocol}"

    def _on_read(self, value: Json) -> None:
        for key, records in value["keys"].items():
            at = value["group"], key
            self._read[at] = max(records[-1][0], self._read.get(at, -1))

    def _is_group_caught_up(self, protocol: str) -> bool:
        group = self._name_of(protocol)
        return all(self._read.get((group, key), -1) >= offset for key, offset in self._sent.items())
