"""DescribeCleaner and CleanLogs (Ottla's own, keys 20004 and 20005): describes and triggers the log
cleaner of this broker.

DescribeCleaner reports the compactable part of each log, the result of the last pass, and the
reason why a log is not compacted. CleanLogs requests a pass now, or a retry for logs whose cleaning
failed. Its response means only that the request was recorded. DescribeCleaner shows the result.

A requested pass first rolls the active segment, because the active segment is never compacted. With
segments of a GiB, most of a small log is in its active segment.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeVar

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.node.network.steps import StepPace, Steps, begun, used_up
from ottla.storage.cleaner.cleanable import Cleanable, cleanable_of, hindrance_of
from ottla.storage.cleaner.cleaner_driver import LogCleaner
from ottla.storage.cleaner.cleaner_manager import CleaningState
from ottla.storage.log.log import Log
from ottla.wire.codec_types import Message
from ottla.wire.messages.clean_logs_request import CleanLogsRequest
from ottla.wire.messages.clean_logs_response import (
    CleanLogsPartitionResult,
    CleanLogsResponse,
    CleanLogsTopicResult,
)
from ottla.wire.messages.describe_cleaner_request import DescribeCleanerRequest
from ottla.wire.messages.describe_cleaner_response import (
    DescribeCleanerResponse,
    DescribedCleanerLog,
    DescribedCleanerTopic,
)
from ottla.wire.refusals import refuse

PARTITIONS_MAX = 100
"""Maximum number of partitions in one CleanLogs request. The handler may flush one log for each
partition, so a larger value can block the event loop longer. A smaller value makes an operator with
many partitions send more requests."""

SEGMENTS_PER_COST = 20
"""Number of log segments that cost the handler of DescribeCleaner as much time as one entry of its
response. The handler yields to other tasks by this estimate."""

R = TypeVar("R")


class CleanedBroker(Protocol):
    """Part of a broker's log manager that DescribeCleaner and CleanLogs use."""

    cleaner: LogCleaner

    def get(self, partition: TopicPartition) -> Log | None:
        """Return a partition's log, or None if this broker has no replica of the partition. Raises
        RefusedError if the log is offline."""
        ...

    def __iter__(self) -> Iterator[tuple[TopicPartition, Log]]:
        """Yield every partition whose log is online on this broker, with that log."""
        ...


