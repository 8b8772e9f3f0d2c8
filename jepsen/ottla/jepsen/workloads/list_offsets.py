"""The list-offsets workload: end offsets are above every offset acknowledged before.

The module is pure. Operations: `send`, `create-topic` and `crash` as in the queue workload, and
`end-offset`, value `[key, null]` -> `[key, offset]`, with extra `leader_epoch` if the client
exposes it. Extra `own_view` is false if different client objects send the records and the
ListOffsets requests (librdkafka).

Guarantee of Kafka: the leader of the newest epoch answers with its high watermark, which is above
every acknowledged record. A new leader that does not know its high watermark yet answers
OFFSET_NOT_AVAILABLE (KIP-207). A deposed leader that has not learned of its successor may answer
with a lower offset. A client that knows the newer epoch sends it and is refused there (KIP-320). An
end offset that is too low is therefore allowed only with an epoch older than the epoch of another
response. It is never allowed in a response to the client that received the acknowledgement. Ottla's
own client sends the request with the producer's view of the cluster.
"""

from random import Random

from ottla.jepsen.history import EventKind
from ottla.jepsen.workloads.crashes import CRASH, Crashes
from ottla.jepsen.workloads.final_reads import FINAL
from ottla.jepsen.workloads.keys import Topics
from ottla.jepsen.workloads.load import Completion, LoadPlan, NewTopic, Op
from ottla.jepsen.workloads.log_model import OffsetModel, sent_of
from ottla.jepsen.workloads.pace import OPS_PER_S_MAX

OPEN_TOPICS = 4
VALUES_MAX = 512


class ListOffsetsLoad:
    """Generator of the operations of the list-offsets workload."""

    name = "list-offsets"
    checkers: tuple[str, ...] = ("list-offsets", "availability", "servers")
    ops_per_s_max = OPS_PER_S_MAX

    def __init__(self, plan: LoadPlan) -> None:
        self._topics = Topics(plan.prefix, open_count=OPEN_TOPICS, values_max=VALUES_MAX)
        self._model = OffsetModel()
        self._crashes = Crashes()
        self._own: dict[int, str] = {}
        """For each thread, the key (partition) to which it wrote last."""
        self._left: dict[int, list[str]] = {}
        """For each thread, the keys (partitions) whose end offset the thread must still receive in
        the final phase (after all faults)."""

    @property
    def topics(self) -> tuple[NewTopic, ...]:
        """The topics that must be created before the load begins."""
        return self._topics.new_topics

    @property
    def is_caught_up(self) -> bool:
        """True if every thread has received the end offset of every key (partition) after the end
        of all faults."""
        return bool(self._left) and not any(self._left.values())

    def next_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return the thread's next operation: a send or an end-offset request, with equal
        chance."""
        if self._crashes.is_due(thread, now_ns, rng):
            return CRASH
        to_make = self._topics.to_make()
        if to_make is not None:
            return Op("create-topic", to_make)
        if rng.random() < 0.5:
            key, value = self._topics.next_value(rng)
            return Op("send", [["send", key, value]])
        if rng.random() < 0.5 and thread in self._own:
            return Op("end-offset", [self._own[thread], None])
        return Op("end-offset", [rng.choice(self._topics.keys()), None])

    def on_completion(self, thread: int, op: Op, done: Completion) -> None:
        """Update the generator's model of the cluster with the outcome (`done`) of an operation."""
        self._model.on_completion(op, done)
        for key, _ in sent_of(op, done):
            self._own[thread] = key
        if op.f == "create-topic":
            self._topics.on_made(op.value, is_made=done.kind is EventKind.OK)
        elif op.f == "end-offset" and "final" in op.extra and done.kind is EventKind.OK:
            self._left[thread].remove(op.value[0])

    def final_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return the thread's next operation in the final phase: first a crash of its client, then
        a request for the end offset of each key (partition). Returns None once the thread has
        received the end offsets of all keys."""
        if thread not in self._left:
            self._left[thread] = sorted(self._model.highest())
            return Op("crash", None, FINAL)
        left = self._left[thread]
        return Op("end-offset", [left[0], None], FINAL) if left else None
