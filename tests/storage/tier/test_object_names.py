"""Keys of a segment's objects: exact, and read back only if exact."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import Offset
from ottla.storage.tier.object_names import (
    ObjectName,
    SegmentNames,
    SegmentObject,
    cluster_prefix,
    parse_object_key,
    partition_prefix,
    topic_prefix,
)
from ottla.storage.tier.store_seam import is_folder_prefix, is_plain_key
from tests.storage.tier.segments import LONGEST_NAMES, NAMES

LEGAL = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
KEY = (
    "rVyN6nEfTFCY4mGkyA7S8w/orders-Dw4NDAsKSQiHBgUEAwIBAA/7/"
    "00000000000000001200-_-7dzLuqSYi3ZlVEMyIRAA.log"
)


def test_keys_are_as_documented() -> None:
    assert NAMES.keys() == (
        KEY,
        KEY.removesuffix(".log") + ".indexes",
        KEY.removesuffix(".log") + ".manifest.json",
    )
    assert parse_object_key(KEY) == ObjectName(NAMES, SegmentObject.LOG)


def test_prefixes_contain_their_keys() -> None:
    names = (NAMES.cluster_id, NAMES.topic, NAMES.topic_id)
    for prefix in (
        cluster_prefix(NAMES.cluster_id),
        topic_prefix(*names),
        partition_prefix(*names, NAMES.partition),
    ):
        assert KEY.startswith(prefix)
        assert is_folder_prefix(prefix)
    # Partition 7 does not contain the keys of partition 70.
    assert not replace(NAMES, partition=70).keys()[0].startswith(partition_prefix(*names, 7))


@given(
    st.builds(
        SegmentNames,
        cluster_id=st.text(LEGAL + "_-", min_size=1, max_size=64),
        topic=st.text(LEGAL + "._-", min_size=1, max_size=249),
        topic_id=st.uuids(),
        partition=st.integers(0, (1 << 31) - 1),
        start_offset=st.integers(0, (1 << 63) - 1).map(Offset),
        segment_id=st.uuids(),
    ),
    st.sampled_from(SegmentObject),
)
def test_a_key_is_read_back(names: SegmentNames, kind: SegmentObject) -> None:
    key = names.key(kind)
    assert is_plain_key(key)
    assert parse_object_key(key) == ObjectName(names, kind)


def test_the_longest_key_is_read_back() -> None:
    for key, kind in zip(LONGEST_NAMES.keys(), SegmentObject, strict=True):
        assert parse_object_key(key) == ObjectName(LONGEST_NAMES, kind)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "cluster.json",
        f"/{KEY}",
        f"prefix/{KEY}",
        f"{KEY}.bak",
        f"{KEY}\n",
        KEY.removesuffix(".log"),
        KEY.replace("/7/", "/07/"),
        KEY.replace("/7/", "/-7/"),
        KEY.replace("/7/", "/2147483648/"),
        KEY.replace("/7/", "/٧/"),
        KEY.replace("/0000", "/000"),
        KEY.replace("/00000000000000001200", "/99999999999999999999"),
        KEY.replace("orders-", "-"),
        KEY.replace("orders-", "or ders-"),
        KEY.replace("orders-", "../orders-"),
        KEY.replace("orders-", "o" * 250 + "-"),
        KEY.replace("rVyN6nEfTFCY4mGkyA7S8w", "c" * 65),
        KEY.replace("rVyN6nEfTFCY4mGkyA7S8w", ".."),
        # The last character has bits beyond the id: another text for the same bytes.
        KEY.replace("AwIBAA", "AwIBAB"),
        KEY.replace("ETAA.log", "").replace("MyIRAA.log", "MyIRAB.log"),
        KEY.replace(".log", ".LOG"),
    ],
)
def test_any_other_key_is_no_object_of_a_segment(key: str) -> None:
    assert parse_object_key(key) is None


@given(st.text(max_size=60))
def test_no_key_raises_an_error(text: str) -> None:
    assert parse_object_key(text) is None


def test_two_uploads_of_a_segment_share_no_key() -> None:
    other = replace(NAMES, segment_id=UUID(int=5))
    assert set(NAMES.keys()).isdisjoint(other.keys())