class DescribeCleanerApi:
    """Handler of DescribeCleaner, version 0, which reports the state of the log cleaner."""

    def __init__(self, logs: CleanedBroker, now_ms: Callable[[], int]) -> None:
        self._logs = logs
        self._now_ms = now_ms

    def handle(self, context: RequestContext, request: DescribeCleanerRequest) -> HandlerResult:
        """Describe the compaction of the named partitions that are on this broker. If the list is
        null, describe all compacted partitions."""
        return begun(self._answer(request))

    def _answer(self, request: DescribeCleanerRequest) -> Steps[DescribeCleanerResponse]:
        pace = StepPace()
        found: dict[TopicPartition, DescribedCleanerLog] = {}
        if request.topics is None:
            for at, log in self._logs:
                if log.config.is_compacted:
                    found[at] = self._described(at, log)
                    if pace.is_due(log.segment_count // SEGMENTS_PER_COST):
                        yield
                if pace.is_due():
                    yield
            return self._totals(found)
        for topic in used_up(request.topics):
            for index in topic.partitions:
                at = TopicPartition(topic.name, index)
                # A request may name very many partitions that are not here.  Only those found are
                # kept.
                if at not in found and (row := self._row_of(at)) is not None:
                    found[at] = row
                if pace.is_due():
                    yield
            if pace.is_due():
                yield
        return self._totals(found)

    def _row_of(self, at: TopicPartition) -> DescribedCleanerLog | None:
        """Return the entry of the response that describes a named partition, or None if the
        partition is not on this broker."""
        try:
            log = self._logs.get(at)
        except RefusedError as refusal:
            return DescribedCleanerLog(
                partition_index=at.partition, state="offline", reason=refusal.message
            )
        return None if log is None else self._described(at, log)

    def _totals(
        self, found: Mapping[TopicPartition, DescribedCleanerLog]
    ) -> DescribeCleanerResponse:
        cleaner = self._logs.cleaner
        figures = cleaner.figures
        return DescribeCleanerResponse(
            now_ms=self._now_ms(),
            thread_count=cleaner.config.thread_count,
            pass_count=figures.cleaning_count,
            failure_count=figures.failure_count,
            died_worker_count=cleaner.runner.died_count,
            read_bytes=figures.read_bytes,
            written_bytes=figures.written_bytes,
            topics=[
                DescribedCleanerTopic(name=name, partitions=rows)
                for name, rows in by_topic(found).items()
            ],
        )

    def _described(self, at: TopicPartition, log: Log) -> DescribedCleanerLog:
        cleaner, now_ms = self._logs.cleaner, self._now_ms()
        cleanable = cleanable_of(log, now_ms)
        state, reason = self._state_of(at, log, cleanable)
        failure = cleaner.manager.failure_of(at)
        retry_at_ms = None if failure is None else failure.retry_at_ms
        row = DescribedCleanerLog(
            partition_index=at.partition,
            state=state,
            reason=reason,
            retry_in_ms=-1 if retry_at_ms is None else max(0, retry_at_ms - now_ms),
            is_wanted=cleaner.manager.is_wanted(at),
            clean_bytes=cleanable.clean_bytes,
            cleanable_bytes=cleanable.cleanable_bytes,
            first_dirty_offset=cleanable.first_dirty_offset,
            end_offset=cleanable.end_offset,
        )
        last = cleaner.last.get(at)
        if last is not None:
            row.last_ended_ms = last.ended_ms
            row.last_ms = round(1_000 * last.seconds)
            row.last_read_bytes = last.stats.read_bytes
            row.last_written_bytes = last.stats.written_bytes
            row.last_read_records = last.stats.read_record_count
            row.last_written_records = last.stats.written_record_count
        return row

    def _state_of(
        self, at: TopicPartition, log: Log, cleanable: Cleanable
    ) -> tuple[str, str | None]:
        """Return the name of a log's compaction state, and the reason why the log is not compacted.
        The reason is None if the name alone explains the state."""
        manager, now_ms = self._logs.cleaner.manager, self._now_ms()
        failure = manager.failure_of(at)
        if log.failure is not None:
            return "offline", log.failure
        if not log.config.is_compacted:
            return "not compacted", None
        if manager.state_of(at) in (CleaningState.CLEANING, CleaningState.ABORTED):
            return "cleaning", None
        if failure is not None:
            return "set aside" if failure.retry_at_ms is None else "failed", failure.reason
        if manager.state_of(at) is CleaningState.PAUSED or log.is_being_changed:
            return "paused", None
        if manager.is_wanted(at):
            return "asked for", None
        if cleanable.is_due(log.config):
            return "due", None
        ratio = log.config.min_cleanable_dirty_ratio
        low = f"its dirty ratio is not above min.cleanable.dirty.ratio={ratio:g}"
        return "idle", hindrance_of(log, now_ms) or low


class CleanLogsApi:
    """Handler of CleanLogs, version 0, which requests that logs are compacted."""

    def __init__(self, logs: CleanedBroker, now_ms: Callable[[], int]) -> None:
        self._logs = logs
        self._now_ms = now_ms

    async def handle(self, context: RequestContext, request: CleanLogsRequest) -> Message:
        """Request the compaction of the named partitions. The response has an error for each
        partition that cannot be compacted. A null list requests a retry for all logs whose
        compaction failed."""
        try:
            asked = self._asked(request)
        except RefusedError as refusal:
            return refuse(request, refusal, context.api_version)
        results = {}
        for at in asked:
            result = results[at] = CleanLogsPartitionResult(partition_index=at.partition)
            try:
                note = self._retried(at) if request.retry else await self._requested(at)
            except RefusedError as refusal:
                result.error_code, result.error_message = refusal.code, refusal.message
            else:
                result.is_accepted, result.note = not note, note or None
        return CleanLogsResponse(
            topics=[
                CleanLogsTopicResult(name=name, partitions=rows)
                for name, rows in by_topic(results).items()
            ]
        )

    def _asked(self, request: CleanLogsRequest) -> list[TopicPartition]:
        if request.topics is None:
            if not request.retry:
                raise RefusedError(
                    ErrorCode.INVALID_REQUEST, "name the partitions of which a pass is requested"
                )
            return self._logs.cleaner.manager.failed
        count = sum(len(topic.partitions) for topic in request.topics)
        if count > PARTITIONS_MAX:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                f"{count} partitions are named; at most {PARTITIONS_MAX} may be",
            )
        if not self._logs.cleaner.config.thread_count:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG, "log.cleaner.threads is 0: no log is compacted here"
            )
        named = (
            TopicPartition(topic.name, index)
            for topic in request.topics
            for index in topic.partitions
        )
        return list(dict.fromkeys(named))

    def _log_of(self, at: TopicPartition) -> Log:
        log = self._logs.get(at)
        if log is None:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it is not on this broker")
        if log.failure is not None:
            raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, log.failure)
        if not log.config.is_compacted:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                "it is not compacted: the topic's cleanup.policy is without compact",
            )
        return log

    async def _requested(self, at: TopicPartition) -> str:
        """Request that the log cleaner compacts a log next. Returns the reason why the log cannot
        be compacted, or an empty text."""
        log = self._log_of(at)
        if log.segments[-1].base_offset < log.last_stable_offset and not log.is_being_changed:
            await log.roll(now_ms=self._now_ms())
            log = self._log_of(at)
        hindrance = hindrance_of(log, self._now_ms())
        if not hindrance:
            self._logs.cleaner.request(at)
        return hindrance

    def _retried(self, at: TopicPartition) -> str:
        self._log_of(at)
        return "" if self._logs.cleaner.retry(at) else "its cleaning has not failed"


def by_topic(rows: Mapping[TopicPartition, R]) -> dict[str, list[R]]:
    """Return the entries of a response grouped by topic name, in their original order."""
    found: dict[str, list[R]] = defaultdict(list)
    for at in sorted(rows):
        found[at.topic].append(rows[at])
    return dict(found)
