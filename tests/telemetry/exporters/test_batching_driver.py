"""A way out gathers, sends, backs off and recovers; in virtual time."""

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from ottla.model.settings.telemetry.exporters import ExporterConfig
from ottla.telemetry.clients.exporter import LabelledPush
from ottla.telemetry.exporters.batching_driver import (
    BATCH_BYTES_MAX,
    BATCH_PUSHES_MAX,
    BatchingExporter,
)
from ottla.telemetry.exporters.export_queue import ExportOutcome, ExportVerdict

Build = Callable[..., Any]

SENT = ExportOutcome(verdict=ExportVerdict.SENT)
DOWN = ExportOutcome(verdict=ExportVerdict.RETRY, why="connection refused")


class Receiver:
    """Answers as scripted; records the time and content of each push."""

    def __init__(self) -> None:
        self.outcome = SENT
        self.got: list[tuple[float, list[int]]] = []

    async def deliver(self, batch: Sequence[LabelledPush]) -> ExportOutcome:
        await trio.lowlevel.checkpoint()
        self.got.append((trio.current_time(), [push.received_ms for push in batch]))
        return self.outcome


class HalfChance:
    """Chance that always says a half."""

    def random(self) -> float:
        return 0.5


def exporter_to(receiver: Receiver, **settings: Any) -> BatchingExporter:
    rng: Any = HalfChance()
    return BatchingExporter("collector", receiver.deliver, ExporterConfig(**settings), rng)


def push(number: int, size_bytes: int = 10) -> LabelledPush:
    return LabelledPush(None, number, bytes(size_bytes))


async def test_pushes_of_a_moment_leave_together(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    receiver = Receiver()
    exporter = exporter_to(receiver, linger_ms=200)
    nursery.start_soon(exporter.run)
    await wait_all_tasks_blocked()
    started = trio.current_time()
    exporter.offer([push(1)])
    await trio.sleep(0.1)
    exporter.offer([push(2)])
    await trio.sleep(10)
    exporter.offer([push(3)])
    await trio.sleep(1)
    assert [(round(at - started, 3), batch) for at, batch in receiver.got] == [
        (0.2, [1, 2]),
        (10.3, [3]),
    ]
    assert exporter.counts()["sent"] == 3


async def test_a_full_batch_does_not_wait(nursery: trio.Nursery, mock_clock: MockClock) -> None:
    receiver = Receiver()
    exporter = exporter_to(receiver)
    nursery.start_soon(exporter.run)
    exporter.offer([push(number) for number in range(BATCH_PUSHES_MAX)])
    await wait_all_tasks_blocked()
    exporter.offer([push(0, BATCH_BYTES_MAX)])
    await wait_all_tasks_blocked()
    assert [len(batch) for _, batch in receiver.got] == [BATCH_PUSHES_MAX, 1]


async def test_a_receiver_down_for_a_minute_costs_what_the_queue_cannot_hold(
    nursery: trio.Nursery, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = Receiver()
    receiver.outcome = DOWN
    exporter = exporter_to(receiver, queue_pushes_max=40)
    nursery.start_soon(exporter.run)
    with caplog.at_level(logging.WARNING):
        for number in range(60):
            exporter.offer([push(number)])
            await trio.sleep(1)
        assert exporter.counts()["queued"] == 40
        assert exporter.counts()["dropped"] == 20
        back_at = trio.current_time()
        receiver.got.clear()
        receiver.outcome = SENT
        await trio.sleep(20)
    at, batch = receiver.got[0]
    assert at - back_at <= 10, "within the longest back-off"
    assert batch == list(range(20, 60)), "the newest were kept"
    counts = exporter.counts()
    assert (counts["sent"], counts["dropped"], counts["queued"]) == (40, 20, 0)
    assert counts["failures"] >= 8, "it was tried all the time"
    assert [record.message for record in caplog.records] == [
        "collector does not accept metrics: connection refused",
        "collector accepts metrics again",
    ]


async def test_a_flush_waits_for_what_is_there_and_not_for_what_comes(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    receiver = Receiver()
    exporter = exporter_to(receiver, linger_ms=200)
    await exporter.flush()
    nursery.start_soon(exporter.run)

    async def go_on() -> None:
        for number in range(100):
            exporter.offer([push(number)])
            await trio.sleep(0.1)

    nursery.start_soon(go_on)
    await trio.sleep(1.05)
    began = trio.current_time()
    await exporter.flush()
    assert trio.current_time() - began < 0.4
    sent = [number for _, batch in receiver.got for number in batch]
    assert sent[:11] == list(range(11))
    assert exporter.counts()["sending"] == 0


async def test_a_flush_does_not_wait_for_who_takes_nothing(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    receiver = Receiver()
    receiver.outcome = DOWN
    exporter = exporter_to(receiver)
    nursery.start_soon(exporter.run)
    exporter.offer([push(1)])
    began = trio.current_time()
    await exporter.flush()
    assert trio.current_time() - began < 1, "the first failure is enough"
    await exporter.flush()
    assert exporter.counts()["queued"] == 1


async def test_a_queue_is_bounded_in_bytes(nursery: trio.Nursery, mock_clock: MockClock) -> None:
    receiver = Receiver()
    exporter = exporter_to(receiver, queue_bytes_max=1_000)
    for number in range(500):
        exporter.offer([push(number, 100)])
    counts = exporter.counts()
    assert (counts["queued"], counts["queued_bytes"], counts["dropped"]) == (10, 1_000, 490)


async def test_a_wait_that_is_asked_for_is_kept(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    receiver = Receiver()
    receiver.outcome = ExportOutcome(verdict=ExportVerdict.RETRY, retry_after_ms=45_000)
    exporter = exporter_to(receiver, linger_ms=0)
    nursery.start_soon(exporter.run)
    exporter.offer([push(1)])
    await trio.sleep(100)
    times = [at for at, _ in receiver.got]
    assert [round(after - before) for before, after in pairwise(times)] == [45, 45]


async def test_what_is_refused_for_good_is_counted_and_not_sent_again(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    receiver = Receiver()
    receiver.outcome = ExportOutcome(verdict=ExportVerdict.REFUSED, why="400")
    exporter = exporter_to(receiver)
    nursery.start_soon(exporter.run)
    exporter.offer([push(1), push(2)])
    await trio.sleep(30)
    receiver.outcome = ExportOutcome(verdict=ExportVerdict.SENT, rejected_points=4)
    exporter.offer([push(3)])
    await trio.sleep(30)
    assert [batch for _, batch in receiver.got] == [[1, 2], [3]]
    counts = exporter.counts()
    assert (counts["refused"], counts["sent"], counts["rejected_points"]) == (2, 1, 4)
