"""The queue workload, performed with confluent-kafka: one producer, one consumer that is a group
member, and one consumer that reads assigned partitions."""

from collections.abc import Callable, Mapping
from typing import Any

from ottla.jepsen.clients.completions import failed, ok
from ottla.jepsen.clients.confluent import ConfluentClient, settings
from ottla.jepsen.clients.confluent_sending import create_topic, send_one
from ottla.jepsen.clients.topics import record_key
from ottla.jepsen.history import Json
from ottla.jepsen.workloads.keys import key_of, partition_of
from ottla.jepsen.workloads.load import NOTHING_TO_READ, Completion, LoadPlan, Note, Op
from ottla.jepsen.workloads.subscribers import CLASSIC, CONSUMER, group_of, protocol_of

POLL_S = 0.02
RECORDS_MAX = 500
NO_LONGER_OURS = frozenset(
    {
        "REBALANCE_IN_PROGRESS",
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "STALE_MEMBER_EPOCH",
        "FENCED_MEMBER_EPOCH",
        "_ASSIGNMENT_LOST",
        "_NO_OFFSET",
        "_STATE",
    }
)
"""Names of errors of a commit that show that the group has rebalanced without this member."""


def consumer_settings(bootstrap: str, group: str, **more: Json) -> dict[str, Json]:
    """Return librdkafka's settings of a consumer. In the names of `more` (further settings), `__`
    stands for a dot."""
    return settings(
        bootstrap,
        group__id=group,
        auto__offset__reset="earliest",
        enable__auto__commit=False,
        check__crcs=True,
        fetch__error__backoff__ms=50,
        **more,
    )


def member_settings(bootstrap: str, group: str, protocol: str) -> dict[str, Json]:
    """Return librdkafka's settings of a group member, with the protocol of KIP-848 or an assignor
    of the classic protocol."""
    if protocol == CONSUMER:
        return consumer_settings(bootstrap, group, group__protocol="consumer")
    return consumer_settings(
        bootstrap,
        group,
        partition__assignment__strategy=protocol,
        session__timeout__ms=6_000,
        heartbeat__interval__ms=500,
    )


def consume(consumer: Any, timeout_s: float, count_max: int) -> tuple[dict[str, Json], list[str]]:
    """Poll a consumer once for up to `timeout_s` seconds, then consume the records that are already
    fetched, at most `count_max`. Returns the records by key (partition), and the errors."""
    read: dict[str, Json] = {}
    errors: list[str] = []
    message = consumer.poll(timeout_s)
    count = 0
    while message is not None:
        error = message.error()
        if error is None:
            key = key_of(message.topic(), message.partition())
            read.setdefault(key, []).append([message.offset(), int(message.value())])
        else:
            errors.append(error.name())
        count += 1
        if count >= count_max:
            break
        message = consumer.poll(0)
    return read, errors


class ConfluentQueueClient(ConfluentClient):
    """Load client for one thread of the queue workload, with confluent-kafka."""

    def __init__(self, bootstrap: str, thread: int, note: Note, plan: LoadPlan) -> None:
        super().__init__(bootstrap, thread, note, plan)
        self._group = group_of(plan.prefix, thread)
        self._rebalanced: set[str] = set()
        self._next: dict[str, int] = {}
        """For each assigned key (partition), the next offset to read."""

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Completion]]:
        """Functions that perform the workload's operations, by operation name."""
        return {
            "send": self._send,
            "poll": self._poll,
            "assign": self._assign,
            "subscribe": self._subscribe,
            "create-topic": self._create_topic,
        }

    def on_drop(self) -> None:
        """Reset the reading positions of the consumers that were dropped."""
        self._rebalanced.clear()
        self._next.clear()

    def _send(self, op: Op) -> Completion:
        ((_, _, value),) = op.value
        return send_one(self.producer(), op, record_key(self.plan, value))

    def _assign(self, op: Op) -> Completion:
        member = self.handles.pop("member", None)
        if member is not None:
            member.close()
            self._rebalanced.clear()
        if "reader" not in self.handles:
            # librdkafka requires a group name even for a consumer that joins none.
            config = consumer_settings(self.bootstrap, f"{self._group}-alone")
            self.handles["reader"] = self.kafka.Consumer(config)
        self._next = {key: self._next.get(key, self.kafka.OFFSET_BEGINNING) for key in op.value}
        self.handles["reader"].assign(
            [
                self.kafka.TopicPartition(*partition_of(key), offset)
                for key, offset in self._next.items()
            ]
        )
        return ok()

    def _subscribe(self, op: Op) -> Completion:
        self.handles.pop("reader", None)
        self._next.clear()
        if "member" not in self.handles:
            protocol = protocol_of(self.thread)
            config = member_settings(
                self.bootstrap, self._group, "range" if protocol == CLASSIC else protocol
            )
            self.handles["member"] = self.kafka.Consumer(config)
        self.handles["member"].subscribe(
            op.value, on_assign=self._on_change, on_revoke=self._on_change, on_lost=self._on_change
        )
        return ok()

    def _on_change(self, _: Any, partitions: list[Any]) -> None:
        self._rebalanced.update(key_of(one.topic, one.partition) for one in partitions)

    def _poll(self, op: Op) -> Completion:
        member = self.handles.get("member")
        consumer = self.handles.get("reader") if member is None else member
        if consumer is None:
            return failed(NOTHING_TO_READ)
        read, errors = consume(consumer, POLL_S, RECORDS_MAX)
        done = ok([["poll", read]])
        if member is not None:
            done = self._commit(member, read) or done
        else:
            self._next.update((key, records[-1][0] + 1) for key, records in read.items())
        extra: dict[str, Json] = {"mode": "assign" if member is None else "subscribe"}
        if self._rebalanced:
            extra["rebalanced"] = sorted(self._rebalanced)
            self._rebalanced.clear()
        if errors:
            extra["errors"] = sorted(set(errors))
        return Completion(done.kind, done.value, done.error, {**extra, **done.extra})

    def _commit(self, member: Any, read: Mapping[str, Json]) -> Completion | None:
        """Commit the offsets of the records that an operation has read. Returns None on success. If
        the commit fails, seeks to the first of these records, so that they are read again, and
        returns the operation's completion (outcome event)."""
        if not read:
            return None
        kafka = self.kafka
        ends = [
            kafka.TopicPartition(*partition_of(key), records[-1][0] + 1)
            for key, records in read.items()
        ]
        try:
            refused = [one.error for one in member.commit(offsets=ends, asynchronous=False)]
            error = next((one for one in refused if one is not None), None)
        except kafka.KafkaException as trouble:
            error = trouble.args[0]
        if error is None:
            return None
        self._rewind(member, read)
        text = f"{error.name()}: {error.str()}"
        is_normal = error.name() in NO_LONGER_OURS
        return failed(text, [["poll", dict(read)]], {"refused": True} if is_normal else {})

    def _rewind(self, member: Any, read: Mapping[str, Json]) -> None:
        ours = {key_of(one.topic, one.partition) for one in member.assignment()}
        for key, records in read.items():
            if key in ours:
                at = self.kafka.TopicPartition(*partition_of(key), records[0][0])
                try:
                    member.seek(at)
                except self.kafka.KafkaException:
                    # The key was revoked meanwhile: its new owner reads from the committed offset.
                    self._rebalanced.add(key)

    def _create_topic(self, op: Op) -> Completion:
        return create_topic(self.operator(), op, self.plan)
