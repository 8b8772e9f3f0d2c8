"""The ring buffer of the latest pushes: bounded, in order, with an exact count of dropped ones."""

from uuid import UUID

from ottla.broker.metrics.telemetry_tail import FROM_NOW, FROM_OLDEST, TailPage, TelemetryTail
from ottla.telemetry.clients.client_labels import ClientLabels
from ottla.telemetry.clients.exporter import LabelledPush

LOTS = 1_000_000


def push(otlp: bytes, client: str = "app") -> LabelledPush:
    labels = ClientLabels(UUID(int=len(client)), client, "User:a", "rd", "2", "10.0.0.1", 1)
    return LabelledPush(labels, 1_000, otlp)


def ask(
    tail: TelemetryTail, cursor: int, *names: str | UUID, bytes_max: int = LOTS
) -> tuple[int, int, list[bytes]]:
    found: TailPage = tail.since(cursor, names=names or None, bytes_max=bytes_max)
    return found.cursor, found.missed, [one.otlp for _, one in found.pushes]


def test_a_reader_gets_what_came_since_it_last_asked() -> None:
    tail = TelemetryTail()
    tail.offer([push(b"a")])
    cursor, missed, found = ask(tail, FROM_NOW)
    assert (missed, found) == (0, [])
    tail.offer([push(b"b"), push(b"c")])

    cursor, missed, found = ask(tail, cursor)

    assert (missed, found) == (0, [b"b", b"c"])
    assert ask(tail, cursor) == (cursor, 0, [])
    assert ask(tail, FROM_OLDEST) == (cursor, 0, [b"a", b"b", b"c"])


def test_new_pushes_evict_the_oldest_and_the_reader_gets_the_count() -> None:
    tail = TelemetryTail(pushes_max=2, bytes_max=10)
    begin = ask(tail, FROM_NOW)[0]
    tail.offer([push(b"1"), push(b"2"), push(b"3")])
    assert ask(tail, begin)[1:] == (1, [b"2", b"3"])

    tail.offer([push(b"x" * 10)])

    assert ask(tail, begin)[1:] == (3, [b"x" * 10])


def test_a_push_above_the_bound_is_missed_and_takes_nothing() -> None:
    tail = TelemetryTail(bytes_max=10)
    begin = ask(tail, FROM_NOW)[0]
    tail.offer([push(b"x" * 11)])
    cursor, missed, found = ask(tail, begin)
    assert (missed, found) == (1, [])
    tail.offer([push(b"y")])
    assert ask(tail, cursor)[1:] == (0, [b"y"])


def test_an_answer_is_bounded_and_the_next_goes_on_where_it_ended() -> None:
    tail = TelemetryTail()
    tail.offer([push(b"aa"), push(b"bb"), push(b"cc")])

    cursor, _, found = ask(tail, FROM_OLDEST, bytes_max=5)
    assert found == [b"aa", b"bb"]
    assert ask(tail, cursor, bytes_max=1)[2] == [b"cc"]


def test_a_client_is_found_by_its_id_or_by_its_instance_id() -> None:
    tail = TelemetryTail()
    tail.offer([push(b"a", "app"), push(b"b", "other"), push(b"c", "app")])

    cursor, missed, found = ask(tail, FROM_OLDEST, "app", bytes_max=1)
    assert (missed, found) == (0, [b"a"])
    assert ask(tail, cursor, "app")[2] == [b"c"]
    assert ask(tail, FROM_OLDEST, UUID(int=5))[2] == [b"b"]


def test_what_a_node_says_of_itself_is_not_what_a_client_pushed() -> None:
    tail = TelemetryTail()
    tail.offer([LabelledPush(None, 1_000, b"own")])
    assert ask(tail, FROM_OLDEST)[2] == []


def test_a_cursor_of_another_life_begins_with_the_oldest() -> None:
    tail = TelemetryTail()
    tail.offer([push(b"a")])
    assert ask(tail, 99) == (2, 0, [b"a"])
