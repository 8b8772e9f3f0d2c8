"""AlterReplicaLogDirs: which directory of this broker's a replica shall lie in (KIP-113).

Pure.  An answer without error says that the move has begun; DescribeLogDirs shows how far it is.
Asked for the directory where it lies, a replica that moves stays.
"""

from typing import Generic

from ottla.broker.logs.describe_log_dirs import D, DescribedLogs
from ottla.broker.network.dispatch import HandlerResult, RequestContext
from ottla.broker.network.steps import StepPace, Steps, begun
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.alter_replica_log_dirs_request import AlterReplicaLogDirsRequest
from ottla.wire.messages.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

FUTURE_NAME_OVERHEAD = len(".") + 32 + len("-future")
FILE_NAME_LENGTH_MAX = 255
"""A log on its way to another directory has a longer name there; a file system bounds it."""


class AlterReplicaLogDirsApi(Generic[D]):
    """Serves AlterReplicaLogDirs 1-2."""

    def __init__(self, *, table: PartitionTable, logs: DescribedLogs[D]) -> None:
        self._table = table
        self._logs = logs

    def handle(self, context: RequestContext, request: AlterReplicaLogDirsRequest) -> HandlerResult:
        """Answer for each partition by itself; of one named twice the last directory counts."""
        return begun(self._answer(request))

    def _answer(self, request: AlterReplicaLogDirsRequest) -> Steps[AlterReplicaLogDirsResponse]:
        pace = StepPace()
        wanted: dict[TopicPartition, str] = {}
        for directory in request.dirs:
            for topic in directory.topics:
                for index in topic.partitions:
                    wanted[TopicPartition(topic.name, index)] = directory.path
                    if pace.is_due():
                        yield
                if pace.is_due():
                    yield
        directories = {directory.path: directory for directory in self._logs.directories}
        topics: dict[str, AlterReplicaLogDirTopicResult] = {}
        for partition, path in wanted.items():
            topic_result = topics.get(partition.topic)
            if topic_result is None:
                topic_result = AlterReplicaLogDirTopicResult(topic_name=partition.topic)
                topics[partition.topic] = topic_result
            topic_result.partitions.append(
                AlterReplicaLogDirPartitionResult(
                    partition_index=partition.partition,
                    error_code=self._begin(partition, directories.get(path)),
                )
            )
            if pace.is_due():
                yield
        return AlterReplicaLogDirsResponse(results=list(topics.values()))

    def _begin(self, at: TopicPartition, directory: D | None) -> ErrorCode:
        """Begin a replica's move to a directory; return the answer's code."""
        if len(str(at)) + FUTURE_NAME_OVERHEAD > FILE_NAME_LENGTH_MAX:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if directory is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if not directory.is_live:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if directory.is_cordoned:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        partition = self._table.by_name.get(at.topic, {}).get(at.partition)
        if partition is None:
            topic = self._table.image.topic(at.topic)
            is_known = topic is not None and at.partition in topic.partitions
            # Kafka's word for "not here", kept for clients that know no other.
            return (
                ErrorCode.REPLICA_NOT_AVAILABLE
                if is_known
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        log = partition.log
        if log is None or log.failure is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._logs.start_move(at, directory)
        return ErrorCode.NONE
