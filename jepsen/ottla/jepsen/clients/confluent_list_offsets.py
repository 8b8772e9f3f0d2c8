"""The list-offsets workload, performed with confluent-kafka: a producer sends records, and an admin
client requests the end offsets.

Both have separate views of the cluster. The admin client does not know the acknowledgements and
epochs that the producer has received.
"""

from collections.abc import Callable, Mapping
from time import monotonic, sleep

from ottla.jepsen.clients.completions import DEADLINE_S, failed, ok
from ottla.jepsen.clients.confluent import ConfluentClient, admin_module
from ottla.jepsen.clients.confluent_sending import create_topic, send_one
from ottla.jepsen.history import Json
from ottla.jepsen.workloads.keys import partition_of
from ottla.jepsen.workloads.load import Completion, Op

LOOK_AGAIN_S = 0.05
LED_ELSEWHERE = frozenset(
    {
        "FENCED_LEADER_EPOCH",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "OFFSET_NOT_AVAILABLE",
        "UNKNOWN_LEADER_EPOCH",
        "_NOENT",
    }
)
"""Names of errors that indicate that another broker leads the partition and knows its end
offset."""


class ConfluentListOffsetsClient(ConfluentClient):
    """Load client for one thread of the list-offsets workload, with confluent-kafka."""

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Completion]]:
        """Functions that perform the workload's operations, by operation name."""
        return {
            "send": self._send,
            "end-offset": self._end_offset,
            "create-topic": lambda op: create_topic(self.operator(), op, self.plan),
        }

    def _send(self, op: Op) -> Completion:
        return send_one(self.producer(), op)

    def _end_offset(self, op: Op) -> Completion:
        key = op.value[0]
        topic, partition = partition_of(key)
        at = self.kafka.TopicPartition(topic, partition)
        asked = {at: admin_module().OffsetSpec.latest()}
        end = monotonic() + DEADLINE_S
        while True:
            try:
                left = max(0.1, end - monotonic())
                found = self.operator().list_offsets(asked, request_timeout=left)[at].result()
                if found.offset >= 0:
                    return ok([key, found.offset], _extra(found.leader_epoch))
                if monotonic() >= end:
                    return failed(f"offset {found.offset}")
            except self.kafka.KafkaException as error:
                if error.args[0].name() not in LED_ELSEWHERE or monotonic() >= end:
                    raise
            # librdkafka's admin client keeps a known leader until its metadata expire.
            self.operator().list_topics(topic, timeout=max(0.1, end - monotonic()))
            sleep(LOOK_AGAIN_S)


def _extra(leader_epoch: int | None) -> dict[str, Json]:
    """Return the extra fields of an end-offset response: the leader epoch if known, and `own_view`
    false. The latter means that the producer did not send the request itself: another client object
    did."""
    extra: dict[str, Json] = {"own_view": False}
    return extra if leader_epoch is None else {**extra, "leader_epoch": leader_epoch}
