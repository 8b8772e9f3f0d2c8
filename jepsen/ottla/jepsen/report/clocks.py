"""clock: by how much the nodes' clocks were wrong.

Pure.  Told by nemesis events whose value has `clock_offsets_ms`: {node: milliseconds}; between two
of them a clock is taken to be off by what was last said of it.
"""

from collections.abc import Iterable, Mapping, Sequence

from ottla.jepsen.history import History
from ottla.jepsen.report.faults import Fault
from ottla.jepsen.report.frame import RIGHT, Key, Panel, Picture, Scale, text, time_picture
from ottla.jepsen.report.lines import Line, spread
from ottla.jepsen.report.markup import Markup, element
from ottla.jepsen.report.scales import Linear, linear_ticks, rounded_up
from ottla.jepsen.report.theme import SERIES_COLOURS_COUNT


def clock(history: History, faults: Sequence[Fault], end_s: float) -> Picture | None:
    """Draw each node's clock offset as steps; None when no clock was ever touched."""
    offsets = clock_offsets(history)
    if not offsets:
        return None
    bound = rounded_up(max(abs(at) for steps in offsets.values() for _, at in steps) or 1.0)

    def draw(x: Linear, y: Scale) -> Iterable[Markup]:
        ends = []
        for i, (node, steps) in enumerate(offsets.items()):
            colour = _colour(i)
            d = f"M{x(0):.1f} {y(0):.1f}"
            for seconds, offset_s in steps:
                d += f"H{x(seconds):.1f}V{y(offset_s):.1f}"
            yield element("path", d=f"{d}H{x.end:.1f}", class_=f"line {colour}")
            ends.append((y(steps[-1][1]), Line(node, colour, ())))
        for place, line in spread(ends):
            yield text(line.label, RIGHT + 8, place + 4, f"f{line.colour}")

    return time_picture(
        "clock",
        "Clock offsets",
        "Seconds by which each node's clock was set ahead (above) or back (below).",
        faults=faults,
        end_s=end_s,
        panels=[
            Panel(
                name="clock",
                unit="seconds off",
                low=-bound,
                high=bound,
                ticks=linear_ticks(-bound, bound),
                draw=draw,
            )
        ],
        legend=[Key(f"line {_colour(i)}", node) for i, node in enumerate(offsets)],
    )


def clock_offsets(history: History) -> Mapping[str, Sequence[tuple[float, float]]]:
    """Return, by node, (time in s, offset in s) of each time its clock was said to be off."""
    found: dict[str, list[tuple[float, float]]] = {}
    for event in history.nemesis():
        told = event.value.get("clock_offsets_ms") if isinstance(event.value, dict) else None
        for node, offset_ms in (told or {}).items():
            found.setdefault(str(node), []).append((event.time_ns / 1e9, offset_ms / 1e3))
    return found


def _colour(number: int) -> str:
    return f"c{number}" if number < SERIES_COLOURS_COUNT else "rest"
