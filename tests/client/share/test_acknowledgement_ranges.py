"""Merging acknowledgements into ranges equals a type for each offset."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.share.acknowledgement_ranges import AcknowledgeType, merged, runs_of

ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE
KINDS = st.sampled_from(AcknowledgeType)


@st.composite
def items(draw: st.DrawFn) -> list[tuple[int, int, AcknowledgeType]]:
    """Draw ranges of offsets that do not overlap, in any order."""
    found, at = [], 0
    for gap, count, kind in draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40), KINDS), max_size=30)
    ):
        at += gap
        found.append((at, at + count - 1, kind))
        at += count
    return draw(st.permutations(found))


@given(items())
def test_ranges_say_of_each_offset_what_was_acknowledged(
    given: list[tuple[int, int, AcknowledgeType]],
) -> None:
    expected = {offset: kind for first, last, kind in given for offset in range(first, last + 1)}
    found: dict[int, int] = {}
    last = -1
    for one in merged(given):
        # The rules of Kafka's broker, KIP-932.
        assert last < one.first <= one.last
        count = one.last - one.first + 1
        assert len(one.types) in (1, count)
        types = one.types * count if len(one.types) == 1 else one.types
        found |= dict(zip(range(one.first, one.last + 1), types, strict=True))
        last = one.last
    assert found == expected


def test_neighbours_of_one_type_become_one_range() -> None:
    assert merged([(5, 5, ACCEPT), (3, 4, ACCEPT), (6, 90, ACCEPT)]) == [(3, 90, (1,))]


def test_short_runs_share_a_range_and_long_ones_do_not() -> None:
    assert merged([(0, 1, ACCEPT), (2, 2, RELEASE), (3, 3, ACCEPT)]) == [(0, 3, (1, 1, 2, 1))]
    assert merged([(0, 99, ACCEPT), (100, 100, RELEASE)]) == [(0, 99, (1,)), (100, 100, (2,))]


def test_offsets_become_runs_of_neighbours() -> None:
    assert runs_of([1, 2, 4, 7, 8]) == [(1, 2), (4, 4), (7, 8)]
    assert runs_of([]) == []
