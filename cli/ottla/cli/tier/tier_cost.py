"""`ottla tier cost`: shows the cost of the segments in a bucket, by topic."""

import argparse

from ottla.cli.common import print_json, run_async
from ottla.cli.main import OK
from ottla.cli.tables import ByteCount, print_table
from ottla.cli.terminal import note
from ottla.cli.tier.progress_line import BucketProgress
from ottla.cli.tier.request_costs import Cost, Prices
from ottla.cli.tier.store_options import open_bucket
from ottla.model.errors import ConfigError
from ottla.storage.tier.bucket_driver import scan_bucket
from ottla.storage.tier.bucket_scan import BucketScan

COLUMNS = ("TOPIC", "SEGMENTS", "SIZE", "PER-MONTH", "PUTS", "UPLOAD", "GETS", "READ-ONCE")
TOTAL = "all topics"


def run(arguments: argparse.Namespace) -> int:
    """`ottla tier cost`: print the number of requests and the price for the segments of each topic.
    Returns the exit code."""
    prices = Prices(
        gib_month=_price("--storage-price", arguments.storage_price),
        thousand_puts=_price("--put-price", arguments.put_price),
        thousand_gets=_price("--get-price", arguments.get_price),
    )

    async def body() -> int:
        async with open_bucket(arguments) as bucket:
            with BucketProgress("listing the bucket", "objects") as line:
                scan = await scan_bucket(bucket.store, bucket.cluster_id, on_object=line.advance)
        _report(costs_of(scan), prices, arguments)
        return OK

    return run_async(body)


def costs_of(scan: BucketScan) -> dict[str, Cost]:
    """Return the cost of each topic's segments, by topic name. Interrupted uploads are included."""
    costs: dict[str, Cost] = {}
    for segment in scan.segments:
        topic = segment.names.topic
        costs[topic] = costs.get(topic, Cost()).plus(
            log_bytes=segment.log_bytes, size_bytes=segment.size_bytes
        )
    return costs


def _price(name: str, price: float) -> float:
    if not 0 <= price < float("inf"):
        raise ConfigError(name, f"is {price}; it must be zero or more")
    return price


def _report(costs: dict[str, Cost], prices: Prices, arguments: argparse.Namespace) -> None:
    total = Cost(*(sum(values) for values in zip(*costs.values(), strict=True)))
    if arguments.format == "json":
        print_json([_as_json(topic, cost, prices) for topic, cost in costs.items()])
        return
    rows = [*costs.items(), *([(TOTAL, total)] if len(costs) > 1 else [])]
    print_table(COLUMNS, [_cells(topic, cost, prices) for topic, cost in rows])
    note(
        f"prices: {prices.gib_month:g} per GiB and month, {prices.thousand_puts:g} per 1000 puts, "
        f"{prices.thousand_gets:g} per 1000 gets (default: S3 Standard in us-east-1, in dollars)"
    )


def _cells(topic: str, cost: Cost, prices: Prices) -> tuple[object, ...]:
    return (
        topic,
        cost.segment_count,
        ByteCount(cost.size_bytes),
        f"{cost.month(prices):,.4f}",
        cost.put_count,
        f"{cost.upload(prices):,.4f}",
        cost.get_count,
        f"{cost.reading(prices):,.4f}",
    )


def _as_json(topic: str, cost: Cost, prices: Prices) -> dict[str, object]:
    return {
        "topic": topic,
        "segments": cost.segment_count,
        "size_bytes": cost.size_bytes,
        "per_month": cost.month(prices),
        "puts": cost.put_count,
        "upload": cost.upload(prices),
        "gets": cost.get_count,
        "read_once": cost.reading(prices),
    }
