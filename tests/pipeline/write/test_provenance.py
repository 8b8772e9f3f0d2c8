"""A task's records are a function of its rows, numbered without gaps."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.write.provenance import (
    CHECK,
    NAMES,
    OVERHEAD_BYTES_MAX,
    ROWS_PER_TURN,
    SEQ,
    Stamps,
    WriteId,
)
from ottla.wire.batch import parse_header
from ottla.wire.batch_builder import BatchBuilder
from ottla.wire.records import scan

WRITE = WriteId("7f6a1c9e-8d0f-4f5e-9a51-0d2d6f1e2b3c", 12, 3)

some_bytes = st.none() | st.binary(max_size=3)
rows = st.tuples(
    st.sampled_from(["t", "u"]),
    st.integers(0, 2),
    some_bytes,
    some_bytes,
    st.lists(st.tuples(st.sampled_from(["a", "b"]), some_bytes), max_size=2),
)


def headers_of(encoded: bytes) -> list[tuple[str, bytes | None]]:
    """Return the headers of a record that is written with these."""
    builder = BatchBuilder()
    builder.append(0, None, b"v", encoded)
    batch = builder.build()
    (record,) = scan(batch, 0, parse_header(batch))
    return list(record.headers)


def test_a_record_has_its_own_headers_first_and_then_ours() -> None:
    found = headers_of(Stamps(WRITE).stamp("t", 0, b"k", b"v", [("own", None)]))

    assert found[0] == ("own", None)
    assert [name for name, _ in found[1:]] == list(NAMES)
    assert [value for _, value in found[1:5]] == [WRITE.query.encode(), b"12", b"3", b"0"]
    size = sum(len(name) + len(value or b"") + 2 for name, value in found[1:])
    assert size <= OVERHEAD_BYTES_MAX


@given(st.lists(rows, max_size=12))
def test_each_partition_counts_from_zero_without_gaps(given_rows: list) -> None:  # type: ignore[type-arg]
    stamps = Stamps(WRITE)
    seen: dict[tuple[str, int], list[int]] = {}
    for topic, partition, key, value, headers in given_rows:
        found = dict(headers_of(stamps.stamp(topic, partition, key, value, headers)))
        seen.setdefault((topic, partition), []).append(int(found[SEQ] or b""))

    for numbers in seen.values():
        assert numbers == list(range(len(numbers)))


@given(st.lists(rows, min_size=1, max_size=4), st.lists(rows, min_size=1, max_size=4))
def test_checks_are_alike_exactly_where_the_rows_are(one: list, other: list) -> None:  # type: ignore[type-arg]
    def checks(given_rows: list) -> list[bytes | None]:  # type: ignore[type-arg]
        stamps = Stamps(WRITE)
        return [
            dict(headers_of(stamps.stamp("t", 0, key, value, headers)))[CHECK]
            for _, _, key, value, headers in given_rows
        ]

    alike = [row[2:] for row in one] == [row[2:] for row in other]
    assert (checks(one) == checks(other)) == alike


def test_a_choice_among_more_partitions_shows() -> None:
    few = headers_of(Stamps(WRITE).stamp("t", 0, b"k", b"v", chosen_among=3))
    more = headers_of(Stamps(WRITE).stamp("t", 0, b"k", b"v", chosen_among=4))

    assert few[:4] == more[:4]
    assert few[4] != more[4]


def test_rows_without_a_key_go_round_in_turns_that_begin_elsewhere_in_each_batch_and_task() -> None:
    def turns(write: WriteId) -> list[int]:
        stamps = Stamps(write)
        counts = 1, 2 * ROWS_PER_TURN - 3, 0, 2
        return [turn for count in counts for turn in stamps.next_turns("t", count, 4)]

    assert turns(WriteId("q", 0, 0)) == [0] * ROWS_PER_TURN + [1] * ROWS_PER_TURN
    assert turns(WriteId("q", 1, 0))[0] == 1
    assert turns(WriteId("q", 1, 2))[0] == 3
    assert turns(WriteId("q", 1, 2)) == turns(WriteId("q", 1, 2))
