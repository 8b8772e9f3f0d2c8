"""Records of share states: read back as written, and refused if they are corrupt."""

from uuid import UUID

import pytest

from ottla.broker.coordinators.effects import CoordinatorRecord
from ottla.broker.coordinators.share_persister import SharePartitionKey, StateBatch
from ottla.broker.share_state.share_partition_state import Snapshot, Update
from ottla.broker.share_state.share_state_records import (
    read_share_record,
    record_bytes_of,
    snapshot_record,
    update_record,
)
from ottla.model.errors import CorruptDataError

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
