"""The picture of a bad log shows each odd offset with everything that was said of it."""

from collections.abc import Sequence
from itertools import pairwise
from xml.etree import ElementTree

from ottla.jepsen.history import Json, Kind, Operation, Recorder
from ottla.jepsen.report.orders import (
    COLUMNS_MAX,
    grid_of,
    odd_offsets,
    order,
    touches_of,
    values_at,
)


class Log:
    """Notes sends and polls, a second each."""

    def __init__(self) -> None:
        self._now_ns = 0
        self._recorder = Recorder(self._tick, concurrency=10)

    def _tick(self) -> int:
        self._now_ns += 500_000_000
        return self._now_ns

    def send(self, process: int, value: int, offset: int | None) -> int:
        """Note a send that was acknowledged; return the index of its answer."""
        invoke = self._recorder.invoke(process, "send", [["send", "q<0>", value]])
        came = [["send", "q<0>", [offset, value]]]
        return self._recorder.complete(invoke, Kind.OK, came).index

    def poll(self, process: int, *records: tuple[int, int]) -> int:
        """Note a poll; return the index of its answer."""
        invoke = self._recorder.invoke(process, "poll", [["poll"]])
        told: Json = [["poll", {"q<0>": [list(record) for record in records], "other": [[0, 1]]}]]
        return self._recorder.complete(invoke, Kind.OK, told).index

    def operations(self) -> Sequence[Operation]:
        """Return everything that was noted."""
        return self._recorder.history().operations()


def bad_cells(body: str) -> list[str]:
    """Return the words in red cells."""
    tree = list(ElementTree.fromstring(f"<g>{body}</g>").iter())
    return [
        "".join(after.itertext())
        for cell, after in pairwise(tree)
        if cell.get("class") == "badcell"
    ]


def test_a_value_that_disagrees_with_the_first_one_at_its_offset_is_red() -> None:
    log = Log()
    log.send(0, 100, 0)
    log.send(1, 101, 1)
    log.poll(2, (0, 100), (1, 101))
    proof = log.send(3, 102, 1)
    log.poll(4, (0, 100), (1, 102))
    picture = order("q<0>", log.operations(), [proof], (), 10.0)
    assert picture is not None
    assert bad_cells(picture.body) == ["102", "102"]
    assert "0:05 read by 4" in picture.body


def test_a_value_in_two_places_is_red_in_both() -> None:
    log = Log()
    log.send(0, 7, 0)
    log.poll(1, (0, 7), (1, 7))
    picture = order("q<0>", log.operations(), [], (), 10.0)
    assert picture is not None
    assert bad_cells(picture.body) == ["7", "7", "7"]


def test_the_offset_of_a_lost_value_is_shown_with_the_reads_that_passed_it() -> None:
    log = Log()
    lost = log.send(0, 50, 5)
    log.poll(1, (3, 48), (4, 49), (6, 51))
    operations = log.operations()
    touches = list(touches_of("q<0>", operations))
    odd = odd_offsets(touches, {lost}, values_at(touches))
    assert odd == {5}
    rows, columns = grid_of(touches, odd, {lost})
    assert 5 in rows
    assert [touch.is_send for touch in columns] == [True, False]
    picture = order("q<0>", operations, [lost], (), 10.0)
    assert picture is not None
    assert ">·</text>" in picture.body


def test_what_was_sent_to_nobody_knows_where_is_told_below_the_grid() -> None:
    log = Log()
    log.send(0, 1, 0)
    unknown = log.send(1, 99, None)
    log.poll(2, (0, 1))
    picture = order("q<0>", log.operations(), [unknown], (), 10.0)
    assert picture is not None
    assert "Sent, offset unknown: 99 by process 1." in picture.body


def test_with_many_odd_offsets_the_first_ones_are_told_wholly_and_the_others_counted() -> None:
    log = Log()
    proofs = []
    for i in range(40):
        log.send(0, i, i)
        proofs.append(log.send(1, 1_000 + i, i))
    touches = list(touches_of("q<0>", log.operations()))
    odd = odd_offsets(touches, set(proofs), values_at(touches))
    assert odd == set(range(40))
    rows, columns = grid_of(touches, odd, set(proofs))
    assert list(rows) == list(range(COLUMNS_MAX // 2))
    assert len(columns) == COLUMNS_MAX
    picture = order("q<0>", log.operations(), proofs, (), 100.0)
    assert picture is not None
    assert "29 more offsets of findings left out." in picture.body


def test_a_key_that_nobody_used_has_no_picture() -> None:
    log = Log()
    log.send(0, 1, 0)
    assert order("another", log.operations(), [], (), 10.0) is None
