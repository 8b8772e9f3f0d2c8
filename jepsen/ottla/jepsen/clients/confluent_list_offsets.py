"""The list-offsets workload by confluent-kafka: a producer, and an operator's client that asks."""

from collections.abc import Callable, Mapping
from typing import Any

from ottla.jepsen.clients.completions import DEADLINE_S, ok
from ottla.jepsen.clients.confluent import ConfluentClient, admin_module, settings
from ottla.jepsen.clients.confluent_sending import create_topic, producer_settings, send_one
from ottla.jepsen.workloads.keys import partition_of
from ottla.jepsen.workloads.load import Completion, LoadPlan, Note, Op


class ConfluentListOffsetsClient(ConfluentClient):
    """One thread of the list-offsets workload."""

    def __init__(self, bootstrap: str, thread: int, note: Note, plan: LoadPlan) -> None:
        super().__init__(bootstrap, thread, note)
        self._plan = plan
        self._producer: Any = None
        self._admin: Any = None

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Completion]]:
        """Return how each operation is done, by `f`."""
        return {
            "send": self._send,
            "end-offset": self._end_offset,
            "create-topic": lambda op: create_topic(self._operator(), op, self._plan),
        }

    def drop(self) -> None:
        """Forget both handles."""
        self._producer = self._admin = None

    def _send(self, op: Op) -> Completion:
        if self._producer is None:
            config = producer_settings(self.bootstrap, idempotent=self._plan.idempotent)
            self._producer = self.kafka.Producer(config)
        return send_one(self._producer, op)

    def _operator(self) -> Any:
        if self._admin is None:
            self._admin = admin_module().AdminClient(settings(self.bootstrap))
        return self._admin

    def _end_offset(self, op: Op) -> Completion:
        key = op.value[0]
        at = self.kafka.TopicPartition(*partition_of(key))
        asked = {at: admin_module().OffsetSpec.latest()}
        found = self._operator().list_offsets(asked, request_timeout=DEADLINE_S)[at].result()
        epoch = found.leader_epoch
        return ok([key, found.offset], {} if epoch is None else {"leader_epoch": epoch})
