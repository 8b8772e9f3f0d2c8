"""Ranges are fetched while connections break, brokers cannot be reached and leaders move."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
import trio

from ottla.client import ProducerConfig, TopicPartition, open_admin, open_producer
from ottla.client.network.transport import TCP, TRANSPORT, TcpStream
from ottla.client.testing import open_test_cluster
from ottla.model.errors import RefusedError
from ottla.model.ids import NodeId
from ottla.pipeline.read.arrow_decode import ArrowDecoder
from ottla.pipeline.read.range_fetcher import RangeFetcher, open_range_fetcher
from ottla.pipeline.read.ranges import OffsetRange
from ottla.pipeline.read.read_options import ReadOptions

COUNT = 200
CLIENT = (("max.partition.fetch.bytes", "1000"), ("retry.backoff.ms", "1"))


class Fragile:
    """A connection that breaks after a number of bytes."""

    def __init__(self, stream: TcpStream, receive_bytes: int) -> None:
        self._stream = stream
        self._left = receive_bytes
        self.send_all = stream.send_all
        self.aclose = stream.aclose
        self.abort = stream.abort

    async def receive_some(self, max_bytes: int) -> bytes | bytearray:
        """Return at most the remaining bytes."""
        if self._left <= 0:
            await trio.lowlevel.checkpoint()
            return b""
        data = await self._stream.receive_some(min(max_bytes, self._left))
        self._left -= len(data)
        return data

    async def receive_into(self, buffer: memoryview) -> int:
        """Fill in at most the remaining bytes."""
        if self._left <= 0:
            await trio.lowlevel.checkpoint()
            return 0
        count = await self._stream.receive_into(buffer[: self._left])
        self._left -= count
        return count


class FragileTransport:
    """A transport whose every connection breaks, and whose every third connection fails at once."""

    def __init__(self, receive_bytes: int) -> None:
        self._receive_bytes = receive_bytes
        self.connection_count = 0

    async def connect(self, host: str, port: int) -> Fragile:
        """Return a connection that will break; each lives a little longer than the one before."""
        self.connection_count += 1
        if self.connection_count % 3 == 0:
            raise ConnectionRefusedError("no process listens there")
        size = self._receive_bytes + 97 * self.connection_count
        return Fragile(await TCP.connect(host, port), size)


async def fill(bootstrap: str, topic: str, partitions: int, replicas: int = 1) -> None:
    """Create a topic whose records hold their offset, in small batches."""
    async with open_admin(bootstrap) as admin:
        await admin.create_topic(topic, partition_count=partitions, replication_factor=replicas)
    config = ProducerConfig(batch_bytes=500)
    async with open_producer(bootstrap, config) as producer:
        for partition in range(partitions):
            for offset in range(COUNT):
                await producer.send(topic, b"%060d" % offset, partition=partition)


async def read(
    fetcher: RangeFetcher, between: Callable[[], object] = lambda: None
) -> list[tuple[int, int]]:
    """Return (partition, offset) of all records, as they come."""
    found: list[tuple[int, int]] = []
    while (one := await fetcher.next()) is not None:
        progress, fetched = one
        decoder = ArrowDecoder(progress.at, ("value", "offset"))
        for batch in decoder.decode(fetched.bodies(), progress.range.start, progress.range.end):
            rows = batch.to_pydict()
            assert rows["value"] == [b"%060d" % offset for offset in rows["offset"]]
            found += [(progress.at.partition, offset) for offset in rows["offset"]]
        between()
    return found


def expected(ranges: Sequence[OffsetRange]) -> list[tuple[int, int]]:
    """Return the expected form of the same."""
    return [(one.partition, offset) for one in ranges for offset in range(one.start, one.end)]


@contextmanager
def fragile(receive_bytes: int) -> Iterator[FragileTransport]:
    """Make this task's connections break."""
    transport = FragileTransport(receive_bytes)
    token = TRANSPORT.set(transport)
    try:
        yield transport
    finally:
        TRANSPORT.reset(token)


async def test_every_record_comes_once_over_connections_that_break() -> None:
    ranges = [OffsetRange("t", partition, 3, COUNT - 5) for partition in (1, 0, 2)]
    async with open_test_cluster() as cluster:
        await fill(cluster.bootstrap, "t", 3)
        options = ReadOptions(bootstrap=cluster.bootstrap, client=CLIENT)
        with fragile(3_000) as transport:
            async with open_range_fetcher(ranges, options) as fetcher:
                assert await read(fetcher) == expected(ranges)
        assert transport.connection_count > 5


async def test_a_leader_that_moves_is_followed() -> None:
    ranges = [OffsetRange("t", partition, 0, COUNT) for partition in (0, 1)]
    async with open_test_cluster(broker_count=2) as cluster:
        await fill(cluster.bootstrap, "t", 2, replicas=1)
        options = ReadOptions(bootstrap=cluster.bootstrap, client=CLIENT)
        async with (
            open_admin(cluster.bootstrap) as admin,
            open_range_fetcher(ranges, options) as fetcher,
        ):
            first = await fetcher.next()
            assert first is not None
            description = await admin.describe_topic("t")
            await admin.alter_reassignments(
                {
                    TopicPartition("t", one.partition): [NodeId(3 - (one.leader or 0))]
                    for one in description.partitions
                }
            )
            while await admin.list_reassignments():
                await trio.sleep(0.01)
            rest = await read(fetcher)
            progress, fetched = first
            assert progress.at.partition == 0
            assert rest == expected(ranges)[fetched.next_offset :]


async def test_a_recreated_topic_has_lost_the_records_of_the_range() -> None:
    ranges = [OffsetRange("t", 0, 0, COUNT)]
    async with open_test_cluster() as cluster:
        await fill(cluster.bootstrap, "t", 1)
        options = ReadOptions(bootstrap=cluster.bootstrap, client=CLIENT)
        async with (
            open_admin(cluster.bootstrap) as admin,
            open_range_fetcher(ranges, options) as fetcher,
        ):
            await fetcher.next()
            await admin.delete_topic("t")
            await fill(cluster.bootstrap, "t", 1)
            with pytest.raises(
                RefusedError, match="to 199: topic 't' was deleted and created again"
            ):
                await read(fetcher)
