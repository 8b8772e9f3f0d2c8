"""The map under the image: nothing changes, and order never depends on hashing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.persistent_map import PersistentMap


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | st.integers())))
def test_it_behaves_as_a_dictionary_that_is_copied_at_every_change(
    changes: list[tuple[str, int | None]],
) -> None:
    plain: dict[str, int] = {}
    persistent: PersistentMap[str, int] = PersistentMap()
    for key, value in changes:
        before, copy = persistent, dict(plain)
        if value is None:
            plain.pop(key, None)
            persistent = persistent.discard(key)
        else:
            plain[key] = value
            persistent = persistent.set(key, value)
        assert dict(before) == copy
    assert list(persistent.items()) == sorted(plain.items())
    assert persistent == PersistentMap(plain)
    assert len(persistent) == len(plain)


def test_it_iterates_in_sorted_order_however_it_was_built() -> None:
    names = [f"topic-{number}" for number in range(100)]

    built = PersistentMap((name, None) for name in reversed(names))

    assert list(built) == sorted(names)


def test_deleting_what_is_not_there_is_a_bug() -> None:
    with pytest.raises(KeyError):
        PersistentMap({"a": 1}).delete("b")


def test_a_map_is_no_key() -> None:
    with pytest.raises(TypeError):
        hash(PersistentMap({"a": 1}))
