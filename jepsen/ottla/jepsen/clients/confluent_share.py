"""The share workload, performed with the share consumer of confluent-kafka (from 2.15).

This consumer sends a failed acknowledgement only once, and cannot renew acquisition locks. It
reports results by partition, not by record.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import trio

from ottla.jepsen.clients.completions import DEADLINE_S, TROUBLE, failed, ok, troubled
from ottla.jepsen.clients.confluent import ConfluentClient, library, settings
from ottla.jepsen.clients.confluent_sending import send_one
from ottla.jepsen.clients.own_share import acknowledged, described_group
from ottla.jepsen.history import Json
from ottla.jepsen.workloads.keys import key_of
from ottla.jepsen.workloads.load import NOTHING_TO_READ, Completion, LoadPlan, Note, Op
from ottla.jepsen.workloads.share import group_of
from ottla.model.errors import ConfigError

POLL_S = 0.1
RECORDS_MAX = 5
MISSING = "needs confluent-kafka 2.15 or newer for share groups; install it, or leave out confluent"


def check_share_consumer() -> None:
    """Raise ConfigError if the installed confluent-kafka has no share consumer."""
    if not hasattr(library(), "ShareConsumer"):
        raise ConfigError("--clients", MISSING)


class ConfluentShareClient(ConfluentClient):
    """Load client for one thread of the share workload, with confluent-kafka."""

    def __init__(self, bootstrap: str, thread: int, note: Note, plan: LoadPlan) -> None:
        super().__init__(bootstrap, thread, note, plan)
        self._group = group_of(plan)
        self._lives = count()
        self._name = ""
        self._held: dict[tuple[str, int], Any] = {}

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Completion]]:
        """Functions that perform the workload's operations, by operation name."""
        return {
            "send": self._send,
            "join": self._join,
            "leave": self._leave,
            "take": self._take,
            "acknowledge": self._acknowledge,
            "start-offsets": self._describe,
        }

    def on_drop(self) -> None:
        """Drop the list of acquired records, which the client can no longer acknowledge."""
        self._held.clear()

    def _send(self, op: Op) -> Completion:
        return send_one(self.producer(), op)

    def _join(self, op: Op) -> Completion:
        check_share_consumer()
        config = settings(
            self.bootstrap,
            group__id=self._group,
            share__acknowledgement__mode="explicit",
            max__poll__records=RECORDS_MAX,
        )
        del config["allow.auto.create.topics"]
        member = self.handles["member"] = self.kafka.ShareConsumer(config)
        member.subscribe(op.value["topics"])
        self._held.clear()
        self._name = f"confluent-{self.thread}-{next(self._lives)}"
        return ok({**op.value, "member": self._name})

    def _leave(self, op: Op) -> Completion:
        member = self.handles.pop("member", None)
        if member is not None:
            member.close()
        self._held.clear()
        return ok()

    def _take(self, op: Op) -> Completion:
        member = self.handles.get("member")
        if member is None:
            return failed(NOTHING_TO_READ)
        self._held.clear()
        keys: dict[str, list[Json]] = {}
        errors: set[str] = set()
        for message in member.poll(POLL_S):
            if message.error() is not None:
                errors.add(message.error().name())
                continue
            key = key_of(message.topic(), message.partition())
            row = [message.offset(), int(message.value()), message.delivery_count(), None]
            keys.setdefault(key, []).append(row)
            self._held[key, message.offset()] = message
        value = {**op.value, "member": self._name, "keys": keys}
        return ok(value, {"errors": sorted(errors)} if errors else {})

    def _acknowledge(self, op: Op) -> Completion:
        member = self.handles.get("member")
        if member is None:
            return failed(NOTHING_TO_READ)
        found: dict[str, list[Json]] = {}
        self.attempted = {**op.value, "keys": found}
        for key, acks in op.value["keys"].items():
            rows = found[key] = [[offset, kind, None] for offset, kind in acks]
            for row in rows:
                message = self._held.get((key, row[0]))
                if message is None:
                    row[2] = False
                    continue
                kind = getattr(self.kafka.AcknowledgeType, row[1].upper())
                try:
                    member.acknowledge(message, kind)
                except self.kafka.IllegalStateException:
                    row[2] = False
        results = member.commit_sync(DEADLINE_S)
        errors: set[str] = set()
        for at, error in results.items():
            for row in found.get(key_of(at.topic, at.partition), ()):
                if error is None and row[2] is None:
                    row[2] = True
            if error is not None:
                errors.add(error.args[0].name())
        return acknowledged(self.attempted, errors)

    def _describe(self, op: Op) -> Completion:
        try:
            found = trio.from_thread.run(described_group, self.bootstrap, self._group)
        except TROUBLE as error:
            return troubled(op, error)
        return ok({**op.value, "keys": found})
