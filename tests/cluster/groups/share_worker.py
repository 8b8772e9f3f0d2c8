"""Program of one worker process: handles records of a share group and logs what it did with each.

Each line of its file has partition, offset, delivery count, outcome, the start of the handler on
the monotonic clock in ns, and the state of the acknowledgement: `sent`, then `confirmed`, or the
broker's error code, or the type of another error. The outcome follows from the record and its
delivery count.
"""

import sys
from pathlib import Path
from random import Random
from time import monotonic_ns

import trio

from ottla.client import ShareConsumerConfig, ShareRecord, open_share_consumer
from ottla.model.errors import OttlaError, RefusedError

RELEASED_PERCENT, REJECTED_PERCENT = 10, 1
WORK_MS_MAX = 20


def outcome_of(partition: int, offset: int, delivery_count: int) -> str:
    """Return the outcome of a delivery, which is the same in every worker."""
    draw = Random(f"{partition}/{offset}").randrange(100)
    if draw < REJECTED_PERCENT:
        return "rejected"
    is_released = draw < REJECTED_PERCENT + RELEASED_PERCENT and delivery_count == 1
    return "released" if is_released else "accepted"


async def work(bootstrap: str, topic: str, group_id: str, output: Path) -> None:
    """Handle records until cancelled or killed."""
    rng = Random(output.name)
    with output.open("a", buffering=1) as file:

        async def handle(record: ShareRecord) -> None:
            begin_ns = monotonic_ns()
            await trio.sleep(rng.random() * WORK_MS_MAX / 1_000)
            count = record.delivery_count
            outcome = outcome_of(record.partition, record.offset, count)
            where = f"{record.partition} {record.offset} {count} {outcome} {begin_ns}"
            file.write(f"{where} sent\n")
            settle = {"accepted": record.accept, "released": record.release}
            try:
                await settle.get(outcome, record.reject)()
            except RefusedError as error:
                file.write(f"{where} {error.code.name}\n")
            except OttlaError as error:
                file.write(f"{where} {type(error).__name__}\n")
            else:
                file.write(f"{where} confirmed\n")

        config = ShareConsumerConfig(group_id=group_id)
        async with open_share_consumer(bootstrap, config) as consumer:
            consumer.subscribe([topic])
            await consumer.work(handle, concurrency=16)


if __name__ == "__main__":
    trio.run(work, sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
