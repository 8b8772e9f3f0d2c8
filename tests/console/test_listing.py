"""Search, order and pages of the console's lists, and addresses of pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.links import PathPattern, address
from ottla.console.listing import ROWS_MAX, listing

NAMES = [f"topic-{number:04}" for number in range(950)]


def page(**query: str) -> list[str]:
    return list(
        listing(
            NAMES, query, text_of=str, sorts={"name": str, "number": lambda one: int(one[-4:])}
        ).rows
    )


def test_a_list_has_pages() -> None:
    assert page() == NAMES[:ROWS_MAX]
    assert page(page="2") == NAMES[ROWS_MAX : 2 * ROWS_MAX]
    assert page(page="10") == NAMES[900:]
    assert page(page="999999") == NAMES[900:]
    assert page(sort="-number", page="10") == NAMES[49::-1]


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "9" * 5_000, "²", "1e9"])
def test_a_wrong_page_is_the_first_or_the_last(text: str) -> None:
    assert page(page=text) in (NAMES[:ROWS_MAX], NAMES[900:])


def test_a_search_finds_rows_with_all_words_regardless_of_case() -> None:
    assert page(q="TOPIC -094") == NAMES[940:]
    found = listing(NAMES, {"q": "x"}, text_of=str, sorts={"name": str})
    assert (found.rows, found.count, found.count_of_all, found.first) == ((), 0, 950, 0)


def test_unknown_values_are_last_in_either_order() -> None:
    sizes = {"a": 2, "b": None, "c": 1}
    for sort, names in (("size", "cab"), ("-size", "acb"), ("other", "cab")):
        found = listing(sizes, {"sort": sort}, text_of=str, sorts={"size": sizes.get})
        assert "".join(found.rows) == names


@given(st.text(), st.text())
def test_any_values_return_from_their_address(one: str, other: str) -> None:
    path = "/groups/{group}/members/{member}"
    found = PathPattern.of(path).match(address(path, {"group": one, "member": other}))
    assert found == {"group": one, "member": other}
