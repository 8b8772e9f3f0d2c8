"""Copies a topic, each batch in one transaction, as aiokafka documents it.

Arguments: BOOTSTRAP SOURCE TARGET. The target's name is also the name of the group and the
transactional id. Exits with 3 when another producer has taken over the transactional id, and ends
on any other error: its next start continues where the last committed transaction ends.
"""

import asyncio
import signal
import sys
from collections.abc import Collection
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import InvalidProducerEpoch, ProducerFenced

FENCED = 3
BATCH_S = 15
"""An aiokafka member that is fenced out of its group during a rebalance may wait without an end:
SIGALRM ends a process that has copied nothing for this time, and its successor continues."""
bootstrap, source, target = sys.argv[1:]


class OwnPositions(ConsumerRebalanceListener):  # type: ignore[misc]  # it has no types
    """Continues after the records that this process copied, between two rebalances.

    aiokafka rebalances beside the application, and commits offsets in a transaction without the
    group's generation: a batch of the generation before would be copied by its successor, too.
    After a rebalance it fetches committed offsets in a version of OffsetFetch without support for
    transactions: an offset that is being committed may not count yet.
    """

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self.turn = asyncio.Lock()
        self._is_rebalancing = False
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        if not self._is_rebalancing:
            await self.turn.acquire()
            self._is_rebalancing = True

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        for at in assigned:
            if at in self.positions:
                self._consumer.seek(at, self.positions[at])
        if self._is_rebalancing:
            self._is_rebalancing = False
            self.turn.release()


async def copy() -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=target, transaction_timeout_ms=30_000
    )
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=target,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
    )
    own = OwnPositions(consumer)
    consumer.subscribe([source], listener=own)
    # The producer first: it ends what an earlier one left open, and offsets with it.
    signal.alarm(BATCH_S)
    async with producer, consumer:
        while True:
            async with own.turn:
                found = await consumer.getmany(timeout_ms=200, max_records=50)
                if found:
                    signal.alarm(BATCH_S)
                    own.positions |= await copy_batch(producer, found)


async def copy_batch(
    producer: AIOKafkaProducer, found: dict[TopicPartition, list[Any]]
) -> dict[TopicPartition, int]:
    """Copy some records and the positions behind them; return these."""
    async with producer.transaction():
        for at, records in found.items():
            for record in records:
                await producer.send(target, record.value, partition=at.partition)
        positions = {at: records[-1].offset + 1 for at, records in found.items()}
        await producer.send_offsets_to_transaction(positions, target)
    return positions


try:
    asyncio.run(copy())
except (ProducerFenced, InvalidProducerEpoch):
    sys.exit(FENCED)
