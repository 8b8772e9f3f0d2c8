"""Division of offset ranges into copied segments and the rest."""

from uuid import UUID

from ottla.model.ids import Epoch, Offset, OffsetAndEpoch
from ottla.pipeline.read.ranges import OffsetRange
from ottla.pipeline.read.segment_splits import SharedEnd, segments_with_aborts, split_range
from ottla.storage.tier.stored_partition import StoredPartition, stored_partition
from tests.storage.tier.test_stored_partition import entries, segment

EPOCHS = ((3, 0), (5, 15))
WANTED = OffsetRange("orders", 7, 5, 45, "id")


def log_of(*spans: tuple[int, int]) -> StoredPartition:
    return stored_partition(
        [segment(start, end, *EPOCHS) for start, end in spans], entries(*EPOCHS)
    )


def parts(
    log: StoredPartition, *, shared_end: int, **options: object
) -> list[tuple[int, int, bool]]:
    found = split_range(
        WANTED,
        "cluster",
        log,
        shared_end=Offset(shared_end),
        aborted_in=options.get("aborted_in"),  # type: ignore[arg-type]
    )
    return [(one.start, one.end, one.copy is not None) for one in found]


def test_a_range_is_read_from_each_segment_and_the_rest_from_brokers() -> None:
    log = log_of((0, 10), (10, 20), (20, 30))
    assert parts(log, shared_end=30) == [
        (5, 10, True),
        (10, 20, True),
        (20, 30, True),
        (30, 45, False),
    ]


def test_a_gap_and_records_that_the_leader_lacks_are_read_from_brokers() -> None:
    log = log_of((0, 10), (20, 30))
    assert parts(log, shared_end=24) == [
        (5, 10, True),
        (10, 20, False),
        (20, 24, True),
        (24, 45, False),
    ]
    assert parts(log, shared_end=0) == [(5, 45, False)]


def answered(*answers: tuple[int, int]) -> tuple[list[int], int]:
    """Return the epochs that are asked for, and the end that follows from the leader's answers."""
    search = SharedEnd(log_of((0, 10), (10, 20), (20, 30)))
    asked = []
    for epoch, end in answers:
        assert search.epoch is not None
        asked.append(int(search.epoch))
        search.on_answer(OffsetAndEpoch(Offset(end), Epoch(epoch)))
    assert search.epoch is None
    return asked, int(search.end_offset)


def test_the_shared_records_end_where_the_leaders_epochs_differ() -> None:
    assert answered((5, 100)) == ([5], 30)
    assert answered((5, 22)) == ([5], 22)
    # The leader has no record of epoch 5: both logs are equal up to the end of epoch 3.
    assert answered((3, 12)) == ([5], 12)
    assert answered((3, 19)) == ([5], 15)
    assert answered((4, 40), (3, 11)) == ([5, 3], 11)
    assert answered((-1, -1)) == ([5], 0)


def test_aborted_transactions_are_listed_up_to_the_segment_in_which_they_end() -> None:
    log = log_of((0, 10), (10, 20), (20, 30))
    ids: list[UUID] = [one.manifest.segment_id for one in log.pieces]
    # A transaction that began at 7 is open at the end of the second segment.
    found = segments_with_aborts(
        log.pieces, {ids[0]: Offset(7), ids[1]: Offset(7), ids[2]: Offset(25)}
    )
    assert found[ids[0]] == () == found[ids[1]]  # the examples have no transaction index
    assert found[ids[2]] is None
    assert parts(log, shared_end=30, aborted_in=found)[-1] == (20, 45, False)
    assert segments_with_aborts(log.pieces, {ids[0]: None})[ids[1]] is None
