"""Pushes are decoded by the worker and passed on by the loop; every queue is bounded."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from ottla.model.errors import ErrorCode
from ottla.model.limits import MIB
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.telemetry.clients import ingest_driver
from ottla.telemetry.clients.client_labels import ClientLabels
from ottla.telemetry.clients.client_series import ClientSeries
from ottla.telemetry.clients.exporter import LabelledPush
from ottla.telemetry.clients.ingest_driver import (
    GATHER_MS,
    GATHER_PUSHES,
    MISSES_MAX,
    SMALL_BYTES_MAX,
    Ingest,
)
from ottla.telemetry.clients.otlp import decode, label, points_of
from ottla.telemetry.clients.otlp_bounds import RESOURCES_MAX
from ottla.telemetry.clients.push_work import ParsedPush, WaitingPush, Worker
from ottla.wire.compression import Codec, compress

Build = Callable[..., Any]
NAME = "org.apache.kafka.producer.record.send.total"


class Shelf:
    """Keeps what it is offered."""

    def __init__(self) -> None:
        self.pushes: list[LabelledPush] = []
        self._offered = trio.Event()

    def offer(self, pushes: Sequence[LabelledPush]) -> None:
        self.pushes.extend(pushes)
        self._offered.set()

    async def wait_for(self, count: int) -> None:
        while len(self.pushes) < count:
            self._offered = trio.Event()
            await self._offered.wait()
        await wait_all_tasks_blocked()


class Answers:
    """Results of all pushes, in order; lets a test wait for a number of them."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode | None] = []
        self._tell, self._reports = trio.open_memory_channel[None](10_000)

    def __call__(self, code: ErrorCode | None) -> None:
        self.codes.append(code)
        self._tell.send_nowait(None)

    async def wait_for(self, count: int) -> None:
        for _ in range(count):
            await self._reports.receive()
        await wait_all_tasks_blocked()


