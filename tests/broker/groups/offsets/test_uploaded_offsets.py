"""Committed offsets of groups in the object store: their form, bounds and damages."""

from typing import Any
from uuid import UUID

import pytest

from ottla.broker.groups.offsets.committed_offsets import CommittedOffset, OffsetTable
from ottla.broker.groups.offsets.uploaded_offsets import (
    METADATA_CHARS_MAX,
    OffsetsObject,
    StoredOffset,
    decode_offsets,
    encoded_parts,
    limited,
    newest_of,
    tiered_offsets_of,
)
from ottla.model.errors import CorruptDataError, NewerReleaseError
from ottla.storage.tier.object_names import group_offsets_key, parse_group_offsets_key

CLUSTER_ID = "rVyN6nEfTFCY4mGkyA7S8w"
KEY = group_offsets_key(CLUSTER_ID, 7, 3)
ORDERS, AUDIT = UUID(int=1), UUID(int=2)


def stored(number: int, **others: Any) -> StoredOffset:
    one = StoredOffset("billing", "orders", number, ORDERS, 10 * number, 4, "note", 1_000 + number)
    return one._replace(**others)


def content(offsets: list[StoredOffset], left_out: int = 0) -> bytes:
    return b"".join(
        encoded_parts(
            offsets,
            cluster_id=CLUSTER_ID,
            place=(7, 3),
            partition_count=50,
            left_out_count=left_out,
        )
    )


def test_offsets_are_read_back() -> None:
    offsets = [stored(number) for number in range(1_234)]
    found = decode_offsets(content(offsets, 5), cluster_id=CLUSTER_ID, key=KEY)
    assert found == OffsetsObject(7, 3, 50, offsets, 5)
    assert decode_offsets(content([]), cluster_id=CLUSTER_ID, key=KEY).offsets == []
    assert content(offsets) == content(offsets)


def test_only_offsets_of_tiered_topics_are_copied() -> None:
    table = OffsetTable()
    table.put("billing", "orders", 0, CommittedOffset(5, topic_id=ORDERS))
    table.put("billing", "orders", 1, CommittedOffset(6))  # of a client without topic ids
    table.put("billing", "orders", 2, CommittedOffset(7, topic_id=AUDIT))  # of a deleted topic
    table.put("billing", "other", 0, CommittedOffset(8, topic_id=AUDIT))
    table.put("others", "orders", 0, CommittedOffset(9, topic_id=ORDERS))
    long = "x" * (METADATA_CHARS_MAX + 1)
    table.put("billing", "orders", 3, CommittedOffset(1, metadata=long, topic_id=ORDERS))
    found = tiered_offsets_of(table, "billing", {"orders": ORDERS})
    assert [(one.partition, one.offset, one.topic_id, one.metadata) for one in found] == [
        (0, 5, ORDERS, ""),
        (1, 6, ORDERS, ""),
        (3, 1, ORDERS, ""),
    ]


def test_the_oldest_commits_are_left_out_of_a_large_object() -> None:
    offsets = [stored(number, commit_timestamp_ms=-number) for number in range(10)]
    assert limited(offsets, 4) == offsets[:4]
    assert limited(offsets[::-1]) == offsets


def test_the_newest_leader_epoch_counts() -> None:
    objects = [OffsetsObject(7, epoch, 50, [], 0) for epoch in (2, 10, 9)]
    assert newest_of([*objects, OffsetsObject(1, 0, 50, [], 0)]) == [
        OffsetsObject(1, 0, 50, [], 0),
        objects[1],
    ]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "it has no header"),
        (b"x" * 10_000 + b"\n", "it has no header"),
        (b"{\n", "is not JSON"),
        (b"[" * 4_000 + b"\n", "is not JSON"),
        (b"[]\n", "its format is not 1"),
        (content([stored(1)]).replace(b'"partition":7', b'"partition":8'), "of another object"),
        (content([stored(1)]).replace(b'"count":1', b'"count":2'), "1 offsets in place of 2"),
        (content([stored(1)]).replace(b'"count":1', b'"count":0'), "more than 0 offsets"),
        (content([stored(1)]).replace(b'"count":1', b'"count":1e9'), "count is missing or invalid"),
        (content([stored(1)]).replace(b'"left_out":0', b'"left_out":""'), "left_out is missing"),
        (content([]).replace(b'"partition_count":50', b'"partition_count":7'), "only 7 partitions"),
        (content([stored(1)]).replace(b"note", b"mote"), "does not match its CRC"),
        (content([stored(1)])[:-1], "."),
        (content([stored(1, offset=-1)]), "is negative"),
        (content([stored(1)]) + b"\0" * 100, "."),
    ],
)
def test_damages_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptDataError, match=problem):
        decode_offsets(data, cluster_id=CLUSTER_ID, key=KEY)


def test_a_newer_format_is_named() -> None:
    data = content([]).replace(b'"format":1', b'"format":2')
    with pytest.raises(NewerReleaseError, match="in format 2"):
        decode_offsets(data, cluster_id=CLUSTER_ID, key=KEY)


def test_keys_have_one_form() -> None:
    assert parse_group_offsets_key(CLUSTER_ID, KEY) == (7, 3)
    for key in (
        KEY.replace("7-", "07-"),
        KEY.replace(CLUSTER_ID, "other"),
        f"{CLUSTER_ID}/7-0000000003.offsets",
        "7-0000000003.offsets",
        KEY + "x",
    ):
        assert parse_group_offsets_key(CLUSTER_ID, key) is None
