"""linear/KEY.html: the longest order that the calls of one register allow, and what stopped it.

Pure.  Bars are calls from beginning to end; numbered dots are the order, each inside its bar and
none left of the one before.  A red bar had to come next, and fits behind no order as long.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.jepsen.history import Json
from ottla.jepsen.report.frame import Picture, text
from ottla.jepsen.report.markup import Markup, element, joined
from ottla.jepsen.report.page import page_text
from ottla.jepsen.report.run_tables import table
from ottla.jepsen.report.words import count_words, many, shortened, value_words

STEP_PX = 104
ROW_PX = 30
BAR_PX = 22
TOP = 30
LEFT = 16
CALLS_BEFORE = 150
CALLS_AFTER = 40
"""Calls shown before and after the place where the order ends."""
STEPS_TOLD_MAX = 15

STYLE = """
.sheet{overflow-x:auto;border:1px solid var(--line);border-radius:10px;margin:10px 0}
.sheet svg{display:block;max-width:none}
.picture .call{fill:var(--panel);stroke:var(--line)}.picture .call.write{stroke:var(--ok)}
.picture .call.open{stroke-dasharray:4 3}.picture .call.late{opacity:.5}
.picture .call.stuck{fill:var(--bad-ground);stroke:var(--bad);stroke-width:2}
.picture .way{fill:none;stroke:var(--good);stroke-width:2;opacity:.75}
.picture .dot{fill:var(--good)}.picture .count{fill:var(--ground);font-size:9px;font-weight:700}
.picture .through{pointer-events:none}
.picture .limit{stroke:var(--bad);stroke-dasharray:5 4;stroke-width:1.5}
"""

SCRIPT = """
(()=>{const s=document.querySelector('.sheet'),m=document.querySelector('.limit');
if(s&&m)s.scrollLeft=m.getBBox().x-s.clientWidth*.7})();
"""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the register."""

    process: int
    f: str
    value: Json
    begin: int
    """Indexes of events; `end` is None when it never returned."""
    end: int | None

    @property
    def words(self) -> str:
        """Return what was asked or answered."""
        return f"{self.f} {_state_words(self.value)}"


@dataclass(frozen=True, slots=True)
class Search:
    """What a search for an order found."""

    calls: Sequence[Call]
    order: Sequence[int]
    """Places among the calls; `states[i]` is the state after `order[i]`."""
    states: Sequence[Json]
    stuck: Sequence[int]

    @staticmethod
    def from_json(told: Mapping[str, Json]) -> "Search":
        """Read what a checker kept for a picture."""
        calls = [
            Call(one["process"], one["f"], one["value"], one["begin"], one["end"])
            for one in told["operations"]
        ]
        return Search(calls, told["order"], told["states"], told["stuck"])


def _state_words(state: Json) -> str:
    """Return a value of a register; checkers write -1 where nothing was ever put in."""
    return "nothing" if state is None or state == -1 else value_words(state)


def linear_page(name: str, search: Search, run_title: str) -> str:
    """Return the page of one register."""
    stuck = ", ".join(f"{search.calls[i].words} by {search.calls[i].process}" for i in search.stuck)
    last = _state_words(search.states[-1]) if search.states else "its first state"
    crumbs = element(
        "p", element("a", run_title, href="../index.html"), f" › {name}", class_="crumbs"
    )
    body = [
        crumbs,
        element("h1", f"No order fits {name}"),
        element(
            "div",
            element("span", "✗", class_="sign", aria_hidden="true"),
            element(
                "p",
                f"{count_words(len(search.order))} of {many(len(search.calls), 'call')} can be "
                f"brought into an order; it ends in {shortened(last, 80)}, where "
                f"{shortened(stuck, 300) or 'the next call'} cannot follow.",
            ),
            class_="verdict invalid",
        ),
        element(
            "p",
            "A bar is a call from its beginning to its end (dashed: it never returned), blue when "
            "it writes. The numbered dots are the longest order found; the red bars had to come "
            "before the red line, and fit behind no order as long.",
            class_="muted small",
        ),
        element("div", drawing(name, search).inline(), class_="sheet", tabindex=0),
        element("h2", "How the order ends"),
        table(("no.", "process", "call", "state after it"), _steps(search), numbers=("no.",)),
    ]
    return page_text(
        f"✗ {name}", element("main", *body, style="max-width:none"), style=STYLE, script_more=SCRIPT
    )


def _steps(search: Search) -> Iterable[Markup]:
    count = len(search.order)
    for number in range(max(0, count - STEPS_TOLD_MAX), count):
        call = search.calls[search.order[number]]
        yield _step(str(number + 1), call, shortened(_state_words(search.states[number]), 160))
    for place in search.stuck:
        yield _step("✗", search.calls[place], "impossible here")


