"""Scenarios of the gallery: the input of each program, its instances, and the check of its output.

A scenario receives the running world and the program to start: `broken` or `fixed` of one module of
`bugs/`. It uses default settings of the world, and knows nothing about the faults of the run.
"""

import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal

import trio

import ottla.testing.world as world
from tests.gallery import database
from tests.gallery.bugs.unbounded_buffer import Gauge

Program = Callable[..., Coroutine[Any, Any, object]]
Scenario = Callable[[world.World, Program], Awaitable[None]]

SETTLING_S = 120.0
"""Virtual seconds after the last fault in which a program must have processed its input."""
BUFFERED_COUNT_MAX = 20
"""Number of records that a program with a bounded buffer may have read ahead."""


def value_of(record: Any) -> str:
    """Return the value of a record as text, or a row as it is."""
    return record if isinstance(record, str) else (record.value or b"").decode()


def order_id_of(record: Any) -> str:
    """Return the id of an order in JSON, or the text of another value."""
    try:
        return str(json.loads(value_of(record))["id"])
    except ValueError:
        return value_of(record)


def records_of(values: Sequence[str], key_count: int) -> list[world.Record]:
    """Return records with some values, whose keys take turns."""
    return [
        world.Record(key=f"key-{number % key_count}".encode(), value=value.encode())
        for number, value in enumerate(values)
    ]


def orders(count: int) -> list[str]:
    """Return the ids of some orders."""
    return [f"order-{number:02}" for number in range(count)]


def marked(values: Sequence[str], mark: str, *, every: int) -> list[str]:
    """Return values, some of which have a mark at their end."""
    return [one + mark * (number % every == 2) for number, one in enumerate(values)]


async def feed(
    w: world.World, topic: str, records: Sequence[world.Record], *, size: int, every_s: float
) -> list[world.WrittenRecord]:
    """Write records in groups of a size, and wait after each group."""
    written: list[world.WrittenRecord] = []
    for start in range(0, len(records), size):
        written += await w.produce(topic, records[start : start + size])
        await w.sleep(every_s)
    return written


