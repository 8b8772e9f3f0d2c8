"""The queue workload, performed with Ottla's own client: one producer, one consumer that is a group
member, and one consumer that reads assigned partitions."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

import trio

from ottla.client.admin import Admin, open_admin
from ottla.client.consumer import Consumer, open_consumer
from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.client.groups.group import NO_LONGER_OURS
from ottla.client.producer import Producer, open_producer
from ottla.jepsen.clients.completions import (
    DEADLINE_S,
    TROUBLE,
    failed,
    ok,
    troubled,
)
from ottla.jepsen.clients.own import OwnClient
from ottla.jepsen.clients.own_sending import (
    DEADLINE_MS,
    REQUEST_TIMEOUT_MS,
    producer_config,
    send_one,
)
from ottla.jepsen.clients.renewable import Renewable
from ottla.jepsen.clients.topics import TopicMaker, create_topic, record_key
from ottla.jepsen.history import Json
from ottla.jepsen.workloads.keys import key_of, partition_of
from ottla.jepsen.workloads.load import NOTHING_TO_READ, Completion, LoadPlan, Note, Op
from ottla.jepsen.workloads.subscribers import CLASSIC, group_of, protocol_of
from ottla.model.errors import RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig

POLL_S = 0.02
"""Timeout in seconds of a poll that finds no new records. Jepsen uses 100 ms, but runs on more
machines."""
RECORDS_MAX = 500
LEAVE_S = 3.0


def consumer_config(group_id: str | None, protocol: str = CLASSIC) -> ConsumerConfig:
    """Return the configuration of a consumer that reads from the beginning and never commits
    offsets by itself."""
    return ConsumerConfig(
        group_id=group_id,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        default_api_timeout_ms=DEADLINE_MS,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
        client_id="jepsen",
    )


def read_value(records: Iterable[ConsumerRecord]) -> dict[str, Json]:
    """Convert records to the value of a completed `poll` operation, by key (partition)."""
    read: dict[str, Json] = {}
    for record in records:
        key = key_of(record.topic, record.partition)
        read.setdefault(key, []).append([int(record.offset), int(record.value or b"-1")])
    return read


def rewind(consumer: Consumer, read: Mapping[str, Json]) -> None:
    """Seek back to the offsets at which an operation began to read. `read` has the records that the
    operation read, by key (partition). Keys that are no longer assigned are skipped."""
    for key, records in read.items():
        at = TopicPartition(*partition_of(key))
        if at in consumer.assignment:
            consumer.seek(at, records[0][0])


class OwnQueueClient(OwnClient):
    """Load client for one thread of the queue workload, with Ottla's own client."""

    def __init__(
        self, nursery: trio.Nursery, bootstrap: str, thread: int, note: Note, plan: LoadPlan
    ) -> None:
        super().__init__(nursery, bootstrap, thread, note)
        settings = producer_config(idempotent=plan.idempotent)
        self._producer: Renewable[Producer] = Renewable(
            nursery, partial(open_producer, bootstrap, settings)
        )
        self._reader: Renewable[Consumer] = Renewable(
            nursery, partial(open_consumer, bootstrap, consumer_config(None))
        )
        member = consumer_config(group_of(plan.prefix, thread), protocol_of(thread))
        self._member: Renewable[Consumer] = Renewable(
            nursery, partial(open_consumer, bootstrap, member)
        )
        self._admin: Renewable[Admin] = Renewable(
            nursery, partial(open_admin, bootstrap, timeout_s=DEADLINE_S)
        )
        self._plan = plan
        self._topics = TopicMaker(plan)
        self._is_member = False
        self._rebalanced: set[str] = set()
        self.parts = [self._producer, self._reader, self._member, self._admin]

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Awaitable[Completion]]]:
        """Functions that perform the workload's operations, by operation name."""
        return {
            "send": self._send,
            "poll": self._poll,
            "assign": self._assign,
            "subscribe": self._subscribe,
            "create-topic": self._create_topic,
        }

    def on_crash(self) -> None:
        """Reset the positions in partitions that a crash of the client loses."""
        self._is_member = False
        self._rebalanced.clear()

    async def _send(self, op: Op) -> Completion:
        ((_, _, value),) = op.value
        return await send_one(await self._producer.get(), op, record_key(self._plan, value))

    async def _assign(self, op: Op) -> Completion:
        await self._leave()
        reader = await self._reader.get()
        reader.assign([TopicPartition(*partition_of(key)) for key in op.value])
        return ok()

    async def _subscribe(self, op: Op) -> Completion:
        await self._reader.aclose()
        member = await self._member.get()
        self._is_member = True

        async def on_change(partitions: tuple[TopicPartition, ...]) -> None:
            self._rebalanced.update(key_of(*at) for at in partitions)
            await trio.lowlevel.checkpoint()

        member.subscribe(op.value, on_assigned=on_change, on_revoked=on_change)
        return ok()

    async def _leave(self) -> None:
        if self._is_member:
            self._is_member = False
            with trio.move_on_after(LEAVE_S):
                await self._member.aclose()
            self._rebalanced.clear()

    async def _poll(self, op: Op) -> Completion:
        consumer = (self._member if self._is_member else self._reader).current
        if consumer is None:
            return failed(NOTHING_TO_READ)
        read: dict[str, Json] = {}
        try:
            read = read_value(await consumer.poll(POLL_S, record_count_max=RECORDS_MAX))
            done = await self._commit(consumer, op, read) if self._is_member else None
        except TROUBLE as error:
            done = troubled(op, error, value=[["poll", read]])
        done = done or ok([["poll", read]])
        extra: dict[str, Json] = {"mode": "subscribe" if self._is_member else "assign"}
        if self._rebalanced:
            extra["rebalanced"] = sorted(self._rebalanced)
            self._rebalanced.clear()
        return Completion(done.kind, done.value, done.error, {**extra, **done.extra})

    async def _commit(
        self, consumer: Consumer, op: Op, read: Mapping[str, Json]
    ) -> Completion | None:
        """Commit the offsets of the records that an operation has read. Returns None on success. If
        the commit fails, seeks to the first of these records, so that they are read again, and
        returns the operation's completion (outcome event)."""
        if not read:
            return None
        error: Exception | None = None
        with trio.move_on_after(DEADLINE_S / 2):
            try:
                await consumer.commit()
                return None
            except TROUBLE as trouble:
                error = trouble
        rewind(consumer, read)
        value = [["poll", dict(read)]]
        if error is None:
            return failed("the commit was not answered", value)
        is_normal = isinstance(error, RefusedError) and error.code in NO_LONGER_OURS
        done = troubled(op, error, value=value)
        return Completion(done.kind, value, done.error, {"refused": True} if is_normal else {})

    async def _create_topic(self, op: Op) -> Completion:
        return await create_topic(await self._admin.get(), self._topics, op)
