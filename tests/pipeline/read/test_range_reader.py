"""Ranges are read from a real broker: every record once, in order, or one sentence why not."""

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pytest

from ottla.model.errors import RefusedError
from ottla.pipeline.read import range_fetcher
from ottla.pipeline.read.range_reader import read_ranges
from ottla.pipeline.read.ranges import OffsetRange
from ottla.pipeline.read.read_options import ReadOptions

if TYPE_CHECKING:
    from tests.pipeline.conftest import LiveCluster

Place = tuple[int, int, bytes | None]
SMALL_FETCHES = (("max.partition.fetch.bytes", "2000"),)


def options_of(cluster: "LiveCluster", **options: object) -> ReadOptions:
    """Return how to read, not waiting long."""
    return ReadOptions(bootstrap=cluster.bootstrap, **{"poll_timeout_ms": 10_000, **options})  # type: ignore[arg-type]


def read(ranges: Sequence[OffsetRange], options: ReadOptions) -> list[Place]:
    """Return (partition, offset, value) of every record, as they come."""
    found: list[Place] = []
    for batch in read_ranges(ranges, options):
        rows = batch.to_pydict()
        found += zip(rows["partition"], rows["offset"], rows["value"], strict=True)
    return found


def values(count: int) -> list[bytes]:
    """Return different values of different sizes."""
    return [b"%06d" % index + bytes(index * 7 % 300) for index in range(count)]


@pytest.fixture(scope="module")
def topic(live_cluster: "LiveCluster") -> str:
    """Four partitions of 300 records each, in another codec each, their batches small."""
    from tests.pipeline.conftest import Record

    name = live_cluster.new_topic(4)
    for partition, codec in enumerate(("none", "gzip", "lz4", "zstd")):
        records = [Record(value, partition=partition) for value in values(300)]
        live_cluster.produce(name, records, compression_type=codec)
    return name


def expected(ranges: Iterable[OffsetRange]) -> list[Place]:
    """Return the places of the records in these ranges."""
    made = values(300)
    return [
        (one.partition, offset, made[offset])
        for one in ranges
        for offset in range(one.start, one.end)
    ]


@pytest.mark.parametrize("client", [(), SMALL_FETCHES], ids=["one fetch", "many fetches"])
def test_ranges_come_one_after_the_other_each_in_order(
    live_cluster: "LiveCluster", topic: str, client: tuple[tuple[str, str], ...]
) -> None:
    ranges = [
        OffsetRange(topic, 2, 0, 300),
        OffsetRange(topic, 0, 13, 287),
        OffsetRange(topic, 3, 299, 300),
        OffsetRange(topic, 3, 5, 5),
        OffsetRange(topic, 1, 1, 150),
        OffsetRange(topic, 1, 150, 299),
    ]
    found = read(ranges, options_of(live_cluster, client=client))
    assert found == expected(ranges)


def test_a_reader_closed_early_ends_its_thread(live_cluster: "LiveCluster", topic: str) -> None:
    reading = read_ranges([OffsetRange(topic, 0, 0, 300)], options_of(live_cluster))
    assert next(reading).num_rows
    assert "ottla loop" in {thread.name for thread in threading.enumerate()}
    reading.close()  # type: ignore[attr-defined]
    assert "ottla loop" not in {thread.name for thread in threading.enumerate()}


def test_records_that_retention_took_are_an_error_that_says_which(
    live_cluster: "LiveCluster", caplog: pytest.LogCaptureFixture
) -> None:
    name = live_cluster.new_topic()
    live_cluster.produce(name, values(200))
    live_cluster.delete_records(name, {0: 120})
    wanted = [OffsetRange(name, 0, 50, 200)]
    with pytest.raises(RefusedError) as caught:
        read(wanted, options_of(live_cluster))
    assert caught.value.message == (
        f"{name}-0 has lost its records from offset 50 to 119: its log begins at 120 now; "
        "set failOnDataLoss to false to go on without them"
    )
    with caplog.at_level(logging.WARNING):
        found = read(wanted, options_of(live_cluster, fail_on_data_loss=False))
    assert [offset for _, offset, _ in found] == list(range(120, 200))
    assert "from offset 50 to 119" in caplog.text
    assert (
        read([OffsetRange(name, 0, 5, 60)], options_of(live_cluster, fail_on_data_loss=False)) == []
    )


def test_a_log_that_is_shorter_than_the_range_has_lost_records(live_cluster: "LiveCluster") -> None:
    name = live_cluster.new_topic()
    live_cluster.produce(name, values(10))
    with pytest.raises(RefusedError, match="from offset 20 to 29: its log ends at 10 now"):
        read([OffsetRange(name, 0, 20, 30)], options_of(live_cluster))


def test_records_that_do_not_come_are_waited_for_as_long_as_is_allowed(
    live_cluster: "LiveCluster",
) -> None:
    name = live_cluster.new_topic()
    live_cluster.produce(name, values(10))
    started = time.monotonic()
    with pytest.raises(RefusedError, match=r"offset 10 of .* did not come within 700 ms"):
        read([OffsetRange(name, 0, 0, 30)], options_of(live_cluster, poll_timeout_ms=700))
    assert time.monotonic() - started > 0.5


def test_an_unknown_topic_is_gone(
    live_cluster: "LiveCluster", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_fetcher, "GONE_AFTER_S", 0.0)
    with pytest.raises(RefusedError, match="there is no topic 'nowhere' any more"):
        read([OffsetRange("nowhere", 0, 0, 30)], options_of(live_cluster))


def test_an_address_without_a_listener_is_reported() -> None:
    options = ReadOptions(bootstrap="127.0.0.1:1", poll_timeout_ms=500)
    with pytest.raises(RefusedError, match=r"within 500 ms: cannot connect to 127.0.0.1:1"):
        read([OffsetRange("t", 0, 0, 30)], options)