async def test_a_push_reaches_every_sink_and_its_series(
    labels_of: Build,
    counter: Build,
    pushed: Build,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    sinks, series, answers = (Shelf(), Shelf()), ClientSeries(), Answers()
    ingest = Ingest(sinks=sinks, series=series)
    nursery.start_soon(ingest.run)
    for codec in Codec:
        payload = compress(codec, pushed(counter(NAME, 10)))
        ingest.submit(labels_of(), codec, payload, 1_000 + codec, answers)

    assert answers.codes == [None] * 5, "small as they are, they are answered at once"
    for sink in sinks:
        await sink.wait_for(5)

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
    labels_of: Build,
    counter: Build,
    pushed: Build,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    shelf = Shelf()
    ingest = Ingest(sinks=[shelf])
    good = pushed(counter(NAME, 1))
    bomb = compress(Codec.ZSTD, bytes(17 * MIB))
    cases = (
        (0, good, None),
        (4, bomb, ErrorCode.TELEMETRY_TOO_LARGE),
        (1, b"damage", ErrorCode.INVALID_RECORD),
        (1, b"damage" * 1_000, ErrorCode.INVALID_RECORD),
        (0, b"\xff\xff", ErrorCode.INVALID_RECORD),
        (0, b"\xff\xff" * 5_000, ErrorCode.INVALID_RECORD),
        (9, good, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (0, good, None),
    )
    answers = [Answers() for _ in cases]
    for number, (codec, payload, _) in enumerate(cases):
        ingest.submit(labels_of(), codec, payload, number, answers[number])
    nursery.start_soon(ingest.run)

    for answer in answers:
        await answer.wait_for(1)
    await shelf.wait_for(2)

    assert [answer.codes for answer in answers] == [[error] for _, _, error in cases]
    assert [push.received_ms for push in shelf.pushes] == [0, 7]
    assert ingest.counts()["refused"] == 6
    assert ingest.counts()["pushes"] == 2


async def test_a_push_that_meets_a_bug_is_refused_and_the_others_pass(
    labels_of: Build,
    counter: Build,
    pushed: Build,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
) -> None:
    errors, shelf, answers = UnexpectedErrors(), Shelf(), Answers()
    ingest = Ingest(sinks=[shelf], errors=errors)
    nursery.start_soon(ingest.run)
    take_in_one = Worker._take_in_one

    def fails_once(worker: Worker, pending: WaitingPush, data: bytes) -> ParsedPush:
        if pending.received_ms == 2:
            raise RuntimeError("a bug")
        return take_in_one(worker, pending, data)

    monkeypatch.setattr(Worker, "_take_in_one", fails_once)
    payload = pushed(*(counter(f"{NAME}.{at}", 1) for at in range(100)))
    assert len(payload) > SMALL_BYTES_MAX
    for received_ms in (1, 2, 3):
        ingest.submit(labels_of(), Codec.NONE, payload, received_ms, answers)
    await answers.wait_for(3)
    assert answers.codes == [None, ErrorCode.UNKNOWN_SERVER_ERROR, None]
    assert [push.received_ms for push in shelf.pushes] == [1, 3]
    assert errors.counts == {"push": 1}
    assert ingest.counts()["pending"] == 0


async def test_an_empty_push_is_taken_and_goes_nowhere(
    labels_of: Build, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    shelf, answers = Shelf(), Answers()
    ingest = Ingest(sinks=[shelf], series=ClientSeries())
    nursery.start_soon(ingest.run)
    ingest.submit(labels_of(), 0, b"", 0, answers)
    await answers.wait_for(1)
    assert answers.codes == [None]
    assert shelf.pushes == []


async def test_beyond_the_bound_a_push_is_throttled_at_once(
    labels_of: Build,
    counter: Build,
    pushed: Build,
    monkeypatch: pytest.MonkeyPatch,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    payload = pushed(counter(NAME, 1))
    monkeypatch.setattr(ingest_driver, "PENDING_PUSHES_MAX", 3)
    monkeypatch.setattr(ingest_driver, "PENDING_BYTES_MAX", 10 * len(payload))
    answers, shelf = Answers(), Shelf()
    ingest = Ingest(sinks=[shelf])
    ingest.submit(labels_of(), 0, bytes(10 * len(payload) + 1), 0, answers)
    for number in range(4):
        ingest.submit(labels_of(), 0, payload, number, answers)
    full = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert answers.codes == [full, None, None, None, full]
    assert ingest.counts()["overflowed"] == 2
    nursery.start_soon(ingest.run)
    await shelf.wait_for(3)
    assert [push.received_ms for push in shelf.pushes] == [0, 1, 2], "what waited was taken in"


async def test_what_small_pushes_unpack_to_counts_into_the_bound(
    labels_of: Build,
    counter: Build,
    pushed: Build,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
) -> None:
    content = pushed(counter(NAME, 1, note="x" * 4_000))
    monkeypatch.setattr(ingest_driver, "PENDING_BYTES_MAX", 2 * len(content))
    ingest, answers = Ingest(), Answers()
    for _ in range(3):
        ingest.submit(labels_of(), 4, compress(Codec.ZSTD, content), 0, answers)
    assert answers.codes == [None, None, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert ingest.counts()["pending_bytes"] == 2 * len(content)


async def test_what_is_not_small_is_answered_when_the_worker_has_seen_it(
    labels_of: Build,
    counter: Build,
    gauge: Build,
    pushed: Build,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    answers, shelf = Answers(), Shelf()
    ingest = Ingest(sinks=[shelf])
    small = pushed(counter(NAME, 1))
    long_when_unpacked = compress(Codec.ZSTD, pushed(counter(NAME, 1, note="x" * 9_000)))
    long = pushed(*[gauge(f"name.{number:05}", 1) for number in range(400)])
    split = pushed(counter(NAME, 1)) * (RESOURCES_MAX + 1)
    for number, payload in enumerate((long_when_unpacked, long, split, small)):
        codec = 4 if payload is long_when_unpacked else 0
        ingest.submit(labels_of(), codec, payload, number, answers)
    assert answers.codes == [None], "the small one, which came last"

    nursery.start_soon(ingest.run)
    await answers.wait_for(4)

    assert answers.codes == [None] * 4
    assert [push.received_ms for push in shelf.pushes] == [0, 1, 2, 3], "in order all the same"


async def test_a_lone_push_waits_a_little_for_others_but_many_do_not(
    labels_of: Build,
    counter: Build,
    pushed: Build,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    shelf = Shelf()
    ingest = Ingest(sinks=[shelf])
    nursery.start_soon(ingest.run)
    payload = pushed(counter(NAME, 1))
    began = trio.current_time()
    for clients in (range(1), range(1, 1 + GATHER_PUSHES)):
        await wait_all_tasks_blocked()
        for number in clients:  # a client that is known is not taken to the worker
            ingest.submit(labels_of(number), 0, payload, 0, print)
        await shelf.wait_for(len(clients))
        shelf.pushes.clear()
        waited_ms = 1e3 * (trio.current_time() - began)
        assert waited_ms == pytest.approx(GATHER_MS), "only the lone one waited"


@pytest.mark.parametrize("count", [GATHER_PUSHES - 1, 5 * GATHER_PUSHES])
async def test_a_flush_waits_until_what_is_there_was_handed_on(
    count: int,
    labels_of: Build,
    counter: Build,
    pushed: Build,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    shelf = Shelf()
    ingest = Ingest(sinks=[shelf])
    await ingest.flush()
    nursery.start_soon(ingest.run)
    for number in range(count):
        ingest.submit(labels_of(), 0, pushed(counter(NAME, 1)), number, lambda _: None)
    began = trio.current_time()
    await ingest.flush()
    assert [push.received_ms for push in shelf.pushes] == list(range(count))
    assert trio.current_time() == began, "and no push waits for company"


class Clients:
    """Submits pushes on demand, packed, and returns whether the loop finished each at once."""

    def __init__(self, ingest: Ingest, shelf: Shelf) -> None:
        self.ingest = ingest
        self.shelf = shelf

    async def push(self, labels: ClientLabels, payload: bytes) -> bool:
        count = len(self.shelf.pushes)
        codes: list[ErrorCode | None] = []
        self.ingest.submit(labels, 4, compress(Codec.ZSTD, payload), count, codes.append)
        assert codes == [None]
        is_at_once = len(self.shelf.pushes) > count
        await self.ingest.flush()
        assert len(self.shelf.pushes) == count + 1
        return is_at_once


@pytest.fixture
def clients(nursery: trio.Nursery) -> Clients:
    shelf = Shelf()
    ingest = Ingest(sinks=[shelf], series=ClientSeries())
    nursery.start_soon(ingest.run)
    return Clients(ingest, shelf)


async def test_a_push_like_the_one_before_is_done_at_once_and_comes_to_the_same(
    clients: Clients,
    labels_of: Build,
    counter: Build,
    gauge: Build,
    pushed: Build,
    autojump_clock: MockClock,
) -> None:
    pushes = [pushed(counter(NAME, number), gauge("level", number / 2)) for number in range(1, 5)]
    found = [await clients.push(labels_of(), payload) for payload in pushes]
    assert found == [False, True, True, True]
    for push, payload in zip(clients.shelf.pushes, pushes, strict=True):
        assert push.otlp == label(decode(payload), labels_of())
        assert push.labels == labels_of()
    series = clients.ingest._series
    assert series is not None
    assert [row.value for row in series.rows()] == [10, 2]
    assert clients.ingest.counts()["known"] == 3
    assert clients.ingest.counts()["pushes"] == 4


async def test_what_is_not_like_the_one_before_goes_the_long_way_and_is_known_from_then_on(
    clients: Clients,
    labels_of: Build,
    counter: Build,
    gauge: Build,
    pushed: Build,
    autojump_clock: MockClock,
) -> None:
    one, two = pushed(counter(NAME, 1)), pushed(counter(NAME, 1), gauge("level", 1))
    assert [await clients.push(labels_of(), payload) for payload in (one, one, two, two, one)] == [
        False,
        True,
        False,
        True,
        False,
    ]
    assert not await clients.push(labels_of(2), one), "known is a client, not a push"
    elsewhere = labels_of(source_address="10.1.1.1")
    assert not await clients.push(elsewhere, one), "labels are a part of what is handed on"
    assert b"10.1.1.1" in clients.shelf.pushes[-1].otlp
    assert await clients.push(elsewhere, one)


async def test_a_client_whose_pushes_always_differ_is_eventually_not_learned(
    clients: Clients, labels_of: Build, gauge: Build, pushed: Build, autojump_clock: MockClock
) -> None:
    for number in range(MISSES_MAX + 2):
        assert not await clients.push(labels_of(), pushed(gauge("x" * (number + 1), 1)))
    last = pushed(gauge("x" * (MISSES_MAX + 2), 1))
    assert not await clients.push(labels_of(), last)
    assert await clients.push(labels_of(), pushed(gauge("x" * (MISSES_MAX + 1), 2)))
    assert not await clients.push(labels_of(), last), "who settles is learned again"
    assert await clients.push(labels_of(), last)


async def test_a_push_does_not_overtake_one_of_its_client_that_waits(
    clients: Clients, labels_of: Build, gauge: Build, pushed: Build, autojump_clock: MockClock
) -> None:
    plain, other = pushed(gauge("level", 1)), pushed(gauge("another", 1))
    await clients.push(labels_of(), plain)
    for payload in (other, plain):
        clients.ingest.submit(labels_of(), 0, payload, 0, lambda _: None)
    assert len(clients.shelf.pushes) == 1
    await clients.ingest.flush()
    assert [push.otlp for push in clients.shelf.pushes[1:]] == [
        label(decode(payload), labels_of()) for payload in (other, plain)
    ]


async def test_a_client_that_went_is_not_known_any_more(
    clients: Clients, labels_of: Build, gauge: Build, pushed: Build, autojump_clock: MockClock
) -> None:
    payload = pushed(gauge("level", 1))
    await clients.push(labels_of(), payload)
    assert await clients.push(labels_of(), payload)
    clients.ingest.forget(labels_of().client_instance_id)
    clients.ingest.submit(labels_of(), 0, payload, 0, lambda _: None)
    clients.ingest.forget(labels_of().client_instance_id)
    await clients.ingest.flush()
    assert clients.ingest._known == {}, "nor is what was under way then"
    assert not await clients.push(labels_of(), payload)


async def test_a_turn_that_unpacks_to_much_ends_early_and_loses_nothing(
    labels_of: Build,
    counter: Build,
    pushed: Build,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    large = compress(Codec.ZSTD, pushed(counter(NAME, 1, note="x" * 9 * MIB)))
    pending = [WaitingPush(number, labels_of(), 4, large, 0, print) for number in range(5)]
    assert len(Worker(wants_points=False).take_in(pending)) == 2
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
    pending = [WaitingPush(number, labels_of(), 0, payload, 0, print) for number in range(5)]
    assert len(Worker(wants_points=True).take_in(pending)) == 3
    assert len(Worker(wants_points=False).take_in(pending)) == 5, "nothing is taken apart"


async def test_what_a_client_pushed_before_it_went_makes_no_series(
    labels_of: Build,
    counter: Build,
    pushed: Build,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    shelf, series, answers = Shelf(), ClientSeries(), Answers()
    ingest = Ingest(sinks=[shelf], series=series)
    payload = pushed(counter(NAME, 1))
    ingest.submit(labels_of(1), 0, payload, 0, answers)
    ingest.submit(labels_of(2), 0, payload, 0, answers)
    ingest.forget(labels_of(1).client_instance_id)
    nursery.start_soon(ingest.run)
    await shelf.wait_for(2)
    assert len(shelf.pushes) == 2, "it is sent on all the same"
    assert series.counts()["clients"] == 1

    ingest.submit(labels_of(1), 0, payload, 0, answers)
    await shelf.wait_for(3)
    assert series.counts()["clients"] == 2, "it came again"
    ingest.forget(labels_of(1).client_instance_id)
    assert series.counts()["clients"] == 1
