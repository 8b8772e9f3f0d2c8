"""Positions of a consumer, without a broker: seeks, late answers, truncation, pauses."""

import pytest

from ottla.client.fetch.fetched import FetchedRecords
from ottla.client.fetch.positions import PartitionPlace, Positions
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset, OffsetAndEpoch, TopicPartition
from ottla.model.settings.offset_reset import parse_offset_reset
from ottla.wire.batch_builder import build_batch
from ottla.wire.offset_timestamps import EARLIEST, LATEST
from tests.storage.cleaner.cleaning_bench import compacted_batch

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
EPOCH = Epoch(2)
NOW_MS = 50_000
WALL_MS = 1_000_000


def at(offset: int, epoch: int = -1) -> OffsetAndEpoch:
    return OffsetAndEpoch(Offset(offset), Epoch(epoch))


def placed(*partitions: TopicPartition, reset: str = "earliest") -> Positions:
    positions = Positions(parse_offset_reset(reset), ahead_bytes=200, wall_ms=lambda: WALL_MS)
    positions.assign(partitions)
    for one in partitions:
        positions.seek(one, Offset(0))
    return positions


def answer(place: PartitionPlace, count: int = 3, *, value: bytes = b"") -> FetchedRecords:
    base = place.fetch.offset
    data = build_batch(
        [(0, None, value or b"%d" % (base + n)) for n in range(count)],
        base_offset=base,
        leader_epoch=EPOCH,
    )
    return FetchedRecords(place.at, base, place.fetch.epoch, data)


def offsets(positions: Positions, count: int = 100) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in positions.take(count)]


def test_positions_move_by_what_is_given_out() -> None:
    positions = placed(A)
    place = positions.place(A)
    positions.on_fetched(place, place.move_count, answer(place))

    assert offsets(positions, 2) == [(0, 0), (0, 1)]
    assert place.position == at(2, EPOCH)
    assert place.fetch == at(3, EPOCH)
    assert offsets(positions) == [(0, 2)]
    assert place.position == at(3, EPOCH)


def test_a_position_reaches_the_end_of_a_log_whose_last_records_compaction_took() -> None:
    positions = placed(A)
    place = positions.place(A)
    batch = build_batch([(0, b"k", b"v")] * 3, leader_epoch=EPOCH)
    positions.on_fetched(place, place.move_count, FetchedRecords(A, Offset(0), Epoch(-1), batch))
    emptied = compacted_batch(build_batch([(0, b"k", b"v")] * 5, base_offset=Offset(3)))
    positions.on_fetched(place, place.move_count, FetchedRecords(A, Offset(3), EPOCH, emptied))

    assert offsets(positions, 3) == [(0, 0), (0, 1), (0, 2)]
    assert offsets(positions) == []
    assert place.position is not None
    assert place.position.offset == place.fetch.offset == 8
    assert positions.has_hunger()


def test_an_answer_from_before_a_seek_is_dropped() -> None:
    positions = placed(A)
    place = positions.place(A)
    move_count, late = place.move_count, answer(place)
    positions.seek(A, Offset(0))

    assert not positions.on_fetched(place, move_count, late)
    assert offsets(positions) == []


def test_an_answer_for_a_partition_given_away_and_taken_again_is_dropped() -> None:
    positions = placed(A)
    place = positions.place(A)
    late = answer(place)
    positions.assign([])
    positions.assign([A])

    assert not positions.on_fetched(place, place.move_count, late)
    assert positions.unplaced() == [positions.place(A)]


def test_who_stays_assigned_keeps_its_place() -> None:
    positions = placed(A, B)
    place = positions.place(B)
    positions.on_fetched(place, place.move_count, answer(place))

    positions.assign([B])

    assert positions.place(B) is place
    assert len(offsets(positions)) == 3
    with pytest.raises(RefusedError):
        positions.place(A)


def test_fetching_runs_ahead_only_so_far() -> None:
    positions = placed(A)
    place = positions.place(A)

    positions.on_fetched(place, place.move_count, answer(place, value=b"x" * 100))

    assert positions.fetchable() == []
    assert not positions.has_hunger()
    offsets(positions)
    assert positions.has_hunger()
    assert positions.fetchable() == [place]


def test_a_paused_partition_keeps_what_it_has_and_gives_nothing() -> None:
    positions = placed(A, B)
    for place in (positions.place(A), positions.place(B)):
        positions.on_fetched(place, place.move_count, answer(place, 1))
    positions.place(A).is_paused = True

    assert offsets(positions) == [(1, 0)]
    assert positions.fetchable() == [positions.place(B)]
    positions.place(A).is_paused = False
    assert offsets(positions) == [(0, 0)]


def test_partitions_take_turns_an_answer_each() -> None:
    positions = placed(A, B)
    for place in (positions.place(A), positions.place(B)):
        positions.on_fetched(place, place.move_count, answer(place))
        positions.on_fetched(place, place.move_count, answer(place))

    assert [partition for partition, _ in offsets(positions, 12)] == [0] * 3 + [1] * 3 + [0] * 3 + [
        1
    ] * 3


