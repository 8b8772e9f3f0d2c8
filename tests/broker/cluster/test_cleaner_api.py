"""DescribeCleaner and CleanLogs, ottla's own requests: the state of compaction, and cleaning on
demand."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock

from ottla.broker.cluster.cleaner_api import PARTITIONS_MAX, CleanLogsApi, DescribeCleanerApi
from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.rng import SeededRng
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset, TopicPartition
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.storage.cleaner import CleanerConfig
from ottla.node.network.dispatch import RequestContext
from ottla.node.network.steps import finished
from ottla.storage.directories.meta_properties import MetaProperties, format_meta_properties
from ottla.storage.log.log import Log
from ottla.storage.manager.log_manager_driver import LogManager, open_log_manager
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch
from ottla.wire.messages.clean_logs_request import CleanLogsRequest, TopicToClean
from ottla.wire.messages.clean_logs_response import CleanLogsPartitionResult, CleanLogsResponse
from ottla.wire.messages.describe_cleaner_request import (
    CleanerTopicWanted,
    DescribeCleanerRequest,
)
from ottla.wire.messages.describe_cleaner_response import (
    DescribeCleanerResponse,
    DescribedCleanerLog,
)
from tests.storage.log.workbench import read_values

A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)
COMPACTED = LogConfig(is_compacted=True, is_deleted_by_retention=False, segment_bytes=1 << 20)
CONTEXT = cast(RequestContext, SimpleNamespace(api_version=0))
ROUND_S = 20


class TrioClock:
    """Time is trio's, so that tests with a MockClock never wait."""

    def monotonic_ms(self) -> int:
        return int(trio.current_time() * 1_000)

    wall_ms = monotonic_ms


class Operator:
    """Asks one broker's log manager as the command does."""

    def __init__(self, logs: LogManager) -> None:
        self.logs = logs
        now_ms = TrioClock().wall_ms
        self._describe = DescribeCleanerApi(logs, now_ms)
        self._clean = CleanLogsApi(logs, now_ms)

    async def add(self, at: TopicPartition, config: LogConfig = COMPACTED) -> Log:
        """Make a log with values of four keys, all in the active segment."""
        log = await self.logs.create(at, UUID(int=1 + sum(map(ord, at.topic))), config)
        await log.keep()
        for number in range(60):
            self.append(log, b"k%d" % (number % 4), b"v%d" % number)
        return log

    def append(self, log: Log, key: bytes | None, value: bytes) -> None:
        batch = build_batch([(log.end_offset + 1, key, value)])
        now_ms = TrioClock().wall_ms()
        log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=Epoch(0), now_ms=now_ms)
        log.update_high_watermark(log.end_offset)

    async def describe(self, *partitions: TopicPartition) -> DescribeCleanerResponse:
        topics = [CleanerTopicWanted(name=at.topic, partitions=[at.partition]) for at in partitions]
        request = DescribeCleanerRequest(topics=topics if partitions else None)
        answer: DescribeCleanerResponse = await finished(self._describe.handle(CONTEXT, request))
        return answer

    async def row(self, at: TopicPartition) -> DescribedCleanerLog:
        (topic,) = (await self.describe(at)).topics
        (row,) = topic.partitions
        return row

    async def clean(self, *partitions: TopicPartition, is_retry: bool = False) -> CleanLogsResponse:
        topics = [TopicToClean(name=at.topic, partitions=[at.partition]) for at in partitions]
        request = CleanLogsRequest(retry=is_retry, topics=topics if partitions else None)
        answer = await self._clean.handle(CONTEXT, request)
        assert isinstance(answer, CleanLogsResponse)
        return answer

    async def cleaned(
        self, at: TopicPartition, *, is_retry: bool = False
    ) -> CleanLogsPartitionResult:
        (topic,) = (await self.clean(at, is_retry=is_retry)).topics
        (result,) = topic.partitions
        return result