async def run(
    w: world.World,
    program: Program,
    topic: str,
    values: Sequence[str],
    *arguments: object,
    outputs: Sequence[str] = (),
    runtime: Literal["asyncio", "trio"] = "asyncio",
    size: int = 2,
    every_s: float = 1.0,
    second_after_s: float = 0.0,
    partition_count: int = 2,
    key_count: int = 4,
    with_names: bool = False,
) -> list[world.WrittenRecord]:
    """Run two instances of a program until all records of a topic are processed. Returns these
    records. The second instance starts some seconds after the first one."""
    await w.create_topic(topic, partition_count=partition_count)
    for output in outputs:
        await w.create_topic(output)

    def start(name: str) -> None:
        names = (name,) if with_names else ()
        w.start(name, program, w.bootstrap, *arguments, *names, runtime=runtime)

    async def start_second() -> None:
        await w.sleep(second_after_s)
        start("b")

    start("a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(start_second)
        sent = await feed(w, topic, records_of(values, key_count), size=size, every_s=every_s)
    await w.settle(SETTLING_S)
    return sent


async def commit_early(w: world.World, program: Program) -> None:
    sent = await run(w, program, "orders", orders(40), outputs=["bills"], size=20, every_s=5)
    world.at_least_once(sent, await w.read("bills"), key=value_of)


async def commit_late(w: world.World, program: Program) -> None:
    store = w.store()
    sent = await run(w, program, "orders", orders(40), store, runtime="trio", size=20, every_s=5)
    world.exactly_once(sent, await database.rows(store, "charges-"), key=value_of)


async def rebalance_ignored(w: world.World, program: Program) -> None:
    store = w.store()
    sent = await run(
        w,
        program,
        "views",
        orders(60),
        store,
        every_s=0.75,
        second_after_s=4,
        partition_count=4,
        key_count=12,
    )
    views = [one.key for one in sent]
    counted = [
        page.removeprefix("views/").encode()
        for page, count in await scanned(store, "views/")
        for _ in range(int(count))
    ]
    world.exactly_once(views, counted, key=lambda page: page)


async def shared_producer(w: world.World, program: Program) -> None:
    await run(w, program, "orders", orders(60), outputs=["copies"], with_names=True)


async def dead_letter_order(w: world.World, program: Program) -> None:
    values = ["?" * (number % 3 == 1) + one for number, one in enumerate(orders(40))]
    sent = await run(
        w, program, "orders", values, outputs=["bills", "dead-letters"], size=20, every_s=5
    )
    bills, letters = await w.read("bills"), await w.read("dead-letters")
    world.no_lost_dead_letter(sent, bills, letters, key=value_of)


async def outbox(w: world.World, program: Program) -> None:
    sent = await run(
        w, program, "orders", orders(40), w.store(), outputs=["accepted"], size=20, every_s=5
    )
    world.at_least_once(sent, await w.read("accepted"), key=value_of)


async def zombie(w: world.World, program: Program) -> None:
    sent = await run(w, program, "orders", orders(60), outputs=["copies"], size=20, every_s=5)
    world.exactly_once(sent, await w.read("copies"), key=value_of)


async def pause_resume(w: world.World, program: Program) -> None:
    await run(w, program, "orders", marked(orders(40), "!", every=4), outputs=["bills"])


async def retry_reorders(w: world.World, program: Program) -> None:
    store = w.store()
    changes = marked(orders(40), "!", every=5)
    await run(w, program, "changes", changes, store, runtime="trio", size=8, every_s=3)
    booked = [row.split() for row in await database.rows(store, "bookings-")]
    world.in_key_order(booked, key=lambda row: row[0], order=lambda row: row[1])


async def unbounded_buffer(w: world.World, program: Program) -> None:
    gauge = Gauge()
    samples: list[world.LagReading] = []
    await w.create_topic("pictures", partition_count=2)
    w.start("a", program, w.bootstrap, gauge, runtime="trio")

    async def sample() -> None:
        while True:
            samples.append(world.LagReading(w.now_s, gauge.value))
            await w.sleep(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sample)
        await feed(w, "pictures", records_of(orders(100), 4), size=10, every_s=1)
        await w.settle(SETTLING_S)
        nursery.cancel_scope.cancel()
    world.bounded_lag(samples, max_records=BUFFERED_COUNT_MAX)


async def wrong_partition(w: world.World, program: Program) -> None:
    sent = await run(
        w,
        program,
        "orders",
        orders(80),
        outputs=["bills"],
        size=20,
        every_s=4,
        partition_count=4,
        key_count=12,
    )
    world.at_least_once(sent, await w.read("bills"), key=value_of)


async def static_clash(w: world.World, program: Program) -> None:
    await run(
        w,
        program,
        "invoices",
        orders(60),
        outputs=["documents"],
        runtime="trio",
        with_names=True,
        size=20,
        every_s=3,
    )


async def timestamp_dedup(w: world.World, program: Program) -> None:
    store = w.store()
    sent = await run(w, program, "readings", orders(40), store, runtime="trio", size=8)
    world.exactly_once(sent, await database.rows(store, "readings-"), key=value_of)


async def background_task(w: world.World, program: Program) -> None:
    sent = await run(w, program, "orders", orders(60), outputs=["e-mails"])
    world.at_least_once(sent, await w.read("e-mails"), key=value_of)


async def offset_not_plus_one(w: world.World, program: Program) -> None:
    await run(w, program, "orders", orders(20), w.store())


async def poison(w: world.World, program: Program) -> None:
    values = [f'{{"id": "{one}"}}' for one in orders(20)]
    values[7] = "{'id': 'order-07'}"
    sent = await run(w, program, "orders", values, outputs=["bills", "dead-letters"])
    bills, letters = await w.read("bills"), await w.read("dead-letters")
    world.no_lost_dead_letter(sent, bills, letters, key=order_id_of)


async def memory_dedup(w: world.World, program: Program) -> None:
    store = w.store()
    invoices = orders(24)
    # The sender repeats each group of eight invoices some seconds later.
    values = [one for start in (0, 8, 16) for one in invoices[start : start + 8] * 2]
    await run(w, program, "invoices", values, store, runtime="trio", size=8, every_s=6)
    world.exactly_once(invoices, await database.rows(store, "payments-"), key=value_of)


async def send_not_awaited(w: world.World, program: Program) -> None:
    sent = await run(w, program, "orders", orders(60), outputs=["copies"], size=1, every_s=0.5)
    world.at_least_once(sent, await w.read("copies"), key=value_of)


async def latest_reset(w: world.World, program: Program) -> None:
    store = w.store()
    await w.create_topic("alarms", partition_count=6)
    for name in ("a", "b"):
        w.start(name, program, w.bootstrap, store, runtime="trio")
    await w.sleep(8)  # the group has members, and has read that there is nothing yet
    alarms = [
        world.Record(key=b"pump", value=one.encode(), partition=number // 5)
        for number, one in enumerate(orders(30))
    ]
    sent = await feed(w, "alarms", alarms, size=1, every_s=1)
    await w.settle(SETTLING_S)
    world.at_least_once(sent, await database.rows(store, "alarms/"), key=value_of)


async def offsets_outside(w: world.World, program: Program) -> None:
    sent = await run(
        w, program, "orders", orders(60), outputs=["copies"], runtime="trio", with_names=True
    )
    world.exactly_once(sent, await w.read("copies"), key=value_of)


async def scanned(store: database.Database, prefix: str) -> list[tuple[str, str]]:
    """Return the keys with a prefix and their values."""
    async with store.transaction() as transaction:
        return await transaction.scan(prefix)
