"""DescribeProducers: describes the active idempotent and transactional producers of a partition
(KIP-664).

Pure. Followers also answer the request, so that an operator can compare the states of all replicas.
"""

from ottla.broker.cluster.cluster_view import is_legal_topic_name
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.explanations import Explanations
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.node.network.steps import StepPace, Steps, add_in_steps, begun
from ottla.storage.producers.producer_state import ProducerEntry
from ottla.wire.batch import NO_SEQUENCE
from ottla.wire.messages.describe_producers_request import DescribeProducersRequest
from ottla.wire.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


class DescribeProducersApi:
    """Handler of DescribeProducers, version 0."""

    def __init__(self, *, table: PartitionTable) -> None:
        self._table = table

    def handle(self, context: RequestContext, request: DescribeProducersRequest) -> HandlerResult:
        """Describe the active producers of each requested partition. A partition that is named
        several times is described once."""
        return begun(self._answer(request))

    def _answer(self, request: DescribeProducersRequest) -> Steps[DescribeProducersResponse]:
        pace = StepPace()
        asked: dict[str, dict[int, None]] = {}
        for topic in request.topics:
            indexes = asked.setdefault(topic.name, {})
            yield from add_in_steps(indexes, topic.partition_indexes, pace)
        response = DescribeProducersResponse()
        explanations = Explanations()
        for name, indexes in asked.items():
            partitions = []
            for index in indexes:
                partitions.append(self._partition(name, index, explanations))
                if pace.is_due(1 + len(partitions[-1].active_producers)):
                    yield
            response.topics.append(TopicResponse(name=name, partitions=partitions))
            if pace.is_due():
                yield
        return response

    def _partition(self, topic: str, index: int, explanations: Explanations) -> PartitionResponse:
        result = PartitionResponse(partition_index=index)
        try:
            if not is_legal_topic_name(topic):
                raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION)
            partition = self._table.find(topic, index)
            if partition.storage_failure is not None:
                raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, partition.storage_failure)
            log = partition.log
            if log is None:
                raise RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if log.failure is not None:
                raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, log.failure)
        except RefusedError as refusal:
            result.error_code = refusal.code
            result.error_message = explanations.of(refusal.message)
            return result
        result.active_producers = [
            _described(producer_id, producer)
            for producer_id, producer in sorted(log.active_producers.items())
        ]
        return result


def _described(producer_id: int, producer: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.batches[-1].last_sequence if producer.batches else NO_SEQUENCE,
        last_timestamp=producer.last_timestamp_ms,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.txn_first_offset,
    )
