"""Records that were written again are left out, whatever attempts there were and however read."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import CorruptDataError
from ottla.pipeline.write.provenance import NAMES, Stamps, WriteId
from ottla.pipeline.write.replays import ReplayFilter

from .test_provenance import headers_of

HEADERS = pa.list_(
    pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])
)
Headers = list[tuple[str, bytes | None]] | None
Record = tuple[str, Headers]
"""A name that tells the record from others, and its headers."""


def column(records: list[Record]) -> pa.ListArray:
    rows = [
        None if headers is None else [{"key": name, "value": value} for name, value in headers]
        for _, headers in records
    ]
    return pa.array(rows, type=HEADERS)


def attempt(write: WriteId, names: list[str], topic: str = "t") -> list[Record]:
    stamps = Stamps(write)
    return [
        (name, headers_of(stamps.stamp(topic, 0, None, name.encode(), [("h", b"")])))
        for name in names
    ]


def read(records: list[Record], sizes: list[int], replays: ReplayFilter | None = None) -> list[str]:
    """Read the records in fetches of `size`; return the names of those that are kept."""
    replays = replays or ReplayFilter()
    kept: list[str] = []
    at = 0
    while at < len(records):
        size = sizes.pop(0) if sizes else len(records)
        fetch = records[at : at + size]
        mask = replays.keep(column(fetch))
        kept += [name for index, (name, _) in enumerate(fetch) if mask is None or mask[index]]
        at += size
    return kept


def names_of(write: WriteId, count: int) -> list[str]:
    return [f"{write.query}/{write.batch}/{write.partition}/{number}" for number in range(count)]


@given(seed=st.integers(0, 1 << 32), sizes=st.lists(st.integers(1, 9), max_size=20))
def test_whatever_attempts_there_were_each_record_is_kept_once_in_order(
    seed: int, sizes: list[int]
) -> None:
    """Attempts that died, that ran on beside the next one, and other writers, in any mixture."""
    chance = random.Random(seed)
    lanes: list[list[Record]] = []
    expected: list[str] = []
    for query in ("q", "r"):
        for partition in range(2):
            lane: list[Record] = []
            for batch in range(chance.randrange(1, 4)):
                write = WriteId(query, batch, partition)
                names = names_of(write, chance.randrange(0, 6))
                whole = attempt(write, names)
                tries = [whole[: chance.randrange(len(whole) + 1)] for _ in range(2)]
                lane += merged(chance, tries) + whole
                if chance.random() < 0.3:
                    lane += whole[: chance.randrange(len(whole) + 1)]
                expected += names
            lanes.append(lane)
    lanes.append([(f"else/{n}", None if n % 2 else [("h", None)] * (n % 7)) for n in range(8)])
    expected += [name for name, _ in lanes[-1]]
    topic = merged(chance, lanes)

    kept = read(topic, list(sizes))

    assert sorted(kept) == sorted(expected)
    for task in range(len(lanes) - 1):
        of_query, of_task = "qr"[task // 2], str(task % 2)
        parts = [name.split("/") for name in kept]
        places = [
            (int(one[1]), int(one[3]))
            for one in parts
            if one[0] == of_query and one[2:3] == [of_task]
        ]
        assert places == sorted(places)


def merged(chance: random.Random, lanes: list[list[Record]]) -> list[Record]:
    """Mix lanes at random, keeping the order of each."""
    turns = [index for index, lane in enumerate(lanes) for _ in lane]
    chance.shuffle(turns)
    iterators = [iter(lane) for lane in lanes]
    return [next(iterators[turn]) for turn in turns]


def test_a_late_attempt_at_an_earlier_batch_is_left_out() -> None:
    first, second = (attempt(WriteId("q", n, 0), names_of(WriteId("q", n, 0), 3)) for n in (0, 1))

    assert read(first + second + first, []) == [name for name, _ in first + second]


def test_a_range_learns_from_what_lies_before_it() -> None:
    records = attempt(WriteId("q", 5, 0), list("abcde"))
    replays = ReplayFilter()
    replays.keep(column(records[2:4]))

    assert replays.is_unsure(0), "the batch began before"
    assert read(records, [1, 2], replays) == ["e"]


@pytest.mark.parametrize("is_one_by_one", [True, False])
def test_who_has_seen_a_batch_begin_and_what_was_before_is_sure(is_one_by_one: bool) -> None:
    replays = ReplayFilter()
    assert not replays.is_unsure(1_000), "nothing is repeated that was never started"
    records = [("n", None)] * 3 + attempt(WriteId("q", 5, 0), ["a", "b"])
    if is_one_by_one:
        records += records[3:]  # a repetition is judged record by record
    replays.keep(column(records))
    assert not replays.is_unsure(3)
    assert replays.is_unsure(4)
    replays.keep(column(attempt(WriteId("q", 6, 0), ["a", "b", "c"])))
    assert not replays.is_unsure(len(records))
    replays.keep(column(attempt(WriteId("q", 7, 0), ["a", "b"])[1:]))
    assert replays.is_unsure(0)


@pytest.mark.parametrize("sizes", [[], [1] * 9, [3], [4, 2]])
def test_a_repetition_with_other_rows_is_an_error_that_names_it(sizes: list[int]) -> None:
    write = WriteId("q", 5, 2)
    records = attempt(write, ["a", "b", "c"]) + attempt(write, ["b", "a", "c"])

    with pytest.raises(CorruptDataError, match=r"batch 5 of query q .* by task 2"):
        read(records, sizes)


def test_where_only_later_rows_differ_it_shows_when_the_last_one_comes_again() -> None:
    write = WriteId("q", 5, 2)
    records = attempt(write, ["a", "b", "c"]) + attempt(write, ["a", "c", "b", "d"])

    with pytest.raises(CorruptDataError):
        read(records, [])


def test_where_data_may_be_lost_a_repetition_with_other_rows_is_kept_as_new() -> None:
    write = WriteId("q", 5, 2)
    records = attempt(write, ["a", "b", "c"]) + attempt(write, ["b", "a", "c"])
    replays = ReplayFilter(fail_on_data_loss=False)

    assert read(records, [], replays) == ["a", "b", "c", "b", "a", "c"]


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (0, None), (1, None), (1, b"-1"), (1, b"x"), (1, b"%d" % (1 << 31)), (2, b"1.5"),
        (3, b"%d" % (1 << 32)), (3, b"9" * 30), (3, b"\xff"), (4, None),
    ],
)  # fmt: skip
def test_headers_that_only_look_like_ours_are_nothing_to_judge_by(
    index: int, value: bytes | None
) -> None:
    ours = attempt(WriteId("q", 1, 0), ["a", "b"])
    forged = headers_of(Stamps(WriteId("q", 1, 0)).stamp("t", 0, None, b"x"))
    forged[index] = (NAMES[index], value)
    records: list[Record] = [*ours, ("x", forged), ("y", forged), *ours]

    assert read(records, []) == ["a", "b", "x", "y"]


def test_a_column_that_is_a_slice_or_empty_is_read_as_such() -> None:
    ours = attempt(WriteId("q", 1, 0), list("abcd"))
    whole = column([("n", None), *ours, ("n", []), *ours])
    replays = ReplayFilter()

    assert replays.keep(whole[:0]) is None
    assert replays.keep(whole[1:3]) is None
    mask = replays.keep(whole[2:])
    assert mask is not None
    assert mask.dtype == np.bool_
    assert mask.tolist() == [False, True, True, True] + [False] * 4
