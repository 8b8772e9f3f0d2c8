"""Dead letters as `ottla share redrive` reads them, and the progress that it stores."""

import itertools
import random
from typing import Any
from uuid import UUID

import pytest

from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.insight.changes.redrive_letters import (
    LeftReason,
    Letter,
    LetterCause,
    LetterFilter,
    letter_in,
    moved_headers,
)
from ottla.insight.changes.redrive_progress import DoneOffsets, progress_key, restored, stored
from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, Offset, TopicPartition
from ottla.wire.batch import TimestampType

REJECTED = b"Offset rejected by client."
USED_UP = b"Offset delivery count exceeded the threshold."
FIELDS = {"topic": b"orders", "partition": b"1", "offset": b"7", "group": b"g", "message": REJECTED}
FILTER = LetterFilter("g", "dlq.orders")


def record(*others: tuple[str, bytes], timestamp_ms: int = 5, **changes: bytes | None) -> Any:
    """Return a record of the dead letter topic; None removes a header."""
    fields = {**FIELDS, **changes}
    headers = [(f"__dlq.errors.{name}", text) for name, text in fields.items() if text is not None]
    return ConsumerRecord(
        "dlq.orders",
        0,
        Offset(3),
        timestamp_ms,
        b"k",
        b"v",
        (*others, *headers),
        Epoch(0),
        TimestampType.CREATE_TIME,
    )


def test_a_letter_names_its_record_group_and_cause() -> None:
    at = TopicPartition("orders", 1)
    assert letter_in(record()) == Letter("g", at, 7, LetterCause.REJECTED, 0)
    assert letter_in(record(message=USED_UP)) == Letter("g", at, 7, LetterCause.EXHAUSTED, 0)
    again = letter_in(record(("ottla.redrive.count", b"2")))
    assert again is not None
    assert again.redrive_count == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": None},
        {"topic": b"__consumer_offsets"},
        {"topic": b"a/b"},
        {"topic": b"\xff"},
        {"partition": b"-1"},
        {"partition": b"2147483648"},
        {"partition": "١".encode()},
        {"offset": b"9" * 5_000},
        {"offset": b"9223372036854775808"},
        {"group": b""},
    ],
)
def test_a_record_that_names_no_record_is_no_letter(changes: dict[str, Any]) -> None:
    assert letter_in(record(**changes)) is None
    assert FILTER.verdict(record(**changes)) is LeftReason.NO_LETTER


def test_a_letter_of_a_letter_has_the_last_origin() -> None:
    copied = letter_in(record(("__dlq.errors.topic", b"older")))
    assert copied is not None
    assert copied.at.topic == "orders"


@pytest.mark.parametrize(
    ("changes", "headers", "expected"),
    [
        ({"group_id": "other"}, {}, LeftReason.OTHER_GROUP),
        ({"cause": LetterCause.EXHAUSTED}, {}, LeftReason.FILTERED),
        ({"cause": LetterCause.EXHAUSTED}, {"message": USED_UP}, None),
        ({"places": {"orders": None}}, {}, None),
        ({"places": {"orders": frozenset({0})}}, {}, LeftReason.FILTERED),
        ({"places": {"others": None}}, {}, LeftReason.FILTERED),
        ({"since_ms": 5, "until_ms": 6}, {}, None),
        ({"since_ms": 6}, {}, LeftReason.FILTERED),
        ({"until_ms": 5}, {}, LeftReason.FILTERED),
        ({"letter_topic": "orders"}, {}, LeftReason.LOOP),
    ],
)
def test_filters_leave_letters(changes: Any, headers: Any, expected: LeftReason | None) -> None:
    verdict = FILTER._replace(**changes).verdict(record(**headers))
    assert isinstance(verdict, Letter) if expected is None else verdict is expected


def test_a_record_is_moved_a_limited_number_of_times() -> None:
    headers: list[tuple[str, bytes | None]] = [("trace", b"t")]
    moves = 0
    while True:
        letter = FILTER.verdict(record(*headers))  # type: ignore[arg-type]  # the values are set
        if not isinstance(letter, Letter):
            break
        headers = moved_headers(record(*headers).headers, letter)  # type: ignore[arg-type]  # set
        moves += 1
        assert headers == [
            ("trace", b"t"),
            ("ottla.redrive.group", b"g"),
            ("ottla.redrive.count", b"%d" % moves),
        ]
    assert (moves, letter) == (3, LeftReason.REDRIVEN)


def test_done_offsets_agree_with_a_set() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        done, model = DoneOffsets(), set[int]()
        for _ in range(30):
            begin = rng.randrange(40)
            if rng.random() < 0.3:
                done.discard(begin)
                model.discard(begin)
                continue
            end = begin + rng.randrange(6)
            done.add(begin, end)
            model.update(range(begin, end))
        assert {one for one in range(50) if one in done} == model
        ranges = done.ranges
        assert all(begin < end for begin, end in ranges)
        assert all(a[1] < b[0] for a, b in itertools.pairwise(ranges))
        assert restored(stored(done)).ranges == ranges


@pytest.mark.parametrize(
    "value", [None, b"", b"\xff", b"[]", b"{}", b'{"done": [[1]]}', b"[" * 100_000, b'{"done": 1}']
)
def test_a_damaged_progress_record_is_refused(value: bytes | None) -> None:
    with pytest.raises(CorruptDataError):
        restored(value)


def test_progress_has_the_id_of_the_topic() -> None:
    first, second = (progress_key("g", "dlq", UUID(int=one), 0) for one in (1, 2))
    assert first != second
