"""Counts views of pages. Counters are cached in memory, and nothing drops them when a partition
leaves the instance: once the partition is back, counting continues at an outdated counter."""

from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

from tests.gallery.database import Database, is_first_write


def consumer_of(bootstrap: str) -> Any:
    return AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id="counting",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )


class Counters:
    """Views by page, as a cache of the database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.cached: dict[str, int] = {}

    async def count(self, view: Any) -> bool:
        """Count a view. Returns False if the view is counted already."""
        page = view.key.decode()
        async with self.database.transaction() as transaction:
            if not await is_first_write(transaction, f"{view.partition}", view.offset):
                return False
            if page not in self.cached:
                self.cached[page] = int(await transaction.get(f"views/{page}") or "0")
            self.cached[page] += 1
            await transaction.put(f"views/{page}", str(self.cached[page]))
        return True


async def broken(bootstrap: str, database: Database) -> None:
    counters = Counters(database)
    async with consumer_of(bootstrap) as consumer:
        consumer.subscribe(["views"])  # the bug: no listener
        while True:
            for views in (await consumer.getmany(timeout_ms=1000, max_records=5)).values():
                for view in views:
                    await counters.count(view)
            await consumer.commit()


class DropCounters(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Empties the cache at each rebalance."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.counters.cached.clear()

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.counters.cached.clear()


async def fixed(bootstrap: str, database: Database) -> None:
    counters = Counters(database)
    async with consumer_of(bootstrap) as consumer:
        consumer.subscribe(["views"], listener=DropCounters(counters))
        while True:
            for views in (await consumer.getmany(timeout_ms=1000, max_records=5)).values():
                for view in views:
                    if not await counters.count(view):
                        counters.cached.clear()  # another instance has counted meanwhile
            await consumer.commit()
