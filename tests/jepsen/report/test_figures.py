"""Pictures have the facts of a run, in colours of the page, however long or hostile the run is."""

import re
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from ottla.jepsen.history import History
from ottla.jepsen.report.faults import Fault, faults_of
from ottla.jepsen.report.figures import DOTS_MAX, Plot, run_plots, thinned
from ottla.jepsen.report.page import DARK, LIGHT

FIGURES = {
    "keys": 8,
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
    assert set(plots) == {"latency-raw", "latency-quantiles", "rate", "unseen", "realtime-lag"}
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
