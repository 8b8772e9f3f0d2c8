"""The records that leaders have written, by offset and leader epoch."""

from uuid import UUID

import pytest

from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.tier.lineage_watch import epochs_among
from ottla.jepsen.world.whole.tier.written_records import WrittenRecords
from ottla.model.ids import Epoch, Offset, TopicIdPartition
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.wire.batch_builder import build_batch

AT = TopicIdPartition(UUID(int=1), 0)


def batch(*values: bytes, base: int = 0, epoch: int = 0) -> bytes:
    return build_batch(
        [(1_000 + number, None, value) for number, value in enumerate(values)],
        base_offset=Offset(base),
        leader_epoch=Epoch(epoch),
    )


def test_records_of_two_epochs_may_share_an_offset() -> None:
    records = WrittenRecords()
    found = records.learn(AT, batch(b"a", b"b") + batch(b"c", base=2, epoch=4), place="here")
    records.learn(AT, batch(b"other", base=1, epoch=3), place="there")
    assert found == [(0, 0), (1, 0), (2, 4)]
    assert epochs_among(found) == (
        EpochEntry(Epoch(0), Offset(0)),
        EpochEntry(Epoch(4), Offset(2)),
    )
    values = [one.value for _, one in records.between(AT, [(0, 0, 1), (3, 1, 2), (4, 2, 9)])]
    assert values == [b"a", b"other", b"c"]


def test_a_record_that_changes_is_a_violation() -> None:
    records = WrittenRecords()
    records.learn(AT, batch(b"a"), place="here")
    records.check(AT, Offset(0), Epoch(0), b"a")
    with pytest.raises(Violation, match="OneRecordPerEpoch"):
        records.check(AT, Offset(0), Epoch(0), b"b")
    with pytest.raises(Violation, match="OneRecordPerEpoch"):
        records.learn(AT, batch(b"b"), place="there")
