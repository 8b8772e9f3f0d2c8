"""Merge of state batches beside a dictionary of offsets."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.coordinators.share_persister import StateBatch
from ottla.broker.share_state.state_batches import HELD_PER_INSERT, SINGLE_INSERTS_MAX, merge

OFFSETS_MAX = 30


@st.composite
def batches(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, OFFSETS_MAX))
    last = draw(st.integers(first, OFFSETS_MAX))
    return StateBatch(first, last, draw(st.sampled_from((0, 2, 3, 4))), draw(st.integers(0, 2)))


STEPS = st.lists(st.tuples(st.lists(batches(), max_size=14), st.integers(-1, OFFSETS_MAX)))


def by_offset(held: list[StateBatch]) -> dict[int, tuple[int, int]]:
    """Return (delivery count, delivery state) of each offset."""
    return {
        offset: (batch.delivery_count, batch.delivery_state)
        for batch in held
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }


@given(STEPS)
def test_each_offset_keeps_its_highest_count_and_state(
    steps: list[tuple[list[StateBatch], int]],
) -> None:
    held: list[StateBatch] = []
    expected: dict[int, tuple[int, int]] = {}
    for changed, start_offset in steps:
        merge(held, changed, start_offset)
        for batch in changed:
            for offset, rank in by_offset([batch]).items():
                expected[offset] = max(rank, expected.get(offset, rank))
        expected = {offset: rank for offset, rank in expected.items() if offset >= start_offset}

        assert by_offset(held) == expected
        for left, right in pairwise(held):
            assert left.last_offset < right.first_offset, "sorted, without overlap"
            is_joined = left.last_offset + 1 == right.first_offset and left[2:] == right[2:]
            assert not is_joined, "adjacent batches of one state are one batch"


@given(st.lists(batches(), max_size=6), st.randoms())
def test_the_order_of_changes_does_not_matter(changed: list[StateBatch], random: object) -> None:
    shuffled = list(changed)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    in_order: list[StateBatch] = []
    out_of_order: list[StateBatch] = []
    merge(in_order, changed, -1)
    merge(out_of_order, shuffled, -1)
    merge(out_of_order, changed, -1)
    assert by_offset(in_order) == by_offset(out_of_order)


def test_few_changes_among_thousands_of_batches_have_the_same_outcome() -> None:
    """As with delayed records, whose settled neighbours alternate with them."""
    held = [StateBatch(2 * each, 2 * each, 2, 1) for each in range(2_000)]
    changed = [StateBatch(50 * each + 1, 50 * each + 3, 2, 1 + each % 2) for each in range(20)]
    expected = by_offset(held)
    for offset, rank in by_offset(changed).items():
        expected[offset] = max(rank, expected.get(offset, rank))
    assert SINGLE_INSERTS_MAX < len(changed) < len(held) // HELD_PER_INSERT
    merge(held, changed, -1)
    assert by_offset(held) == expected
    assert all(left.last_offset < right.first_offset for left, right in pairwise(held))
