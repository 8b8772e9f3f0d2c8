"""Which local segments are copied, and how far a log is copied."""

from ottla.model.ids import NO_EPOCH, NO_OFFSET, Epoch, Offset, OffsetAndEpoch
from ottla.storage.tier.copy_plan import (
    CopyLag,
    copied_offset,
    effective_lag,
    epochs_of,
    first_readable_offset,
    highest_remote,
    log_start_after_election,
    segments_to_copy,
)
from ottla.storage.tier.remote_metadata import RemoteMetadata
from tests.storage.tier.tier_examples import (
    DELETING,
    STARTED,
    add,
    entries,
    lineage,
    local,
    metadata_of,
    remote,
)

SEGMENTS = [local(0, 100), local(100, 200), local(200, 300), local(300, 350)]


def due(
    copied: int = -1,
    *,
    start: int = 0,
    stable: int = 350,
    lag: CopyLag | None = None,
    now_ms: int = 5_000,
    epochs: dict[int, int] | None = None,
) -> list[int]:
    found = segments_to_copy(
        SEGMENTS,
        entries(epochs or {0: 0}),
        copied_offset=Offset(copied),
        log_start_offset=Offset(start),
        last_stable_offset=Offset(stable),
        lag=lag or CopyLag(),
        now_ms=now_ms,
    )
    return [segment.base_offset for segment in found]


def test_closed_segments_are_copied_in_order_and_the_active_one_is_not() -> None:
    assert due() == [0, 100, 200]


def test_nothing_at_or_above_the_last_stable_offset_is_copied() -> None:
    assert due(stable=200) == [0, 100]
    assert due(stable=199) == [0]
    assert due(stable=0) == []


def test_copying_continues_after_the_copied_offset_and_the_log_start() -> None:
    assert due(99) == [100, 200]
    assert due(start=200) == [200]
    assert due(299) == []


def test_a_segment_that_is_copied_in_part_is_copied_whole() -> None:
    assert due(150) == [100, 200]


def test_the_list_ends_at_the_first_segment_that_is_not_due() -> None:
    young = [local(0, 100, max_timestamp_ms=0), local(100, 200, max_timestamp_ms=4_900)]
    old_again = [local(200, 300, max_timestamp_ms=0), local(300, 350)]
    found = segments_to_copy(
        [*young, *old_again],
        entries({0: 0}),
        copied_offset=Offset(-1),
        log_start_offset=Offset(0),
        last_stable_offset=Offset(350),
        lag=CopyLag(1_000, -1),
        now_ms=5_000,
    )
    assert [segment.base_offset for segment in found] == [0]


def test_a_timestamp_in_the_future_counts_as_due() -> None:
    assert due(lag=CopyLag(1_000, -1), now_ms=500) == [0, 100, 200]


def test_a_copy_lag_is_reached_by_age_or_by_size() -> None:
    assert due(lag=CopyLag(4_000, -1)) == [0, 100, 200]
    assert due(lag=CopyLag(4_001, -1)) == []
    assert due(lag=CopyLag(4_001, 20)) == [0, 100]
    assert due(lag=CopyLag(-1, 31)) == []
    assert due(lag=CopyLag(0, 31)) == [0, 100, 200]
    assert due(lag=CopyLag(4_001, 0)) == [0, 100, 200]
    assert due(lag=CopyLag(-1, -1)) == []


def test_a_lag_of_minus_one_is_the_local_retention() -> None:
    lag = effective_lag(CopyLag(-1, -1), local_retention_ms=7, local_retention_bytes=8)
    assert lag == CopyLag(7, 8)
    assert effective_lag(CopyLag(), local_retention_ms=7, local_retention_bytes=8).age_ms == 0


def test_records_of_unknown_leader_epochs_are_not_copied() -> None:
    assert due(epochs={4: 100}) == []
    assert due(epochs={4: 100}, start=100) == [100, 200]


def test_a_copied_segment_lists_the_epochs_of_its_records() -> None:
    epochs = entries({1: 0, 2: 150, 3: 150, 4: 180})
    assert epochs_of(local(100, 200), epochs) == entries({1: 100, 3: 150, 4: 180})


def copied(metadata: RemoteMetadata, epochs: dict[int, int], end: int, start: int = 0) -> int:
    return copied_offset(metadata, lineage(epochs, end), local_log_start_offset=Offset(start))


def test_after_an_election_copying_continues_in_the_newest_copied_epoch() -> None:
    metadata = metadata_of(remote(1, 0, 99, {1: 0}), remote(2, 100, 199, {1: 100, 2: 150}))
    log = lineage({1: 0, 2: 150, 4: 300}, end=400)
    assert highest_remote(metadata, log) == OffsetAndEpoch(Offset(199), Epoch(2))
    assert copied(metadata, {1: 0, 2: 150, 4: 300}, 400) == 199


