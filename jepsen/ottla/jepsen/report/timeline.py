"""timeline.html: who did what when, a column a thread, a row an event.

Pure.  Rows are events, not seconds: what overlaps in the picture overlapped in the run, however
fast or slow it was.  The page stays below `BYTES_MAX` by leaving operations out, and says so.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from ottla.jepsen.history import History, Kind, Operation
from ottla.jepsen.report.faults import Fault
from ottla.jepsen.report.frame import fault_words
from ottla.jepsen.report.markup import Markup, element, escape, joined
from ottla.jepsen.report.page import page_text
from ottla.jepsen.report.shown import NOTES_FROM, Row, chosen, columns_of, rows_of
from ottla.jepsen.report.words import (
    count_words,
    many,
    operation_words,
    outcome_words,
    shortened,
    where_words,
)

OPERATIONS_MAX = 10_000
BYTES_MAX = 1_900_000
ROW_PX = 15
GUTTER_PX = 78
LANE_PX = 118
"""Width of one lane of faults; two faults at once need two."""
WORDS_SHOWN_MAX = 60
COLUMN_PX_MIN = 96
COLUMN_PX_MAX = 230
PAGE_PX = 1_180
TIME_ROWS = 8
"""A time is written at every so many rows."""

STYLE = """
main.timeline{max-width:none;padding:20px 24px 60px}
.bar{position:sticky;top:0;z-index:4;background:var(--ground);padding:8px 0 0;
border-bottom:1px solid var(--line);width:max-content;min-width:100%}
.tools{display:flex;gap:16px;flex-wrap:wrap;
align-items:center;font-size:13px;padding-bottom:6px}
.tools label{white-space:nowrap;display:inline-flex;gap:6px;align-items:center}
.tools button{font:13px system-ui,sans-serif;border:1px solid var(--line);border-radius:6px;
background:var(--panel);color:var(--ink);padding:2px 10px;cursor:pointer}
.chip{width:20px;height:12px;border-radius:3px;border-left:4px solid;display:inline-block}
.heads{position:relative;height:22px;font-size:12px;color:var(--muted)}
.heads b{position:absolute;font-weight:600;white-space:nowrap;overflow:hidden;
text-overflow:ellipsis}
.sheet{position:relative}.c{position:absolute;top:0}
.c p,.chip{background:color-mix(in srgb,var(--k) 20%,var(--ground));border-color:var(--k)}
.c p,.chip{--k:var(--ok)}.c p.i,.chip.i{--k:var(--info)}.c p.f,.chip.f{--k:var(--fail)}
.c p{position:absolute;left:0;right:4px;margin:0;border-left:4px solid var(--k);border-radius:3px;
font:11px/13px system-ui,sans-serif;padding:0 3px;overflow:hidden;overflow-wrap:anywhere;
box-shadow:0 0 0 1px var(--ground);cursor:default}
.c p.i{border-left-style:dashed;border-bottom:2px dashed var(--k)}
.c p.f{border-left-style:double;border-left-width:5px}
.c p:hover,.c p:focus{outline:2px solid var(--ink);z-index:2}
.c p:target,.c p.proof{outline:2px solid var(--mark);z-index:1}
.c p:target{outline-width:3px;background:var(--bad-ground)}
.s{position:absolute;right:0;background:var(--shade);pointer-events:none}
.c p,.n{scroll-margin-top:150px}
.n{position:absolute;overflow:clip;background:var(--fault);color:var(--ground);border-radius:3px;
font:600 11px/13px system-ui,sans-serif;padding:1px 5px;overflow-wrap:anywhere}
.n span{position:sticky;top:78px;display:block}
.t{position:absolute;left:0;font:11px/13px system-ui,sans-serif;color:var(--muted);
font-variant-numeric:tabular-nums;white-space:nowrap}
.g{position:absolute;left:0;right:0;border-top:1px dashed var(--line);
border-bottom:1px dashed var(--line);background:var(--panel);color:var(--muted);
font-size:12px;text-align:center;line-height:28px}
body:has(#only-odd:checked) .c p:not(.i):not(.f):not(.proof){opacity:.18}
"""

KEYS = """
(()=>{const all=[...document.querySelectorAll('.c p,.n')].sort((a,b)=>
parseInt(a.style.top)-parseInt(b.style.top));let at=-1;
const go=(step,test)=>{const here=document.activeElement;const k=all.indexOf(here);if(k>=0)at=k;
for(let i=at+step;i>=0&&i<all.length;i+=step)if(test(all[i])){at=i;const e=all[i];e.tabIndex=-1;
e.scrollIntoView({block:'start',inline:'nearest'});e.focus({preventScroll:true});return}};
const tests={o:e=>e.matches('.i,.f'),n:e=>e.matches('.n'),p:e=>e.matches('.proof'),
ArrowDown:()=>true,ArrowUp:()=>true};
addEventListener('keydown',e=>{const k=e.key.length===1?e.key.toLowerCase():e.key;
if(tests[k]&&!e.ctrlKey&&!e.metaKey&&!e.altKey){if(k.startsWith('Arrow')&&at<0)return;
e.preventDefault();go(k==='ArrowUp'||e.shiftKey?-1:1,tests[k])}});
for(const b of document.querySelectorAll('[data-go]'))b.onclick=()=>go(1,tests[b.dataset.go])})();
"""


def timeline(
    history: History,
    faults: Sequence[Fault],
    *,
    title: str,
    proving: Iterable[int] = (),
    concurrency: int | None = None,
    operations_max: int = OPERATIONS_MAX,
) -> str:
    """Return the page; `proving` are the indexes of events that findings name."""
    operations = history.operations()
    proving = set(proving)
    limit = min(operations_max, OPERATIONS_MAX)
    while True:
        shown = chosen(operations, proving, faults, limit)
        sheet = _Sheet(history, shown, faults, proving, concurrency)
        text = page_text(
            f"Timeline of {title}",
            _body(title, operations, shown, sheet),
            style=STYLE,
            script_more=KEYS,
        )
        size = len(text.encode())
        if size <= BYTES_MAX or limit <= 1:
            return text
        limit = max(1, int(min(limit, len(shown)) * BYTES_MAX / size * 0.97))


def _body(
    title: str, operations: Sequence[Operation], shown: Sequence[Operation], sheet: "_Sheet"
) -> Markup:
    left_out = len(operations) - len(shown)
    said = f"All {many(len(shown), 'operation')} of the run."
    if left_out:
        said = (
            f"{count_words(len(shown))} of {many(len(operations), 'operation')}: those that prove "
            "a finding and those around the beginning and end of faults first, then the run from "
            f"its beginning. {count_words(left_out)} are left out where a grey line says so."
        )
    crumbs = element(
        "p", element("a", "the run", href="index.html"), " › timeline", class_="crumbs"
    )
    return element(
        "main",
        crumbs,
        element("h1", f"Timeline of {title}"),
        element(
            "p",
            f"{said} A column is a thread, a row is an event: what overlaps here overlapped in "
            "the run. A bar reaches from the call to its answer.",
            class_="muted small",
        ),
        element("div", _tools(sheet.proofs_count), sheet.heads(), class_="bar"),
        sheet.markup(),
        class_="timeline",
    )


def _tools(proofs_count: int) -> Markup:
    def chip(class_: str, words: str) -> Markup:
        return element("label", element("span", class_=f"chip {class_}"), words)

    def button(key: str, words: str) -> Markup:
        return element("button", words, type="button", data_go=key)

    only = element("input", type="checkbox", id="only-odd")
    parts = [
        chip("k", "ok"),
        chip("i", "unknown"),
        chip("f", "failed"),
        element("label", only, "dim what was ok"),
        button("o", "next not ok (O)"),
        button("n", "next fault (N)"),
    ]
    if proofs_count:
        parts.append(button("p", "next of a finding (P)"))
    back = element("span", "arrows step, with shift backwards", class_="muted")
    return element("div", *parts, back, class_="tools")


class _Sheet:
    """The rows and columns of a timeline, and everything placed on them."""

    def __init__(
        self,
        history: History,
        shown: Sequence[Operation],
        faults: Sequence[Fault],
        proving: set[int],
        concurrency: int | None,
    ) -> None:
        self._shown, self._faults, self._proving = shown, faults, proving
        self._rows = rows_of(history, shown)
        self._tops, self._height = _tops(self._rows)
        events = [row.event for row in self._rows if row.event is not None]
        self._times_ns = [event.time_ns for event in events]
        self._row_tops = [self._tops[event.index] for event in events]
        self._columns = columns_of(shown, concurrency)
        self._column_word = "process" if concurrency is None else "thread"
        self._lanes, lanes_count = _fault_lanes(faults)
        self._left = GUTTER_PX + lanes_count * LANE_PX + (8 if lanes_count else 0)
        count = max(1, len(set(self._columns.values())))
        room = (PAGE_PX - self._left) // count
        self._column_px = min(COLUMN_PX_MAX, max(COLUMN_PX_MIN, room))
        self._width = self._left + count * self._column_px
        self.proofs_count = sum(self._is_proof(operation) for operation in shown)

    def heads(self) -> Markup:
        """Return the names of the columns."""
        named: dict[int, list[int]] = {}
        for process, column in self._columns.items():
            named.setdefault(column, []).append(process)
        parts = [element("b", "time", style="left:0")]
        if self._lanes:
            parts.append(element("b", "faults", style=f"left:{GUTTER_PX}px"))
        for column, processes in sorted(named.items()):
            first = min(processes)
            words = f"{self._column_word} {first}"
            if first >= NOTES_FROM:
                words = f"notes of {first - NOTES_FROM}"
            left = self._left + column * self._column_px
            parts.append(
                element(
                    "b",
                    words,
                    style=f"left:{left}px;width:{self._column_px - 6}px",
                    title=f"processes {', '.join(map(str, sorted(processes)))}",
                )
            )
        return element("div", *parts, class_="heads", style=f"width:{self._width}px")

    def markup(self) -> Markup:
        """Return everything below the names."""
        by_column: dict[int, list[str]] = {}
        for operation in self._shown:
            column = self._columns[operation.invoke.process]
            by_column.setdefault(column, []).append(self._bar(operation))
        columns = [
            element(
                "div",
                Markup("".join(bars)),
                class_="c",
                style=f"left:{self._left + column * self._column_px}px;width:{self._column_px}px",
            )
            for column, bars in sorted(by_column.items())
        ]
        size = f"width:{self._width}px;height:{self._height}px"
        parts = [*self._shades(), *self._gutter(), *self._fault_bars(), *columns]
        return element("div", joined(parts, "\n"), class_="sheet", style=size)

    def _is_proof(self, operation: Operation) -> bool:
        ended = operation.completion
        return operation.invoke.index in self._proving or (
            ended is not None and ended.index in self._proving
        )

    def _bar(self, operation: Operation) -> str:
        invoke, ended = operation.invoke, operation.completion
        top = self._tops[invoke.index]
        bottom = self._tops[ended.index] if ended is not None else top + 3 * ROW_PX
        kind = {Kind.OK: "", Kind.FAIL: "f"}.get(operation.kind, "i")
        proof = "proof" if self._is_proof(operation) else ""
        classes = " ".join(filter(None, (kind, proof)))
        words = operation_words(operation)
        where = where_words(operation.extra)
        tip = (
            f"{words}\n{outcome_words(operation)}\nprocess {invoke.process} at "
            f"{invoke.time_ns / 1e9:.3f} s{f', {where}' if where else ''}"
        )
        told = f' class="{classes}"' if classes else ""
        height = max(ROW_PX, bottom - top) - 1
        return (
            f'<p id="e{invoke.index}"{told} style="top:{top}px;height:{height}px"'
            f' title="{escape(tip)}">{escape(shortened(words, WORDS_SHOWN_MAX))}</p>'
        )

    def _gutter(self) -> Iterable[Markup]:
        since = TIME_ROWS
        top = 0
        last_s = 0.0
        for row in self._rows:
            if row.event is None:
                words = f"{many(row.left_out, 'operation')} left out after {last_s:.3f} s"
                yield element("div", words, class_="g", style=f"top:{top}px;height:{2 * ROW_PX}px")
                top, since = top + 2 * ROW_PX, TIME_ROWS
                continue
            last_s = row.event.time_ns / 1e9
            if since >= TIME_ROWS:
                yield element("span", f"{last_s:.3f} s", class_="t", style=f"top:{top}px")
                since = 0
            top, since = top + ROW_PX, since + 1

    def _span(self, fault: Fault) -> tuple[int, int]:
        """Return the top of a fault, and the top of what came first after it."""
        top = self._tops[fault.index]
        at = bisect_left(self._times_ns, fault.end_ns)
        if fault.is_open or at == len(self._times_ns):
            return top, max(top + ROW_PX, self._height)
        return top, max(top + ROW_PX, self._row_tops[at])

    def _shades(self) -> Iterable[Markup]:
        # Overlapping faults make one shade: a darker one would say what is not so.
        spans: list[tuple[int, int]] = []
        for top, bottom in sorted(self._span(f) for f in self._faults if f.end_ns > f.start_ns):
            if spans and top <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(bottom, spans[-1][1]))
            else:
                spans.append((top, bottom))
        for top, bottom in spans:
            place = f"top:{top}px;height:{bottom - top}px;left:{GUTTER_PX}px"
            yield element("div", class_="s", style=place)

    def _fault_bars(self) -> Iterable[Markup]:
        for fault in self._faults:
            top, bottom = self._span(fault)
            left = GUTTER_PX + self._lanes[fault.index] * LANE_PX
            place = f"top:{top}px;height:{bottom - top - 1}px;left:{left}px;width:{LANE_PX - 4}px"
            words = " ".join([fault.name, *fault.nodes])
            yield element(
                "div",
                element("span", words),
                class_="n",
                style=place,
                title=fault_words(fault),
                id=f"e{fault.index}",
            )


def _tops(rows: Sequence[Row]) -> tuple[Mapping[int, int], int]:
    """Return the top of each event's row in pixels, by its index, and the height of all."""
    tops, top = {}, 0
    for row in rows:
        if row.event is None:
            top += 2 * ROW_PX
        else:
            tops[row.event.index] = top
            top += ROW_PX
    return tops, top + 4 * ROW_PX


def _fault_lanes(faults: Sequence[Fault]) -> tuple[Mapping[int, int], int]:
    """Return a lane for each fault in which it meets no other, and how many lanes there are."""
    lanes: dict[int, int] = {}
    free_ns: list[int] = []
    for fault in faults:
        at = next((i for i, free in enumerate(free_ns) if free <= fault.start_ns), len(free_ns))
        if at == len(free_ns):
            free_ns.append(0)
        free_ns[at] = fault.end_ns if fault.end_ns > fault.start_ns else fault.start_ns + 1
        lanes[fault.index] = at
    return lanes, len(free_ns)
