"""A search that found no order is drawn so that one sees why there is none."""

from xml.etree import ElementTree

from ottla.jepsen.history import Json
from ottla.jepsen.report.linear import CALLS_BEFORE, Search, drawing, linear_page, shown_calls


def call(f: str, value: Json, begin: int, end: int | None, process: int = 0) -> dict[str, Json]:
    return {"process": process, "f": f, "value": value, "begin": begin, "end": end}


STALE = Search.from_json(
    {
        "operations": [
            call("commit", 5, 0, 1),
            call("commit", 9, 2, 3, 1),
            call("fetch", 5, 4, 5, 2),
            call("commit", 7, 6, None, 3),
        ],
        "order": [0, 1],
        "states": [5, 9],
        "stuck": [2],
    }
)


def test_the_page_says_where_the_order_ends_and_what_cannot_follow() -> None:
    page = linear_page("g<1>/q0-0", STALE, "offsets under kill")
    tree = ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))
    words = " ".join("".join(tree.itertext()).split())
    assert "No order fits g<1>/q0-0" in words
    assert "2 of 4 calls can be brought into an order; it ends in 9, where fetch 5 by 2" in words
    assert "impossible here" in words


def test_a_dot_of_the_order_lies_inside_its_bar_and_none_left_of_the_one_before() -> None:
    body = ElementTree.fromstring(f"<g>{drawing('k', STALE).body}</g>")
    bars = [e for e in body.iter("rect") if "call" in (e.get("class") or "")]
    assert [e.get("class") for e in bars] == [
        "call write", "call write", "call stuck", "call write open late",
    ]  # fmt: skip
    dots = [float(e.get("cx", 0)) for e in body.iter("circle")]
    assert dots == sorted(dots)
    for dot, bar in zip(dots, bars, strict=False):
        left = float(bar.get("x", 0))
        assert left <= dot <= left + float(bar.get("width", 0))


def test_of_many_calls_those_around_the_end_of_the_order_are_shown() -> None:
    count = 2_000
    search = Search.from_json(
        {
            "operations": [call("commit", i, 2 * i, 2 * i + 1) for i in range(count)],
            "order": list(range(1_500)),
            "states": list(range(1_500)),
            "stuck": [1_500],
        }
    )
    shown = shown_calls(search)
    assert shown[0] == 1_500 - CALLS_BEFORE
    assert 1_500 in shown
    assert f"{count - len(shown):,} calls further away left out" in drawing("k", search).body
    assert len(linear_page("k", search, "t")) < 300_000
