"""The outcome of a send is acknowledged, certainly refused, or unknown; never a wrong one."""

from collections.abc import Callable, Generator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.client.produce.delivery import RecordMetadata
from ottla.client.produce.partition_queue import NotDeliveredError
from ottla.jepsen.clients import confluent_sending, own_sending
from ottla.jepsen.history import EventKind, Json
from ottla.jepsen.workloads.load import Op
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset

SEND = Op("send", [["send", "q0-1", 7]])


class Report:
    """A delivery report that comes to this."""

    def __init__(self, outcome: int | Exception | None) -> None:
        self.outcome = outcome

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        return self.wait().__await__()

    async def wait(self) -> RecordMetadata:
        if self.outcome is None:
            await trio.sleep_forever()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        await trio.lowlevel.checkpoint()
        assert isinstance(self.outcome, int)
        return RecordMetadata("q0", 1, Offset(self.outcome), 0)


class Sender:
    """A producer of our client that accepts the record, or does not."""

    def __init__(self, taken: Report | Exception | None) -> None:
        self.taken = taken

    async def send(self, topic: str, value: bytes, *, key: None, partition: int) -> Report:
        assert (topic, value, partition) == ("q0", b"7", 1)
        if self.taken is None:
            await trio.sleep_forever()
        if isinstance(self.taken, Exception):
            raise self.taken
        await trio.lowlevel.checkpoint()
        assert self.taken is not None
        return self.taken


def lost(*, may_be_in_log: bool) -> Report:
    code = ErrorCode.REQUEST_TIMED_OUT
    return Report(NotDeliveredError(code, "so it is", may_be_in_log=may_be_in_log))


@pytest.mark.parametrize(
    ("taken", "kind", "value"),
    [
        (Report(5), EventKind.OK, [["send", "q0-1", [5, 7]]]),
        (Report(-1), EventKind.OK, [["send", "q0-1", [None, 7]]]),
        (lost(may_be_in_log=True), EventKind.INFO, None),
        (lost(may_be_in_log=False), EventKind.FAIL, None),
        (Report(None), EventKind.INFO, None),
        (RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), EventKind.FAIL, None),
        (None, EventKind.FAIL, None),
    ],
)
async def test_our_producers_reports(
    taken: Report | Exception | None, kind: EventKind, value: Json, autojump_clock: MockClock
) -> None:
    producer: Any = Sender(taken)
    done = await own_sending.send_one(producer, SEND)
    assert (done.kind, done.value) == (kind, value)


class Error:
    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return "so it is"


class Message:
    def __init__(self, offset: int | None) -> None:
        self._offset = offset

    def offset(self) -> int | None:
        return self._offset


class Librdkafka:
    """A producer of librdkafka that reports this at the second poll, if anything."""

    def __init__(self, report: tuple[Error | None, Message | None] | None, is_full: bool) -> None:
        self.report = report
        self.is_full = is_full
        self.polls = 0
        self.tell: Callable[..., None] = print

    def produce(
        self,
        topic: str,
        value: bytes,
        *,
        key: None,
        partition: int,
        on_delivery: Callable[..., None],
    ) -> None:
        assert (topic, value, partition) == ("q0", b"7", 1)
        if self.is_full:
            raise BufferError("Local: Queue full")
        self.tell = on_delivery

    def poll(self, timeout_s: float) -> None:
        self.polls += 1
        if self.polls == 2 and self.report is not None:
            self.tell(*self.report)


@pytest.mark.parametrize(
    ("report", "is_full", "kind", "value"),
    [
        ((None, Message(5)), False, EventKind.OK, [["send", "q0-1", [5, 7]]]),
        ((None, Message(None)), False, EventKind.OK, [["send", "q0-1", [None, 7]]]),
        ((Error("_MSG_TIMED_OUT"), None), False, EventKind.INFO, None),
        ((Error("MSG_SIZE_TOO_LARGE"), None), False, EventKind.FAIL, None),
        (None, False, EventKind.INFO, None),
        (None, True, EventKind.FAIL, None),
    ],
)
def test_librdkafkas_reports(
    report: tuple[Error | None, Message | None] | None,
    is_full: bool,
    kind: EventKind,
    value: Json,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(confluent_sending, "DEADLINE_S", 0.05)
    done = confluent_sending.send_one(Librdkafka(report, is_full), SEND)
    assert (done.kind, done.value) == (kind, value)
