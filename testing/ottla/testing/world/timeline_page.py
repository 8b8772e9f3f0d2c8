"""HTML page of a timeline: lanes over time, and a table with one row per event.

The page is one file, without scripts and external resources. Its content security policy forbids
both. All text of events is escaped, because it includes names and values of the user's records.
"""

from collections.abc import Iterable, Sequence
from html import escape

from ottla.testing.world.life import HARNESS
from ottla.testing.world.timeline_event import (
    LIFE_KINDS,
    NOTABLE_KINDS,
    TimelineEvent,
    printable,
)

ROWS_MAX = 5_000
"""Maximum number of events on a page. If there are more, requests and answers are left out first,
then the oldest events."""
LANE_PX = 34
LEFT_PX = 130
WIDTH_PX = 1_400
TICKS = 10
TEXT_COLUMNS_MAX = 300
COLOURS = {
    "start": "#1a7f37",
    "resume": "#1a7f37",
    "stop": "#9a6700",
    "end": "#9a6700",
    "pause": "#9a6700",
    "kill": "#cf222e",
    "fault": "#cf222e",
    "error": "#a40e26",
    "mark": "#8250df",
    "store": "#8250df",
    "produce": "#0969da",
    "request": "#8c959f",
    "answer": "#57606a",
    "note": "#57606a",
}
_ENDS = frozenset({"kill", "stop", "end", "pause"})
_STARTS = frozenset({"start", "resume"})

_STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:16px;color:#1f2328;background:#fff}
h1{font-size:20px;margin:0 0 4px}p{margin:4px 0 12px;color:#57606a}
.lanes{overflow-x:auto;border:1px solid #d0d7de;border-radius:6px}
svg text{font:12px system-ui,sans-serif;fill:#1f2328}svg a:hover circle{stroke:#000;stroke-width:2}
table{border-collapse:collapse;margin-top:12px;width:100%}
th{position:sticky;top:0;background:#f6f8fa;text-align:left}
td,th{padding:2px 8px;border-bottom:1px solid #eaeef2;vertical-align:top}
td:first-child{font-variant-numeric:tabular-nums;text-align:right;white-space:nowrap}
td:last-child{font-family:ui-monospace,monospace;font-size:12px;overflow-wrap:anywhere}
tr:target{background:#fff8c5;outline:2px solid #d4a72c}
tr.notable{background:#ffebe9}tr.life{background:#f6f8fa}
#requests:not(:checked)~table .request{display:none}
@media (prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}p{color:#9198a1}
svg text{fill:#e6edf3}th,tr.life{background:#161b22}td,th{border-color:#30363d}
tr.notable{background:#3c1618}tr:target{background:#3b2e00}.lanes{border-color:#30363d}}
"""


def page(
    events: Sequence[TimelineEvent],
    *,
    title: str = "Timeline of a simulated run",
    dropped_count: int = 0,
) -> str:
    """Return an HTML page of the events of a run. The events must be in the order of their
    times."""
    shown = _selection(events)
    left_out = len(events) - len(shown) + dropped_count
    lanes = _lanes(shown)
    sentence = (
        f"{len(shown)} events"
        + (f" of {len(shown) + left_out}" if left_out else "")
        + ", times in virtual seconds. A point leads to its row; a bar is the time in which a"
        " process ran."
    )
    return "".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            "style-src 'unsafe-inline'\">\n",
            f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body>\n",
            f"<h1>{_text(title)}</h1><p>{_text(sentence)}</p>\n",
            _drawing(shown, lanes),
            '<input type="checkbox" id="requests" checked><label for="requests">'
            "show requests and answers</label>\n",
            "<table><thead><tr><th>time</th><th>where</th><th>event</th><th></th></tr></thead>"
            "<tbody>\n",
            *(_row(number, event) for number, event in enumerate(shown)),
            "</tbody></table></body></html>\n",
        ]
    )


def _selection(events: Sequence[TimelineEvent]) -> list[TimelineEvent]:
    """Return the events that the page shows, in order. If there are too many, some are left out."""
    if len(events) <= ROWS_MAX:
        return list(events)
    is_traffic = [event.kind in ("request", "answer") for event in events]
    telling_count = len(events) - sum(is_traffic)
    traffic_left = max(ROWS_MAX - telling_count, 0)
    kept: list[TimelineEvent] = []
    for event, one_is_traffic in zip(reversed(events), reversed(is_traffic), strict=True):
        if one_is_traffic:
            if not traffic_left:
                continue
            traffic_left -= 1
        kept.append(event)
        if len(kept) == ROWS_MAX:
            break
    return kept[::-1]


def _lanes(events: Iterable[TimelineEvent]) -> dict[str, int]:
    """Return the number of each lane from the top: the scenario, instances, stores, brokers."""
    names: dict[str, None] = {}
    brokers: dict[str, None] = {}
    for event in events:
        is_node = event.where.startswith(("broker-", "controller-"))
        (brokers if is_node else names)[event.where] = None
        if "broker" in event.facts:
            brokers[str(event.facts["broker"])] = None
    first = [HARNESS] if HARNESS in names else []
    others = [name for name in names if name != HARNESS and name not in brokers]
    return {name: number for number, name in enumerate([*first, *others, *sorted(brokers)])}


def _drawing(events: Sequence[TimelineEvent], lanes: dict[str, int]) -> str:
    """Return the lanes of the page (one for each instance, broker and store) as SVG."""
    if not events:
        return ""
    start_s, end_s = events[0].at_s, max(event.at_s for event in events)
    span_s = max(end_s - start_s, 1e-3)

    def x(at_s: float) -> float:
        return LEFT_PX + (at_s - start_s) / span_s * (WIDTH_PX - LEFT_PX - 20)

    def y(name: str) -> float:
        return (lanes[name] + 0.5) * LANE_PX + 20

    height = len(lanes) * LANE_PX + 30
    parts = [
        f'<div class="lanes"><svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH_PX}" '
        f'height="{height}" role="img" aria-label="lanes of the run over time">\n'
    ]
    for tick in range(TICKS + 1):
        at_s = start_s + span_s * tick / TICKS
        parts.append(
            f'<line x1="{x(at_s):.1f}" x2="{x(at_s):.1f}" y1="18" y2="{height - 8}" '
            f'stroke="#d0d7de" stroke-dasharray="2 4"/><text x="{x(at_s):.1f}" y="13" '
            f'text-anchor="middle">{at_s:.1f} s</text>\n'
        )
    for name in lanes:
        parts.append(f'<text x="8" y="{y(name) + 4:.1f}">{_text(name, 18)}</text>\n')
    for name, first_s, last_s in _life_spans(events, end_s):
        parts.append(
            f'<rect x="{x(first_s):.1f}" y="{y(name) - 7:.1f}" height="14" rx="3" fill="#1a7f37" '
            f'fill-opacity="0.18" width="{max(x(last_s) - x(first_s), 1):.1f}"/>\n'
        )
    points = []
    for number, event in enumerate(events):
        broker = str(event.facts.get("broker", ""))
        if broker in lanes and broker != event.where:
            parts.append(
                f'<line x1="{x(event.at_s):.1f}" x2="{x(event.at_s):.1f}" '
                f'y1="{y(event.where):.1f}" y2="{y(broker):.1f}" stroke="#8c959f" '
                'stroke-opacity="0.25"/>\n'
            )
        radius = 6 if event.kind in NOTABLE_KINDS else 3
        points.append(
            f'<a href="#e{number}"><circle cx="{x(event.at_s):.1f}" cy="{y(event.where):.1f}" '
            f'r="{radius}" fill="{COLOURS.get(event.kind, "#57606a")}"><title>'
            f"{event.at_s:.3f} s {_text(event.where)} {_text(event.kind)}: {_text(event.text)}"
            "</title></circle></a>\n"
        )
    return "".join([*parts, *points, "</svg></div>\n"])


def _life_spans(events: Sequence[TimelineEvent], end_s: float) -> list[tuple[str, float, float]]:
    """Return the name of each instance and broker, with the start and end of each period in which
    its process ran, in virtual seconds."""
    running: dict[str, float] = {}
    spans = []
    for event in events:
        if event.kind in _STARTS:
            running.setdefault(event.where, event.at_s)
        elif event.kind in _ENDS and event.where in running:
            spans.append((event.where, running.pop(event.where), event.at_s))
    return [*spans, *((name, first_s, end_s) for name, first_s in running.items())]


def _row(number: int, event: TimelineEvent) -> str:
    if event.kind in ("request", "answer"):
        name = "request"
    elif event.kind in NOTABLE_KINDS - LIFE_KINDS or event.kind == "kill":
        name = "notable"
    else:
        name = "life" if event.kind in LIFE_KINDS else "other"
    facts = ", ".join(f"{name}={value}" for name, value in event.facts.items())
    return (
        f'<tr id="e{number}" class="{name}"><td>{event.at_s:.3f}</td><td>{_text(event.where)}</td>'
        f'<td title="{_text(facts)}">{_text(event.kind)}</td><td>{_text(event.text)}</td></tr>\n'
    )


def _text(text: str, columns_max: int = TEXT_COLUMNS_MAX) -> str:
    return escape(printable(text, columns_max), quote=True)
