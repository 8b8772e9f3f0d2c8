"""The manifest of a segment: the same bytes each time, and every field checked on reading."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import CorruptDataError, NewerReleaseError
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.tier.manifest import (
    CHECKSUM_BYTES,
    CHUNK_BYTES,
    ENTRY_BYTES,
    MANIFEST_BYTES_MAX,
    SECTION_BYTES_MAX,
    SEGMENT_BYTES_MAX,
    SETTINGS_MAX,
    IndexKind,
    IndexSection,
    SegmentManifest,
    chunk_count,
    decode_manifest,
    encode_manifest,
    problem_of,
)
from ottla.storage.tier.object_names import SegmentNames, SegmentObject
from ottla.storage.tier.remote_segment import (
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentState,
)
from tests.storage.tier.segments import LONGEST_NAMES, MANIFEST, NAMES

KEY = NAMES.key(SegmentObject.MANIFEST)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | INT64 | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@st.composite
def manifests(draw: st.DrawFn) -> SegmentManifest:
    """Draw a valid manifest."""
    partition = draw(st.integers(0, 1000))
    start = draw(st.integers(0, 1 << 62))
    epochs = sorted(draw(st.sets(st.integers(0, 1 << 30), min_size=1, max_size=5)))
    count = len(epochs) - 1
    above = sorted(draw(st.lists(st.integers(0, 1000), min_size=count, max_size=count)))
    starts = [start, *(start + step for step in above)]
    has_no_aborts = draw(st.booleans())
    kinds = [kind for kind in IndexKind if kind is not IndexKind.TRANSACTIONS or not has_no_aborts]
    size_bytes = draw(st.integers(1, SEGMENT_BYTES_MAX))
    sizes = [
        draw(st.integers(0, SECTION_BYTES_MAX // entry_bytes)) * entry_bytes
        for entry_bytes in (ENTRY_BYTES.get(kind, 1) for kind in kinds)
    ]
    sizes[0] = chunk_count(size_bytes) * CHECKSUM_BYTES
    return SegmentManifest(
        cluster_id=draw(st.sampled_from([NAMES.cluster_id, "c"])),
        topic=draw(st.sampled_from(["orders", "a.b-c_d", "t" * 249])),
        partition_count=partition + draw(st.integers(1, 10)),
        topic_settings=draw(st.dictionaries(st.text(max_size=20), st.text(max_size=20))),
        topic_id=draw(st.uuids()),
        partition=partition,
        segment_id=draw(st.uuids()),
        start_offset=Offset(start),
        end_offset=Offset(start + draw(st.integers(1000, 1 << 60))),
        broker_id=NodeId(draw(st.integers(0, (1 << 31) - 1))),
        max_timestamp_ms=draw(INT64),
        event_timestamp_ms=draw(INT64),
        size_bytes=size_bytes,
        log_crc=draw(st.integers(0, (1 << 32) - 1)),
        leader_epochs=tuple(
            EpochEntry(Epoch(epoch), Offset(offset))
            for epoch, offset in zip(epochs, starts, strict=True)
        ),
        custom_metadata=draw(st.none() | st.binary(max_size=200)),
        has_empty_transaction_index=has_no_aborts,
        index_sections=tuple(
            IndexSection(kind, sum(sizes[:at]), sum(sizes[: at + 1]), draw(st.integers(0, 9)))
            for at, kind in enumerate(kinds)
        ),
    )


@given(manifests())
def test_a_manifest_is_read_back(manifest: SegmentManifest) -> None:
    data = encode_manifest(manifest)
    key = manifest.names.key(SegmentObject.MANIFEST)
    assert decode_manifest(data, key) == manifest
    assert encode_manifest(decode_manifest(data, key)) == data


def test_the_bytes_of_a_manifest_do_not_change() -> None:
    # Releases read each other's manifests: a change of this file needs a new format.
    stored = Path(__file__).with_name("manifest-1.json").read_bytes()
    assert encode_manifest(MANIFEST) == stored.rstrip(b"\n")
    assert decode_manifest(stored, KEY) == MANIFEST


def test_the_order_of_settings_does_not_matter() -> None:
    other = dict(reversed(list(MANIFEST.topic_settings.items())))
    assert encode_manifest(replace(MANIFEST, topic_settings=other)) == encode_manifest(MANIFEST)


def test_the_names_of_a_manifest_are_those_of_its_objects() -> None:
    assert MANIFEST.names == NAMES
    assert MANIFEST.indexes_size_bytes == 244


def test_the_metadata_of_a_segment_is_restored() -> None:
    assert MANIFEST.remote_segment == RemoteSegment(
        id=RemoteSegmentId(NAMES.topic_id, 7, NAMES.segment_id),
        start_offset=Offset(1200),
        end_offset=Offset(1999),
        broker_id=NodeId(3),
        max_timestamp_ms=1_795_000_000_000,
        event_timestamp_ms=1_795_000_000_123,
        size_bytes=1 << 20,
        leader_epochs=(EpochEntry(Epoch(4), Offset(1200)), EpochEntry(Epoch(6), Offset(1500))),
        custom_metadata=b"\0\1\2",
        state=RemoteSegmentState.COPY_FINISHED,
        has_empty_transaction_index=True,
    )


def test_many_leader_epochs_fit() -> None:
    epochs = tuple(EpochEntry(Epoch(at), Offset((1 << 62) + at)) for at in range(20_000))
    manifest = replace(
        MANIFEST,
        leader_epochs=epochs,
        start_offset=Offset(1 << 62),
        end_offset=Offset((1 << 62) + 30_000),
    )
    key = manifest.names.key(SegmentObject.MANIFEST)
    assert decode_manifest(encode_manifest(manifest), key) == manifest


def test_a_manifest_of_another_key_is_refused() -> None:
    other = replace(NAMES, start_offset=Offset(1201)).key(SegmentObject.MANIFEST)
    for key in (other, NAMES.key(SegmentObject.LOG), f"prefix/{KEY}"):
        with pytest.raises(CorruptDataError, match="another segment"):
            decode_manifest(encode_manifest(MANIFEST), key)


def test_a_manifest_of_a_newer_format_is_named_as_such() -> None:
    values = {**json.loads(encode_manifest(MANIFEST)), "format": 2}
    with pytest.raises(NewerReleaseError, match="format 2"):
        decode_manifest(json.dumps(values).encode(), KEY)


def test_unknown_fields_are_ignored() -> None:
    values = json.loads(encode_manifest(MANIFEST))
    values["added later"] = values["segment"]["too"] = [1]
    assert decode_manifest(json.dumps(values).encode(), KEY) == MANIFEST


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[1]",
        b"{}",
        b"\xff",
        b"[" * 200_000,
        b'{"format": 1' + b"0" * 5_000 + b"}",
        b'{"format": true}',
        b'{"format": 0}',
        b" " * (MANIFEST_BYTES_MAX + 1),
    ],
)
def test_an_object_that_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptDataError, match=r"^manifest "):
        decode_manifest(data, KEY)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [path, *(one for name, part in inner for one in _paths(part, (*path, name)))]


VALUES = json.loads(encode_manifest(MANIFEST))
PATHS = [path for path in _paths(VALUES) if path]


@given(st.sampled_from(PATHS), JSON_VALUES | st.just(...))
def test_a_manifest_with_any_other_field_is_valid_or_refused(
    path: tuple[Any, ...], value: Any
) -> None:
    """`...` stands for a field that is missing."""
    values = json.loads(encode_manifest(MANIFEST))
    place = values
    for name in path[:-1]:
        place = place[name]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    try:
        found = decode_manifest(json.dumps(values).encode(), KEY)
    except (CorruptDataError, NewerReleaseError):
        return
    assert found.names == NAMES
    assert problem_of(found) is None


@pytest.mark.parametrize(
    "path",
    [path for path in PATHS if path[:2] != ("topic", "settings") or len(path) == 2],
    ids=lambda path: ".".join(map(str, path)),
)
def test_each_field_is_needed_and_of_its_type(path: tuple[Any, ...]) -> None:
    for value in (..., "\0", {"a": [None]}, 1.5):
        values = json.loads(encode_manifest(MANIFEST))
        place = values
        for name in path[:-1]:
            place = place[name]
        if value is not ...:
            place[path[-1]] = value
        elif path == ("segment", "custom_metadata"):
            continue
        else:
            del place[path[-1]]
        if path[:2] == ("segment", "leader_epochs") and value is ... and len(path) == 3:
            continue  # one entry fewer is another valid manifest
        with pytest.raises(CorruptDataError):
            decode_manifest(json.dumps(values).encode(), KEY)


def _with(**fields: Any) -> Callable[[], SegmentManifest]:
    return lambda: replace(MANIFEST, **fields)


EPOCH_4, EPOCH_6 = MANIFEST.leader_epochs
SECTIONS = MANIFEST.index_sections


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (_with(cluster_id="a/b"), "cluster id"),
        (_with(topic="a b"), "topic"),
        (_with(partition_count=7), "no such partition"),
        (_with(end_offset=Offset(1199)), "offsets are 1200 to 1199"),
        (_with(size_bytes=0), "empty"),
        (_with(leader_epochs=()), "no leader epochs"),
        (_with(leader_epochs=(EpochEntry(Epoch(4), Offset(1199)),)), "first leader epoch"),
        (_with(leader_epochs=(EPOCH_4, EpochEntry(Epoch(6), Offset(2000)))), "last leader epoch"),
        (_with(leader_epochs=(EPOCH_4, EpochEntry(Epoch(4), Offset(1500)))), "not follow"),
        (_with(leader_epochs=(EPOCH_4, EpochEntry(Epoch(6), Offset(1199)))), "not follow"),
        (_with(custom_metadata=b"x" * 5000), "custom metadata"),
        (_with(topic_settings={str(at): "" for at in range(SETTINGS_MAX + 1)}), "too many"),
        (_with(index_sections=SECTIONS[:-1]), "sections"),
        (_with(index_sections=SECTIONS[::-1]), "sections"),
        (_with(index_sections=()), "sections"),
        (_with(has_empty_transaction_index=False), "sections"),
        (
            _with(index_sections=(*SECTIONS[:4], IndexSection(IndexKind.EPOCHS, 215, 244, 4))),
            "follow each other",
        ),
        (
            _with(index_sections=(*SECTIONS[:4], IndexSection(IndexKind.EPOCHS, 214, 200, 4))),
            "follow each other",
        ),
        (_with(size_bytes=SEGMENT_BYTES_MAX + 1), "more than"),
        (_with(size_bytes=CHUNK_BYTES + 1), "number of checksums"),
        (
            _with(
                index_sections=(
                    *SECTIONS[:4],
                    IndexSection(IndexKind.EPOCHS, 214, 215 + SECTION_BYTES_MAX, 4),
                )
            ),
            "a section of the indexes has more than",
        ),
    ],
)
def test_a_contradiction_is_named(manifest: Callable[[], SegmentManifest], problem: str) -> None:
    found = problem_of(manifest())
    assert found is not None
    assert problem in found


def test_a_manifest_of_the_longest_names_is_read_back() -> None:
    names: SegmentNames = replace(LONGEST_NAMES, partition=0)
    manifest = replace(
        MANIFEST,
        cluster_id=names.cluster_id,
        topic=names.topic,
        partition=0,
        start_offset=names.start_offset,
        end_offset=names.start_offset,
        leader_epochs=(EpochEntry(Epoch(4), names.start_offset),),
    )
    key = names.key(SegmentObject.MANIFEST)
    assert decode_manifest(encode_manifest(manifest), key) == manifest
