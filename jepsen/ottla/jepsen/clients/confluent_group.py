"""The group workload, performed with confluent-kafka and either group protocol. confluent-kafka
does not expose the generation."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ottla.jepsen.clients.completions import DEADLINE_S, failed, ok
from ottla.jepsen.clients.confluent import ConfluentClient
from ottla.jepsen.clients.confluent_queue import (
    NO_LONGER_OURS,
    POLL_S,
    RECORDS_MAX,
    consume,
    member_settings,
)
from ottla.jepsen.clients.confluent_sending import send_one
from ottla.jepsen.history import Json
from ottla.jepsen.workloads.keys import key_of, partition_of
from ottla.jepsen.workloads.load import NOTHING_TO_READ, Completion, LoadPlan, Note, Op

THROWN_OUT = frozenset(
    {
        "_FATAL",
        "_FENCED",
        "FENCED_INSTANCE_ID",
        "UNRELEASED_INSTANCE_ID",
        "GROUP_MAX_SIZE_REACHED",
        "INCONSISTENT_GROUP_PROTOCOL",
    }
)
"""Names of librdkafka's errors after which a member is no longer in its group. It may join
again."""
NOT_ASKED = frozenset({"_NO_OFFSET"})
"""Names of librdkafka's errors after which a commit certainly had no effect, because the client has
sent no request."""


def settings_of(bootstrap: str, joined: Mapping[str, Json]) -> dict[str, Json]:
    """Return librdkafka's settings of a group member for the value of a `join` operation."""
    config = member_settings(bootstrap, joined["group"], joined["protocol"])
    if joined["instance"] is not None:
        config["group.instance.id"] = joined["instance"]
    return config


class ConfluentGroupClient(ConfluentClient):
    """Load client for one thread of the group workload, with confluent-kafka."""

    def __init__(self, bootstrap: str, thread: int, note: Note, plan: LoadPlan) -> None:
        super().__init__(bootstrap, thread, note, plan)
        self._group = ""
        self._next: dict[str, int] = {}
        self._known_as: dict[str, Json] = {}
        """The last known member id and generation of this client's member."""

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Completion]]:
        """Functions that perform the workload's operations, by operation name."""
        return {
            "send": self._send,
            "join": self._join,
            "leave": self._leave,
            "poll": self._poll,
            "commit": self._commit,
            "fetch": self._fetch,
        }

    def on_drop(self) -> None:
        """Reset the reading positions of the consumers that were dropped."""
        self._next.clear()

    def _send(self, op: Op) -> Completion:
        return send_one(self.producer(), op)

    def _join(self, op: Op) -> Completion:
        self._group = op.value["group"]
        member = self.kafka.Consumer(settings_of(self.bootstrap, op.value))
        self.handles["member"] = member
        member.subscribe(
            op.value["topics"],
            on_assign=partial(self._record, "assigned"),
            on_revoke=partial(self._record, "revoked"),
            on_lost=partial(self._record, "lost"),
        )
        return ok()

    def _record(self, f: str, consumer: Any, partitions: list[Any]) -> None:
        keys = [key_of(one.topic, one.partition) for one in partitions]
        for key in keys:
            self._next.pop(key, None)
        # Revoked keys belonged to the member under its old id. A member that closes may never
        # receive its id (2.16).
        who = self._who(consumer) if f == "assigned" else self._known_as
        self.note(f, {**who, "keys": keys})

    def _leave(self, op: Op) -> Completion:
        member = self.handles.pop("member", None)
        if member is not None:
            member.close()
        self._next.clear()
        return ok()

    def _poll(self, op: Op) -> Completion:
        member = self.handles.get("member")
        if member is None:
            return failed(NOTHING_TO_READ)
        read, errors = consume(member, POLL_S, RECORDS_MAX)
        for key, records in read.items():
            self._next[key] = records[-1][0] + 1
        if THROWN_OUT.intersection(errors):
            del self.handles["member"]
            self._next.clear()
            text = f"{NOTHING_TO_READ}: {', '.join(sorted(set(errors)))}"
            return failed(text, None, {"refused": True})
        value = {**self._who(member), "keys": read}
        return ok(value, {"errors": sorted(set(errors))} if errors else {})

    def _commit(self, op: Op) -> Completion:
        member = self.handles.get("member")
        if member is None:
            return failed(NOTHING_TO_READ)
        value = {**self._who(member), "keys": dict(self._next)}
        if not self._next:
            return ok(value)
        self.attempted = value
        kafka = self.kafka
        offsets = [
            kafka.TopicPartition(*partition_of(key), offset) for key, offset in self._next.items()
        ]
        try:
            results = member.commit(offsets=offsets, asynchronous=False)
            error = next((one.error for one in results if one.error is not None), None)
        except kafka.KafkaException as trouble:
            error = trouble.args[0]
        if error is None:
            return ok(value)
        # librdkafka retries by itself: a refused commit may have been written at the first attempt.
        done = self.troubled(op, error, NOT_ASKED)
        extra = {"refused": True} if error.name() in NO_LONGER_OURS else {}
        return replace(done, value=value, extra=extra)

    def _fetch(self, op: Op) -> Completion:
        member = self.handles.get("member")
        if member is None:
            return failed(NOTHING_TO_READ)
        partitions = [self.kafka.TopicPartition(*partition_of(key)) for key in self._next]
        results = member.committed(partitions, timeout=DEADLINE_S) if partitions else []
        refused = next((one.error for one in results if one.error is not None), None)
        if refused is not None:
            return self.troubled(op, refused)
        keys = {
            key_of(one.topic, one.partition): one.offset if one.offset >= 0 else None
            for one in results
        }
        return ok({"group": self._group, "keys": keys})

    def _who(self, consumer: Any) -> dict[str, Json]:
        member = consumer.memberid()
        self._known_as = {"group": self._group, "member": member, "generation": None}
        return self._known_as
