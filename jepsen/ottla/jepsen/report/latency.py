"""latency-raw: each operation a dot; latency-quantiles: how slow the slow ones were.

Pure.  Dots at the same place of the picture are drawn once, which changes nothing to be seen and
keeps the picture of half a million operations small.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from ottla.jepsen.history import Kind, Operation
from ottla.jepsen.report.faults import Fault
from ottla.jepsen.report.frame import (
    PANEL_HEIGHT,
    Key,
    Panel,
    Picture,
    Scale,
    shape_path,
    time_picture,
    time_scale,
)
from ottla.jepsen.report.lines import Line, draw_lines, hover_columns
from ottla.jepsen.report.markup import Markup, element
from ottla.jepsen.report.measures import Windows, groups_of, ok_latencies, quantile, windows_of
from ottla.jepsen.report.scales import (
    Linear,
    Logarithmic,
    clock_words,
    duration_bounds,
    duration_ticks,
)
from ottla.jepsen.report.words import (
    count_words,
    duration_words,
    many,
    operation_words,
    outcome_words,
    where_words,
)

TOOLTIPS_MAX = 120
"""Dots of a plot that tell their operation: the slowest ones, and those that were not ok."""
SLOWEST_TOLD = 30
DOTS_MAX = 12_000
"""Dots of a plot; with more, dots come to lie on a grid of two pixels, then of three, …"""
SHAPE_GRID = 3
RARE_HEIGHT = 80
SOME_FROM, MANY_FROM = 3, 10
"""Operations at one place from which on its dot is darker, and darkest."""
QUANTILES = ((0.5, "median", "c0", ""), (0.95, "95 %", "c2", ""), (0.99, "99 %", "c1", ""),
             (1.0, "slowest", "c3", "thin"))  # fmt: skip
OUTCOMES = (
    Key("dots ok", "ok"),
    Key("info shape", "unknown (info): it may have happened"),
    Key("fail shape", "failed: it did not happen"),
    Key("shade", "a fault was under way"),
)


def latency_raw(operations: Sequence[Operation], faults: Sequence[Fault], end_s: float) -> Picture:
    """Draw every answered operation at the time it began and as high as it took long."""
    panels, dots_count, coarsest = [], 0, 1
    unanswered = sum(operation.completion is None for operation in operations)
    for group in groups_of(operations):
        timed = [(took_ns(o), o) for o in group.operations if o.completion is not None]
        if not timed:
            continue
        low, high = duration_bounds(min(took for took, _ in timed), max(took for took, _ in timed))
        height = RARE_HEIGHT if group.is_rare else PANEL_HEIGHT
        scale = Logarithmic(low, high, 0.0, float(height))
        dots = _Dots(timed, time_scale(end_s), scale)
        panels.append(
            Panel(
                name=group.name,
                unit="latency",
                height=height,
                low=low,
                high=high,
                ticks=duration_ticks(low, high, 3 if group.is_rare else 7),
                draw=dots.draw,
                is_logarithmic=True,
            )
        )
        dots_count += dots.count
        coarsest = max(coarsest, dots.grid)
    notes = []
    if dots_count < len(operations) - unanswered:
        notes.append(
            f"{many(len(operations) - unanswered, 'operation')} fall on {many(dots_count, 'dot')} "
            f"of {many(coarsest, 'pixel')}: a dot stands for all operations at its place, darker "
            f"for {SOME_FROM} and for {MANY_FROM} of them. Tooltips tell the slowest and those "
            f"that were not ok, at most {TOOLTIPS_MAX} a plot."
        )
    if unanswered:
        notes.append(f"{many(unanswered, 'operation')} never got an answer and cannot be drawn.")
    return time_picture(
        "latency-raw",
        "Latency of each operation",
        "Each dot is an operation, at the time it began; the scale is logarithmic.",
        faults=faults,
        end_s=end_s,
        panels=panels,
        legend=OUTCOMES,
        notes=notes,
    )


def took_ns(operation: Operation) -> int:
    """Return an answered operation's latency in nanoseconds."""
    assert operation.completion is not None
    return operation.completion.time_ns - operation.invoke.time_ns


def latency_quantiles(
    operations: Sequence[Operation], faults: Sequence[Fault], end_s: float
) -> Picture:
    """Draw the quantiles of ok operations' latencies, window by window."""
    windows = windows_of(end_s)
    panels = []
    for group in groups_of(operations):
        latencies = ok_latencies(group.operations, windows)
        # Quantiles of a few operations that have nothing in common say nothing.
        if any(latencies) and not group.is_rare:
            panels.append(_quantile_panel(group.name, latencies, windows))
    return time_picture(
        "latency-quantiles",
        "Latency quantiles",
        f"Of operations that ended ok, by the time they began, in windows of "
        f"{windows.step_s:g} s; gaps are windows in which none did.",
        faults=faults,
        end_s=end_s,
        panels=panels,
        legend=[Key(f"line {colour} {style}", words) for _, words, colour, style in QUANTILES],
    )


