"""Sets in ascending order."""

import pytest

from ottla.testing.world.runtime.stable_sets import StableFrozenSet, StableSet


@pytest.mark.parametrize("kind", [StableSet, StableFrozenSet])
def test_iteration_and_the_results_of_operations_are_in_order(
    kind: type[StableSet] | type[StableFrozenSet],
) -> None:
    names = [f"topic-{number:03}" for number in range(100)]
    one, other = kind(reversed(names[:60])), kind(reversed(names[40:]))
    assert list(one) == names[:60]
    for found, expected in (
        (one | other, names),
        (one & other, names[40:60]),
        (one - other, names[:40]),
        (one ^ other, names[:40] + names[60:]),
        (one.union(names), names),
        (one.difference(names[1:]), names[:1]),
        (one.copy(), names[:60]),
    ):
        assert list(found) == expected
    assert one == set(names[:60])
    assert kind([(2, "b"), (1, "a")]) == {(1, "a"), (2, "b")}


def test_elements_without_an_order_are_kept() -> None:
    elements = [object() for _ in range(5)]
    assert set(StableSet(elements)) == set(elements)


def test_the_smallest_element_is_popped() -> None:
    numbers = StableSet("cab")
    assert [numbers.pop() for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(KeyError):
        numbers.pop()
