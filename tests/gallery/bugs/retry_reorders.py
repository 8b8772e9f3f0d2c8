"""Books changes of accounts. A change that cannot be booked yet is tried again after the rest of
its batch, so that a later change of the same account is booked before it."""

from collections import deque

import trio

from ottla.client import ConsumerConfig, ConsumerRecord, open_consumer
from tests.gallery.database import Database, insert

CONFIG = ConsumerConfig(
    group_id="booking", auto_offset_reset="earliest", enable_auto_commit=False, poll_records_max=10
)


class BusyError(Exception):
    """The account is locked by another system."""


class Accounts:
    """Accounts in a database. The first booking of some changes finds the account locked."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.tried: set[bytes] = set()

    async def book(self, change: ConsumerRecord) -> None:
        await trio.sleep(0.05)
        value = change.value or b""
        if value.endswith(b"!") and value not in self.tried:
            self.tried.add(value)
            raise BusyError
        key = (change.key or b"").decode()
        async with self.database.transaction() as transaction:
            if await transaction.get(f"booked/{change.partition}/{change.offset}") is None:
                await transaction.put(f"booked/{change.partition}/{change.offset}", "yes")
                await insert(transaction, f"bookings-{change.partition}", f"{key} {value.decode()}")


async def broken(bootstrap: str, database: Database) -> None:
    accounts = Accounts(database)
    async with open_consumer(bootstrap, CONFIG) as consumer:
        consumer.subscribe(["changes"])
        while True:
            waiting = deque(await consumer.poll(timeout_s=1))
            while waiting:
                change = waiting.popleft()
                try:
                    await accounts.book(change)
                except BusyError:
                    waiting.append(change)  # the bug: behind changes of the same account
            await consumer.commit()


async def fixed(bootstrap: str, database: Database) -> None:
    accounts = Accounts(database)
    async with open_consumer(bootstrap, CONFIG) as consumer:
        consumer.subscribe(["changes"])
        while True:
            for change in await consumer.poll(timeout_s=1):
                while True:
                    try:
                        await accounts.book(change)
                        break
                    except BusyError:
                        await trio.sleep(0.5)
            await consumer.commit()
