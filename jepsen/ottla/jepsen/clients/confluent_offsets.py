"""The offsets workload by confluent-kafka's operator: any group's offsets through one handle."""

from collections.abc import Callable, Mapping

from ottla.jepsen.clients.completions import DEADLINE_S, ok
from ottla.jepsen.clients.confluent import ConfluentClient
from ottla.jepsen.workloads.keys import partition_of
from ottla.jepsen.workloads.load import Completion, Op

NOT_WRITTEN = frozenset({"COORDINATOR_LOAD_IN_PROGRESS", "UNKNOWN_TOPIC_OR_PART"})
"""Refusals of a commit that come before anything is written."""


class ConfluentOffsetsClient(ConfluentClient):
    """One thread of the offsets workload."""

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Completion]]:
        """Return how each operation is done, by `f`."""
        return {"commit": self._commit, "fetch": self._fetch}

    def _commit(self, op: Op) -> Completion:
        group, key, offset = op.value
        at = self.kafka.TopicPartition(*partition_of(key), offset)
        asked = self.kafka.ConsumerGroupTopicPartitions(group, [at])
        futures = self.operator().alter_consumer_group_offsets([asked], request_timeout=DEADLINE_S)
        (told,) = futures[group].result().topic_partitions
        return ok() if told.error is None else self.troubled(op, told.error, NOT_WRITTEN)

    def _fetch(self, op: Op) -> Completion:
        group, key, _ = op.value
        at = self.kafka.TopicPartition(*partition_of(key))
        asked = self.kafka.ConsumerGroupTopicPartitions(group, [at])
        futures = self.operator().list_consumer_group_offsets([asked], request_timeout=DEADLINE_S)
        (told,) = futures[group].result().topic_partitions
        if told.error is not None:
            return self.troubled(op, told.error)
        return ok([group, key, told.offset if told.offset >= 0 else None])
