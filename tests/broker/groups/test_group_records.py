"""The records of `__consumer_offsets`, byte for byte as Kafka writes them."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.coordinators.effects import MemberClient
from ottla.broker.groups.classic.classic_group import ClassicGroup, GroupState, group_of
from ottla.broker.groups.classic.classic_member import ClassicMember
from ottla.broker.groups.group_records import (
    group_key,
    group_value,
    offset_key,
    offset_value,
    read_record,
)
from ottla.broker.groups.offsets.committed_offsets import CommittedOffset, committed_offset_of
from ottla.model.errors import CorruptDataError
from ottla.model.ids import ZERO_UUID
from ottla.wire.codec import encode
from ottla.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.wire.messages.group_metadata_value import GroupMetadataValue
from ottla.wire.messages.offset_commit_key import OffsetCommitKey
from ottla.wire.messages.offset_commit_value import OffsetCommitValue

OFFSET_KEY = b"\0\1" + b"\0\2g1" + b"\0\6orders" + b"\0\0\0\5"
OFFSET_VALUE = (
    b"\0\4"
    + b"\0\0\0\0\0\0\x01\x02"  # offset 258
    + b"\0\0\0\x09"  # leader epoch
    + b"\3hi"  # metadata: compact
    + b"\0\0\x01\x8b\xcf\xe5\x68\0"  # commit timestamp
    + b"\1\0\x10"  # one tagged field: 0, of 16 bytes
    + bytes(range(16))
)
GROUP_KEY = b"\0\2" + b"\0\2g1"
GROUP_VALUE = (
    b"\0\3"
    + b"\0\x08consumer"
    + b"\0\0\0\3"  # generation
    + b"\0\5range"
    + b"\0\2m1"  # leader
    + b"\0\0\x01\x8b\xcf\xe5\x68\0"  # since when
    + b"\0\0\0\1"
    + b"\0\2m1"
    + b"\0\2i1"  # group.instance.id
    + b"\0\1c"
    + b"\0\x0a/127.0.0.1"
    + b"\0\0\xea\x60"  # rebalance timeout
    + b"\0\0\x27\x10"  # session timeout
    + b"\0\0\0\3sub"
    + b"\0\0\0\4part"
)


def the_group() -> ClassicGroup:
    group = ClassicGroup("g1")
    group.add(
        ClassicMember(
            "m1",
            "i1",
            MemberClient("c", "/127.0.0.1"),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(("range", b"sub"),),
            assignment=b"part",
        )
    )
    group.generation_id = 3
    group.protocol_name = "range"
    group.state = GroupState.STABLE
    group.state_timestamp_ms = 1_700_000_000_000
    return group


def test_an_offset_is_written_as_kafka_writes_it() -> None:
    offset = CommittedOffset(258, 9, "hi", 1_700_000_000_000, topic_id=UUID(bytes=bytes(range(16))))
    assert offset_key("g1", "orders", 5) == OFFSET_KEY
    assert offset_value(offset.as_value()) == OFFSET_VALUE
    key, value = read_record(OFFSET_KEY, OFFSET_VALUE) or (None, None)
    assert key == OffsetCommitKey(group="g1", topic="orders", partition=5)
    assert isinstance(value, OffsetCommitValue)
    assert committed_offset_of(value) == offset


@given(
    group=st.text(max_size=300),
    topic=st.text(max_size=30),
    index=st.integers(0, 2**31 - 1),
    offset=st.integers(-(2**63), 2**63 - 1),
    epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(max_size=300),
    commit_ms=st.integers(-1, 2**63 - 1),
    expire_ms=st.sampled_from([-1, 7]),
    topic_id=st.sampled_from([ZERO_UUID, UUID(int=5)]),
)
def test_offsets_put_together_by_hand_are_what_the_codec_writes(
    group: str,
    topic: str,
    index: int,
    offset: int,
    epoch: int,
    metadata: str,
    commit_ms: int,
    expire_ms: int,
    topic_id: UUID,
) -> None:
    key = OffsetCommitKey(group=group, topic=topic, partition=index)
    assert offset_key(group, topic, index) == b"\0\1" + encode(key, 0)
    if expire_ms != -1:
        epoch, topic_id = -1, ZERO_UUID  # version 1 has no room for them
    kept = CommittedOffset(offset, epoch, metadata, commit_ms, expire_ms, topic_id)
    version = 4 if expire_ms == -1 else 1
    assert kept.encoded() == version.to_bytes(2) + encode(kept.as_value(), version)


def test_an_offset_with_an_expiry_of_its_own_takes_version_1() -> None:
    written = offset_value(CommittedOffset(1, 2, "", 3, 4).as_value())
    assert written == b"\0\1" + (1).to_bytes(8) + b"\0\0" + (3).to_bytes(8) + (4).to_bytes(8)
    _, value = read_record(OFFSET_KEY, written) or (None, None)
    assert isinstance(value, OffsetCommitValue)
    assert value.expire_timestamp == 4


def test_a_group_is_written_as_kafka_writes_it() -> None:
    assert group_key("g1") == GROUP_KEY
    assert group_value(the_group().as_value()) == GROUP_VALUE
    key, value = read_record(GROUP_KEY, GROUP_VALUE) or (None, None)
    assert key == GroupMetadataKey(group="g1")
    assert isinstance(value, GroupMetadataValue)
    again = group_of("g1", value)
    assert again.as_value() == the_group().as_value()
    assert again.state is GroupState.STABLE
    assert again.static_members == {"i1": "m1"}


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (0, (258).to_bytes(8) + b"\0\2hi" + (5).to_bytes(8)),
        (2, (258).to_bytes(8) + b"\0\2hi" + (5).to_bytes(8)),
        (3, (258).to_bytes(8) + b"\0\0\0\x09" + b"\0\2hi" + (5).to_bytes(8)),
    ],
)
def test_what_older_coordinators_wrote_is_read(version: int, body: bytes) -> None:
    _, value = read_record(OFFSET_KEY, version.to_bytes(2) + body) or (None, None)
    assert isinstance(value, OffsetCommitValue)
    assert (value.offset, value.metadata, value.commit_timestamp) == (258, "hi", 5)


def test_a_null_value_takes_away_and_an_unknown_kind_is_passed_over() -> None:
    assert read_record(OFFSET_KEY, None) == (
        OffsetCommitKey(group="g1", topic="orders", partition=5),
        None,
    )
    assert read_record(b"\0\x11\0\2g1", b"whatever") is None
    assert read_record(b"\x7f\xff", None) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"", b""),
        (b"\0", b""),
        (OFFSET_KEY[:-1], OFFSET_VALUE),
        (OFFSET_KEY + b"\0", OFFSET_VALUE),
        (OFFSET_KEY, b""),
        (OFFSET_KEY, b"\0\x63" + OFFSET_VALUE[2:]),
        (OFFSET_KEY, OFFSET_VALUE[:-1]),
        (GROUP_KEY, GROUP_VALUE[:-1]),
    ],
)
def test_bytes_that_lie_are_found_out(key: bytes | None, value: bytes) -> None:
    with pytest.raises(CorruptDataError):
        read_record(key, value)