@asynccontextmanager
async def operated(**cleaner: int) -> AsyncIterator[Operator]:
    disk = SimulatedDisk(SeededRng(0), pause=trio.lowlevel.checkpoint)
    await disk.makedirs("/d")
    identity = MetaProperties(cluster_id="c", node_id=NodeId(1), directory_id=UUID(int=500))
    await disk.write_atomically("/d/meta.properties", format_meta_properties(identity))
    config = BrokerConfig(
        node_id=NodeId(1),
        log_dirs=("/d",),
        cleaner=CleanerConfig(**cleaner),  # type: ignore[arg-type]
    )
    async with open_log_manager(disk, config, TrioClock(), SeededRng(5)) as logs:
        await logs.recover(lambda partition: COMPACTED)
        yield Operator(logs)


async def test_a_pass_that_is_asked_for_reaches_the_records_of_the_active_segment(
    autojump_clock: MockClock,
) -> None:
    async with operated() as operator:
        log = await operator.add(A0)
        before = await operator.row(A0)
        assert (before.state, before.cleanable_bytes, before.last_ended_ms) == ("idle", 0, -1)
        assert before.reason == "all its dirty records, from offset 0 on, are in the active segment"

        answer = await operator.cleaned(A0)

        assert (answer.is_accepted, answer.note) == (True, None)
        asked = await operator.row(A0)
        assert (asked.state, asked.is_wanted) == ("asked for", True)
        assert asked.cleanable_bytes == log.size_bytes
        await trio.sleep(1)
        after = await operator.row(A0)
        assert (after.state, after.is_wanted) == ("idle", False)
        assert after.reason == "it is compacted up to its end, offset 60"
        assert after.last_read_records == 60
        assert after.last_written_records == 4
        assert after.last_read_bytes > after.last_written_bytes == log.size_bytes
        assert after.last_ended_ms >= 0
        totals = await operator.describe()
        assert (totals.pass_count, totals.failure_count, totals.thread_count) == (1, 0, 1)
        assert (totals.read_bytes, totals.written_bytes) == (
            after.last_read_bytes,
            after.last_written_bytes,
        )


async def test_where_nothing_can_be_compacted_the_answer_says_why(
    autojump_clock: MockClock,
) -> None:
    async with operated() as operator:
        log = await operator.add(A0)
        await operator.cleaned(A0)
        await trio.sleep(1)
        segment_count = log.segment_count

        answer = await operator.cleaned(A0)

        assert (answer.error_code, answer.is_accepted) == (0, False)
        assert answer.note == "it is compacted up to its end, offset 60"
        assert log.segment_count == segment_count
        assert not (await operator.row(A0)).is_wanted


async def test_what_is_not_decided_or_too_young_is_named(autojump_clock: MockClock) -> None:
    async with operated() as operator:
        await trio.sleep(100)
        log = await operator.add(A0)
        log.config = replace(COMPACTED, min_compaction_lag_ms=1_000_000)
        young = await operator.cleaned(A0)
        assert young.note == "records from offset 0 on are younger than min.compaction.lag.ms"

        undecided = await operator.logs.create(B0, UUID(int=9), COMPACTED)
        await undecided.keep()
        batch = build_batch([(1, b"k", b"v")])
        undecided.append_as_leader(
            memoryview(bytearray(batch)), leader_epoch=Epoch(0), now_ms=100_000
        )
        answer = await operator.cleaned(B0)
        assert answer.note is not None
        assert answer.note.startswith("records from offset 0 on are not committed yet")
        assert undecided.segment_count == 1


async def test_only_compacted_logs_are_described_unless_another_is_named(
    autojump_clock: MockClock,
) -> None:
    async with operated() as operator:
        await operator.add(A0)
        await operator.add(B0, replace(COMPACTED, is_compacted=False))
        (topic,) = (await operator.describe()).topics
        assert (topic.name, [row.partition_index for row in topic.partitions]) == ("a", [0])
        assert (await operator.row(B0)).state == "not compacted"
        assert (await operator.describe(TopicPartition("none", 3))).topics == []
        refused = await operator.cleaned(B0)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert "not compacted" in (refused.error_message or "")
        unknown = await operator.cleaned(TopicPartition("none", 3))
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_log_that_is_set_aside_is_shown_with_its_reason_and_retried(
    autojump_clock: MockClock,
) -> None:
    async with operated() as operator:
        log = await operator.add(A0)
        await log.roll(now_ms=0)
        byte = log.segments[0].file.pread(80, 1)
        log.segments[0].file.pwrite(80, [bytes([byte[0] ^ 1])])
        await trio.sleep(ROUND_S)

        row = await operator.row(A0)
        assert (row.state, row.retry_in_ms) == ("set aside", -1)
        assert row.reason is not None
        assert "/d/a-0/00000000000000000000.log" in row.reason
        log.segments[0].file.pwrite(80, [byte])
        assert (await operator.cleaned(A0, is_retry=True)).is_accepted
        await trio.sleep(1)
        assert (await operator.row(A0)).last_written_records == 4
        again = await operator.cleaned(A0, is_retry=True)
        assert (again.is_accepted, again.note) == (False, "its cleaning has not failed")


