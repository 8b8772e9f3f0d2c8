"""`ottla top`: shows the busiest brokers, topics, partitions and clients, live."""

import argparse
from collections.abc import Iterable
from typing import Any

import trio

from ottla.cli.common import CONNECTION, FORMAT, bootstrap_of, print_json, run_async
from ottla.cli.options import Declared, option
from ottla.cli.tables import ByteCount, table
from ottla.cli.terminal import clear_screen, say_block
from ottla.client.admin import Admin, open_admin
from ottla.insight.facts.traffic_driver import WATCH_MS, TrafficSample, sample
from ottla.insight.rules.traffic_rates import TrafficRates, rates_between
from ottla.model.errors import ConfigError

ROWS = 10
INTERVAL_S = 2.0
INTERVAL_S_MIN = 0.2
"""Minimum interval, in seconds, between two samples of the traffic. Each sample asks every broker
for the sizes of all its logs."""
OPTIONS: tuple[Declared, ...] = (
    *CONNECTION,
    FORMAT,
    option("--once", "show one interval and end; implied by --format json"),
    option(
        "--interval SECONDS",
        "seconds from one sample to the next (default: 2)",
        type=float,
        default=INTERVAL_S,
    ),
    option(
        "--rows COUNT", "largest number of rows of each table (default: 10)", type=int, default=ROWS
    ),
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla top`: show rates of traffic until interrupted, or once. Returns the exit code."""
    if not arguments.interval >= INTERVAL_S_MIN:
        raise ConfigError("--interval", f"is {arguments.interval:g}; give at least 0.2 s")
    if arguments.rows < 1:
        raise ConfigError("--rows", f"is {arguments.rows}; give at least 1")

    async def body() -> int:
        async with open_admin(bootstrap_of(arguments)) as admin:
            watch_ms = WATCH_MS + round(1_000 * arguments.interval)
            before = await sample(admin, watch_ms=watch_ms)
            while True:
                before, rates = await next_rates(admin, before, arguments.interval)
                if arguments.format == "json":
                    print_json(rates_json(rates, arguments.rows))
                    return 0
                if not arguments.once:
                    clear_screen()
                say_block(shown(rates, arguments.rows), is_flushed=True)
                if arguments.once:
                    return 0

    return run_async(body)


async def next_rates(
    admin: Admin, before: TrafficSample, interval_s: float
) -> tuple[TrafficSample, TrafficRates]:
    """Wait for `interval_s` seconds, then take a sample of the traffic. Returns the sample, and the
    rates since the sample `before`."""
    await trio.sleep(interval_s)
    after = await sample(admin, watch_ms=WATCH_MS + round(1_000 * interval_s))
    return after, rates_between(before, after)


def rates_json(rates: TrafficRates, count: int) -> dict[str, Any]:
    """Return rates of traffic as the JSON object that `ottla top` prints. Each table has at most
    `count` rows."""
    return {name: [one._asdict() for one in rows[:count]] for name, rows in rates._asdict().items()}


def shown(rates: TrafficRates, count: int) -> str:
    """Return rates of traffic as text with tables of at most `count` rows. Bytes and requests are
    per second."""
    brokers = [
        (one.broker, round(one.cpu_percent), round(one.requests), *_bytes(one[3:]))
        for one in rates.brokers[:count]
    ]
    topics = [
        (one.topic, *_bytes(one[1:3]), *(round(number) for number in one[3:]))
        for one in rates.topics[:count]
    ]
    partitions = [
        (one.topic, one.partition, *_bytes([one.bytes_in, one.size_bytes]))
        for one in rates.partitions[:count]
    ]
    clients = [
        (
            one.user or None,
            one.client_id or None,
            *_bytes([one.bytes_in, one.bytes_out]),
            round(one.requests),
            round(one.cpu_percent),
        )
        for one in rates.clients[:count]
    ]
    quotas = [
        (one.user or None, one.client_id or None, one.quota, round(one.rate), one.throttle_ms)
        for one in rates.quotas[:count]
    ]
    parts = [
        table(("BROKER", "CPU-%", "REQUESTS/S", "BYTES-IN/S", "BYTES-OUT/S"), brokers),
        table(
            ("TOPIC", "BYTES-IN/S", "BYTES-OUT/S", "RECORDS/S", "PRODUCES/S", "FETCHES/S"), topics
        ),
        table(("TOPIC", "PARTITION", "BYTES-IN/S", "BYTES"), partitions),
        table(("USER", "CLIENT-ID", "BYTES-IN/S", "BYTES-OUT/S", "REQUESTS/S", "CPU-%"), clients),
    ]
    if quotas:
        parts.append(table(("USER", "CLIENT-ID", "QUOTA", "USED/S", "THROTTLE-MS"), quotas))
    return "\n\n".join(parts)


def _bytes(numbers: Iterable[float]) -> list[ByteCount]:
    return [ByteCount(round(number)) for number in numbers]
