"""OffloadLogs (Ottla's own, key 20011): deletes the local copies of segments that the object store
has, or reports the segments that it would delete.

OffloadLogs affects only the replicas on this broker, both leaders and followers. Local retention
settings are ignored. The files are removed after `file.delete.delay.ms`.
"""

from collections.abc import Callable
from typing import Protocol

from ottla.broker.cluster.cleaner_api import PARTITIONS_MAX, by_topic
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.node.network.dispatch import RequestContext
from ottla.storage.log.log import Log
from ottla.wire.codec_types import Message
from ottla.wire.messages.offload_logs_request import OffloadLogsRequest
from ottla.wire.messages.offload_logs_response import (
    OffloadLogsPartitionResult,
    OffloadLogsResponse,
    OffloadLogsTopicResult,
)
from ottla.wire.refusals import refuse


class PlacedLogs(Protocol):
    """Part of a broker's log manager that OffloadLogs uses."""

    def get(self, partition: TopicPartition) -> Log | None:
        """Return a partition's log, or None if this broker has no log of the partition. Raises
        RefusedError if the log is offline."""
        ...


class OffloadLogsApi:
    """Handler of OffloadLogs, version 0."""

    def __init__(self, logs: PlacedLogs, now_ms: Callable[[], int]) -> None:
        self._logs = logs
        self._now_ms = now_ms

    async def handle(self, context: RequestContext, request: OffloadLogsRequest) -> Message:
        """Delete the local copies of the named partitions' segments. With `validate_only`, the
        copies are only counted. The response has an error for each partition that is not tiered or
        not on this broker."""
        count = sum(len(topic.partitions) for topic in request.topics)
        if count > PARTITIONS_MAX:
            refusal = RefusedError(
                ErrorCode.INVALID_REQUEST,
                f"{count} partitions are named; at most {PARTITIONS_MAX} may be",
            )
            return refuse(request, refusal, context.api_version)
        results: dict[TopicPartition, OffloadLogsPartitionResult] = {}
        for topic in request.topics:
            for index in topic.partitions:
                at = TopicPartition(topic.name, index)
                if at not in results:
                    results[at] = await self._offload(at, is_dry_run=request.validate_only)
        return OffloadLogsResponse(
            topics=[
                OffloadLogsTopicResult(name=name, partitions=rows)
                for name, rows in by_topic(results).items()
            ]
        )

    async def _offload(self, at: TopicPartition, *, is_dry_run: bool) -> OffloadLogsPartitionResult:
        result = OffloadLogsPartitionResult(partition_index=at.partition)
        try:
            log = self._log_of(at)
            copied = log.tiered_space(self._now_ms()).copied
            result.local_start_offset = log.local_start_offset
            if copied and is_dry_run:
                result.local_start_offset = copied[-1].end_offset
            elif copied:
                count = await log.delete_copied_segments(copied[-1].end_offset)
                copied = copied[:count]
                result.local_start_offset = log.local_start_offset
        except RefusedError as refusal:
            result.error_code, result.error_message = refusal.code, refusal.message
            return result
        result.segment_count = len(copied)
        result.size_bytes = sum(segment.size_bytes for segment in copied)
        return result

    def _log_of(self, at: TopicPartition) -> Log:
        log = self._logs.get(at)
        if log is None:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it is not on this broker")
        if log.failure is not None:
            raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, log.failure)
        if not log.is_tiered:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, "its topic is not tiered: set remote.storage.enable=true"
            )
        return log
