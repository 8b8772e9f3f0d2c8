"""The list-offsets workload: where a log ends is behind all that was acknowledged before.

Pure.  Operations: `send`, `create-topic` and `crash` as the queue's, and `end-offset`, value
`[key, null]` -> `[key, offset]`, with extra `leader_epoch` where the client tells it; `own_view` is
false where the client that asks is another one than the client that sends (librdkafka's).

What Kafka promises: the leader of the newest epoch answers with its high watermark, which is behind
every acknowledged record (a new leader that does not know it yet answers OFFSET_NOT_AVAILABLE,
KIP-207).  A leader that was deposed and has not heard of it may answer with less, to whoever asks
it: a client that knows of the newer epoch says so, and is refused there (KIP-320).  So an end that
is too small is allowed only with an epoch older than another answer's, and never to the client that
got the acknowledgement; our own asks through the producer's own view of the cluster.
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
    """The generator."""

    name = "list-offsets"
    checkers: tuple[str, ...] = ("list-offsets", "availability", "servers")
    ops_per_s_max = OPS_PER_S_MAX

    def __init__(self, plan: LoadPlan) -> None:
        self._topics = Topics(plan.prefix, open_count=OPEN_TOPICS, values_max=VALUES_MAX)
        self._model = OffsetModel()
        self._crashes = Crashes()
        self._own: dict[int, str] = {}
        """The key each thread has written last."""
        self._left: dict[int, list[str]] = {}
        """What each thread has yet to ask for at the end."""

    @property
    def topics(self) -> tuple[NewTopic, ...]:
        """The topics to make before it begins."""
        return self._topics.new_topics

    @property
    def is_caught_up(self) -> bool:
        """Whether every thread was told the end of every key."""
        return bool(self._left) and not any(self._left.values())

    def next_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return what a thread does next: half of it sends, half of it asks."""
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
        """Learn how it ended."""
        self._model.on_completion(op, done)
        for key, _ in sent_of(op, done):
            self._own[thread] = key
        if op.f == "create-topic":
            self._topics.on_made(op.value, is_made=done.kind is EventKind.OK)
        elif op.f == "end-offset" and "final" in op.extra and done.kind is EventKind.OK:
            self._left[thread].remove(op.value[0])

    def final_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return the next key whose end is asked for once more."""
        if thread not in self._left:
            self._left[thread] = sorted(self._model.highest())
            return Op("crash", None, FINAL)
        left = self._left[thread]
        return Op("end-offset", [left[0], None], FINAL) if left else None
