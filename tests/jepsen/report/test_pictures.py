"""What happened at a known time, and took a known time, is drawn at a known place."""

import re
from collections.abc import Callable, Sequence
from xml.etree import ElementTree

import pytest

from ottla.jepsen.history import NEMESIS, Event, History, Json, Kind
from ottla.jepsen.report.clocks import clock, clock_offsets
from ottla.jepsen.report.consumers import realtime_lag, unseen
from ottla.jepsen.report.faults import faults_of
from ottla.jepsen.report.frame import LEFT, PANEL_HEIGHT, RIGHT, Picture
from ottla.jepsen.report.latency import DOTS_MAX, latency_quantiles, latency_raw
from ottla.jepsen.report.measures import log_values
from ottla.jepsen.report.rates import rate

S = 1_000_000_000
Row = tuple[float, int, Kind, str, Json]


def history_of(*rows: Row, end_s: float = 100.0) -> History:
    """Return events (seconds, process, kind, f, value), and one at the end of the run."""
    events = [
        Event(i, int(at * S), process, kind, f, value)
        for i, (at, process, kind, f, value) in enumerate(rows)
    ]
    last = Event(len(events), int(end_s * S), 99, Kind.INVOKE, "poll", [["poll"]])
    return History([*events, last])


def one_send(at_s: float, took_ms: float, kind: Kind = Kind.OK) -> Sequence[Row]:
    return [
        (at_s, 0, Kind.INVOKE, "send", [["send", "q0-0", 1]]),
        (at_s + took_ms / 1e3, 0, kind, "send", [["send", "q0-0", [0, 1]]]),
    ]


def paths(picture: Picture, class_: str) -> list[str]:
    """Return the path data of the elements whose class begins so."""
    tree = ElementTree.fromstring(f"<g>{picture.body}</g>")
    return [
        element.get("d", "")
        for element in tree.iter()
        if (element.get("class") or "").startswith(class_)
    ]


def x_of(at_s: float, end_s: float = 100.0) -> float:
    return LEFT + (RIGHT - LEFT) * at_s / end_s


def test_a_dot_stands_at_its_time_and_as_high_as_it_took_long() -> None:
    # 1 ms and 100 ms are the axis' ends, so 10 ms is in its middle.
    rows = [*one_send(0, 1), *one_send(25, 10), *one_send(50, 100)]
    picture = latency_raw(history_of(*rows).operations(), (), 100.0)
    dots = [
        tuple(map(int, d)) for d in re.findall(r"M(\d+) (\d+)h0", paths(picture, "dots ok few")[-1])
    ]
    assert [x for x, _ in dots] == [round(x_of(0)), round(x_of(25)), round(x_of(50))]
    bottom, middle, top = (y for _, y in dots)
    assert bottom - top == PANEL_HEIGHT
    assert bottom - middle == PANEL_HEIGHT / 2


def test_what_was_not_ok_has_a_shape_of_its_own_and_tells_its_operation() -> None:
    rows = [*one_send(0, 1), *one_send(25, 10, Kind.FAIL), *one_send(50, 100)]
    picture = latency_raw(history_of(*rows).operations(), (), 100.0)
    assert sum("M" in d for d in paths(picture, "fail shape")) == 2, "in the legend and in the plot"
    assert "send q0-0 1" in picture.body
    assert "1 operation never got an answer" in picture.body


def test_a_fault_shades_the_time_from_its_beginning_to_its_end() -> None:
    rows: list[Row] = [
        (10, NEMESIS, Kind.INFO, "kill", {"phase": "start", "id": 1}),
        (10.1, NEMESIS, Kind.INFO, "kill", {"phase": "injected", "id": 1, "nodes": ["b<1>"]}),
        (30, NEMESIS, Kind.INFO, "kill", {"phase": "end", "id": 1}),
    ]
    history = history_of(*one_send(0, 1), *rows)
    (fault,) = faults_of(history)
    assert (fault.start_ns, fault.end_ns, fault.nodes) == (10 * S, 30 * S, ("b<1>",))
    picture = rate(history.operations(), [fault], 100.0)
    tree = ElementTree.fromstring(f"<g>{picture.body}</g>")
    (shade,) = (
        e for e in tree.iter("rect") if e.get("class") == "shade" and e.get("width") != "22"
    )
    assert float(shade.get("x", 0)) == pytest.approx(x_of(10), abs=0.1)
    assert float(shade.get("width", 0)) == pytest.approx(x_of(30) - x_of(10), abs=0.2)
    titles = [e.text for e in tree.iter("title")]
    assert "kill of b<1> at 0:10 for 20 s" in titles


def test_faults_overlap_are_never_closed_or_last_a_moment() -> None:
    rows: list[Row] = [
        (1, NEMESIS, Kind.INFO, "pause", {"phase": "start", "nodes": ["b1"]}),
        (2, NEMESIS, Kind.INFO, "reset", {"nodes": ["b2"]}),
        (3, NEMESIS, Kind.INFO, "kill", {"phase": "start"}),
        (5, NEMESIS, Kind.INFO, "pause", {"phase": "end"}),
        (6, NEMESIS, Kind.INFO, "loss", {"phase": "end"}),
    ]
    pause, reset, kill = faults_of(history_of(*rows))
    assert (pause.seconds, pause.is_open) == (4, False)
    assert (reset.seconds, reset.nodes) == (0, ("b2",))
    assert (kill.seconds, kill.is_open) == (97, True)


