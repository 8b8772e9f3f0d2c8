"""The log cleaners of brokers: what compaction would find, passes that are asked for, retries.

Each broker compacts its own replicas and is asked by itself.  Only brokers of Ottla answer.
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
"""What a broker takes at most in one request for passes or retries."""


class CleaningPass(NamedTuple):
    """What the last cleaning of a log did, since its broker started."""

    ended_ms: int
    """In the broker's wall time."""
    duration_ms: int
    """Duration of the pass, in ms."""
    read_bytes: int
    """Bytes read."""
    written_bytes: int
    """Bytes written."""
    read_record_count: int
    """Records read."""
    written_record_count: int
    """Records kept."""

    @property
    def saved_bytes(self) -> int:
        """How much smaller the log became."""
        return self.read_bytes - self.written_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCleaning:
    """How compaction of one replica stands."""

    state: str
    """idle, due, asked for, cleaning, paused, failed, set aside, offline or not compacted."""
    reason: str | None
    """Why the log is not compacted at present."""
    retry_in_ms: int | None
    """When a failed cleaning is tried again; None where it is not."""
    is_wanted: bool
    """Whether a pass was asked for that has not begun."""
    clean_bytes: int
    """Bytes that were compacted already."""
    cleanable_bytes: int
    """Bytes that earlier passes have been through, and those that the next one would begin with."""
    first_dirty_offset: Offset
    """First offset that was not compacted yet."""
    end_offset: Offset
    """Where the next pass would begin, and end."""
    last: CleaningPass | None
    """Last pass of this log; None before the first."""

    @property
    def dirty_ratio(self) -> float:
        """The dirty part of what a pass would read."""
        return self.cleanable_bytes / max(1, self.clean_bytes + self.cleanable_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerDescription:
    """The log cleaner of one broker."""

    node: NodeId
    """Id of the broker."""
    now_ms: int
    """The broker's wall time when it answered."""
    thread_count: int
    """Number of cleaner processes."""
    pass_count: int
    """Passes since the broker started."""
    failure_count: int
    """Passes that failed since the broker started."""
    died_worker_count: int
    """Cleaner processes that died since the broker started."""
    read_bytes: int
    """Bytes read by all passes."""
    written_bytes: int
    """Of all passes since the broker started."""
    logs: Mapping[TopicPartition, LogCleaning]
    """The compacted logs of the broker."""


class CleaningAnswer(NamedTuple):
    """What became of asking for a log's pass, or retry."""

    refusal: RefusedError | None
    """Why the request was refused; None where it was accepted."""
    note: str | None
    """Why there was nothing to do; None where it will be done, or is refused."""


class CleanerCalls(AdminCalls):
    """Calls about compaction."""

    async def describe_cleaner(
        self, node: NodeId, partitions: Iterable[TopicPartition] | None = None
    ) -> CleanerDescription:
        """Return a broker's cleaner, with these replicas of it, or all compacted ones."""
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
        """Have a broker compact replicas next, however clean they are; return what it said."""
        return await self._ask_cleaner(node, partitions, is_retry=False)

    async def retry_cleaning(
        self, node: NodeId, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CleaningAnswer]:
        """Have a broker compact replicas again whose cleaning failed: these or all."""
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
