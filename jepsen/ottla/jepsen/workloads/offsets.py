"""The offsets workload: each committed offset of a group is a register that threads write and read.

The module is pure. Operations, all without a group membership (generation -1):

- `commit`, value `[group, key, offset]`: offsets are unique within a register;
- `fetch`, value `[group, key, null]` -> `[group, key, offset | null]`: null if there is none;
- `crash`.

Completions have extra `node`, the coordinator's address, if the client exposes it.

Guarantee of Kafka: an acknowledged commit is in the log of the group's coordinator, on
`min.insync.replicas` replicas, so commits are linearizable. A refusal may come after the append
(NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, REQUEST_TIMED_OUT), so it is INFO. One operation of
Ottla's own client never sends a commit twice. A fetch is answered from memory: a deposed
coordinator that is cut off from its successor may answer with the offset that it last knew. A stale
fetch during a network partition is therefore a limit of Kafka itself. All other operations must fit
one order.

librdkafka may repeat a commit within one operation, so its threads write registers of their own.

The cost of the search that judges a register grows quickly. A group is therefore replaced by a new
one when a register has had OPERATIONS_MAX operations, or UNKNOWN_MAX operations with an unknown
outcome.
"""

from collections import Counter
from random import Random

from ottla.jepsen.history import EventKind
from ottla.jepsen.workloads.crashes import CRASH, Crashes
from ottla.jepsen.workloads.final_reads import FINAL
from ottla.jepsen.workloads.keys import key_of
from ottla.jepsen.workloads.load import CONFLUENT, Completion, LoadPlan, NewTopic, Op
from ottla.jepsen.workloads.pace import OPS_PER_S_MAX

OPEN_GROUPS = 3
SHARED_COUNT = 4
"""Number of registers (committed offsets) of a group that all threads with Ottla's own client
write."""
OPERATIONS_MAX = 250
"""Maximum number of operations on one register (committed offset). More operations make the
checker's search for an order slow."""
UNKNOWN_MAX = 4
"""Maximum number of writes with an unknown outcome to one register (committed offset). Each may
take effect at any later time, so more of them make the checker's search slow."""


class OffsetsLoad:
    """Generator of the operations of the offsets workload."""

    name = "offsets"
    checkers: tuple[str, ...] = ("offsets", "availability", "servers")
    ops_per_s_max = OPS_PER_S_MAX

    def __init__(self, plan: LoadPlan, *, operations_max: int = OPERATIONS_MAX) -> None:
        self._plan = plan
        self._operations_max = operations_max
        self._topic = f"{plan.prefix}offsets"
        others = [thread for thread, kind in enumerate(plan.kinds) if kind == CONFLUENT]
        self._own = {thread: SHARED_COUNT + index for index, thread in enumerate(others)}
        """For each thread with librdkafka, the index of the partition whose offsets only this
        thread commits."""
        self._partition_count = SHARED_COUNT + len(others)
        self._group_count = 0
        self._groups = [self._new_group() for _ in range(OPEN_GROUPS)]
        self._operations: Counter[tuple[str, int]] = Counter()
        self._unknown: Counter[tuple[str, str]] = Counter()
        self._crashes = Crashes()
        self._left: dict[int, list[tuple[str, int]]] = {}

    @property
    def topics(self) -> tuple[NewTopic, ...]:
        """The topics that must be created before the load begins."""
        return (NewTopic(self._topic, self._partition_count),)

    @property
    def is_caught_up(self) -> bool:
        """True if every register (committed offset) in use was read after the end of all faults."""
        return bool(self._left) and not any(self._left.values())

    def next_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return the thread's next operation: a commit or a fetch, with equal chance."""
        if self._crashes.is_due(thread, now_ns, rng):
            return CRASH
        slot = rng.randrange(OPEN_GROUPS)
        group = self._groups[slot]
        is_commit = rng.random() < 0.5
        if is_commit:
            partition = self._own.get(thread, rng.randrange(SHARED_COUNT))
        else:
            partition = rng.randrange(self._partition_count)
        register = group, partition
        self._operations[register] += 1
        if self._operations[register] >= self._operations_max:
            self._groups[slot] = self._new_group()
        key = key_of(self._topic, partition)
        if is_commit:
            # The count is unique in its register. Offsets need not grow.
            return Op("commit", [group, key, self._operations[register]])
        return Op("fetch", [group, key, None])

    def on_completion(self, thread: int, op: Op, done: Completion) -> None:
        """Update the generator's model of the cluster with the outcome (`done`) of an operation."""
        if op.f == "commit" and done.kind is EventKind.INFO:
            self._on_unknown(op.value[0], op.value[1])
        elif "final" in op.extra and op.f == "fetch" and done.kind is EventKind.OK:
            self._left[thread].pop(0)

    def final_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return a fetch of the next register (committed offset) in the final phase, or None if all
        registers have been read."""
        if thread not in self._left:
            self._left[thread] = [
                (group, partition)
                for group in self._groups
                for partition in range(self._partition_count)
            ]
            return Op("crash", None, FINAL)
        if not self._left[thread]:
            return None
        group, partition = self._left[thread][0]
        return Op("fetch", [group, key_of(self._topic, partition), None], FINAL)

    def _on_unknown(self, group: str, key: str) -> None:
        self._unknown[group, key] += 1
        if self._unknown[group, key] >= UNKNOWN_MAX and group in self._groups:
            self._groups[self._groups.index(group)] = self._new_group()

    def _new_group(self) -> str:
        name = f"{self._plan.prefix}registers-{self._group_count}"
        self._group_count += 1
        return name
