"""Copied segments are read from the object store: the same rows as from brokers, also of aborted
transactions, and the rest from brokers if an object is missing."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.model.errors import OttlaError
from ottla.pipeline.read import segment_reader
from ottla.pipeline.read.batch_reader import open_planner
from ottla.pipeline.read.cluster_queries import ClusterQueries
from ottla.pipeline.read.range_reader import read_ranges
from ottla.pipeline.read.ranges import OffsetRange
from ottla.pipeline.read.read_options import ReadOptions
from ottla.storage.tier.store_settings import StoreSettings
from tests.pipeline.copied_topic import CopiedTopic

if TYPE_CHECKING:
    from tests.pipeline.conftest import LiveCluster

pytestmark = pytest.mark.cluster
Place = tuple[int, int, bytes | None]


@pytest.fixture(scope="module")
def copied(live_cluster: "LiveCluster", tmp_path_factory: pytest.TempPathFactory) -> CopiedTopic:
    pytest.importorskip("obstore")
    return CopiedTopic(live_cluster, tmp_path_factory.mktemp("bucket"))


def rows_of(ranges: Sequence[OffsetRange], options: ReadOptions) -> list[Place]:
    """Return (partition, offset, value) of every record, as they come."""
    found: list[Place] = []
    for batch in read_ranges(ranges, options):
        rows = batch.to_pydict()
        found += zip(rows["partition"], rows["offset"], rows["value"], strict=True)
    return found


def split(copied: CopiedTopic, options: ReadOptions) -> list[OffsetRange]:
    """Return the parts of the whole topic."""
    with closing(ClusterQueries(options)) as asking, closing(open_planner(options, asking)) as one:
        return one.split(copied.ranges())


@contextmanager
def counted_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[OffsetRange]]:
    """Yield the ranges that are read from segments."""
    seen: list[OffsetRange] = []
    original = segment_reader.SegmentRangeReader.__init__

    def counting(self: object, wanted: OffsetRange, options: ReadOptions) -> None:
        seen.append(wanted)
        original(self, wanted, options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(segment_reader.SegmentRangeReader, "__init__", counting)
        yield seen


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_copied_segments_have_the_same_rows_as_brokers(
    copied: CopiedTopic, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = copied.options(isolation_level=isolation)
    parts = split(copied, options)
    direct = [one for one in parts if one.copy is not None]
    assert len(direct) > 5
    assert sum(one.record_count for one in parts) == sum(
        one.record_count for one in copied.ranges()
    )
    expected = rows_of(copied.ranges(), options)
    with counted_reads(monkeypatch) as seen:
        assert rows_of(parts, options) == expected
    assert seen == direct
    aborted = [value for _, _, value in expected if (value or b"").startswith(b"t1-")]
    assert bool(aborted) == (isolation == "read_uncommitted")


def test_records_of_a_missing_object_are_read_from_brokers(
    copied: CopiedTopic, caplog: pytest.LogCaptureFixture
) -> None:
    options = copied.options()
    parts = split(copied, options)
    logs = sorted(copied.bucket.rglob("*.log"))
    contents = [one.read_bytes() for one in logs[:3]]
    try:
        for one in logs[:3]:
            one.unlink()
        assert rows_of(parts, options) == rows_of(copied.ranges(), options)
    finally:
        for one, content in zip(logs, contents, strict=False):
            one.write_bytes(content)
    assert caplog.text.count("is read from brokers") == 3


def test_a_place_without_a_cluster_is_refused(copied: CopiedTopic, tmp_path: Path) -> None:
    options = copied.options(tier=StoreSettings(uri=f"file://{tmp_path}"))
    with pytest.raises(OttlaError, match="no cluster has used this place"):
        split(copied, options)
