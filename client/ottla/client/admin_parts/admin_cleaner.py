"""Admin calls for log cleaners: the state of log compaction, requests for cleaning passes, and
retries of failed passes.

Each broker compacts only its own replicas, so each request is sent to one broker. Only brokers of
Ottla support these requests.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.client.admin_parts.admin_calls import AdminCalls, by_topic
from ottla.client.network.cluster import raise_for
from ottla.model.errors import ErrorCode, RefusedError, code_of
from ottla.model.ids import NodeId, Offset, TopicPartition
from ottla.wire.messages.clean_logs_request import CleanLogsRequest, TopicToClean
from ottla.wire.messages.clean_logs_response import CleanLogsResponse
from ottla.wire.messages.describe_cleaner_request import (
    CleanerTopicWanted,
    DescribeCleanerRequest,
)
from ottla.wire.messages.describe_cleaner_response import (
    DescribeCleanerResponse,
    DescribedCleanerLog,
)

PARTITIONS_PER_REQUEST = 100
"""Maximum number of partitions in one request for cleaning passes or for retries. A broker refuses
larger requests."""


class CleaningPass(NamedTuple):
    """Statistics of the latest cleaning pass over one log since the broker started."""

    ended_ms: int
    """Time when the pass ended, in ms since 1970, on the broker's clock."""
    duration_ms: int
    """Duration of the pass, in ms."""
    read_bytes: int
    """Number of bytes that the pass read from the log."""
    written_bytes: int
    """Number of bytes that the pass wrote to new segments."""
    read_record_count: int
    """Number of records that the pass read."""
    written_record_count: int
    """Number of records that the pass kept and wrote to the new segments."""

    @property
    def saved_bytes(self) -> int:
        """Number of bytes by which the pass reduced the log."""
        return self.read_bytes - self.written_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCleaning:
    """State of log compaction for one replica."""

    state: str
    """State of the log: idle, due, asked for, cleaning, paused, failed, set aside, offline or not
    compacted."""
    reason: str | None
    """Reason why the log is not being compacted at present, or None."""
    retry_in_ms: int | None
    """Time until a failed cleaning is retried, in ms.  None if no retry is scheduled."""
    is_wanted: bool
    """True if a client has requested a cleaning pass of this log that has not started yet."""
    clean_bytes: int
    """Size of the part of the log that is already compacted, in bytes."""
    cleanable_bytes: int
    """Size of the part of the log that the next pass would compact, in bytes. The pass also reads
    the part that is already compacted."""
    first_dirty_offset: Offset
    """First offset after the part of the log that is already compacted."""
    end_offset: Offset
    """Offset after the last record that the next pass would compact. The pass starts to compact at
    `first_dirty_offset`."""
    last: CleaningPass | None
    """Statistics of the latest cleaning pass of this log. None before the first pass."""

    @property
    def dirty_ratio(self) -> float:
        """Share of the bytes read by the next pass that are not compacted yet, from 0 to 1."""
        return self.cleanable_bytes / max(1, self.clean_bytes + self.cleanable_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerDescription:
    """State and statistics of the log cleaner of one broker."""

    node: NodeId
    """Id of the broker."""
    now_ms: int
    """Time on the broker's clock when it responded, in ms since 1970."""
    thread_count: int
    """Number of worker processes of the log cleaner."""
    pass_count: int
    """Number of cleaning passes since the broker started."""
    failure_count: int
    """Number of cleaning passes that failed since the broker started."""
    died_worker_count: int
    """Number of worker processes of the log cleaner that died since the broker started."""
    read_bytes: int
    """Bytes that all cleaning passes read since the broker started."""
    written_bytes: int
    """Bytes that all cleaning passes wrote since the broker started."""
    logs: Mapping[TopicPartition, LogCleaning]
    """State of compaction for each compacted log of the broker, by partition."""


class CleaningAnswer(NamedTuple):
    """Result of a request to compact one log, or to retry its compaction."""

    refusal: RefusedError | None
    """Reason why the broker refused the request, or None if it accepted the request."""
    note: str | None
    """Reason why no cleaning pass of this log follows although the broker accepted the request.
    None if a pass follows or the broker refused the request."""


class CleanerCalls(AdminCalls):
    """Methods of the admin client that describe and control log compaction."""

    async def describe_cleaner(
        self, node: NodeId, partitions: Iterable[TopicPartition] | None = None
    ) -> CleanerDescription:
        """Return the state of a broker's log cleaner.

        The result contains the logs of `partitions`, or all compacted logs if `partitions` is None.
        """
        wanted = None
        if partitions is not None:
            wanted = [
                CleanerTopicWanted(name=topic, partitions=indexes)
                for topic, indexes in by_topic(partitions).items()
            ]
        request = DescribeCleanerRequest(topics=wanted)
        answer = await self._cluster.request(request, DescribeCleanerResponse, node=node)
        raise_for(answer.error_code, answer.error_message)
        return CleanerDescription(
            node=node,
            now_ms=answer.now_ms,
            thread_count=answer.thread_count,
            pass_count=answer.pass_count,
            failure_count=answer.failure_count,
            died_worker_count=answer.died_worker_count,
            read_bytes=answer.read_bytes,
            written_bytes=answer.written_bytes,
            logs={
                TopicPartition(topic.name, row.partition_index): _cleaning_of(row)
                for topic in answer.topics
                for row in topic.partitions
            },
        )

    async def clean_logs(
        self, node: NodeId, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CleaningAnswer]:
        """Request that a broker compacts the logs of these partitions next, even if they contain
        few dirty bytes.

        Returns the broker's answer for each partition.
        """
        return await self._ask_cleaner(node, partitions, is_retry=False)

    async def retry_cleaning(
        self, node: NodeId, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CleaningAnswer]:
        """Request that a broker compacts logs again whose compaction has failed. None for
        `partitions` means all logs whose compaction has failed.

        Returns the broker's answer for each partition.
        """
        return await self._ask_cleaner(node, partitions, is_retry=True)

    async def _ask_cleaner(
        self, node: NodeId, partitions: Iterable[TopicPartition] | None, *, is_retry: bool
    ) -> dict[TopicPartition, CleaningAnswer]:
        if partitions is None:
            return await self._ask_cleaner_once(node, CleanLogsRequest(retry=is_retry))
        named, found = sorted(set(partitions)), dict[TopicPartition, CleaningAnswer]()
        for at in range(0, len(named), PARTITIONS_PER_REQUEST):
            topics = by_topic(named[at : at + PARTITIONS_PER_REQUEST])
            request = CleanLogsRequest(
                retry=is_retry,
                topics=[
                    TopicToClean(name=topic, partitions=indexes)
                    for topic, indexes in topics.items()
                ],
            )
            found |= await self._ask_cleaner_once(node, request)
        return found

    async def _ask_cleaner_once(
        self, node: NodeId, request: CleanLogsRequest
    ) -> dict[TopicPartition, CleaningAnswer]:
        answer = await self._cluster.request(request, CleanLogsResponse, node=node)
        raise_for(answer.error_code, answer.error_message)
        found = {}
        for topic in answer.topics:
            for row in topic.partitions:
                refusal = None
                if row.error_code != ErrorCode.NONE:
                    refusal = RefusedError(code_of(row.error_code), row.error_message or "")
                note = None if row.is_accepted else row.note
                found[TopicPartition(topic.name, row.partition_index)] = CleaningAnswer(
                    refusal, note
                )
        return found


def _cleaning_of(row: DescribedCleanerLog) -> LogCleaning:
    last = None
    if row.last_ended_ms >= 0:
        last = CleaningPass(
            row.last_ended_ms,
            row.last_ms,
            row.last_read_bytes,
            row.last_written_bytes,
            row.last_read_records,
            row.last_written_records,
        )
    return LogCleaning(
        state=row.state,
        reason=row.reason,
        retry_in_ms=row.retry_in_ms if row.retry_in_ms >= 0 else None,
        is_wanted=row.is_wanted,
        clean_bytes=row.clean_bytes,
        cleanable_bytes=row.cleanable_bytes,
        first_dirty_offset=Offset(row.first_dirty_offset),
        end_offset=Offset(row.end_offset),
        last=last,
    )
