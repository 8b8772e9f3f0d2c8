"""The transactions workload: transfers between logs, copies with consumed offsets, and readers.

The module is pure. Operations:

- `init`: a new producer initialises its transactional id. Two threads share one id, so each fences
  the other at times. Value null -> `[producer_id, epoch]` if the client exposes it;
- `txn`, value `[["send", key, value], …]` -> `[["send", key, [offset, value]], …]`: a transaction.
  Extra `abort`: its program aborts it. Extra `pause_s`: it pauses in the middle, long enough for
  its successor to fence it. Extra `move`: its records are copies of records that a member of a
  group polls, and the group's offsets are committed with them;
- `poll` and `assign`: as in the queue workload, with isolation level read_committed;
- at the end `settle` waits until no transaction is open, `committed` returns the group's offsets,
  and one more transaction to every key marks the ends of the logs for the final reads.

Values, amounts and outputs are in the form that `checkers.transactions` defines.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from ottla.jepsen.history import EventKind, Json
from ottla.jepsen.workloads.crashes import CRASH, Crashes
from ottla.jepsen.workloads.final_reads import FINAL, FinalReads
from ottla.jepsen.workloads.keys import PARTITION_COUNT, key_of
from ottla.jepsen.workloads.load import (
    NOTHING_TO_READ,
    OWN,
    Completion,
    LoadPlan,
    NewTopic,
    Op,
)
from ottla.jepsen.workloads.log_model import OffsetModel
from ottla.jepsen.workloads.log_model import read_of as reads_of

OPS_PER_S_MAX = 300
"""Maximum number of operations per second of all threads of the transactions workload together. A
transaction is about ten requests."""
ACCOUNTS, INPUT, OUTPUT = "accounts", "in", "out"
MOVER_ONE_IN = 3
"""Number of threads with Ottla's own client per thread that copies consumed records. The other
threads only transfer and read."""
THREADS_PER_ID = 2
RECORDS_MAX = 4
ABORT_ONE_IN = 5
PAUSE_ONE_IN = 40
RESTART_ONE_IN = 50
"""Average number of operations per initialisation of the transactional id with a new producer."""
CHANGE_ONE_IN = 60
KEYS_READ = 3
END_STEPS = 3
END_TRIES = 15
"""Maximum number of attempts of the final `settle` operation, which waits until no transaction is
open. Each attempt lasts about ten seconds."""

POLL = Op("poll", [["poll"]])


@dataclass(slots=True)
class TransactionThread:
    """State of one thread of the transactions workload."""

    transactional_id: str
    is_mover: bool
    producer: str | None = None
    is_reading: bool = False
    producer_count: int = 0
    transaction_count: int = 0


class TransactionsLoad:
    """Generator of the operations of the transactions workload."""

    name = "transactions"
    checkers: tuple[str, ...] = (
        "log",
        "cycles",
        "transactions",
        "producer-ids",
        "availability",
        "servers",
    )
    ops_per_s_max = OPS_PER_S_MAX

    def __init__(self, plan: LoadPlan) -> None:
        self._prefix = plan.prefix
        self._model = OffsetModel()
        self._crashes = Crashes()
        self._final = FinalReads(plan.kinds, self._model)
        self._ends_at = 0
        """Number of operations of the end phase (`settle`, `committed`, the last transaction) that
        are done. One thread does these operations while all other threads wait."""
        self._tries_left = END_TRIES
        self._threads: list[TransactionThread] = []
        writers = 0
        for thread, kind in enumerate(plan.kinds):
            is_mover = kind == OWN and plan.kinds[:thread].count(OWN) % MOVER_ONE_IN == 1
            name = f"{plan.prefix}mover-{thread}"
            if not is_mover:
                name = f"{plan.prefix}writer-{writers // THREADS_PER_ID}"
                writers += 1
            self._threads.append(TransactionThread(name, is_mover))

    @property
    def topics(self) -> tuple[NewTopic, ...]:
        """The topics that must be created before the load begins."""
        return tuple(
            NewTopic(self._prefix + name, PARTITION_COUNT) for name in (ACCOUNTS, INPUT, OUTPUT)
        )

    @property
    def is_caught_up(self) -> bool:
        """True if the final reads (after the load) have reached the end of every key
        (partition)."""
        return self._final.is_caught_up

    def keys(self, *names: str) -> list[str]:
        """Return the keys ("topic-partition") of all partitions of some topics. `names` are topic
        names without the workload's prefix."""
        return [key_of(self._prefix + name, n) for name in names for n in range(PARTITION_COUNT)]

    def next_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return the thread's next operation, or None if the thread must wait."""
        state = self._threads[thread]
        if self._crashes.is_due(thread, now_ns, rng):
            return CRASH
        if state.producer is None or not rng.randrange(RESTART_ONE_IN):
            return self._init(thread, state)
        if state.is_mover:
            extra = self._names(state)
            return Op("txn", [], {**extra, "move": True, "abort": not rng.randrange(ABORT_ONE_IN)})
        if not state.is_reading or not rng.randrange(CHANGE_ONE_IN):
            keys = self.keys(ACCOUNTS, INPUT, OUTPUT)
            return Op("assign", sorted(rng.sample(keys, KEYS_READ)))
        return POLL if rng.random() < 0.5 else self._transfer(state, rng)

    def on_completion(self, thread: int, op: Op, done: Completion) -> None:
        """Update the generator's model of the cluster with the outcome (`done`) of an operation."""
        self._model.on_completion(op, done)
        state = self._threads[thread]
        is_done = done.kind is EventKind.OK
        if op.f == "crash":
            state.producer, state.is_reading = None, False
        elif op.f == "init":
            state.producer = op.extra["producer"] if is_done else None
        elif op.f == "txn" and done.extra.get("lost"):
            state.producer = None
        elif op.f == "assign":
            state.is_reading = is_done
        elif done.error == NOTHING_TO_READ:
            state.is_reading = False
        if "final" not in op.extra:
            return
        if op.f == "assign" and is_done:
            self._final.on_assigned(thread)
        for key, offset in reads_of(op, done):
            self._final.on_read(thread, key, offset)
        if thread == min(self._final.readers) and op.f in ("settle", "committed", "txn"):
            self._ends_at += is_done
            self._tries_left -= 1

    def final_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return the thread's next operation after all faults are healed, or None if the thread is
        finished."""
        state = self._threads[thread]
        if thread not in self._final.readers:
            return None
        if self._tries_left and self._ends_at < END_STEPS:
            if self._ends_at == 0 or thread != min(self._final.readers):
                return Op("settle", self.keys(ACCOUNTS, INPUT, OUTPUT), FINAL)
            if self._ends_at == 1:
                return Op("committed", {"group": self.group, "keys": self._inputs()}, FINAL)
            return self._mark_ends(thread, state)
        return self._final.next_op(thread, now_ns)

    @property
    def group(self) -> str:
        """Id of the consumer group of the threads that copy records."""
        return f"{self._prefix}movers"

    def _inputs(self) -> Mapping[str, Json]:
        return dict.fromkeys(self.keys(INPUT))

    def _init(self, thread: int, state: TransactionThread) -> Op:
        state.producer_count += 1
        name = f"{thread}.{state.producer_count}"
        return Op("init", None, {"transactional_id": state.transactional_id, "producer": name})

    def _names(self, state: TransactionThread) -> dict[str, Json]:
        state.transaction_count += 1
        name = f"{state.producer}/{state.transaction_count}"
        return {"name": name, "producer": state.producer}

    def _transfer(self, state: TransactionThread, rng: Random) -> Op:
        amounts = [rng.randint(1, 9) for _ in range(rng.randint(1, RECORDS_MAX - 1))]
        amounts.append(-sum(amounts))
        extra = self._names(state)
        keys = self.keys(ACCOUNTS, INPUT)
        steps = [
            ["send", rng.choice(keys), f"{extra['name']}/{amount:+d}/{place}"]
            for place, amount in enumerate(amounts)
        ]
        extra["abort"] = not rng.randrange(ABORT_ONE_IN)
        if not rng.randrange(PAUSE_ONE_IN):
            extra["pause_s"] = 0.5 + 2 * rng.random()
        return Op("txn", steps, extra)

    def _mark_ends(self, thread: int, state: TransactionThread) -> Op:
        if state.producer is None:
            return self._init(thread, state)
        extra = self._names(state)
        keys = self.keys(ACCOUNTS, INPUT, OUTPUT)
        steps = [["send", key, f"{extra['name']}/+0/{place}"] for place, key in enumerate(keys)]
        return Op("txn", steps, {**extra, **FINAL})
