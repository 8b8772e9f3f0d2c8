"""AlterReplicaLogDirs: moves replicas between the log directories of this broker (KIP-113).

Pure. A response without an error means that the move has begun. DescribeLogDirs reports the
progress of the move. A request for the replica's current directory cancels its move.
"""

from typing import Generic

from ottla.broker.logs.describe_log_dirs import D, DescribedLogs
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.node.network.steps import StepPace, Steps, begun
from ottla.wire.messages.alter_replica_log_dirs_request import AlterReplicaLogDirsRequest
from ottla.wire.messages.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

FUTURE_NAME_OVERHEAD = len(".") + 32 + len("-future")
FILE_NAME_LENGTH_MAX = 255
"""Maximum length of a file name in bytes that file systems allow. A log's directory gets a longer
name while it is moved."""


class AlterReplicaLogDirsApi(Generic[D]):
    """Handler of AlterReplicaLogDirs, versions 1 and 2."""

    def __init__(self, *, table: PartitionTable, logs: DescribedLogs[D]) -> None:
        self._table = table
        self._logs = logs

    def handle(self, context: RequestContext, request: AlterReplicaLogDirsRequest) -> HandlerResult:
        """Start to move the requested replicas to other log directories. The response has an error
        code for each partition.

        If the request names a partition twice, the last directory counts.
        """
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
        """Start to move a replica to another log directory. Returns the partition's error code for
        the response."""
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
            # Kafka's error code for a replica that is not on this broker, for clients that know no
            # later one.
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
