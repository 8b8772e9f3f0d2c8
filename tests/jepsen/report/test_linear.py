"""A search that found no order names the call that fits nowhere, and the calls around it."""

from xml.etree import ElementTree

from ottla.jepsen.history import Json
from ottla.jepsen.report.linear import STEPS_MAX, order_table


def call(f: str, value: Json, begin: int, end: int | None, process: int = 0) -> dict[str, Json]:
    return {"process": process, "f": f, "value": value, "begin": begin, "end": end}


def rows_of(search: dict[str, Json]) -> tuple[list[list[str]], str]:
    """Return the rows of the table, and all words of it."""
    tree = ElementTree.fromstring(order_table("g<1>/q0-0", search))
    rows = [["".join(cell.itertext()) for cell in row] for row in tree.iter("tr")]
    return rows[1:], " ".join(tree.itertext())


def test_the_table_ends_with_the_impossible_call_and_those_that_overlap_with_it() -> None:
    rows, words = rows_of(
        {
            "operations": [
                call("commit", 5, 0, 1),
                call("commit", 9, 2, 3, 1),
                call("fetch", 5, 4, 6, 2),
                call("commit", 7, 5, None, 3),
                call("fetch", 9, 7, 8, 4),
            ],
            "order": [0, 1],
            "states": [5, 9],
            "stuck": [2],
        }
    )
    assert "No order fits g<1>/q0-0" in words
    assert "2 of 5 calls fit into an order; it ends in 9, where fetch 5 by 2 cannot" in words
    assert rows == [
        ["1", "0", "0 to 1", "commit 5", "5"],
        ["2", "1", "2 to 3", "commit 9", "9"],
        ["✗", "2", "4 to 6", "fetch 5", "✗ impossible here"],
        ["–", "3", "5 to never", "commit 7", "overlaps, not in the order"],
    ]


def test_of_a_long_order_the_end_is_listed() -> None:
    count = 2_000
    rows, words = rows_of(
        {
            "operations": [call("commit", i, 2 * i, 2 * i + 1) for i in range(count)],
            "order": list(range(1_500)),
            "states": list(range(1_500)),
            "stuck": [1_500],
        }
    )
    assert "1,500 of 2,000 calls" in words
    numbers = [str(number) for number in range(1_500 - STEPS_MAX + 1, 1_501)]
    assert [row[0] for row in rows] == [*numbers, "✗"]
