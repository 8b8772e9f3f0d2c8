"""The log of a partition, chosen from the uploaded segments of several leaders."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import Epoch, Offset
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.tier.bucket_scan import BucketScan, BucketTooLargeError
from ottla.storage.tier.lineage import epochs_with_records
from ottla.storage.tier.manifest import SegmentManifest
from ottla.storage.tier.object_names import SegmentObject
from ottla.storage.tier.store_seam import ObjectEntry
from ottla.storage.tier.stored_partition import newest_segment, stored_partition
from tests.storage.tier.segments import MANIFEST, NAMES


def entries(*pairs: tuple[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(Epoch(epoch), Offset(start)) for epoch, start in pairs)


def segment(start: int, end: int, *epochs: tuple[int, int], at_ms: int = 0) -> SegmentManifest:
    """Return the segment of the offsets from `start` to `end`, exclusive."""
    own = epochs_with_records(entries(*epochs), start_offset=Offset(start), end_offset=Offset(end))
    return replace(
        MANIFEST,
        start_offset=Offset(start),
        end_offset=Offset(end - 1),
        leader_epochs=own,
        segment_id=UUID(int=(at_ms << 64) + (start << 32) + end),
        event_timestamp_ms=at_ms or start,
    )


def ranges(
    manifests: list[SegmentManifest], *epochs: tuple[int, int]
) -> list[tuple[int, int, int, int]]:
    """Return each piece as its offsets, and those of its segment."""
    found = stored_partition(manifests, entries(*epochs))
    return [
        (one.start_offset, one.end_offset, one.manifest.start_offset, one.manifest.end_offset + 1)
        for one in found.pieces
    ]


def test_segments_of_one_leader_follow_each_other() -> None:
    own = ((4, 0),)
    manifests = [segment(20, 30, *own), segment(0, 10, *own), segment(10, 20, *own)]
    found = stored_partition(manifests, entries(*own))
    assert ranges(manifests, *own) == [(0, 10, 0, 10), (10, 20, 10, 20), (20, 30, 20, 30)]
    assert found.gaps == () == found.unused
    assert found.epochs == entries((4, 0))
    assert all(one.is_whole for one in found.pieces)


def test_records_that_an_unclean_election_removed_are_not_in_the_log() -> None:
    lost = segment(0, 100, (3, 0))
    kept = segment(50, 80, (3, 0), (5, 50))
    manifests = [lost, kept]
    assert ranges(manifests, (3, 0), (5, 50)) == [(0, 50, 0, 100), (50, 80, 50, 80)]
    found = stored_partition(manifests, entries((3, 0), (5, 50)))
    assert found.end_offset == 80
    assert not found.pieces[0].is_whole


def test_a_leader_that_closed_its_segments_elsewhere_continues_the_log() -> None:
    manifests = [segment(0, 30, (3, 0)), segment(20, 60, (3, 0), (4, 40))]
    assert ranges(manifests, (3, 0), (4, 40)) == [(0, 30, 0, 30), (30, 60, 20, 60)]


def test_a_repeated_upload_is_unused() -> None:
    first, again = segment(0, 10, (3, 0), at_ms=1), segment(0, 10, (3, 0), at_ms=2)
    found = stored_partition([again, first], entries((3, 0)))
    assert [one.manifest for one in found.pieces] == [again]
    assert found.unused == (first,)


def test_a_missing_segment_is_a_gap_and_the_rest_begins_after_it() -> None:
    own = ((3, 0), (4, 25))
    manifests = [segment(0, 10, *own), segment(20, 30, *own), segment(30, 40, *own)]
    found = stored_partition(manifests, entries(*own))
    assert found.gaps == ((10, 20),)
    rest = found.after_last_gap()
    assert (rest.start_offset, rest.end_offset, rest.gaps) == (20, 40, ())
    assert rest.epochs == entries((3, 20), (4, 25))
    assert rest.unused == (manifests[0],)


def test_a_segment_id_that_is_used_twice_counts_once() -> None:
    first = segment(0, 10, (3, 0))
    twin = replace(segment(10, 20, (3, 0)), segment_id=first.segment_id)
    found = stored_partition([twin, first], entries((3, 0)))
    assert [one.manifest for one in found.pieces] == [first]
    assert found.unused == (twin,)


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), min_size=1, max_size=8),
    st.lists(st.integers(0, 80), max_size=3, unique=True),
)
def test_pieces_never_overlap_and_lie_within_their_segments(
    spans: list[tuple[int, int]], bounds: list[int]
) -> None:
    own = ((1, 0), *((2 + index, bound) for index, bound in enumerate(sorted(bounds)) if bound))
    manifests = [
        segment(start, start + length, *own, at_ms=1 + index)
        for index, (start, length) in enumerate(spans)
    ]
    found = stored_partition(manifests, entries(*own))
    covered: list[int] = []
    for piece in found.pieces:
        assert piece.manifest.start_offset <= piece.start_offset < piece.end_offset
        assert piece.end_offset <= piece.manifest.end_offset + 1
        covered += range(piece.start_offset, piece.end_offset)
    assert covered == sorted(set(covered))
    assert found.end_offset == newest_segment(manifests).end_offset + 1
    # Of one lineage, every uploaded record is found.
    expected = {at for start, length in spans for at in range(start, start + length)}
    assert set(covered) == expected


@st.composite
def strange_segments(draw: st.DrawFn) -> SegmentManifest:
    """Draw a valid segment of any lineage, perhaps with the id of another one."""
    start, length = draw(st.integers(0, 40)), draw(st.integers(1, 30))
    epochs = sorted(draw(st.sets(st.integers(0, 8), min_size=1, max_size=3)))
    within = st.integers(start, start + length - 1)
    starts = sorted(draw(st.lists(within, min_size=len(epochs), max_size=len(epochs))))
    return replace(
        MANIFEST,
        start_offset=Offset(start),
        end_offset=Offset(start + length - 1),
        segment_id=UUID(int=draw(st.integers(0, 5))),
        event_timestamp_ms=draw(st.integers(-5, 5)),
        leader_epochs=entries(*zip(epochs, starts, strict=True)),
    )


@given(
    st.lists(strange_segments(), min_size=1, max_size=7),
    st.dictionaries(st.integers(0, 9), st.integers(0, 70), max_size=5),
)
def test_segments_of_any_lineage_make_one_log(
    manifests: list[SegmentManifest], checkpoint: dict[int, int]
) -> None:
    epochs = entries(*zip(sorted(checkpoint), sorted(checkpoint.values()), strict=True))
    found = stored_partition(manifests, epochs)
    covered: list[int] = []
    for piece in found.pieces:
        assert piece.manifest.start_offset <= piece.start_offset < piece.end_offset
        assert piece.end_offset <= piece.manifest.end_offset + 1
        covered += range(piece.start_offset, piece.end_offset)
    assert covered == sorted(set(covered))
    assert found.after_last_gap().gaps == ()


def test_a_scan_has_a_bound() -> None:
    scan = BucketScan(NAMES.cluster_id, segments_max=1)
    scan.add(ObjectEntry(NAMES.key(SegmentObject.LOG), 5, 7))
    scan.add(ObjectEntry(NAMES.key(SegmentObject.MANIFEST), 3, 9))
    scan.add(ObjectEntry("other/readme", 1, 99))
    (only,) = scan.segments
    assert (only.log_bytes, only.size_bytes, only.modified_ms) == (5, 8, 9)
    assert (scan.unknown_count, scan.newest_ms, scan.incomplete()) == (1, 9, [])
    another = replace(NAMES, partition=8)
    with pytest.raises(BucketTooLargeError, match="more than 1 segments"):
        scan.add(ObjectEntry(another.key(SegmentObject.LOG), 1, 1))
    scan = BucketScan(NAMES.cluster_id, objects_max=1)
    scan.add(ObjectEntry("other/readme", 1, 1))
    with pytest.raises(BucketTooLargeError, match="more than 1 objects"):
        scan.add(ObjectEntry("other/readme", 1, 1))
