"""Tables of lists: each column has its title, its cells and its order in one place."""

from typing import NamedTuple

from ottla.console.sheets import ListColumn, count, list_table, text


class Fruit(NamedTuple):
    name: str
    number: int


FRUITS = [Fruit("pear", 3), Fruit("apple", 1), Fruit("plum", 2)]
COLUMNS: tuple[ListColumn[Fruit], ...] = (
    ListColumn(title="Name", key="name", cell=lambda one: text(one.name)),
    ListColumn(
        title="Number",
        key="number",
        cell=lambda one: count(one.number),
        order=lambda one: -one.number,
        is_number=True,
    ),
    ListColumn(title="First letter", cell=lambda one: text(one.name[0])),
)


def shown(**query: str) -> list[object]:
    """Return the first cell of each row of the table."""
    table = list_table(
        "Fruits", FRUITS, query, COLUMNS, text_of=lambda one: one.name, empty="There are none."
    )
    assert [(one.title, one.key, one.is_number) for one in table.columns] == [
        ("Name", "name", False),
        ("Number", "number", True),
        ("First letter", "", False),
    ]
    return [row[0].value for row in table.rows]


def test_a_list_is_sorted_by_cells_or_by_the_order_of_a_column() -> None:
    assert shown(sort="name") == ["apple", "pear", "plum"]
    assert shown(sort="-name") == ["plum", "pear", "apple"]
    assert shown(sort="number") == ["pear", "plum", "apple"]


def test_a_list_is_searched() -> None:
    assert shown(q="PL") == ["apple", "plum"]
    assert shown(q="none") == []
