"""Traces: equal hashes for equal courses of events, and only for these."""

from ottla.jepsen.world.trace import Part, Trace, listening


def _hash_of(events: list[tuple[Part, ...]]) -> str:
    trace = Trace()
    for event in events:
        trace.add(*event)
    return trace.hash


def test_equal_courses_have_equal_hashes() -> None:
    events: list[tuple[Part, ...]] = [("send", number, b"x") for number in range(2000)]

    assert _hash_of(events) == _hash_of(list(events))
    assert _hash_of(events) != _hash_of(events[:-1])
    assert _hash_of(events) != _hash_of([*events[1:], events[0]])
    assert _hash_of([("a", "b")]) != _hash_of([("ab",)])


def test_asking_for_the_hash_on_the_way_changes_nothing() -> None:
    asked, unasked = Trace(), Trace()
    for number in range(1000):
        asked.add(number)
        unasked.add(number)
        if number % 100 == 0:
            assert len(asked.hash) == 32

    assert asked.hash == unasked.hash
    assert asked.event_count == unasked.event_count == 1000


def test_a_listener_hears_what_happens() -> None:
    heard: list[tuple[Part, ...]] = []

    with listening(heard.append):
        Trace().add("crash", 1)
    Trace().add("unheard")

    assert heard == [("crash", 1)]
