"""Timelines of simulated runs: their text, and the choice of events for an excerpt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.testing.world import timeline as module
from ottla.testing.world.timeline import Timeline, TimelineEvent, printable


def filled(*events: TimelineEvent) -> Timeline:
    timeline = Timeline()
    for event in events:
        timeline.add(event)
    return timeline


def test_a_line_has_time_place_kind_and_text() -> None:
    timeline = filled(
        TimelineEvent(1.5, "a", "start", "start 1"),
        TimelineEvent(12.25, "broker-1", "kill", "killed"),
    )

    assert timeline.as_text() == (
        "       1.500  a         start  start 1\n      12.250  broker-1  kill   killed"
    )
    assert timeline.as_text(lines_max=1) == "      12.250  broker-1  kill  killed"


def test_an_excerpt_around_a_time_shows_the_nearest_faults_and_counts_the_rest() -> None:
    fetches = [TimelineEvent(at, "a", "request", "Fetch #1") for at in range(50)]
    timeline = filled(*fetches, TimelineEvent(50.0, "a", "kill", "killed"))

    text = timeline.as_text(around=2.0, lines_max=4)

    assert "killed" in text
    assert "other events)" in text
    assert "2.000" in text
    assert len(text.splitlines()) == 4


def test_an_excerpt_around_events_marks_them() -> None:
    subject = TimelineEvent(3.0, "a", "answer", "Produce #1")
    timeline = filled(TimelineEvent(1.0, "a", "start", "start 1"), subject)

    assert timeline.as_text(around=[subject]).splitlines()[1].startswith(" →     3.000  a")


EVENTS = st.lists(
    st.builds(
        TimelineEvent,
        st.floats(0, 100),
        st.sampled_from(["a", "b", "broker-1"]),
        st.sampled_from(["kill", "request", "answer", "mark", "note"]),
        st.text(max_size=20),
    ),
    max_size=30,
)


@given(EVENTS, st.integers(1, 20), st.floats(0, 100))
def test_an_excerpt_is_in_order_and_never_longer_than_asked(
    events: list[TimelineEvent], lines_max: int, around: float
) -> None:
    ordered = sorted(events, key=lambda event: event.at_s)
    lines = [
        line
        for line in filled(*ordered).as_text(around=around, lines_max=lines_max).splitlines()
        if line
    ]

    assert len(lines) <= lines_max
    assert bool(lines) == bool(events)
    times = [float(line.split()[0]) for line in lines if "other event" not in line]
    assert times == sorted(times)


def test_an_event_is_about_the_records_of_its_range() -> None:
    facts: dict[str, str | int] = {"topic": "t", "partition": 1, "offset": 5, "last_offset": 7}
    event = TimelineEvent(0.0, "a", "answer", "Produce", facts)

    assert [offset for offset in range(12) if event.is_about("t", 1, offset)] == [5, 6, 7]
    assert not event.is_about("t", 0, 5)
    assert not event.is_about("u", 1, 5)
    single = TimelineEvent(0.0, "a", "produce", "", {"topic": "t", "partition": 1, "offset": 5})
    assert [offset for offset in range(12) if single.is_about("t", 1, offset)] == [5]


def test_a_timeline_drops_its_oldest_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVENTS_MAX", 3)
    timeline = filled(*(TimelineEvent(at, "a", "note", str(at)) for at in range(5)))

    assert [event.text for event in timeline] == ["2", "3", "4"]
    assert timeline.dropped_count == 2


@given(st.text(), st.integers(1, 30))
def test_printable_text_is_one_line_without_control_characters(text: str, columns: int) -> None:
    assert printable(text).isprintable()
    assert printable(text, columns).isprintable()
    if text.isprintable():
        assert len(printable(text, columns)) <= columns