def test_an_epoch_that_ended_earlier_counts_up_to_its_end() -> None:
    metadata = metadata_of(remote(1, 0, 199, {1: 0}))
    assert highest_remote(metadata, lineage({1: 0, 3: 120}, end=150)) == (119, 1)
    assert copied(metadata, {1: 0, 3: 120}, 150) == 119


def test_nothing_is_copied_of_another_lineage() -> None:
    metadata = metadata_of(remote(1, 0, 199, {1: 0}))
    assert highest_remote(metadata, lineage({3: 0}, end=150)) == (NO_OFFSET, NO_EPOCH)
    assert copied(metadata, {3: 0}, 150) == -1


def test_the_copied_offset_ends_at_a_hole() -> None:
    """Kafka's rule, the highest offset, would let the records of the hole be deleted."""
    metadata = metadata_of(remote(1, 0, 99), remote(3, 200, 299))
    assert copied(metadata, {0: 0}, 400) == 99
    assert highest_remote(metadata, lineage({0: 0}, end=400)) == (299, 0)


def test_holes_below_the_local_log_start_are_not_considered() -> None:
    metadata = metadata_of(remote(1, 0, 99), remote(3, 200, 299))
    assert copied(metadata, {0: 0}, 400, start=200) == 299


def test_unfinished_copies_and_deletions_count_as_not_copied() -> None:
    metadata = RemoteMetadata()
    add(metadata, remote(1, 0, 99), STARTED)
    assert copied(metadata, {0: 0}, 400) == -1
    add(metadata, remote(2, 0, 99), DELETING)
    assert copied(metadata, {0: 0}, 400) == -1


def start_after_election(
    metadata: RemoteMetadata, epochs: dict[int, int], *, local_start: int = 200, start: int = 0
) -> int:
    return log_start_after_election(
        metadata,
        entries(epochs),
        log_start_offset=Offset(start),
        local_log_start_offset=Offset(local_start),
        end_offset=Offset(400),
    )


def test_a_new_leader_starts_at_the_first_segment_of_the_oldest_epoch_that_has_one() -> None:
    metadata = metadata_of(remote(1, 50, 99, {2: 50}), remote(2, 100, 199, {2: 100}))
    assert start_after_election(metadata, {1: 0, 2: 50}) == 50


def test_without_copies_a_new_leader_starts_at_its_local_log_start() -> None:
    assert start_after_election(RemoteMetadata(), {1: 0}) == 200
    assert start_after_election(metadata_of(remote(1, 0, 99, {9: 0})), {1: 0}) == 200


def test_an_election_never_lowers_the_log_start() -> None:
    assert start_after_election(metadata_of(remote(1, 0, 99)), {0: 0}, start=60) == 60


def test_segments_in_deletion_do_not_set_the_log_start() -> None:
    metadata = metadata_of(remote(2, 100, 199))
    add(metadata, remote(1, 0, 99), DELETING)
    assert start_after_election(metadata, {0: 0}) == 100


def test_segments_beyond_the_end_of_a_shortened_log_do_not_set_its_start() -> None:
    metadata = metadata_of(remote(1, 500, 599))
    assert start_after_election(metadata, {0: 0}, local_start=0) == 0


def test_a_log_follows_the_deletions_of_another_leader() -> None:
    metadata = metadata_of(remote(1, 100, 199), remote(2, 200, 299))
    log = lineage({0: 0}, end=400)
    assert first_readable_offset(metadata, log, local_log_start_offset=Offset(300)) == 100
    assert first_readable_offset(metadata, log, local_log_start_offset=Offset(50)) == 50
    inside = lineage({0: 0}, end=400, start=150)
    assert first_readable_offset(metadata, inside, local_log_start_offset=Offset(300)) == 150
    empty = RemoteMetadata()
    assert first_readable_offset(empty, log, local_log_start_offset=Offset(300)) == 300


def test_records_before_the_first_epoch_of_a_segment_are_not_readable() -> None:
    """The log start was within the segment when it was copied."""
    metadata = metadata_of(remote(1, 0, 99, {0: 20}), remote(2, 100, 199))
    log = lineage({0: 0}, end=400)
    assert first_readable_offset(metadata, log, local_log_start_offset=Offset(200)) == 20
    assert start_after_election(metadata, {0: 0}) == 20


def test_copying_continues_after_all_copied_segments_expired() -> None:
    """redpanda#8945: uploads stalled."""
    metadata = RemoteMetadata()
    add(metadata, remote(1, 0, 99), DELETING)
    at = copied_offset(
        metadata, lineage({0: 0}, end=350, start=100), local_log_start_offset=Offset(0)
    )
    assert at == 99
    assert due(at, start=100) == [100, 200]
