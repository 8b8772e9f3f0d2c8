"""Members of one group in a process of their own, which come, commit, leave and come back.

Run as a program: BOOTSTRAP GROUP TOPIC COUNT SEED LEDGER. Every assignment and acknowledged commit
becomes one line of the ledger at once, so that SIGKILL takes nothing of it. SIGUSR1 ends the coming
and going: who is there stays. SIGTERM ends the process.
"""

import asyncio
import json
import random
import signal
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Any, TextIO

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 500
LIFE_S = (1.0, 6.0)
ABSENCE_S = (0.0, 1.0)
POLL_MS = 200


class Member(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """One member's life; it commits one more than is committed, for each of its partitions."""

    def __init__(self, bootstrap: str, group: str, topic: str, ledger: TextIO) -> None:
        self._ledger = ledger
        self._consumer: Any = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        )
        self._consumer.subscribe([topic], listener=self)

    async def live(self, is_over: asyncio.Event) -> None:
        """Be a member until told that it is over, then leave."""
        await self._consumer.start()
        try:
            while not is_over.is_set():
                await self._consumer.getmany(timeout_ms=POLL_MS)
                for partition in self._consumer.assignment():
                    await self._commit_one_more(partition)
        finally:
            await self._consumer.stop()

    async def _commit_one_more(self, partition: TopicPartition) -> None:
        """Note the commit when it is acknowledged and all of it was in one generation."""
        generation = self._generation()
        try:
            found = await self._consumer.committed(partition)
            if self._generation() != generation:
                return
            offset = (found or 0) + 1
            await self._consumer.commit({partition: offset})
        except (KafkaError, ValueError):  # it went to another member meanwhile
            return
        if self._generation() == generation:
            self._note("commit", generation, partition=partition.partition, offset=offset)

    def _generation(self) -> int:
        generation: int = self._consumer._coordinator.generation
        return generation

    def _note(self, what: str, generation: int, **more: Any) -> None:
        member = self._consumer._coordinator.member_id
        line = {"what": what, "generation": generation, "member": member, **more}
        self._ledger.write(json.dumps(line) + "\n")
        self._ledger.flush()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Nothing to do: commits are made one by one."""

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Note what this member owns in this generation."""
        self._note("own", self._generation(), partitions=sorted(one.partition for one in assigned))


async def main(arguments: list[str]) -> None:
    """Let members come and go until told to stay, and to end."""
    bootstrap, group, topic, count, seed, path = arguments
    rng = random.Random(int(seed))
    is_settled, is_over = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, is_settled.set)
    loop.add_signal_handler(signal.SIGTERM, is_over.set)

    async def come_and_go(ledger: TextIO) -> None:
        while not is_over.is_set():
            is_done = asyncio.Event()
            member = asyncio.create_task(Member(bootstrap, group, topic, ledger).live(is_done))
            with suppress(TimeoutError):
                await asyncio.wait_for(is_settled.wait(), rng.uniform(*LIFE_S))
            if is_settled.is_set():
                await is_over.wait()
            is_done.set()
            await member
            await asyncio.sleep(rng.uniform(*ABSENCE_S))

    with open(path, "a") as ledger:
        async with asyncio.TaskGroup() as lives:
            for _ in range(int(count)):
                lives.create_task(come_and_go(ledger))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
