"""Which copied segments are deleted, and in which order."""

from collections.abc import Collection

from ottla.model.ids import Offset
from ottla.storage.tier.copy_plan import LocalSegment
from ottla.storage.tier.expiry_plan import (
    DeleteSegment,
    ExpiryInput,
    MoveLogStart,
    log_bytes,
    plan_expiry,
)
from ottla.storage.tier.remote_metadata import RemoteMetadata
from tests.storage.tier.tier_examples import (
    DELETING,
    STARTED,
    add,
    entries,
    local,
    metadata_of,
    remote,
    segment_id,
)

THREE = (remote(1, 0, 99), remote(2, 100, 199), remote(3, 200, 299))
LOCAL = (local(200, 300), local(300, 350))
DAY_MS = 24 * 3_600_000


def log_of(
    metadata: RemoteMetadata,
    *,
    epochs: dict[int, int] | None = None,
    local_segments: Collection[LocalSegment] = LOCAL,
    start: int = 0,
    watermark: int = 350,
    end: int = 350,
    ms: int = -1,
    size: int = -1,
    now_ms: int = 5_000,
    copying: Collection[int] = (),
) -> ExpiryInput:
    return ExpiryInput(
        metadata=metadata,
        epochs=entries(epochs or {0: 0}),
        local_segments=tuple(local_segments),
        log_start_offset=Offset(start),
        high_watermark=Offset(watermark),
        end_offset=Offset(end),
        retention_ms=ms,
        retention_bytes=size,
        now_ms=now_ms,
        being_copied=[segment_id(number) for number in copying],
    )


def short(log: ExpiryInput) -> list[int | str]:
    """Return the planned steps: numbers of segments, and `>` with the new log start."""
    return [
        f">{step.offset}" if isinstance(step, MoveLogStart) else step.segment.id.segment_id.int
        for step in plan_expiry(log)
    ]


def test_the_log_start_moves_before_any_deletion() -> None:
    steps = plan_expiry(log_of(metadata_of(*THREE), size=30))
    assert steps[0] == MoveLogStart(Offset(100))
    assert [type(step) for step in steps] == [MoveLogStart, DeleteSegment]


def test_segments_expire_by_time_from_the_oldest() -> None:
    ages = [
        remote(1, 0, 99, max_timestamp_ms=10),
        remote(2, 100, 199, max_timestamp_ms=2_000),
        remote(3, 200, 299, max_timestamp_ms=10),
    ]
    assert short(log_of(metadata_of(*ages), ms=4_000)) == [">100", 1]


def test_segments_without_timestamps_are_as_old_as_their_copy() -> None:
    young = remote(1, 0, 99, max_timestamp_ms=-1, event_timestamp_ms=4_000)
    assert short(log_of(metadata_of(young), ms=2_000)) == []
    assert short(log_of(metadata_of(young), ms=999)) == [">100", 1]


def test_a_timestamp_in_the_future_does_not_expire() -> None:
    future = remote(1, 0, 99, max_timestamp_ms=9_000)
    assert short(log_of(metadata_of(future, *THREE[1:]), ms=0)) == []


def test_segments_expire_by_size_from_the_oldest() -> None:
    metadata = metadata_of(*THREE)
    assert [short(log_of(metadata, size=size)) for size in (40, 39, 31, 30, 20)] == [
        [],
        [],
        [],
        [">100", 1],
        [">200", 1, 2],
    ]


def test_expiry_by_time_reduces_the_excess_by_size() -> None:
    ages = (remote(1, 0, 99, max_timestamp_ms=10), *THREE[1:])
    assert short(log_of(metadata_of(*ages), ms=4_900, size=30)) == [">100", 1]


def test_segments_below_the_log_start_are_deleted_without_moving_it() -> None:
    assert short(log_of(metadata_of(*THREE), start=200)) == [1, 2]
    assert short(log_of(metadata_of(*THREE), start=199)) == [1]


def test_a_segment_of_a_later_epoch_below_the_log_start_stays() -> None:
    metadata = metadata_of(remote(1, 0, 99, {0: 0, 8: 50}), *THREE[1:])
    assert short(log_of(metadata, start=150)) == []


def test_the_size_counts_each_record_in_one_tier() -> None:
    """KAFKA-20732: records in both tiers were counted twice before the highest copied offset was
    known."""
    assert log_bytes(log_of(metadata_of(*THREE))) == 40
    assert log_bytes(log_of(RemoteMetadata())) == 20


def test_failed_copies_do_not_count_as_size() -> None:
    """KAFKA-17062."""
    metadata = metadata_of(*THREE)
    add(metadata, remote(4, 0, 99, size=1_000), STARTED)
    add(metadata, remote(5, 0, 99, size=1_000), DELETING)
    assert log_bytes(log_of(metadata)) == 40
    assert short(log_of(metadata, size=40)) == [5]


