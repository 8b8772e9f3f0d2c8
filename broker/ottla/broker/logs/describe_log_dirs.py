"""DescribeLogDirs: reports the directory and size of each replica, and the free space (KIP-827).

Pure except for awaiting the disks. As in Kafka, the entry of an offline directory contains only the
error KAFKA_STORAGE_ERROR. A replica that is moving between directories is reported in both
directories. The entry in the destination has `is_future_key` and the lag in offsets.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from ottla.broker.replicas.partition_table import PartitionTable
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.node.network.steps import Answer, StepPace, Steps, begun, used_up
from ottla.storage.disk.disk_seam import Space
from ottla.storage.log.log import Log
from ottla.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from ottla.wire.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

NO_LAG = -1
"""Lag in a DescribeLogDirs response for a log that the metadata does not assign to this broker."""


class DescribedDirectory(Protocol):
    """Properties of a log directory that the DescribeLogDirs response contains."""

    path: str
    is_cordoned: bool

    @property
    def is_live(self) -> bool:
        """True if the log directory is online."""
        ...

    async def space(self) -> Space:
        """Return the total and the free space, in bytes, of the volume that contains the log
        directory."""
        ...


D = TypeVar("D", bound=DescribedDirectory)


class DescribedLogs(Protocol[D]):
    """Methods of the log manager that DescribeLogDirs and AlterReplicaLogDirs call."""

    @property
    def directories(self) -> Sequence[D]:
        """All log directories that the setting log.dirs names."""
        ...

    def in_directory(self, directory: D) -> Iterator[tuple[TopicPartition, Log]]:
        """Yield every partition whose current log is in `directory`, with that log."""
        ...

    def moving_into(self, directory: D) -> Iterator[tuple[TopicPartition, int, int]]:
        """Yield each partition whose log is moving into a directory, the number of bytes already
        copied there, and the number of missing offsets."""
        ...

    def start_move(self, partition: TopicPartition, directory: D) -> None:
        """Start to move a partition's log to another log directory."""
        ...


class DescribeLogDirsApi(Generic[D]):
    """Handler of DescribeLogDirs, versions 1 to 5."""

    def __init__(self, *, table: PartitionTable, logs: DescribedLogs[D]) -> None:
        self._table = table
        self._logs = logs

    def handle(self, context: RequestContext, request: DescribeLogDirsRequest) -> HandlerResult:
        """Describe every log directory of this broker. A null list of topics selects all topics."""
        return begun(self._serve(request))

    def _serve(self, request: DescribeLogDirsRequest) -> Answer:
        if request.topics is None:
            return self._measure(None)
        pace = StepPace()
        # A request may name hundreds of thousands of partitions that are not here.  Only those
        # found are kept.
        held = {
            at
            for directory in self._logs.directories
            for at, _log in self._logs.in_directory(directory)
        }
        asked = set()
        for topic in used_up(request.topics):
            for index in topic.partitions:
                at = TopicPartition(topic.topic, index)
                if at in held:
                    asked.add(at)
                if pace.is_due():
                    yield
            if pace.is_due():
                yield
        return self._measure(asked)

    async def _measure(self, asked: set[TopicPartition] | None) -> Any:
        """Measure the free space of each online log directory. Returns a generator that builds the
        response in steps."""
        spaces: list[tuple[D, Space | None]] = []
        for directory in self._logs.directories:
            space = None
            if directory.is_live:
                with suppress(OSError):
                    space = await directory.space()
            spaces.append((directory, space))
        return begun(self._answer(spaces, asked))

    def _answer(
        self, spaces: list[tuple[D, Space | None]], asked: set[TopicPartition] | None
    ) -> Steps[DescribeLogDirsResponse]:
        pace = StepPace()
        response = DescribeLogDirsResponse()
        for directory, space in spaces:
            if space is None:
                response.results.append(
                    DescribeLogDirsResult(
                        log_dir=directory.path, error_code=ErrorCode.KAFKA_STORAGE_ERROR
                    )
                )
                continue
            topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
            for partition, log in list(self._logs.in_directory(directory)):
                if asked is None or partition in asked:
                    topics[partition.topic].append(self._partition(partition, log))
                    if pace.is_due():
                        yield
            for partition, size_bytes, lag in self._logs.moving_into(directory):
                if asked is None or partition in asked:
                    topics[partition.topic].append(
                        DescribeLogDirsPartition(
                            partition_index=partition.partition,
                            partition_size=size_bytes,
                            offset_lag=lag,
                            is_future_key=True,
                        )
                    )
            response.results.append(
                DescribeLogDirsResult(
                    log_dir=directory.path,
                    topics=[
                        DescribeLogDirsTopic(
                            name=name, partitions=sorted(found, key=lambda one: one.partition_index)
                        )
                        for name, found in sorted(topics.items())
                    ],
                    total_bytes=space.total_bytes,
                    usable_bytes=space.usable_bytes,
                    is_cordoned=directory.is_cordoned,
                )
            )
        return response

    def _partition(self, partition: TopicPartition, log: Log) -> DescribeLogDirsPartition:
        indexed = self._table.by_name.get(partition.topic, {})
        is_ours = partition.partition in indexed
        return DescribeLogDirsPartition(
            partition_index=partition.partition,
            partition_size=log.size_bytes,
            offset_lag=max(0, log.high_watermark - log.end_offset) if is_ours else NO_LAG,
        )
