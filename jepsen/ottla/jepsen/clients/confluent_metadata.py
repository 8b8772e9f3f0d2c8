"""The metadata workload, performed with confluent-kafka's admin client.

The admin client does not return the topic id of a topic that it creates. So the operation also
describes the topic before it ends. No other thread deletes a topic of this name in the meantime.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import monotonic, sleep
from typing import Any
from uuid import UUID

from ottla.jepsen.clients.completions import DEADLINE_S, ok, unknown
from ottla.jepsen.clients.confluent import ConfluentClient, admin_module
from ottla.jepsen.workloads.load import Completion, Op

LOOK_AGAIN_S = 0.05
ID_WAIT_S = DEADLINE_S / 2
NEVER_DONE: Mapping[str, frozenset[str]] = {
    "create": frozenset({"INVALID_REPLICATION_FACTOR", "INVALID_CONFIG"}),
    "delete": frozenset(),
    "partitions": frozenset({"UNKNOWN_TOPIC_OR_PART"}),
    "set-config": frozenset({"UNKNOWN_TOPIC_OR_PART", "INVALID_CONFIG"}),
}
"""Names of the errors, by operation, that prove that the operation had no effect. None of them can
be caused by an earlier attempt whose response was lost."""

REFUSALS = frozenset(
    {"INVALID_CONFIG", "INVALID_PARTITIONS", "TOPIC_ALREADY_EXISTS", "UNKNOWN_TOPIC_OR_PART"}
)
"""Names of errors with which a reachable controller refuses a request that does not fit the state
of the cluster."""


class ConfluentMetadataClient(ConfluentClient):
    """Load client for one thread of the metadata workload, with confluent-kafka. It only performs
    writes."""

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Completion]]:
        """Functions that perform the workload's operations, by operation name."""
        return dict.fromkeys(("create", "partitions", "set-config", "delete"), self._write)

    def _write(self, op: Op) -> Completion:
        ask = {
            "create": self._create,
            "partitions": self._partitions,
            "set-config": self._set_config,
            "delete": self._delete,
        }
        try:
            ask[op.f](op.value).result()
        except self.kafka.KafkaException as error:
            done = self.troubled(op, error.args[0], NEVER_DONE[op.f])
            is_refused = error.args[0].name() in REFUSALS
            return replace(done, extra={"refused": True}) if is_refused else done
        if op.f != "create":
            return ok()
        found = self._id_of(op.value["topic"])
        if found is None:
            return unknown(op, "it was created, but its id is unknown")
        return ok({**op.value, "id": found})

    def _create(self, value: Any) -> Any:
        topic = admin_module().NewTopic(
            value["topic"], num_partitions=value["count"], replication_factor=1
        )
        return self.operator().create_topics([topic], request_timeout=DEADLINE_S)[value["topic"]]

    def _partitions(self, value: Any) -> Any:
        more = admin_module().NewPartitions(value["topic"], value["count"])
        return self.operator().create_partitions([more], request_timeout=DEADLINE_S)[value["topic"]]

    def _set_config(self, value: Any) -> Any:
        module = admin_module()
        entries = [
            module.ConfigEntry(name, text, incremental_operation=module.AlterConfigOpType.SET)
            for name, text in value["config"].items()
        ]
        resource = module.ConfigResource(
            module.ResourceType.TOPIC, value["topic"], incremental_configs=entries
        )
        futures = self.operator().incremental_alter_configs([resource], request_timeout=DEADLINE_S)
        return futures[resource]

    def _delete(self, value: Any) -> Any:
        return self.operator().delete_topics([value["topic"]], request_timeout=DEADLINE_S)[
            value["topic"]
        ]

    def _id_of(self, topic: str) -> str | None:
        """Describe a topic until a broker knows it, and return the topic's id. Returns None if that
        takes too long."""
        end = monotonic() + ID_WAIT_S
        while monotonic() < end:
            asked = self.kafka.TopicCollection([topic])
            try:
                found = self.operator().describe_topics(asked, request_timeout=ID_WAIT_S)[topic]
                topic_id = found.result().topic_id
            except self.kafka.KafkaException:
                sleep(LOOK_AGAIN_S)
                continue
            bits = [
                half & 0xFFFF_FFFF_FFFF_FFFF
                for half in (
                    topic_id.get_most_significant_bits(),
                    topic_id.get_least_significant_bits(),
                )
            ]
            return str(UUID(int=bits[0] << 64 | bits[1]))
        return None
