"""One partition's part of a Produce: what is wrong with its batch at first sight, and its answer.

Pure.  A batch is looked at here without its log, whose checks follow.  Answers are made without
their constructors, whose names cost three times as much as the fields: there is one per batch.
"""

from struct import Struct
from typing import Final

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.storage.append_info import AppendInfo
from ottla.storage.validate import InvalidRecordsError
from ottla.wire.batch import CODEC_MASK, CONTROL_FLAG, LENGTH_END, MAGIC, TRANSACTIONAL_FLAG
from ottla.wire.codec_types import Records
from ottla.wire.messages.produce_request import TopicProduceData
from ottla.wire.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

ZSTD_FROM: Final = 7
CODEC_ZSTD: Final = 4

_peek: Final = Struct(">8xi4xb4xh").unpack_from
"""Of a batch header: its length, magic and attributes."""

NO_LEADER_HINT: Final = LeaderIdAndEpoch()


def checked_batch(
    records: Records | None, version: int, *, has_transaction: bool = False
) -> memoryview:
    """Return the batch; refuse what can be seen without the log to be wrong.

    That is what is not one whole v2 batch, or has a codec too new for the version.  The log checks
    the rest (CRC, counts, sequences, sizes).
    """
    if not records:
        raise RefusedError(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {version} must have exactly one record batch per "
            "partition",
        )
    batch = records if isinstance(records, memoryview) else _view(records)
    size = len(batch)
    if size < BATCH_HEADER_BYTES:
        raise RefusedError(ErrorCode.CORRUPT_MESSAGE, f"a record batch of {size} bytes is cut off")
    batch_length, magic, attributes = _peek(batch)
    if magic != MAGIC:
        raise RefusedError(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {version} are only allowed to contain record batches "
            f"with magic version {MAGIC}, not {magic}",
        )
    if batch_length + LENGTH_END != size:
        if 0 < batch_length + LENGTH_END < size:
            raise RefusedError(
                ErrorCode.INVALID_RECORD,
                f"Produce requests with version {version} are only allowed to contain exactly one "
                "record batch per partition",
            )
        raise RefusedError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the record batch says it is {batch_length + LENGTH_END} bytes long, {size} came",
        )
    if attributes & CODEC_MASK == CODEC_ZSTD and version < ZSTD_FROM:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    is_transactional = attributes & TRANSACTIONAL_FLAG and not attributes & CONTROL_FLAG
    if is_transactional and not has_transaction:
        raise RefusedError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "The batch belongs to a transaction, and the request has no transactional id",
        )
    return batch


def _view(records: Records) -> memoryview:
    """Return records of a request that this broker made itself, which may be sent again as is."""
    assert isinstance(records, (bytes, bytearray))
    return memoryview(records).toreadonly()


def refuse(answer: PartitionProduceResponse, code: ErrorCode, message: str | None = None) -> None:
    """Turn an answer into a refusal."""
    answer.error_code = code
    answer.error_message = message
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1


def refusal_answer(topic: str, index: int, error: RefusedError) -> PartitionProduceResponse:
    """Return the answer to a batch that was refused."""
    answer = PartitionProduceResponse(index=index, base_offset=-1, current_leader=NO_LEADER_HINT)
    refuse_for(answer, topic, error)
    return answer


def refuse_for(answer: PartitionProduceResponse, topic: str, error: RefusedError) -> None:
    """Turn an answer into a refusal that names the records at fault, if the error does."""
    if isinstance(error, InvalidRecordsError):
        error = error.located(f"{topic}-{answer.index}")
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in error.record_errors
        ]
    refuse(answer, error.code, error.message)


def accepted_answer(index: int, info: AppendInfo) -> PartitionProduceResponse:
    """Return the answer to a batch that was appended."""
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
    """Return the answers of one topic's partitions."""
    answer = TopicProduceResponse.__new__(TopicProduceResponse)
    answer.name = topic.name
    answer.topic_id = topic.topic_id
    answer.partition_responses = answers
    return answer


def empty_answer() -> ProduceResponse:
    """Return an answer to which the topics are to be added."""
    answer = ProduceResponse.__new__(ProduceResponse)
    answer.responses = []
    answer.throttle_time_ms = 0
    answer.node_endpoints = []
    return answer