def test_an_offset_out_of_range_first_drops_the_epoch_then_resets() -> None:
    positions = placed(A, reset="latest")
    positions.seek(A, Offset(10), EPOCH)
    place = positions.place(A)

    positions.on_out_of_range(place, place.move_count, place.fetch.offset, NOW_MS)
    assert place.fetch == at(10, -1)
    assert place.position == at(10, EPOCH)
    positions.on_out_of_range(place, place.move_count, place.fetch.offset, NOW_MS)

    assert place.position is None
    assert positions.reset_of(place) == LATEST


def test_resets_without_records_in_between_have_pauses_that_grow_to_a_second() -> None:
    positions = placed(A, reset="earliest")
    place = positions.place(A)

    def pauses_of(count: int) -> list[int]:
        found = []
        for _ in range(count):
            positions.on_out_of_range(place, place.move_count, place.fetch.offset, NOW_MS)
            found.append(max(0, place.look_up_from_ms - NOW_MS))
            positions.on_placed(place, place.move_count, at(5))
        return found

    assert pauses_of(7) == [0, 100, 200, 400, 800, 1_000, 1_000]
    positions.seek(A, Offset(9))
    assert pauses_of(2) == [0, 100]
    positions.on_fetched(place, place.move_count, answer(place))
    positions.take(10)
    assert pauses_of(3) == [0, 0, 100]  # the first one only drops the epoch


def test_an_offset_out_of_range_behind_what_is_fetched_is_asked_again_when_that_is_read() -> None:
    positions = placed(A, reset="earliest")
    place = positions.place(A)
    positions.on_fetched(place, place.move_count, answer(place))
    assert positions.fetchable() == [place]

    positions.on_out_of_range(place, place.move_count, place.fetch.offset, NOW_MS)
    positions.on_out_of_range(place, place.move_count, place.fetch.offset, NOW_MS)
    assert positions.fetchable() == []

    positions.take(10)
    assert positions.fetchable() == [place]
    positions.on_out_of_range(place, place.move_count, place.fetch.offset, NOW_MS)
    assert place.position is None


def test_without_a_reset_policy_out_of_range_is_an_error_and_so_is_no_position() -> None:
    positions = placed(A, reset="none")
    place = positions.place(A)

    with pytest.raises(RefusedError, match=r"auto\.offset\.reset"):
        positions.on_out_of_range(place, place.move_count, place.fetch.offset, NOW_MS)
    positions.assign([B])
    with pytest.raises(RefusedError, match=r"auto\.offset\.reset"):
        positions.reset_of(positions.place(B))


def test_a_look_up_by_hand_needs_no_policy() -> None:
    positions = placed(A, reset="none")
    positions.look_up(A, EARLIEST)
    place = positions.place(A)

    assert positions.reset_of(place) == EARLIEST
    positions.on_placed(place, place.move_count, at(5))
    assert place.position == at(5)


def test_a_seek_during_a_look_up_wins() -> None:
    positions = placed(A)
    positions.look_up(A, EARLIEST)
    place = positions.place(A)
    move_count = place.move_count
    positions.seek(A, Offset(9))

    positions.on_placed(place, move_count, at(5))

    assert place.position == at(9)


def test_a_truncation_ahead_of_the_reader_only_drops_what_was_fetched_ahead() -> None:
    positions = placed(A)
    place = positions.place(A)
    positions.on_fetched(place, place.move_count, answer(place))
    assert offsets(positions, 1) == [(0, 0)]

    positions.on_diverged(place, place.move_count, at(2, 1))

    assert offsets(positions) == []
    assert place.position == place.fetch == at(1, EPOCH)


def test_a_truncation_behind_the_reader_goes_back_or_is_reported() -> None:
    for reset in ("latest", "none"):
        positions = placed(A, reset=reset)
        place = positions.place(A)
        positions.on_fetched(place, place.move_count, answer(place))
        offsets(positions)
        if reset == "none":
            with pytest.raises(RefusedError) as refused:
                positions.on_diverged(place, place.move_count, at(1, 1))
            assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            positions.on_diverged(place, place.move_count, at(1, 1))
            assert place.position == at(1, 1)


@pytest.mark.parametrize(("reset", "timestamp_ms"), [("PT1M", 940_000), ("P1D", 0)])
def test_a_reset_by_duration_goes_back_from_now(reset: str, timestamp_ms: int) -> None:
    positions = placed(A, reset=f"by_duration:{reset}")
    place = positions.place(A)

    positions.on_out_of_range(place, place.move_count, place.fetch.offset, NOW_MS)

    assert place.position is None
    assert place.lookup == timestamp_ms
    positions.look_up(A, None)  # no committed offset: as a new group begins
    assert positions.reset_of(place) == timestamp_ms


def test_a_late_refusal_of_an_earlier_fetch_moves_nothing() -> None:
    """A former leader returns an error for an offset of the next leader; it must not reset the
    position."""
    positions = placed(A, reset="latest")
    place = positions.place(A)
    earlier = place.fetch.offset
    positions.on_fetched(place, place.move_count, answer(place))
    assert len(offsets(positions)) == 3
    place.fetch = at(3)  # without an epoch, which is dropped by a first refusal

    positions.on_out_of_range(place, place.move_count, earlier, NOW_MS)

    assert place.position == at(3, EPOCH)
