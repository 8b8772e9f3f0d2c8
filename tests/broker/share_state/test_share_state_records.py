"""Records of share states: read back as written, and refused if they are corrupt."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.coordinators.effects import CoordinatorRecord, Instant
from ottla.broker.coordinators.share_persister import SharePartitionKey, StateBatch
from ottla.broker.share_state.share_partition_state import Snapshot, Update
from ottla.broker.share_state.share_state_records import (
    read_share_record,
    record_bytes_of,
    snapshot_record,
    update_record,
)
from ottla.broker.share_state.share_state_shard import ShareStateShard
from ottla.model.errors import CorruptDataError
from ottla.model.limits import INT32_MAX

KEY = SharePartitionKey("gruppe é", UUID(int=7), 3)
BATCHES = tuple(StateBatch(10 * at, 10 * at + 4, 2, 1) for at in range(1, 50))
SNAPSHOT = Snapshot(1, 2, 3, 4, 5, 6, 7, BATCHES)
UPDATE = Update(1, 3, -1, -1, BATCHES)


def test_a_record_is_read_back_as_it_was_written() -> None:
    assert read_share_record(*snapshot_record(KEY, SNAPSHOT)) == (KEY, SNAPSHOT)
    assert read_share_record(*update_record(KEY, UPDATE)) == (KEY, UPDATE)
    tombstone = snapshot_record(KEY, None)
    assert tombstone.value is None
    assert read_share_record(*tombstone) == (KEY, None)


@pytest.mark.parametrize("record", [snapshot_record(KEY, SNAPSHOT), update_record(KEY, UPDATE)])
def test_a_record_is_not_larger_than_its_bound(record: CoordinatorRecord) -> None:
    assert record.value is not None
    size = len(record.key) + len(record.value)
    assert size <= record_bytes_of(KEY, len(BATCHES)) <= size + 150


def test_a_key_of_a_later_version_is_left_alone() -> None:
    assert read_share_record(b"\x00\x02anything", b"\x00\x00") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\x00", b""),
        (b"\x00\x00\x00", None),
        (snapshot_record(KEY, None).key, b"\x00"),
        (snapshot_record(KEY, None).key, b"\x00\x01" + b"\x00" * 40),
        (snapshot_record(KEY, None).key, b"\x00\x00\x00"),
        update_record(KEY, UPDATE._replace(batches=(StateBatch(9, 8, 0, 1),))),
    ],
)
def test_a_corrupt_record_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptDataError):
        read_share_record(key, value)


RECORDS = [
    snapshot_record(KEY, SNAPSHOT._replace(batches=BATCHES[:3])),
    update_record(KEY, UPDATE._replace(batches=BATCHES[:3])),
    snapshot_record(KEY, SNAPSHOT._replace(snapshot_epoch=INT32_MAX, start_offset=-9)),
]


@given(st.sampled_from(RECORDS), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255))))
def test_a_damaged_record_is_refused_or_leaves_a_state_that_can_be_stored(
    record: CoordinatorRecord, damage: list[tuple[int, int]]
) -> None:
    assert record.value is not None
    value = bytearray(record.value)
    for at, byte in damage:
        value[at % len(value)] = byte
    shard = ShareStateShard(
        updates_per_snapshot=0,
        idle_snapshot_ms=0,
        has_partition=lambda topic_id, partition: True,
        record_bytes_max=lambda: 1_000_000,
    )
    try:
        shard.replay(record.key, bytes(value))
    except CorruptDataError:
        return
    now = Instant(0, 1)
    state = shard.states[KEY]
    leader_epoch = min(INT32_MAX, state.leader_epoch + 1)
    shard.read(KEY, print, now, leader_epoch=leader_epoch)
    effects = shard.take_effects()
    ((_, answer),) = effects.committed_answers
    assert answer == state.as_read()
    assert effects.writes or state.leader_epoch == INT32_MAX
    for write in effects.writes:
        assert read_share_record(*write.record) is not None
