"""Index entries and batches are read in parallel; each entry is checked once, at its batch."""

from struct import pack

from ottla.model.ids import Offset
from ottla.storage.inspection.batch_walk import BatchRow, Problem, walk
from ottla.storage.inspection.dump import Entry
from ottla.storage.inspection.index_checks import AnyIndexCheck, OffsetIndexCheck, TimeIndexCheck
from ottla.storage.inspection.readable import BytesReadable
from ottla.wire.batch_builder import build_batch

BATCHES = [
    build_batch([(100 + number, None, b"v")] * 2, base_offset=Offset(10 + 2 * number))
    for number in range(4)
]
LOG = BytesReadable(b"".join(BATCHES))
SIZE = len(BATCHES[0])


def judged(check: AnyIndexCheck) -> list[str | None]:
    found: list[Entry | Problem] = []
    for row in walk(LOG):
        assert isinstance(row, BatchRow)
        found += check.on_batch(row)
    found += check.finish("the end")
    return [each.problem for each in found]


def offsets(*entries: tuple[int, int]) -> OffsetIndexCheck:
    data = b"".join(pack(">ii", offset - 10, position) for offset, position in entries)
    return OffsetIndexCheck(BytesReadable(data), 10)


def times(*entries: tuple[int, int]) -> TimeIndexCheck:
    data = b"".join(pack(">qi", timestamp_ms, offset - 10) for timestamp_ms, offset in entries)
    return TimeIndexCheck(BytesReadable(data), 10)


def test_entries_that_fit_are_all_judged_so() -> None:
    assert judged(offsets((13, SIZE), (15, 2 * SIZE), (17, 3 * SIZE))) == [None] * 3
    assert judged(times((101, 13), (103, 17))) == [None] * 2


def test_each_way_of_not_fitting_has_its_words() -> None:
    assert judged(offsets((12, SIZE), (14, 2 * SIZE + 1), (17, 4 * SIZE))) == [
        f"the batch at {SIZE} ends with offset 13",
        f"position {2 * SIZE + 1} lies within the batch at {2 * SIZE}",
        "it is beyond the end",
    ]
    assert judged(times((99, 11), (101, 15), (104, 18))) == [
        "the largest timestamp up to offset 11 is 100",
        "the largest timestamp up to offset 15 is 102",
        "it is beyond the end",
    ]


def test_what_is_out_of_order_is_not_looked_for() -> None:
    assert judged(offsets((15, 2 * SIZE), (13, SIZE), (17, 3 * SIZE))) == [
        None,
        "relative offset 3 follows 5",
        None,
    ]
    assert judged(times((103, 17), (101, 13))) == [None, "timestamp 101 follows 103"]


def test_a_time_entry_of_a_later_batch_than_the_first_with_its_timestamp_does_not_fit() -> None:
    log = [build_batch([(100, None, b"v")], base_offset=Offset(10 + number)) for number in range(2)]
    check = times((100, 11))
    rows = [row for row in walk(BytesReadable(b"".join(log))) if isinstance(row, BatchRow)]
    found = [each.problem for row in rows for each in check.on_batch(row)]
    assert found == ["timestamp 100 is that of a batch before offset 11"]


def test_half_an_entry_is_a_problem_at_its_place() -> None:
    data = pack(">ii", 3, SIZE) + b"abc"
    check = OffsetIndexCheck(BytesReadable(data), 10)
    assert judged(check) == [None, "3 bytes are no whole entry"]