def _quantile_panel(f: str, latencies: Sequence[Sequence[int]], windows: Windows) -> Panel:
    lines = [
        Line(words, colour, [quantile(one, share) if one else None for one in latencies], style)
        for share, words, colour, style in QUANTILES
    ]
    low, high = duration_bounds(
        min(one[0] for one in latencies if one) * 1.0, max(one[-1] for one in latencies if one)
    )
    # The fastest operation is not drawn; the lowest median is what the axis must show.
    low = max(low, duration_bounds(min(v for v in lines[0].values if v is not None), high)[0])

    def tell(window: int) -> str:
        one = latencies[window]
        if not one:
            return f"no {f} ended ok"
        told = ", ".join(f"{w} {duration_words(quantile(one, q))}" for q, w, _, _ in QUANTILES)
        return f"{count_words(len(one))} {f}: {told}"

    def draw(x: Linear, y: Scale) -> Iterable[Markup]:
        yield from draw_lines(lines, windows, x, y)
        yield from hover_columns(windows, x, y, tell)

    return Panel(
        name=f,
        unit="latency, ok only",
        low=low,
        high=high,
        ticks=duration_ticks(low, high),
        draw=draw,
        is_logarithmic=True,
    )


class _Dots:
    """The dots of one kind of operation: what falls on one place is one dot."""

    def __init__(
        self, timed: Sequence[tuple[int, Operation]], x: Linear, height: Logarithmic
    ) -> None:
        self._timed = timed
        self._x = x
        self._height = height
        self.grid = 1
        self._finest = self._on_pixels()
        self._places = self._on_grid()
        while sum(map(len, self._places.values())) > DOTS_MAX:
            self.grid += 1
            self._places = self._on_grid()
        self.count = sum(map(len, self._places.values()))

    def draw(self, _: Linear, y: Scale) -> Iterable[Markup]:
        """Yield the dots, the ok ones below the others, and tooltips for those worth telling."""
        bottom = y.start
        tiers: dict[str, list[str]] = {"few": [], "some": [], "many": []}
        for (px, up), count in sorted(self._places[Kind.OK].items()):
            tier = "few" if count < SOME_FROM else "some" if count < MANY_FROM else "many"
            tiers[tier].append(f"M{px} {bottom - up:.0f}h0")
        for tier, dots in tiers.items():
            if dots:
                yield element("path", d="".join(dots), class_=f"dots ok {tier}")
        for kind in (Kind.INFO, Kind.FAIL):
            classes = f"{kind.value} shape"
            shapes = (shape_path(classes, px, bottom - up) for px, up in sorted(self._places[kind]))
            yield element("path", d="".join(shapes), class_=classes)
        for took, operation in self._told():
            yield element(
                "circle",
                element("title", _dot_words(operation)),
                cx=self._x(operation.invoke.time_ns / 1e9),
                cy=bottom - self._height(took),
                r=5,
                class_="hover",
            )

    def _on_pixels(self) -> dict[Kind, Counter[tuple[int, int]]]:
        """Count operations by the pixel they fall on: right of the edge, above the bottom."""
        places: dict[Kind, list[tuple[int, int]]] = {Kind.OK: [], Kind.INFO: [], Kind.FAIL: []}
        x, height = self._x, self._height
        x_factor = (x.end - x.start) / (x.high - x.low) / 1e9
        y_factor = height.end / math.log(height.high / height.low)
        log, start, log_low = math.log, x.start + 0.5, math.log(height.low)
        for took, operation in self._timed:
            up = (log(took) - log_low) * y_factor if took > height.low else 0.0
            px = int(start + operation.invoke.time_ns * x_factor)
            places[operation.kind].append((px, int(up + 0.5)))
        return {kind: Counter(those) for kind, those in places.items()}

    def _on_grid(self) -> dict[Kind, Counter[tuple[int, int]]]:
        """Move the pixels to a coarser grid."""
        found: dict[Kind, Counter[tuple[int, int]]] = {}
        for kind, pixels in self._finest.items():
            # Crosses and triangles are larger than dots, so fewer of them can be told apart.
            grid = self.grid if kind is Kind.OK else max(self.grid, SHAPE_GRID)
            places = found[kind] = Counter()
            for (px, up), count in pixels.items():
                places[round(px / grid) * grid, round(up / grid) * grid] += count
        return found

    def _told(self) -> Sequence[tuple[int, Operation]]:
        slowest = sorted(self._timed, key=lambda one: -one[0])
        odd = [one for one in slowest[SLOWEST_TOLD:] if one[1].kind is not Kind.OK]
        return slowest[:SLOWEST_TOLD] + odd[: TOOLTIPS_MAX - SLOWEST_TOLD]


def _dot_words(operation: Operation) -> str:
    invoke = operation.invoke
    where = where_words(operation.extra)
    return (
        f"{operation_words(operation)}\n{outcome_words(operation)}\n"
        f"process {invoke.process} at {clock_words(invoke.time_ns / 1e9)}"
        f"{f', {where}' if where else ''}, event {invoke.index}"
    )
