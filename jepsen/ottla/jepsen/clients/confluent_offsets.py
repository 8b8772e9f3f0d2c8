"""The offsets workload, performed with confluent-kafka: a consumer for each group, which does not
join the group.

A single admin client could handle all groups, but it is not used because of a bug in librdkafka
2.16. If a fetch of offsets is refused with NOT_COORDINATOR, librdkafka accesses the consumer group
of the handle. An admin client has none (`rd_kafka_cgrp_op`), so the process ends with a
segmentation fault.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ottla.jepsen.clients.completions import DEADLINE_S, ok
from ottla.jepsen.clients.confluent import ConfluentClient
from ottla.jepsen.clients.confluent_queue import consumer_settings
from ottla.jepsen.workloads.keys import partition_of
from ottla.jepsen.workloads.load import Completion, Op

CONSUMERS_MAX = 4
"""Maximum number of groups for which a thread of the workload keeps a consumer."""


class ConfluentOffsetsClient(ConfluentClient):
    """Load client for one thread of the offsets workload, with confluent-kafka."""

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Completion]]:
        """Functions that perform the workload's operations, by operation name."""
        return {"commit": self._commit, "fetch": self._fetch}

    def _consumer(self, group: str) -> Any:
        found = self.handles.pop(group, None)
        if found is None:
            if len(self.handles) >= CONSUMERS_MAX:
                self.handles.pop(next(iter(self.handles))).close()
            # A commit waits for its coordinator for at most the session timeout.
            config = consumer_settings(self.bootstrap, group, session__timeout__ms=6_000)
            found = self.kafka.Consumer(config)
        self.handles[group] = found
        return found

    def _commit(self, op: Op) -> Completion:
        group, key, offset = op.value
        at = self.kafka.TopicPartition(*partition_of(key), offset)
        try:
            (result,) = self._consumer(group).commit(offsets=[at], asynchronous=False)
            error = result.error
        except self.kafka.KafkaException as trouble:
            error = trouble.args[0]
        # The outcome is never certain: librdkafka retries a commit whose connection was lost, and
        # reports only the last refusal, such as COORDINATOR_LOAD_IN_PROGRESS. An earlier attempt
        # may have been written.
        return ok() if error is None else self.troubled(op, error)

    def _fetch(self, op: Op) -> Completion:
        group, key, _ = op.value
        at = self.kafka.TopicPartition(*partition_of(key))
        (result,) = self._consumer(group).committed([at], timeout=DEADLINE_S)
        if result.error is not None:
            return self.troubled(op, result.error)
        return ok([group, key, result.offset if result.offset >= 0 else None])
