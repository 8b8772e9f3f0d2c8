"""The transactions workload, performed with confluent-kafka: transfers and reads, but no copies of
consumed records."""

from collections.abc import Callable, Mapping
from time import monotonic, sleep
from typing import Any

from ottla.jepsen.clients.completions import DEADLINE_S, failed, ok, unknown
from ottla.jepsen.clients.confluent import ConfluentClient, producer_settings, settings
from ottla.jepsen.history import Json
from ottla.jepsen.workloads.keys import key_of, partition_of
from ottla.jepsen.workloads.load import NOTHING_TO_READ, Completion, LoadPlan, Note, Op

TIMEOUT_MS = 8_000
POLL_S = 0.02
RECORDS_MAX = 500
LATEST_TIMEOUT_S = 5.0


class ConfluentTransactionsClient(ConfluentClient):
    """Load client for one thread of the transactions workload, with confluent-kafka."""

    def __init__(self, bootstrap: str, thread: int, note: Note, plan: LoadPlan) -> None:
        super().__init__(bootstrap, thread, note, plan)
        self._next: dict[str, int] = {}
        """For each assigned key (partition), the next offset to read."""

    def on_drop(self) -> None:
        """Reset the reading positions of the consumers that were dropped."""
        self._next.clear()

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Completion]]:
        """Functions that perform the workload's operations, by operation name."""
        return {
            "init": self._init,
            "txn": self._txn,
            "poll": self._poll,
            "assign": self._assign,
            "settle": self._settle,
            "committed": self._committed,
        }

    def _init(self, op: Op) -> Completion:
        self.handles.pop("producer", None)
        config = producer_settings(self.bootstrap, idempotent=True)
        config |= {
            "transactional.id": op.extra["transactional_id"],
            "transaction.timeout.ms": TIMEOUT_MS,
            "message.timeout.ms": TIMEOUT_MS,
        }
        producer = self.kafka.Producer(config)
        producer.init_transactions(DEADLINE_S)
        self.handles["producer"] = producer
        return ok(None, dict(op.extra))

    def _txn(self, op: Op) -> Completion:
        producer = self.handles.get("producer")
        if producer is None:
            return failed("no producer", extra={"lost": True})
        is_asked = False
        offsets: dict[str, int] = {}
        try:
            producer.begin_transaction()
            for _, key, value in op.value:
                topic, partition = partition_of(key)
                producer.produce(
                    topic,
                    value.encode(),
                    partition=partition,
                    on_delivery=lambda error, message: self._take(offsets, error, message),
                )
            if "pause_s" in op.extra:
                producer.flush(DEADLINE_S / 2)
                sleep(op.extra["pause_s"])
            if op.extra.get("abort"):
                producer.abort_transaction(DEADLINE_S)
                return failed("a change of mind", extra={"refused": True})
            producer.flush(DEADLINE_S / 2)
            self.note("ask-commit", op.extra["name"])
            is_asked = True
            producer.commit_transaction(DEADLINE_S)
        except self.kafka.KafkaException as error:
            return self._after(producer, op, error.args[0], is_asked=is_asked)
        except SystemError as error:
            # The producer logs while it raises, which the interpreter refuses (2.16).  It logs only
            # fatal errors: another producer has initialised the same transactional id.
            self.handles.pop("producer", None)
            if is_asked:
                return unknown(op, str(error), {"lost": True})
            return failed(str(error), extra={"lost": True, "refused": True})
        return ok([["send", key, [offsets.get(value), value]] for _, key, value in op.value])

    def _take(self, offsets: dict[str, int], error: Any, message: Any) -> None:
        if error is None:
            offsets[message.value().decode()] = message.offset()

    def _after(self, producer: Any, op: Op, error: Any, *, is_asked: bool) -> Completion:
        """Return the completion (outcome event) of an operation that failed with an error of
        librdkafka. `is_asked` is True if the transaction's commit was requested. Aborts the
        transaction if librdkafka requires that, otherwise drops the producer."""
        text = f"{error.name()}: {error.str()}"
        if error.txn_requires_abort():
            producer.abort_transaction(DEADLINE_S)
            return failed(text, extra={"refused": True})
        self.handles.pop("producer", None)
        extra: dict[str, Json] = {"lost": True, "refused": error.fatal()}
        if not is_asked:
            return failed(text, extra=extra)
        done = self.troubled(op, error)
        return Completion(done.kind, done.value, done.error, extra)

    def _reader(self, **more: Json) -> Any:
        return self.kafka.Consumer(
            settings(
                self.bootstrap,
                group__id=f"{self.plan.prefix}movers",
                enable__auto__commit=False,
                auto__offset__reset="earliest",
                **more,
            )
        )

    def _assign(self, op: Op) -> Completion:
        if "reader" not in self.handles:
            self.handles["reader"] = self._reader(isolation__level="read_committed")
        self._next = {key: self._next.get(key, 0) for key in op.value}
        self.handles["reader"].assign(
            [self.kafka.TopicPartition(*partition_of(key), at) for key, at in self._next.items()]
        )
        return ok()

    def _poll(self, op: Op) -> Completion:
        reader = self.handles.get("reader")
        if reader is None:
            return failed(NOTHING_TO_READ)
        read: dict[str, Json] = {}
        for message in reader.consume(RECORDS_MAX, POLL_S):
            if message.error() is not None:
                continue
            key = key_of(message.topic(), message.partition())
            read.setdefault(key, []).append([message.offset(), message.value().decode()])
            self._next[key] = message.offset() + 1
        return ok([["poll", read]], {"mode": "assign"})

    # ---- final steps

    def _settle(self, op: Op) -> Completion:
        """Wait until no transaction is open, so that the last stable offset is the end of the log.
        Returns the operation's completion (outcome event)."""
        everything = self._reader(isolation__level="read_uncommitted")
        committed = self._reader(isolation__level="read_committed")
        end = monotonic() + DEADLINE_S
        unstable: list[str] = list(op.value)
        while unstable and monotonic() < end:
            ends = [
                [
                    one.get_watermark_offsets(
                        self.kafka.TopicPartition(*partition_of(key)), LATEST_TIMEOUT_S
                    )[1]
                    for key in op.value
                ]
                for one in (everything, committed)
            ]
            unstable = [key for key, a, b in zip(op.value, *ends, strict=True) if a != b]
        everything.close()
        committed.close()
        return failed(f"transactions are open in {', '.join(unstable)}") if unstable else ok()

    def _committed(self, op: Op) -> Completion:
        """Return a completion with the group's committed offsets, once none of them is pending in a
        transaction."""
        reader = self._reader(isolation__level="read_committed")
        asked = [self.kafka.TopicPartition(*partition_of(key)) for key in op.value["keys"]]
        found = reader.committed(asked, DEADLINE_S)
        reader.close()
        keys = {key_of(one.topic, one.partition): max(0, one.offset) for one in found}
        return ok({"group": op.value["group"], "keys": keys})
