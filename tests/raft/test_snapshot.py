"""Snapshots and control records: names, contents, timing; bytes as Kafka writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.jepsen.quorum.world import identity, voter
from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft import snapshot
from ottla.raft.control_records import (
    control_type,
    leader_change_batch,
    read_kraft_version,
    read_leader_change,
    read_snapshot_header,
    read_voters,
)
from ottla.raft.effects import LeaderChangeAppend
from ottla.raft.snapshot import KeptSnapshot
from ottla.wire.batch import parse_header
from ottla.wire.batch_builder import ControlType, build_batch
from ottla.wire.codec import encode
from ottla.wire.records import scan

VOTERS = identity(1, (1, 2, 3)).voters


def opening(*, has_voters: bool = True) -> bytes:
    return snapshot.opening_batch(
        VOTERS if has_voters else None,
        last_contained_timestamp_ms=77,
        leader_epoch=Epoch(4),
    )


def footer(base_offset: int) -> bytes:
    return snapshot.footer_batch(
        base_offset=Offset(base_offset), timestamp_ms=77, leader_epoch=Epoch(4)
    )


def test_a_snapshots_name_is_kafkas() -> None:
    name = snapshot.file_name(OffsetAndEpoch(Offset(1234), Epoch(56)))

    assert name == "00000000000000001234-0000000056.checkpoint"
    assert snapshot.file_name(snapshot.BOOTSTRAP_ID) == (
        "00000000000000000000-0000000000.checkpoint"
    )


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1))
def test_a_name_leads_back_to_its_id(offset: int, epoch: int) -> None:
    snapshot_id = OffsetAndEpoch(Offset(offset), Epoch(epoch))

    assert snapshot.parse_name(snapshot.file_name(snapshot_id)) == snapshot_id


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000001234-0000000056.checkpoint.part",
        "00000000000000001234-0000000056.checkpoint.deleted",
        "1234-56.checkpoint",
        "00000000000000001234.log",
        "quorum-state",
        "",
        "٠0000000000000001234-0000000056.checkpoint",
    ],
)
def test_other_files_are_no_snapshots(name: str) -> None:
    assert snapshot.parse_name(name) is None


def test_a_snapshot_begins_with_header_version_and_voters_in_one_control_batch() -> None:
    data = opening()
    header = parse_header(data)
    records = list(scan(data, 0, header))

    assert header.is_control
    assert header.base_offset == 0
    assert header.max_timestamp == 77, "the log's time: every replica writes the same bytes"
    assert [control_type(record.key) for record in records] == [
        ControlType.SNAPSHOT_HEADER,
        ControlType.KRAFT_VERSION,
        ControlType.KRAFT_VOTERS,
    ]
    values = [record.value for record in records]
    assert values[0] is not None
    assert read_snapshot_header(values[0]).last_contained_log_timestamp == 77
    assert values[1] is not None
    assert read_kraft_version(values[1]) == 1
    assert values[2] is not None
    assert read_voters(values[2]) == VOTERS


def test_the_voters_are_found_between_the_applications_batches() -> None:
    data = opening() + build_batch([(1, None, b"x")], base_offset=Offset(3)) + footer(4)

    assert snapshot.voters_of(data) == VOTERS
    snapshot.check_whole(data)


def test_a_snapshot_may_name_no_voters() -> None:
    assert snapshot.voters_of(opening(has_voters=False) + footer(1)) is None


@pytest.mark.parametrize(
    "data",
    [b"", footer(0), opening(), build_batch([(1, None, b"x")]) + footer(1), footer(0) + opening()],
)
def test_a_snapshot_without_its_ends_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        snapshot.check_whole(data)


def test_a_flipped_bit_is_found() -> None:
    data = bytearray(opening() + footer(3))
    data[80] ^= 1

    with pytest.raises(CorruptDataError):
        snapshot.voters_of(bytes(data))


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x09", b"\x00\x00\x05", b"\xff\xff\x00\x00"])
def test_a_control_value_that_lies_is_corrupt(value: bytes) -> None:
    with pytest.raises(CorruptDataError):
        read_voters(value)


def test_a_leader_change_says_who_leads_and_who_wanted_it() -> None:
    append = LeaderChangeAppend(
        leader_epoch=Epoch(5),
        leader_id=NodeId(2),
        voters=(voter(1).key, voter(2).key, voter(3).key),
        granting_voters=(voter(2).key, voter(3).key),
    )

    data = leader_change_batch(append, timestamp_ms=11, base_offset=Offset(40))

    header = parse_header(data)
    (record,) = scan(data, 0, header)
    assert (header.base_offset, header.partition_leader_epoch) == (40, 5)
    assert header.is_control
    assert control_type(record.key) == ControlType.LEADER_CHANGE
    assert record.value is not None
    message = read_leader_change(record.value)
    assert message.leader_id == 2
    assert [each.voter_id for each in message.voters] == [1, 2, 3]
    assert [each.voter_id for each in message.granting_voters] == [2, 3]
    # Kafka's tools read this record as version 0 alone.
    assert record.value == encode(message, 0)
    assert message.version == 0


@pytest.mark.parametrize(
    ("byte_count", "age_ms", "has_new_records", "is_due"),
    [
        (100, 0, True, True),
        (99, 0, True, False),
        (0, 1_000, True, True),
        (0, 999, True, False),
        (100, 1_000, False, False),
    ],
)
def test_a_snapshot_is_due_after_enough_bytes_or_time_if_anything_is_new(
    byte_count: int, age_ms: int, has_new_records: bool, is_due: bool
) -> None:
    config = QuorumConfig(snapshot_bytes_between=100, snapshot_interval_ms_max=1_000)

    assert is_due is snapshot.is_due(
        config, bytes_since=byte_count, ms_since=age_ms, has_new_records=has_new_records
    )


def test_an_interval_of_zero_means_bytes_only() -> None:
    config = QuorumConfig(snapshot_bytes_between=100, snapshot_interval_ms_max=0)

    assert not snapshot.is_due(config, bytes_since=1, ms_since=10**9, has_new_records=True)


KEPT = [KeptSnapshot(10, 1_000), KeptSnapshot(20, 2_000), KeptSnapshot(30, 3_000)]


@pytest.mark.parametrize(
    ("retention_bytes", "retention_ms", "log_bytes", "wall_ms", "count"),
    [
        (-1, -1, 10**9, 10**9, 0),
        (160, -1, 100, 0, 0),
        (159, -1, 100, 0, 1),
        (149, -1, 100, 0, 2),
        (0, -1, 100, 0, 2),
        (-1, 500, 0, 1_500, 0),
        (-1, 500, 0, 1_501, 1),
        (-1, 500, 0, 2_501, 2),
        (-1, 500, 0, 10**9, 2),
    ],
)
def test_snapshots_go_by_size_or_age_the_oldest_first_and_never_the_newest(
    retention_bytes: int, retention_ms: int, log_bytes: int, wall_ms: int, count: int
) -> None:
    config = QuorumConfig(retention_bytes_max=retention_bytes, retention_ms_max=retention_ms)

    assert snapshot.expired_count(config, KEPT, log_bytes=log_bytes, wall_ms=wall_ms) == count


def test_without_snapshots_none_goes() -> None:
    assert snapshot.expired_count(QuorumConfig(), [], log_bytes=10**12, wall_ms=10**15) == 0