async def test_a_retry_of_all_names_those_that_failed(autojump_clock: MockClock) -> None:
    async with operated() as operator:
        await operator.add(A0)
        await operator.add(B0)
        manager = operator.logs.cleaner.manager
        manager.on_failed(A0, "disk full", now_ms=5_000, is_final=False)
        row = await operator.row(A0)
        assert (row.state, row.reason) == ("failed", "disk full")
        assert row.retry_in_ms > 0

        (topic,) = (await operator.clean(is_retry=True)).topics

        assert (topic.name, topic.partitions[0].is_accepted) == ("a", True)
        assert manager.failure_of(A0) is None
        assert (await operator.clean(is_retry=True)).topics == []


async def test_a_log_that_is_offline_is_shown_and_not_compacted(autojump_clock: MockClock) -> None:
    async with operated() as operator:
        log = await operator.add(A0)
        log.health.failure = "/d/a-0: its disk failed"

        row = await operator.row(A0)

        assert (row.state, row.reason) == ("offline", "/d/a-0: its disk failed")
        for is_retry in (False, True):
            refused = await operator.cleaned(A0, is_retry=is_retry)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert refused.error_message == "/d/a-0: its disk failed"


def too_many() -> CleanLogsRequest:
    return CleanLogsRequest(topics=[TopicToClean(name="a", partitions=[0] * (PARTITIONS_MAX + 1))])


@pytest.mark.parametrize(
    ("request_of", "code"),
    [
        (too_many, ErrorCode.INVALID_REQUEST),
        (CleanLogsRequest, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_request_without_bounds_is_refused(
    request_of: Callable[[], CleanLogsRequest], code: ErrorCode, autojump_clock: MockClock
) -> None:
    async with operated() as operator:
        api = CleanLogsApi(operator.logs, lambda: 0)
        answer: Any = await api.handle(CONTEXT, request_of())
        assert answer.error_code == code


async def test_a_broker_without_cleaners_says_so(autojump_clock: MockClock) -> None:
    async with operated(thread_count=0) as operator:
        await operator.add(A0)
        answer = await operator.clean(A0)
        assert answer.error_code == ErrorCode.INVALID_CONFIG
        assert "log.cleaner.threads is 0" in (answer.error_message or "")


async def test_a_log_that_moves_between_directories_is_paused(autojump_clock: MockClock) -> None:
    async with operated() as operator:
        await operator.add(A0)
        async with operator.logs.cleaner.paused(A0):
            assert (await operator.row(A0)).state == "paused"
            assert (await operator.cleaned(A0)).is_accepted
            await trio.sleep(ROUND_S)
            assert (await operator.row(A0)).is_wanted
        await trio.sleep(ROUND_S)
        assert (await operator.row(A0)).first_dirty_offset == Offset(60)


async def test_a_topic_that_becomes_compacted_loses_its_records_without_key(
    autojump_clock: MockClock,
) -> None:
    async with operated() as operator:
        log = await operator.add(A0, replace(COMPACTED, is_compacted=False))
        for number in range(10):
            operator.append(log, None, b"no key %d" % number)
        operator.append(log, b"k0", b"last")
        await log.roll(now_ms=0)
        await trio.sleep(ROUND_S)
        assert log.first_dirty_offset == 0

        log.config = COMPACTED
        await trio.sleep(ROUND_S)

        assert read_values(log) == [(57, b"v57"), (58, b"v58"), (59, b"v59"), (70, b"last")]
        assert operator.logs.cleaner.figures.keyless_record_count == 10
        with pytest.raises(RefusedError, match="INVALID_RECORD"):
            operator.append(log, None, b"no key")
        assert log.end_offset == 71
