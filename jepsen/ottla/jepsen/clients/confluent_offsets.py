"""The offsets workload by confluent-kafka: a consumer for each group, which joins nobody.

Not by its operator's client, which could do it for all groups with one handle: when it fetches
offsets and is told NOT_COORDINATOR, librdkafka 2.16 turns to the consumer group that such a handle
does not have (`rd_kafka_cgrp_op`), and the whole process ends by a segmentation fault.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ottla.jepsen.clients.completions import DEADLINE_S, ok
from ottla.jepsen.clients.confluent import ConfluentClient
from ottla.jepsen.clients.confluent_queue import consumer_settings
from ottla.jepsen.workloads.keys import partition_of
from ottla.jepsen.workloads.load import Completion, Op

CONSUMERS_MAX = 4
"""Groups for which a thread keeps a consumer."""
NOT_WRITTEN = frozenset({"COORDINATOR_LOAD_IN_PROGRESS", "UNKNOWN_TOPIC_OR_PART"})
"""Refusals of a commit that come before anything is written."""


class ConfluentOffsetsClient(ConfluentClient):
    """One thread of the offsets workload."""

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Completion]]:
        """Return how each operation is done, by `f`."""
        return {"commit": self._commit, "fetch": self._fetch}

    def _consumer(self, group: str) -> Any:
        found = self.handles.pop(group, None)
        if found is None:
            if len(self.handles) >= CONSUMERS_MAX:
                self.handles.pop(next(iter(self.handles))).close()
            # A commit waits for its coordinator as long as a session lasts.
            config = consumer_settings(self.bootstrap, group, session__timeout__ms=6_000)
            found = self.kafka.Consumer(config)
        self.handles[group] = found
        return found

    def _commit(self, op: Op) -> Completion:
        group, key, offset = op.value
        at = self.kafka.TopicPartition(*partition_of(key), offset)
        try:
            (told,) = self._consumer(group).commit(offsets=[at], asynchronous=False)
            error = told.error
        except self.kafka.KafkaException as trouble:
            error = trouble.args[0]
        return ok() if error is None else self.troubled(op, error, NOT_WRITTEN)

    def _fetch(self, op: Op) -> Completion:
        group, key, _ = op.value
        at = self.kafka.TopicPartition(*partition_of(key))
        (told,) = self._consumer(group).committed([at], timeout=DEADLINE_S)
        if told.error is not None:
            return self.troubled(op, told.error)
        return ok([group, key, told.offset if told.offset >= 0 else None])
