"""DescribeCleanerResponse.

Generated from schemas/describe_cleaner.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class DescribedCleanerLog(Struct):
    __slots__ = (
        "partition_index",
        "state",
        "reason",
        "retry_in_ms",
        "is_wanted",
        "clean_bytes",
        "cleanable_bytes",
        "first_dirty_offset",
        "end_offset",
        "last_ended_ms",
        "last_ms",
        "last_read_bytes",
        "last_written_bytes",
        "last_read_records",
        "last_written_records",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        state: str = "",
        reason: str | None = None,
        retry_in_ms: int = -1,
        is_wanted: bool = False,
        clean_bytes: int = 0,
        cleanable_bytes: int = 0,
        first_dirty_offset: int = 0,
        end_offset: int = 0,
        last_ended_ms: int = -1,
        last_ms: int = 0,
        last_read_bytes: int = 0,
        last_written_bytes: int = 0,
        last_read_records: int = 0,
        last_written_records: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.state = state
        self.reason = reason
        self.retry_in_ms = retry_in_ms
        self.is_wanted = is_wanted
        self.clean_bytes = clean_bytes
        self.cleanable_bytes = cleanable_bytes
        self.first_dirty_offset = first_dirty_offset
        self.end_offset = end_offset
        self.last_ended_ms = last_ended_ms
        self.last_ms = last_ms
        self.last_read_bytes = last_read_bytes
        self.last_written_bytes = last_written_bytes
        self.last_read_records = last_read_records
        self.last_written_records = last_written_records


class DescribedCleanerTopic(Struct):
    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[DescribedCleanerLog] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class DescribeCleanerResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "now_ms",
        "thread_count",
        "pass_count",
        "failure_count",
        "died_worker_count",
        "read_bytes",
        "written_bytes",
        "topics",
    )
    API_KEY = 20004
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_cleaner"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        now_ms: int = 0,
        thread_count: int = 0,
        pass_count: int = 0,
        failure_count: int = 0,
        died_worker_count: int = 0,
        read_bytes: int = 0,
        written_bytes: int = 0,
        topics: list[DescribedCleanerTopic] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.now_ms = now_ms
        self.thread_count = thread_count
        self.pass_count = pass_count
        self.failure_count = failure_count
        self.died_worker_count = died_worker_count
        self.read_bytes = read_bytes
        self.written_bytes = written_bytes
        self.topics = [] if topics is EMPTY else topics
