"""unseen: what was acknowledged but not read yet; realtime-lag: how stale a poll was.

Pure.  Unseen values may be lost or merely late: only the final reads tell, so their beginning is
marked.  Keys with the most to tell have a line of their own, the others one grey line together.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ottla.jepsen.history import History
from ottla.jepsen.report.faults import Fault
from ottla.jepsen.report.frame import Key, Panel, Picture, Scale, text, time_picture
from ottla.jepsen.report.lines import Line, area_path, draw_lines, hover_columns
from ottla.jepsen.report.markup import Markup, element
from ottla.jepsen.report.measures import (
    LogValues,
    quantile,
    realtime_lags,
    unseen_curve,
    windows_of,
)
from ottla.jepsen.report.scales import Linear, linear_ticks, rounded_up
from ottla.jepsen.report.theme import SERIES_COLOURS_COUNT
from ottla.jepsen.report.words import count_words, duration_words, many


def unseen(
    keys: Mapping[str, LogValues], faults: Sequence[Fault], end_s: float, final_ns: int | None
) -> Picture | None:
    """Draw unseen values over time; None when the workload sends none."""
    windows = windows_of(end_s)
    acked = sum(len(values.acked_ns) for values in keys.values())
    if not acked:
        return None
    curves = {key: unseen_curve(values, windows) for key, values in keys.items()}
    total = [sum(curve[window] for curve in curves.values()) for window in range(windows.count)]
    lines = _lines_of(curves, rank=lambda curve: (curve[-1], max(curve)), together=sum)
    whole = Line("all keys", "rest", total, "dashed")
    high = rounded_up(max(total))

    def tell(window: int) -> str:
        worst = sorted(curves, key=lambda key: -curves[key][window])[:4]
        told = ", ".join(f"{key} {count_words(curves[key][window])}" for key in worst)
        return f"{count_words(total[window])} unseen at the end: {told}"

    def draw(x: Linear, y: Scale) -> Iterable[Markup]:
        yield element("path", d=area_path(whole, windows, x, y), class_="area frest")
        # What ends at zero needs no name at its end.
        named = (one if one.values[-1] else replace(one, label="") for one in [whole, *lines])
        yield from draw_lines(list(named), windows, x, y)
        yield from _final_mark(final_ns, x, y)
        yield from hover_columns(windows, x, y, tell)

    return time_picture(
        "unseen",
        "Acknowledged values that nobody had read yet",
        f"{many(acked, 'value')} were acknowledged; at the run's end {count_words(total[-1])} of "
        "them had not been polled by anyone.",
        faults=faults,
        end_s=end_s,
        panels=[
            Panel(
                name="unseen",
                unit="values",
                low=0.0,
                high=high,
                ticks=linear_ticks(0.0, high),
                draw=draw,
                height=240,
            )
        ],
        legend=[Key(f"line {line.colour} {line.style}", line.label) for line in [whole, *lines]],
    )


def realtime_lag(
    history: History,
    keys: Mapping[str, LogValues],
    faults: Sequence[Fault],
    end_s: float,
    final_ns: int | None,
) -> Picture | None:
    """Draw the worst lag of each window by key; None when nobody polled."""
    windows = windows_of(end_s)
    lags = realtime_lags(history, keys, windows)
    if not lags.all_ms:
        return None
    lines = _lines_of(lags.worst_s, rank=max, together=max)
    lines = [
        Line(one.label, one.colour, [None if (v or 0) < 0 else v for v in one.values], one.style)
        for one in lines
    ]
    high = rounded_up(max(0.01, lags.all_ms[-1] / 1e3))
    told = ", ".join(
        f"{words} {duration_words(quantile(lags.all_ms, share) * 1e6)}"
        for share, words in ((0.5, "median"), (0.99, "99 %"), (1.0, "worst"))
    )

    def tell(window: int) -> str:
        worst = sorted(lags.worst_s, key=lambda key: -lags.worst_s[key][window])[:4]
        shown = [(key, lags.worst_s[key][window]) for key in worst]
        behind = ", ".join(f"{key} {duration_words(s * 1e9)}" for key, s in shown if s >= 0)
        return f"worst lag: {behind}" if behind else ""

    def draw(x: Linear, y: Scale) -> Iterable[Markup]:
        yield from draw_lines(lines, windows, x, y, has_labels=False)
        yield from _final_mark(final_ns, x, y)
        yield from hover_columns(windows, x, y, tell)

    return time_picture(
        "realtime-lag",
        "How far behind a poll was",
        "The time since the next record a consumer had yet to read existed, the worst poll of "
        f"{windows.step_s:g} s by key. Of all polls before the final reads: {told}.",
        faults=faults,
        end_s=end_s,
        panels=[
            Panel(
                name="lag",
                unit="seconds, worst poll",
                low=0.0,
                high=high,
                ticks=linear_ticks(0.0, high),
                draw=draw,
                height=240,
            )
        ],
        legend=[Key(f"line {line.colour} {line.style}", line.label) for line in lines],
    )


def _lines_of(
    rows: Mapping[str, Sequence[float]],
    *,
    rank: Callable[[Sequence[float]], Any],
    together: Callable[[Iterable[float]], float],
) -> list[Line]:
    """Return lines for the keys that rank highest; the others' values are taken together."""
    ordered = sorted(rows, key=lambda key: rank(rows[key]), reverse=True)
    lines = [Line(key, f"c{i}", rows[key]) for i, key in enumerate(ordered[:SERIES_COLOURS_COUNT])]
    rest = ordered[SERIES_COLOURS_COUNT:]
    if rest:
        values = [together(values) for values in zip(*(rows[key] for key in rest), strict=True)]
        lines.append(Line(many(len(rest), "other key"), "rest", values, "thin"))
    return lines


def _final_mark(final_ns: int | None, x: Linear, y: Scale) -> Iterable[Markup]:
    if final_ns is not None:
        at = x(final_ns / 1e9)
        yield element("path", d=f"M{at:.1f} {y.end}V{y.start}", class_="line thin dashed mark")
        is_late = at > (x.start + x.end) / 2
        place, classes = (at - 5, "muted end") if is_late else (at + 5, "muted")
        yield text("final reads", place, y.end + 12, classes)