def test_displaced_segments_do_not_count_as_size() -> None:
    metadata = metadata_of(remote(8, 0, 49), *THREE)
    assert log_bytes(log_of(metadata)) == 40
    assert short(log_of(metadata, size=30)) == [">100", 8, 1]
    assert short(log_of(metadata, start=100)) == [8, 1]


def test_two_leaders_overlapping_segments_do_not_block_expiry() -> None:
    """KAFKA-16511: epochs (5, 10), (7, 15), (9, 100) and overlapping segments."""
    metadata = metadata_of(
        remote(1, 10, 50, {5: 10, 7: 15}), remote(2, 14, 150, {5: 14, 7: 15, 9: 100})
    )
    epochs = {5: 10, 7: 15, 9: 100}
    before = log_of(metadata, epochs=epochs, start=10, ms=0, end=200, watermark=200)
    assert short(before) == [">151", 1, 2]
    cut = log_of(metadata, epochs={7: 51, 9: 100}, start=51, ms=0, end=200, watermark=200)
    assert short(cut) == [">151", 1, 2]


def test_interrupted_deletions_are_repeated_first() -> None:
    metadata = metadata_of(*THREE)
    add(metadata, remote(9, 0, 99), DELETING)
    assert short(log_of(metadata, size=30)) == [">100", 9, 1]


def test_a_segment_that_is_being_copied_is_left_alone() -> None:
    metadata = metadata_of(THREE[0])
    add(metadata, THREE[1], STARTED)
    assert short(log_of(metadata, ms=0, now_ms=9 * DAY_MS, copying=[2])) == [">100", 1]


def test_the_walk_ends_before_records_that_are_only_on_the_disk() -> None:
    """A hole that is being copied again: its records were not considered yet."""
    metadata = metadata_of(THREE[0], THREE[2])
    on_disk = [local(100, 200), *LOCAL]
    assert short(log_of(metadata, ms=0, local_segments=on_disk)) == [">100", 1]
    assert short(log_of(metadata, ms=0)) == [">300", 1, 3]


def test_no_segment_with_an_uncommitted_record_expires() -> None:
    assert short(log_of(metadata_of(*THREE), ms=0, watermark=199)) == [">100", 1]
    assert short(log_of(metadata_of(*THREE), ms=0, watermark=200)) == [">200", 1, 2]


def test_segments_of_another_lineage_do_not_move_the_log_start() -> None:
    abandoned = remote(1, 0, 99, {0: 0, 1: 50})
    metadata = metadata_of(abandoned, remote(2, 0, 99, {0: 0, 2: 50}))
    assert short(log_of(metadata, epochs={0: 0, 2: 50}, ms=0)) == [">100", 2]


def test_segments_of_forgotten_epochs_are_deleted_without_moving_the_log_start() -> None:
    """After an unclean election of a replica that has none of these epochs."""
    metadata = metadata_of(remote(1, 0, 999, {1: 0, 2: 500}), remote(2, 0, 99, {5: 0}))
    add(metadata, remote(3, 0, 99, {3: 0}), STARTED)
    assert short(log_of(metadata, epochs={5: 0})) == [1, 3]
    assert short(log_of(metadata, epochs={2: 0, 5: 60})) == []


def test_abandoned_copies_are_deleted_when_their_records_are_copied() -> None:
    """KAFKA-17428: dangling segments after a failed copy and a failed clean-up."""
    metadata = metadata_of(*THREE[:2])
    add(metadata, remote(4, 50, 150), STARTED)
    add(metadata, remote(5, 150, 250), STARTED)
    assert short(log_of(metadata, now_ms=DAY_MS)) == []
    assert short(log_of(metadata, now_ms=DAY_MS + 1_000)) == [4]
    assert short(log_of(metadata, now_ms=DAY_MS + 1_000, copying=[4])) == []


def test_an_empty_log_has_nothing_to_delete() -> None:
    log = log_of(RemoteMetadata(), local_segments=(), end=0, watermark=0, ms=0, size=0)
    assert short(log) == []


def test_a_segment_that_begins_below_the_log_start_counts_by_its_rest() -> None:
    metadata = metadata_of(*THREE)
    assert log_bytes(log_of(metadata, start=50)) == 35
    assert short(log_of(metadata, start=50, size=30)) == [">100", 1]
    assert short(log_of(metadata, start=50, size=31)) == []


def test_records_in_two_overlapping_segments_count_once() -> None:
    metadata = metadata_of(remote(1, 0, 99), remote(2, 50, 149), remote(3, 150, 299, size=15))
    assert log_bytes(log_of(metadata)) == 40
    assert short(log_of(metadata, size=30)) == [">100", 1]


def test_a_plan_that_is_made_in_part_leaves_no_hole() -> None:
    """Segments are deleted by their ends: a smaller one that outlives its cover would leave
    records whose successors are gone."""
    metadata = metadata_of(remote(4, 0, 59), *THREE)
    assert short(log_of(metadata, ms=0)) == [">300", 4, 1, 2, 3]
