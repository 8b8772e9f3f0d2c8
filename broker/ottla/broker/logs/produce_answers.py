"""Builds the parts of Produce responses: for one partition, accepted or refused, and for one topic.

Pure. The objects are built without calling their constructors, because constructors with named
arguments take three times as long. There is one partition response per batch.
"""

from typing import Final

from ottla.model.errors import ErrorCode, RefusedError
from ottla.storage.log.validate import InvalidRecordsError
from ottla.storage.segments.append_info import AppendInfo
from ottla.wire.messages.produce_request import TopicProduceData
from ottla.wire.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    TopicProduceResponse,
)

NO_LEADER_HINT: Final = LeaderIdAndEpoch()


def refuse(answer: PartitionProduceResponse, code: ErrorCode, message: str | None = None) -> None:
    """Set an error code and message in the Produce response for a partition."""
    answer.error_code = code
    answer.error_message = message
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1


def refusal_answer(topic: str, index: int, error: RefusedError) -> PartitionProduceResponse:
    """Return the part of a Produce response for a partition whose batch was refused."""
    answer = PartitionProduceResponse(index=index, base_offset=-1, current_leader=NO_LEADER_HINT)
    refuse_for(answer, topic, error)
    return answer


def refuse_for(answer: PartitionProduceResponse, topic: str, error: RefusedError) -> None:
    """Set an error in the Produce response for a partition. If the error lists invalid records, the
    response names them."""
    if isinstance(error, InvalidRecordsError):
        error = error.located(f"{topic}-{answer.index}")
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in error.record_errors
        ]
    refuse(answer, error.code, error.message)


def accepted_answer(index: int, info: AppendInfo) -> PartitionProduceResponse:
    """Return the part of a Produce response for a partition whose batch was appended."""
    answer = PartitionProduceResponse.__new__(PartitionProduceResponse)
    answer.index = index
    answer.error_code = 0
    answer.base_offset = info.base_offset
    answer.log_append_time_ms = info.log_append_time_ms
    answer.log_start_offset = info.log_start_offset
    answer.record_errors = []
    answer.error_message = None
    answer.current_leader = NO_LEADER_HINT
    return answer


def topic_answer(
    topic: TopicProduceData, answers: list[PartitionProduceResponse]
) -> TopicProduceResponse:
    """Return the part of a Produce response for a topic, which contains the partition responses in
    `answers`."""
    answer = TopicProduceResponse.__new__(TopicProduceResponse)
    answer.name = topic.name
    answer.topic_id = topic.topic_id
    answer.partition_responses = answers
    return answer
