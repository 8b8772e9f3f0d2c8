"""Pushes are taken in by the worker and handed on by the loop; nothing grows without bound."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.model.errors import ErrorCode
from ottla.model.limits import MIB
from ottla.telemetry import ingest_driver
from ottla.telemetry.client_series import ClientSeries
from ottla.telemetry.exporter import LabelledPush
from ottla.telemetry.ingest_driver import Ingest, Pending, take_in
from ottla.telemetry.otlp import decode, points_of
from ottla.wire.compression import Codec, compress

Build = Callable[..., Any]
NAME = "org.apache.kafka.producer.record.send.total"


class Shelf:
    """Keeps what it is offered."""

    def __init__(self) -> None:
        self.pushes: list[LabelledPush] = []

    def offer(self, pushes: Sequence[LabelledPush]) -> None:
        self.pushes.extend(pushes)


class Answers:
    """What each push was answered, in order; lets a test wait for a number of them."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode | None] = []
        self._tell, self._told = trio.open_memory_channel[None](10_000)

    def __call__(self, code: ErrorCode | None) -> None:
        self.codes.append(code)
        self._tell.send_nowait(None)

    async def wait_for(self, count: int) -> None:
        for _ in range(count):
            await self._told.receive()
        await wait_all_tasks_blocked()


async def test_a_push_reaches_every_sink_and_its_series(
    labels_of: Build, counter: Build, pushed: Build, nursery: trio.Nursery
) -> None:
    sinks, series, answers = (Shelf(), Shelf()), ClientSeries(), Answers()
    ingest = Ingest(sinks=sinks, series=series)
    nursery.start_soon(ingest.run)
    for codec in Codec:
        payload = compress(codec, pushed(counter(NAME, 10)))
        ingest.submit(labels_of(), codec, payload, 1_000 + codec, answers)

    await answers.wait_for(5)

    assert answers.codes == [None] * 5
    for sink in sinks:
        assert [push.received_ms for push in sink.pushes] == [1_000, 1_001, 1_002, 1_003, 1_004]
        assert {push.labels for push in sink.pushes} == {labels_of()}
        for push in sink.pushes:
            assert [point.value for point in points_of(decode(push.otlp))] == [10]
    (row,) = series.rows()
    assert row.value == 50
    assert ingest.counts()["pushes"] == 5
    assert ingest.counts()["pending"] == ingest.counts()["pending_bytes"] == 0


async def test_each_bad_push_has_its_own_error_and_the_others_pass(
    labels_of: Build, counter: Build, pushed: Build, nursery: trio.Nursery
) -> None:
    shelf, answers = Shelf(), Answers()
    ingest = Ingest(sinks=[shelf])
    good = pushed(counter(NAME, 1))
    bomb = compress(Codec.ZSTD, bytes(17 * MIB))
    for codec, payload in ((0, good), (4, bomb), (1, b"damage"), (0, b"\xff\xff"), (9, good)):
        ingest.submit(labels_of(), codec, payload, 0, answers)
    ingest.submit(labels_of(), 0, good, 0, answers)
    nursery.start_soon(ingest.run)

    await answers.wait_for(6)

    assert answers.codes == [
        None,
        ErrorCode.TELEMETRY_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        None,
    ]
    assert len(shelf.pushes) == 2
    assert ingest.counts()["refused"] == 4


async def test_an_empty_push_is_taken_and_goes_nowhere(
    labels_of: Build, nursery: trio.Nursery
) -> None:
    shelf, answers = Shelf(), Answers()
    ingest = Ingest(sinks=[shelf], series=ClientSeries())
    nursery.start_soon(ingest.run)
    ingest.submit(labels_of(), 0, b"", 0, answers)
    await answers.wait_for(1)
    assert answers.codes == [None]
    assert shelf.pushes == []


async def test_beyond_the_bound_a_push_is_throttled_at_once(
    labels_of: Build, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    monkeypatch.setattr(ingest_driver, "PENDING_PUSHES_MAX", 3)
    monkeypatch.setattr(ingest_driver, "PENDING_BYTES_MAX", 100)
    answers = Answers()
    ingest = Ingest()
    ingest.submit(labels_of(), 0, bytes(101), 0, answers)
    for _ in range(4):
        ingest.submit(labels_of(), 0, b"", 0, answers)
    assert answers.codes == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2
    assert ingest.counts()["overflowed"] == 2
    nursery.start_soon(ingest.run)
    await answers.wait_for(2 + 3)
    assert answers.codes[2:] == [None] * 3, "what waited was taken in"


async def test_a_turn_that_unpacks_to_much_ends_early_and_loses_nothing(
    labels_of: Build, counter: Build, pushed: Build, nursery: trio.Nursery
) -> None:
    large = compress(Codec.ZSTD, pushed(counter(NAME, 1, note="x" * 9 * MIB)))
    pending = [Pending(number, labels_of(), 4, large, 0, print) for number in range(5)]
    assert len(take_in(pending, False)) == 2
    shelf, answers = Shelf(), Answers()
    ingest = Ingest(sinks=[shelf])
    nursery.start_soon(ingest.run)
    for number in range(5):
        ingest.submit(labels_of(), 4, large, number, answers)
    await answers.wait_for(5)
    assert answers.codes == [None] * 5
    assert [push.received_ms for push in shelf.pushes] == [0, 1, 2, 3, 4]


def test_a_turn_that_has_many_points_ends_early(
    labels_of: Build, gauge: Build, pushed: Build
) -> None:
    payload = pushed(*[gauge("a", 1) for _ in range(9_000)])
    pending = [Pending(number, labels_of(), 0, payload, 0, print) for number in range(5)]
    assert len(take_in(pending, True)) == 3
    assert len(take_in(pending, False)) == 5, "nothing is taken apart"


async def test_what_a_client_pushed_before_it_went_makes_no_series(
    labels_of: Build, counter: Build, pushed: Build, nursery: trio.Nursery
) -> None:
    shelf, series, answers = Shelf(), ClientSeries(), Answers()
    ingest = Ingest(sinks=[shelf], series=series)
    payload = pushed(counter(NAME, 1))
    ingest.submit(labels_of(1), 0, payload, 0, answers)
    ingest.submit(labels_of(2), 0, payload, 0, answers)
    ingest.forget(labels_of(1).client_instance_id)
    nursery.start_soon(ingest.run)
    await answers.wait_for(2)
    assert len(shelf.pushes) == 2, "it is sent on all the same"
    assert series.counts()["clients"] == 1

    ingest.submit(labels_of(1), 0, payload, 0, answers)
    await answers.wait_for(1)
    assert series.counts()["clients"] == 2, "it came again"
    ingest.forget(labels_of(1).client_instance_id)
    assert series.counts()["clients"] == 1