def _step(number: str, call: Call, state: str) -> Markup:
    return element(
        "tr",
        element("td", number, class_="number"),
        element("td", str(call.process)),
        element("td", shortened(call.words, 160), class_="mono"),
        element("td", state, class_="fail-word" if number == "✗" else "mono"),
    )


def shown_calls(search: Search) -> Sequence[int]:
    """Return the calls around the place where the order ends, in the order of their beginnings."""
    by_begin = sorted(range(len(search.calls)), key=lambda place: search.calls[place].begin)
    here = max((by_begin.index(place) for place in search.stuck), default=len(by_begin) - 1)
    near = set(by_begin[max(0, here - CALLS_BEFORE) : here + CALLS_AFTER + 1])
    return [place for place in by_begin if place in near or place in search.stuck]


def drawing(name: str, search: Search) -> Picture:
    """Draw the calls around the end of the order."""
    shown = shown_calls(search)
    calls = search.calls
    moments = {calls[p].begin for p in shown} | {calls[p].end for p in shown}
    ranks = {moment: i for i, moment in enumerate(sorted(m for m in moments if m is not None))}
    width = LEFT + (len(ranks) + 1) * STEP_PX
    spans: dict[int, tuple[int, int]] = {}
    for place in shown:
        end = calls[place].end
        right = width - LEFT if end is None else LEFT + ranks[end] * STEP_PX
        spans[place] = (LEFT + ranks[calls[place].begin] * STEP_PX, right)
    rows, rows_count = _rows(shown, spans)
    height = TOP + rows_count * ROW_PX + 10
    parts = [_bar(place, search, spans[place], rows[place]) for place in shown]
    way, dots = _way(search, spans, rows)
    # The line lies below the words, the dots above them.
    parts += [way, *(_words(calls[p], spans[p], rows[p]) for p in shown), *dots]
    ends = [end for p in search.stuck if (end := calls[p].end) is not None]
    if ends:
        at = LEFT + ranks[min(ends)] * STEP_PX
        parts.append(element("path", d=f"M{at} 6V{height - 4}", class_="limit"))
    left_out = len(calls) - len(shown)
    if left_out:
        words = f"{many(left_out, 'call')} further away left out"
        parts.append(text(words, LEFT, 18, "muted"))
    return Picture(name, f"Calls of {name}", "", max(width, 300), height, joined(parts))


def _rows(
    shown: Sequence[int], spans: Mapping[int, tuple[int, int]]
) -> tuple[Mapping[int, int], int]:
    """Give each call the first row in which it meets no other."""
    free: list[int] = []
    rows: dict[int, int] = {}
    for place in shown:
        start, end = spans[place]
        row = next((i for i, at in enumerate(free) if at <= start), len(free))
        if row == len(free):
            free.append(0)
        free[row] = end + 4
        rows[place] = row
    return rows, len(free)


def _bar(place: int, search: Search, span: tuple[int, int], row: int) -> Markup:
    call = search.calls[place]
    classes = ["call"]
    if call.f != "fetch" and call.f != "describe":
        classes.append("write")
    if call.end is None:
        classes.append("open")
    if place in search.stuck:
        classes.append("stuck")
    elif place not in search.order:
        classes.append("late")
    y = TOP + row * ROW_PX
    left, right = span
    words = f"{call.words}\nprocess {call.process}, events {call.begin} to {call.end or 'never'}"
    return element(
        "g",
        element("title", words),
        element(
            "rect", x=left, y=y, width=right - left, height=BAR_PX, rx=4, class_=" ".join(classes)
        ),
        tabindex=0 if place in search.stuck else None,
    )


def _words(call: Call, span: tuple[int, int], row: int) -> Markup:
    left, right = span
    room = max(4, (right - left - 28) // 6)
    return text(shortened(call.words, room), left + 25, TOP + row * ROW_PX + 15, "through")


def _way(
    search: Search, spans: Mapping[int, tuple[int, int]], rows: Mapping[int, int]
) -> tuple[Markup, Sequence[Markup]]:
    """Return the order as a line, and its numbered dots, each inside its bar."""
    at = 0.0
    places: list[tuple[float, float]] = []
    dots: list[Markup] = []
    for number, place in enumerate(search.order):
        if place not in spans:
            continue
        left, right = spans[place]
        at = min(max(at + 2, left + 11.0), float(right))
        y = TOP + rows[place] * ROW_PX + BAR_PX / 2
        places.append((at, y))
        state = shortened(_state_words(search.states[number]), 120)
        told = f"no. {number + 1}: {search.calls[place].words}\nstate after it: {state}"
        dots.append(
            element(
                "g",
                element("title", told),
                element(
                    "circle", cx=at, cy=y, r=max(8, 3 * len(str(number + 1)) + 2), class_="dot"
                ),
                text(str(number + 1), at, y + 3, "count middle"),
            )
        )
    d = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    return element("path", d=f"M{d}" if d else "", class_="way"), dots