def test_quantiles_and_rates_of_a_window_are_told_under_the_pointer() -> None:
    # 100 sends of 1, 2, … 100 ms in the first window, of one second.
    rows: list[Row] = []
    for i in range(100):
        rows.append((0.0, i, Kind.INVOKE, "send", [["send", "q0-0", i]]))
    for i in range(100):
        rows.append(((i + 1) / 1e3, i, Kind.OK, "send", [["send", "q0-0", [i, i]]]))
    operations = history_of(*rows, end_s=100.0).operations()
    quantiles = latency_quantiles(operations, (), 100.0)
    assert "100 send: median 50 ms, 95 % 95 ms, 99 % 99 ms, slowest 100 ms" in quantiles.body
    rates = rate(operations, (), 100.0)
    assert "send: 100 ok, 0 unknown, 0 failed (100 ok a second)" in rates.body


def test_unseen_values_are_those_acknowledged_and_not_polled() -> None:
    rows: list[Row] = []
    for i in range(3):
        rows += [
            (1 + i, 0, Kind.INVOKE, "send", [["send", "q0-0", i]]),
            (1.5 + i, 0, Kind.OK, "send", [["send", "q0-0", [i, i]]]),
        ]
    rows += [
        (50, 1, Kind.INVOKE, "poll", [["poll"]]),
        (50.5, 1, Kind.OK, "poll", [["poll", {"q0-0": [[0, 0], [1, 1]]}]]),
    ]
    picture = unseen(log_values(history_of(*rows).operations()), (), 100.0, None)
    assert picture is not None
    assert "3 values were acknowledged; at the run" in picture.summary
    assert "end 1 of them had not been polled" in picture.summary
    assert "3 unseen at the end: q0-0 3" in picture.body
    assert "1 unseen at the end: q0-0 1" in picture.body


def test_lag_is_the_time_since_the_next_record_existed() -> None:
    rows: list[Row] = [
        (0, 1, Kind.INVOKE, "assign", ["q0-0"]),
        (0.1, 1, Kind.OK, "assign", ["q0-0"]),
        (1, 0, Kind.INVOKE, "send", [["send", "q0-0", 7]]),
        (2, 0, Kind.OK, "send", [["send", "q0-0", [0, 7]]]),
        (5, 1, Kind.INVOKE, "poll", [["poll"]]),
        (6, 1, Kind.OK, "poll", [["poll", {"q0-0": [[0, 7]]}]]),
        (9, 1, Kind.INVOKE, "poll", [["poll"]]),
        (9.5, 1, Kind.OK, "poll", [["poll", {}]]),
    ]
    history = history_of(*rows)
    picture = realtime_lag(history, log_values(history.operations()), (), 100.0, None)
    assert picture is not None
    assert "worst 3 s" in picture.summary, "it was acknowledged at 2 s and looked for at 5 s"
    assert "median 0 s" in picture.summary, "nothing was behind the second time"


def test_a_workload_without_logs_has_no_pictures_of_them() -> None:
    rows: list[Row] = [
        (1, 0, Kind.INVOKE, "commit", ["g", "q0-0", 5]),
        (2, 0, Kind.OK, "commit", ["g", "q0-0", 5]),
    ]
    history = History(history_of(*rows).events[:2])
    assert unseen({}, (), 2.0, None) is None
    assert realtime_lag(history, {}, (), 2.0, None) is None
    assert clock(history, (), 2.0) is None


def test_clocks_are_drawn_when_they_were_touched() -> None:
    rows: list[Row] = [
        (10, NEMESIS, Kind.INFO, "clock", {"clock_offsets_ms": {"b1": 4000}}),
        (30, NEMESIS, Kind.INFO, "clock", {"clock_offsets_ms": {"b1": 0}}),
    ]
    history = history_of(*rows)
    assert clock_offsets(history) == {"b1": [(10, 4), (30, 0)]}
    picture = clock(history, (), 100.0)
    assert picture is not None
    (steps,) = (d for d in paths(picture, "line c0") if "V" in d)
    assert f"H{x_of(10):.1f}V" in steps
    assert f"H{x_of(30):.1f}V" in steps


def test_a_long_run_has_a_small_picture_that_says_what_a_dot_is(
    queue_run: Callable[..., History],
) -> None:
    history = queue_run(30_000, seconds=60.0)
    picture = latency_raw(history.operations(), faults_of(history), 61.0)
    dots = sum(d.count("h0") for d in paths(picture, "dots ok"))
    assert DOTS_MAX / 4 < dots <= 2 * DOTS_MAX
    assert "a dot stands for all operations at its place" in picture.body
    assert len(picture.file_text()) < 600_000
