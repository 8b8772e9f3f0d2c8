"""The order in which the effects of one event are performed."""

from collections.abc import Sequence
from typing import Any

from ottla.broker.coordinators.effects import (
    CoordinatorRecord,
    EventWrite,
    Outbox,
    Responder,
    ShardEffects,
)
from ottla.broker.coordinators.performer import perform

RECORD = CoordinatorRecord(b"key", b"value")


class NotedEffects:
    """Ports that record the effects they are asked to perform."""

    def __init__(self) -> None:
        self.steps: list[tuple[Any, ...]] = []

    def answer(self, responder: Responder, answer: Any) -> None:
        self.steps.append(("answer", answer))

    def append(
        self, writes: Sequence[EventWrite], answers: Sequence[tuple[Responder, Any]]
    ) -> None:
        self.steps.append(("append", list(writes), [answer for _, answer in answers]))

    def send(self, order: Any) -> None:
        self.steps.append(("send", order))

    def wake(self, key: str) -> None:
        self.steps.append(("wake", key))

    def wake_at(self, deadline_ms: int) -> None:
        self.steps.append(("wake at", deadline_ms))

    def work_soon(self) -> None:
        self.steps.append(("work",))


def _performed(effects: ShardEffects[EventWrite]) -> list[tuple[Any, ...]]:
    ports = NotedEffects()
    perform(effects, ports)
    return ports.steps


def test_effects_are_performed_in_one_order() -> None:
    effects: ShardEffects[EventWrite] = ShardEffects()
    effects.next_deadline_ms, effects.has_work = 7, True
    effects.completed.append("id")
    effects.orders.append("markers")
    effects.writes.append([RECORD])
    effects.committed_answers.append((print, "committed"))
    effects.answers.append((print, "now"))

    assert _performed(effects) == [
        ("answer", "now"),
        ("append", [[RECORD]], ["committed"]),
        ("send", "markers"),
        ("wake", "id"),
        ("work",),
        ("wake at", 7),
    ]


def test_an_answer_without_a_write_waits_for_earlier_writes() -> None:
    outbox = Outbox()
    outbox.answer_when_committed(print, "read")

    assert _performed(outbox.take())[0] == ("append", [], ["read"])


def test_an_event_without_effects_needs_no_port() -> None:
    assert _performed(Outbox().take()) == []


def test_the_records_of_each_event_are_one_write() -> None:
    outbox = Outbox()
    outbox.write(RECORD)
    outbox.write(RECORD)
    outbox.end_event()
    outbox.write(RECORD)

    assert _performed(outbox.take())[0] == ("append", [[RECORD, RECORD], [RECORD]], [])
