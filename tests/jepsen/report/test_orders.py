"""The log of a bad key lists each odd offset with its values, their senders and readers."""

from collections.abc import Sequence
from xml.etree import ElementTree

from ottla.jepsen.history import EventKind, Json, Operation, Recorder
from ottla.jepsen.report.orders import OFFSETS_MAX, by_answer, log_table


class Log:
    """A history of sends and polls of a second each."""

    def __init__(self) -> None:
        self._now_ns = 0
        self._recorder = Recorder(self._tick, concurrency=10)

    def _tick(self) -> int:
        self._now_ns += 500_000_000
        return self._now_ns

    def send(self, process: int, value: int, offset: int | None) -> int:
        """Note an acknowledged send; return the index of its answer."""
        invoke = self._recorder.invoke(process, "send", [["send", "q<0>", value]])
        return self._recorder.complete(
            invoke, EventKind.OK, [["send", "q<0>", [offset, value]]]
        ).index

    def poll(self, process: int, *records: tuple[int, int]) -> int:
        """Note a poll; return the index of its answer."""
        invoke = self._recorder.invoke(process, "poll", [["poll"]])
        read: Json = [["poll", {"q<0>": [list(record) for record in records], "other": [[0, 1]]}]]
        return self._recorder.complete(invoke, EventKind.OK, read).index

    def operations(self) -> Sequence[Operation]:
        """Return all operations."""
        return self._recorder.history().operations()


def words_of(log: Log, *proving: int) -> tuple[list[list[str]], str]:
    """Return the rows of the table, and all words of it."""
    whole = log_table("q<0>", by_answer(log.operations()), set(proving))
    assert whole is not None
    tree = ElementTree.fromstring(whole)
    rows = [["".join(cell.itertext()) for cell in row] for row in tree.iter("tr")]
    return rows[1:], " ".join(tree.itertext())


def test_a_value_contradicts_the_first_one_at_its_offset() -> None:
    log = Log()
    log.send(0, 100, 0)
    log.send(1, 101, 1)
    log.poll(2, (0, 100), (1, 101))
    proof = log.send(3, 102, 1)
    log.poll(4, (0, 100), (1, 102))
    rows, words = words_of(log, proof)
    assert rows == [
        ["0", "100", "0:01 by 0 (event 1)", "0:03 by 2 (event 5)", "2", ""],
        ["1", "101", "0:02 by 1 (event 3)", "0:03 by 2 (event 5)", "1", ""],
        ["1", "102", "0:04 by 3 (event 7)", "0:05 by 4 (event 9)", "1", "contradicts 101"],
    ]
    assert "The log of q<0> around 1 offset of findings" in words
    assert words_of(log)[0] == rows, "a second value is odd even where no send is a finding's"


def test_a_value_in_two_places_names_the_other_one() -> None:
    log = Log()
    log.send(0, 7, 0)
    log.poll(1, (0, 7), (1, 7))
    rows, _ = words_of(log)
    assert [row[-1] for row in rows] == ["also at 1", "also at 0"]


def test_a_lost_value_names_the_read_that_passed_its_offset() -> None:
    log = Log()
    lost = log.send(0, 50, 5)
    log.poll(1, (3, 48), (4, 49), (6, 51))
    rows, _ = words_of(log, lost)
    assert [row[0] for row in rows] == ["4", "5", "6"]
    assert rows[1][-1] == "never read, read past 0:02 by 1 (event 3)"


def test_a_send_to_an_unknown_offset_stands_below_the_table() -> None:
    log = Log()
    log.send(0, 1, 0)
    unknown = log.send(1, 99, None)
    log.poll(2, (0, 1))
    assert "Sent to an unknown offset: 0:02 by 1 (event 3)." in words_of(log, unknown)[1]


def test_a_read_that_went_wrong_alone_is_listed_by_its_ends() -> None:
    log = Log()
    for i in range(9):
        log.send(0, i, i)
    skipped = log.poll(1, *((i, i) for i in (0, 1, 2, 3, 6, 7, 8)))
    rows, _ = words_of(log, skipped)
    assert [row[0] for row in rows] == ["0", "1", "2", "6", "7", "8"]


def test_of_many_odd_offsets_the_first_are_listed_and_the_others_counted() -> None:
    log = Log()
    proofs = []
    for i in range(40):
        log.send(0, i, i)
        proofs.append(log.send(1, 1_000 + i, i))
    rows, words = words_of(log, *proofs)
    assert len(rows) == 2 * (OFFSETS_MAX + 1), "with one offset of context"
    assert f"{40 - OFFSETS_MAX} more offsets left out." in words


def test_a_key_without_odd_offsets_has_no_table() -> None:
    log = Log()
    log.send(0, 1, 0)
    assert log_table("q<0>", log.operations(), set()) is None
    assert log_table("another", log.operations(), {1}) is None
