"""Reads of a page's records from a real broker, within the limits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from ottla.client import ProducerConfig, RefusedError, open_admin, open_producer
from ottla.client.admin import Admin
from ottla.client.testing import ClusterUnderTest, open_test_cluster
from ottla.client.testing.fixtures import ottla_cluster
from ottla.console.page_types import ConsoleConfig
from ottla.console.records import record_reads_driver
from ottla.console.records.read_query import cursor_text, parse_query
from ottla.console.records.record_reads_driver import FoundRecords, find_records
from ottla.console.records.schema_formats_driver import open_field_decoder, read_schema_files

__all__ = ["ottla_cluster"]

NOW_MS = 1_790_000_000_000
CONFIG = ConsoleConfig()


class Topic:
    """A topic of a running cluster, as the console reads it."""

    def __init__(self, admin: Admin, name: str) -> None:
        self.admin = admin
        self.name = name

    async def find(self, **query: Any) -> FoundRecords:
        asked = parse_query(
            {"from" if name == "start" else name: str(one) for name, one in query.items()},
            now_ms=NOW_MS,
        )
        files = await read_schema_files(CONFIG)
        formats: Any = {"key": asked.key_format, "value": asked.value_format}
        async with open_field_decoder(CONFIG, files, formats) as decoder:
            return await find_records(self.admin, self.name, asked, decoder)

    async def pages(self, **query: Any) -> list[list[tuple[int, int]]]:
        """Return partition and offset of each record on all pages."""
        pages, cursor = [], ""
        while True:
            found = await self.find(**query, cursor=cursor)
            pages.append([(one.partition, int(one.offset)) for one in found.records])
            if not found.cursor:
                return pages
            assert len(pages) < 1_000
            cursor = cursor_text(found.cursor)


@asynccontextmanager
async def topic_of(
    cluster: ClusterUnderTest, partition_count: int = 1, **configs: str
) -> AsyncIterator[tuple[Topic, Any]]:
    with trio.fail_after(150):
        async with (
            open_admin(cluster.bootstrap) as admin,
            open_producer(cluster.bootstrap) as producer,
        ):
            await admin.create_topic("t", partition_count=partition_count, configs=configs)
            yield Topic(admin, "t"), producer


async def fill(producer: Any, counts: list[int], *, size: int = 0) -> None:
    """Write numbered records, alternating between partitions, with ascending timestamps."""
    time_ms = NOW_MS
    for number in range(max(counts)):
        for partition, count in enumerate(counts):
            if number < count:
                time_ms += 1
                await producer.send(
                    "t",
                    f'{{"n": {number}}}'.encode() + b" " * size,
                    key=b"k%d" % (number % 10),
                    partition=partition,
                    timestamp_ms=time_ms,
                    headers=[("h", b"%d" % number)],
                )
    await producer.flush()


async def test_the_newest_records_come_first_page_by_page(ottla_cluster: ClusterUnderTest) -> None:
    async with topic_of(ottla_cluster, 3) as (topic, producer):
        await fill(producer, [25, 7, 0])
        pages = await topic.pages(count=10)
        assert pages[0] == [(0, 24 - at) for at in range(10)]
        both = [(partition, at) for at in range(7) for partition in (0, 1)]
        everything = list(reversed([*both, *((0, at) for at in range(7, 25))]))
        assert [one for page in pages for one in page] == everything


async def test_records_are_read_forward_from_an_offset_and_a_time(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with topic_of(ottla_cluster, 2) as (topic, producer):
        await fill(producer, [20, 20])
        pages = await topic.pages(start="offset", at=15, partition=1, count=3)
        assert pages == [[(1, 15), (1, 16), (1, 17)], [(1, 18), (1, 19)]]
        found = await topic.find(start="time", at=NOW_MS + 39)
        assert [(one.partition, one.offset) for one in found.records] == [(0, 19), (1, 19)]
        assert found.cursor is None
        everything = [one for page in await topic.pages(start="oldest", count=7) for one in page]
        assert sorted(everything) == [(one, at) for one in (0, 1) for at in range(20)]
        assert (await topic.find(start="offset", at=10**17)).records == ()


async def test_a_filter_and_a_key_choose_records(ottla_cluster: ClusterUnderTest) -> None:
    async with topic_of(ottla_cluster) as (topic, producer):
        await fill(producer, [60])
        for text in ("value.n = 17", 'header.h = "17"', "offset = 17 and value.n exists"):
            found = await topic.find(filter=text)
            assert [one.offset for one in found.records] == [17]
            assert (found.scanned_count, found.limit) == (60, "")
        found = await topic.find(key="k3", count=100)
        assert [one.offset for one in found.records] == [53, 43, 33, 23, 13, 3]
        pages = await topic.pages(filter="value.n < 30", count=20, start="oldest")
        assert pages == [[(0, at) for at in range(20)], [(0, at) for at in range(20, 30)]]


async def test_a_key_is_looked_up_in_the_partitions_of_the_partitioners(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with topic_of(ottla_cluster, 50) as (topic, producer):
        delivery = await (await producer.send("t", b"v", key=b"zoe"))
        found = await topic.find(key="zoe")
        assert [one.partition for one in found.records] == [delivery.partition]
        assert found.scanned_count == 1


async def test_a_limit_ends_the_scan_and_the_next_page_continues(
    ottla_cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_reads_driver, "SCANNED_RECORDS_MAX", 40)
    async with topic_of(ottla_cluster, 2) as (topic, producer):
        await fill(producer, [70, 70])
        found = await topic.find(filter="value.n = 0", start="oldest")
        assert (found.limit, found.scanned_count) == ("records", 40)
        pages = await topic.pages(filter="value.n = 69", start="oldest")
        assert len(pages) > 3
        assert sorted(one for page in pages for one in page) == [(0, 69), (1, 69)]
        pages = await topic.pages(filter="value.n = 0")
        assert len(pages) > 3
        assert sorted(one for page in pages for one in page) == [(0, 0), (1, 0)]


async def test_records_larger_than_the_limit_are_shown_page_by_page(
    ottla_cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_reads_driver, "SCANNED_BYTES_MAX", 1_000)
    async with topic_of(ottla_cluster) as (topic, producer):
        await fill(producer, [9], size=2_000)
        pages = await topic.pages()
        assert [one for page in pages for one in page] == [(0, 8 - at) for at in range(9)]


async def test_transactions_are_hidden_until_they_are_committed(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with (
        topic_of(ottla_cluster) as (topic, _),
        open_producer(
            ottla_cluster.bootstrap, ProducerConfig(transactional_id="writer")
        ) as producer,
    ):
        with pytest.raises(ValueError, match="no"):
            async with producer.transaction():
                await producer.send("t", b"aborted")
                await producer.flush()
                raise ValueError("no")
        async with producer.transaction():
            await producer.send("t", b"committed")
        found = await topic.find(level="read_committed")
        assert [one.value for one in found.records] == [b"committed"]
        found = await topic.find()
        assert [one.value for one in found.records] == [b"committed", b"aborted"]
        assert found.cursor is None
        assert (await topic.find(start="oldest", level="read_committed")).cursor is None


async def test_a_missing_topic_or_partition_is_refused(ottla_cluster: ClusterUnderTest) -> None:
    async with topic_of(ottla_cluster, 2) as (topic, _):
        assert (await topic.find()).records == ()
        with pytest.raises(RefusedError, match="has no partition 2; it has 0 to 1"):
            await topic.find(partition=2)
        with pytest.raises(RefusedError, match="there is no topic"):
            await Topic(topic.admin, "none").find()


async def test_a_leader_that_hangs_costs_only_its_own_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.console.partition_offsets_driver.OFFSETS_S", 0.5)
    async with (
        open_test_cluster(broker_count=2) as cluster,
        topic_of(cluster, 4) as (topic, producer),
    ):
        await fill(producer, [3, 3, 3, 3])
        leaders = {
            one.partition: one.leader for one in (await topic.admin.describe_topic("t")).partitions
        }
        with cluster.paused(2):
            found = await topic.find()
            assert {leaders[one] for one in found.unreadable} == {2}
            assert {leaders[one.partition] for one in found.records} == {1}
            assert len(found.records) == 6
            assert len((await topic.find(start="oldest")).records) == 6
