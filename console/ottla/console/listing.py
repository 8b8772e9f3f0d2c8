"""Searches and sorts a list, and divides it into pages. Pure.

Each list of the console has the same query parameters: `q` searches, `sort` orders (`-size` in
descending order), `page` counts from 1. An unknown value selects the default, so that old addresses
still work.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from ottla.model.values import frozen

Row = TypeVar("Row")
Other = TypeVar("Other")

ROWS_MAX = 100
"""Maximum number of rows on one page of a list. With more rows, a page of long names would exceed
100 KB."""
SEARCH_CHARS_MAX = 500
PAGE_DIGITS_MAX = 6


@frozen(kw_only=True)
class ListPage(Generic[Row]):
    """One page of a list, after search and sorting."""

    rows: tuple[Row, ...]
    count: int
    """Number of rows of the list that the search found, on all pages."""
    count_of_all: int
    """Number of rows of the whole list, without the search."""
    page: int
    """Number of this page of the list, from 1."""
    page_count: int
    """Number of pages of the list, at least 1."""
    search: str
    sort: str
    """Key of the column by which the list is sorted, without the sign for descending order."""
    is_descending: bool

    @property
    def first(self) -> int:
        """Number of the first row on this page within the list, from 1, or 0 if the page has no
        rows."""
        return (self.page - 1) * ROWS_MAX + 1 if self.rows else 0

    @property
    def last(self) -> int:
        """Number of the last row on this page within the list."""
        return self.first + len(self.rows) - 1 if self.rows else 0

    def sort_after(self, key: str) -> str:
        """Return the value of the query parameter `sort` for the link in a column's header. If the
        list is already sorted by this column, the value selects the opposite direction."""
        return f"-{key}" if key == self.sort and not self.is_descending else key

    def with_rows(self, rows: Iterable[Other]) -> "ListPage[Other]":
        """Return the same page of the list with other rows, such as rows with more details."""
        return ListPage(
            rows=tuple(rows),
            count=self.count,
            count_of_all=self.count_of_all,
            page=self.page,
            page_count=self.page_count,
            search=self.search,
            sort=self.sort,
            is_descending=self.is_descending,
        )


def listing(
    rows: Iterable[Row],
    query: Mapping[str, str],
    *,
    text_of: Callable[[Row], str],
    sorts: Mapping[str, Callable[[Row], Any]],
) -> ListPage[Row]:
    """Return the page of a list that the query parameters of an address select.

    The search finds rows whose `text_of` contains all words of `q`, regardless of case. `sorts` has
    the key functions of the sortable columns; the first is the default. Rows with a key of None are
    last.
    """
    everything = list(rows)
    search = query.get("q", "").strip()[:SEARCH_CHARS_MAX]
    words = search.casefold().split()
    found = everything
    if words:
        found = [row for row in everything if _has_words(text_of(row).casefold(), words)]
    asked = query.get("sort", "")
    sort = asked.removeprefix("-")
    is_descending = asked.startswith("-") and sort in sorts
    if sort not in sorts:
        sort = next(iter(sorts), "")
    if sort:
        key = sorts[sort]
        known = [row for row in found if key(row) is not None]
        unknown = [row for row in found if key(row) is None]
        found = sorted(known, key=key, reverse=is_descending) + unknown
    page_count = max(1, -(-len(found) // ROWS_MAX))
    page = min(_number(query.get("page", "")), page_count)
    start = (page - 1) * ROWS_MAX
    return ListPage(
        rows=tuple(found[start : start + ROWS_MAX]),
        count=len(found),
        count_of_all=len(everything),
        page=page,
        page_count=page_count,
        search=search,
        sort=sort,
        is_descending=is_descending,
    )


def _has_words(text: str, words: list[str]) -> bool:
    return all(word in text for word in words)


def _number(text: str) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) <= PAGE_DIGITS_MAX
    return max(1, int(text)) if is_number else 1
