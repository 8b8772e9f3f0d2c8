"""Pictures have the facts of a run, in colours of the page, however long or hostile the run is."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from ottla.jepsen.history import History, Json
from ottla.jepsen.report import figures as drawing
from ottla.jepsen.report.faults import Fault, faults_of
from ottla.jepsen.report.figures import (
    DOTS_MAX,
    RECOVERY_COUNTS,
    Plot,
    run_plots,
    thinned,
)
from ottla.jepsen.report.markup import Markup
from ottla.jepsen.report.page import DARK, LIGHT
from tests.jepsen.search_length import IS_FULL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

FIGURES: dict[str, Json] = {
    "keys": 8,
    "recovery_s": {"p50": 0.1, "p99": 2.5},
    "recovery_over_time": [[27.0, 0.1, "send q0-1"], [47.0, 2.5, "poll"]],
    "unseen_over_time": [[1.0, 4.0], [2.0, 0.0]],
    "realtime_lag_over_time": [[1.0, 0.5], [2.0, 0.0]],
}


def words_of(plot: Plot) -> str:
    """Return the text of a plot; a plot that is not well-formed raises."""
    return " ".join(ElementTree.fromstring(plot.file_text()).itertext())


@pytest.fixture(scope="module")
def plots(queue_history: History) -> dict[str, Plot]:
    """Return the plots of one run by their names."""
    drawn = run_plots(queue_history, FIGURES, faults_of(queue_history))
    return {plot.name: plot for plot in drawn}


def test_a_run_has_pictures_of_its_operations_and_of_what_checkers_measured(
    plots: dict[str, Plot],
) -> None:
    assert set(plots) == {
        "latency-raw", "latency-quantiles", "rate", "recovery", "unseen", "realtime-lag",
    }  # fmt: skip
    for plot in plots.values():
        words = words_of(plot)
        assert "final reads" in words
        assert {"kill", "pause", "b1", "b2", "b3"} <= set(words.split()), "faults and their nodes"
    assert {"send", "poll", "unknown", "failed"} <= set(words_of(plots["latency-raw"]).split())
    assert {"median", "slowest"} <= set(words_of(plots["latency-quantiles"]).split())
    assert "never got an answer" not in plots["latency-raw"].note


def test_a_picture_follows_the_page_into_the_dark(plots: dict[str, Plot]) -> None:
    for plot in plots.values():
        assert "var(--ink)" in plot.svg
        assert not re.findall(r": #[0-9a-f]{6}", plot.svg), "a colour that is none of the page's"
        assert all(colour in plot.file_text() for colour in (*LIGHT.values(), *DARK.values()))


def test_dots_are_joined_where_a_plot_has_too_many() -> None:
    few = [(1.0, 2.0), (1.0, 2.0001), (50.0, 3.0)]
    assert len(thinned(few, 100.0, (2.0, 3.0), 10)) == 2
    many = [(i / 1_000, float(i * 7919 % 100_003)) for i in range(100_000)]
    thin = thinned(many, 100.0, (0.0, 100_003.0), DOTS_MAX)
    assert DOTS_MAX / 4 < len(thin) <= DOTS_MAX
    assert set(thin) <= set(many)


def test_a_run_of_one_moment_or_without_operations_can_be_drawn(
    queue_run: Callable[..., History],
) -> None:
    assert run_plots(History(()), {}, ()) == []
    begun = History(queue_run(20, seconds=1.0).events[:1])
    drawn = run_plots(begun, {}, faults_of(begun))
    assert [plot.name for plot in drawn] == ["rate"]


def test_any_name_of_a_fault_node_or_operation_can_be_drawn(
    queue_run: Callable[..., History],
) -> None:
    names = ["$\\frac{1$", "<b>\x00\x1b[0m", "\u4e2d\ud800\n", "#1c6db3", ""]
    faults = [Fault(name, 10**8, 2 * 10**8, (name, "b1")) for name in names]
    events = queue_run(20, seconds=1.0).events
    history = History(replace(event, f=f"{names[1]}{event.f}") for event in events)
    for plot in run_plots(history, {}, faults):
        assert "<b>" not in plot.svg
        assert {"b1", "$\\frac{1$"} <= set(words_of(plot).split())


def test_however_many_faults_and_nodes_there_are_a_picture_stays_small(
    queue_run: Callable[..., History],
) -> None:
    faults = [Fault(f"fault-{i}", i * 10**6, i * 10**6 + 10, (f"node-{i}",)) for i in range(200)]
    (plot, *_) = run_plots(queue_run(20, seconds=1.0), {}, faults)
    words = words_of(plot).split()
    assert words.count("others") == 1
    assert "fault-0" in words
    assert len(words) < 100


def test_what_recovery_counts_stands_beside_the_picture_it_is_read_from(
    plots: dict[str, Plot],
) -> None:
    plot = plots["recovery"]
    assert plot.note.startswith(RECOVERY_COUNTS)
    assert "99th percentile over 2 faults is 2.50 s" in plot.note
    assert "the fault that ended at 0:47; the last to succeed was poll" in plot.note
    assert "p99: 2.50 s" in words_of(plot)
    assert 'id="recovery"' in plot.box() and RECOVERY_COUNTS in plot.box()


LONG = "a-name-of-a-node-or-a-fault-that-is-very-long"


FAULTS: dict[str, list[Fault]] = {
    "no faults": [],
    "many kinds of fault": [
        Fault(f"{i}-{LONG}", i * 10**8, i * 10**8 + 10**7, ("b1",)) for i in range(40)
    ],
    "many nodes": [
        Fault("kill", i * 10**8, i * 10**8 + 10**7, (f"{i}-{LONG}",)) for i in range(40)
    ],
}
PICTURES = (
    list(product(FAULTS, (1.0, 40_000.0)))
    if IS_FULL
    else [("no faults", 40_000.0), ("many kinds of fault", 1.0), ("many nodes", 40_000.0)]
)
"""Faults of a run and its length in seconds. Each picture costs three seconds of CPU."""


@pytest.mark.parametrize(("name", "seconds"), PICTURES)
def test_labels_do_not_overlap_and_are_within_the_picture(
    queue_run: Callable[..., History],
    name: str,
    seconds: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = FAULTS[name]
    scale = seconds / 5
    spread = [
        replace(one, start_ns=int(one.start_ns * scale), end_ns=int(one.end_ns * scale))
        for one in faults
    ]
    history = queue_run(200, seconds=seconds, fault_every_s=seconds)
    for figure in drawn_figures(history, FIGURES, spread, monkeypatch):
        boxes = list(label_boxes(figure))
        assert len(boxes) > 5
        width, height = figure.bbox.width, figure.bbox.height
        for text, box in boxes:
            assert box.x0 >= -0.5 and box.x1 <= width + 0.5, f"{text!r} is cut off"
            assert box.y0 >= -0.5 and box.y1 <= height + 0.5, f"{text!r} is cut off"
        for (one, box), (other, beside) in combinations(boxes, 2):
            assert not overlap(box, beside), f"{one!r} and {other!r} overlap"


def drawn_figures(
    history: History,
    figures: Mapping[str, Json],
    faults: Sequence[Fault],
    monkeypatch: pytest.MonkeyPatch,
) -> "list[Figure]":
    """Return the figures of a run, laid out."""
    kept: list[Figure] = []

    def keep(figure: "Figure", title: str) -> Markup:
        kept.append(figure)
        return Markup("<svg></svg>")

    monkeypatch.setattr(drawing, "_svg", keep)
    run_plots(history, figures, faults)
    return kept


def label_boxes(figure: "Figure") -> "Iterator[tuple[str, Bbox]]":
    """Yield the labels that a figure shows, each with its box."""
    figure.draw_without_rendering()
    for axes in figure.axes:
        texts = [axes.yaxis.label, *shown_ticks(axes)]
        legend = axes.get_legend()
        if legend is not None:
            texts += legend.get_texts()
        for text in texts:
            if text.get_visible() and text.get_text().strip():
                yield text.get_text(), text.get_window_extent()


def shown_ticks(axes: "Axes") -> "Iterator[Text]":
    for axis, (low, high) in (
        (axes.xaxis, sorted(axes.get_xlim())),
        (axes.yaxis, sorted(axes.get_ylim())),
    ):
        margin = 1e-9 * (high - low)
        for tick in axis.get_major_ticks():
            if low - margin <= tick.get_loc() <= high + margin:
                yield tick.label1


def overlap(one: "Bbox", other: "Bbox") -> bool:
    """Return whether two boxes share more than their edges."""
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return bool(width > 0.5 and height > 0.5)
