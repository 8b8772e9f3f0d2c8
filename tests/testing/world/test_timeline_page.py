"""The HTML page of a timeline: its lanes, its bounds, and text that tries to be markup."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.testing.world import timeline_page
from ottla.testing.world.timeline import Timeline, TimelineEvent

VOID = {"meta", "input", "line", "rect", "circle"}


class Elements(HTMLParser):
    """Elements, attributes and text of a page; fails if the elements are not nested."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID or (tag == "circle"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


PLAIN = Elements(
    timeline_page.page(
        [
            TimelineEvent(0.0, "a", "start", "start 1"),
            TimelineEvent(1.0, "a", "request", "Fetch #1", {"broker": "broker-1"}),
        ]
    )
)


@given(st.lists(st.tuples(st.text(), st.text(), st.text()), max_size=4), st.text())
def test_no_text_of_an_event_adds_an_element_or_an_attribute(
    texts: list[tuple[str, str, str]], title: str
) -> None:
    events = [
        TimelineEvent(float(at), where, kind, text, {"key": text, "broker": where})
        for at, (where, kind, text) in enumerate(texts)
    ]

    found = Elements(timeline_page.page(events, title=title))

    assert found.names <= PLAIN.names
    assert found.attributes <= PLAIN.attributes


def test_markup_in_names_and_values_is_shown_as_text() -> None:
    bad = "</title><script>alert(1)</script><img src=x onerror='a'>\"&"
    page = timeline_page.page(
        [TimelineEvent(0.0, bad, bad, bad, {bad: bad, "broker": bad})], title=bad
    )

    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;" in page
    assert Elements(page).names <= PLAIN.names


def test_the_page_has_no_script_and_loads_nothing() -> None:
    assert "script" not in PLAIN.names
    assert all(re.fullmatch(r"#e\d+", address) for address in PLAIN.addresses)
    assert not [name for name in PLAIN.attributes if name.startswith("on")]
    assert "default-src 'none'" in timeline_page.page([])


def test_each_instance_and_broker_has_a_lane_and_each_event_a_row() -> None:
    timeline = Timeline()
    timeline.add(TimelineEvent(0.0, "scenario", "produce", "orders-0@0"))
    timeline.add(TimelineEvent(1.0, "a", "start", "start 1"))
    timeline.add(TimelineEvent(2.0, "a", "request", "Fetch #1", {"broker": "broker-2"}))
    timeline.add(TimelineEvent(3.0, "broker-1", "kill", "killed"))
    timeline.add(TimelineEvent(4.0, "a", "kill", "killed"))

    page = timeline.as_html("A <run>")

    lanes = re.findall(r'<text x="8" y="[\d.]+">(.*?)</text>', page)
    assert lanes == ["scenario", "a", "broker-1", "broker-2"]
    found = Elements(page)
    assert [name for name in found.ids if name.startswith("e")] == [f"e{at}" for at in range(5)]
    assert set(found.addresses) == {f"#e{at}" for at in range(5)}
    assert page.count("<rect") == 1  # the life of a, from its start to its kill
    assert "A &lt;run&gt;" in page


def test_a_long_run_keeps_faults_before_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_page, "ROWS_MAX", 10)
    events = [TimelineEvent(0.0, "a", "kill", "the kill")]
    events += [TimelineEvent(float(at), "a", "request", f"Fetch #{at}") for at in range(1, 100)]

    page = timeline_page.page(events, dropped_count=5)

    assert "the kill" in page
    assert "Fetch #99" in page
    assert "Fetch #90<" not in page
    assert "10 events of 105" in page


def test_a_very_long_run_shows_its_newest_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_page, "ROWS_MAX", 10)
    events = [TimelineEvent(float(at), "a", "mark", f"mark {at}.") for at in range(50)]

    rows = timeline_page.page(events).split("<tbody>")[1]

    assert re.findall(r"mark (\d+)\.", rows) == [str(at) for at in range(40, 50)]
