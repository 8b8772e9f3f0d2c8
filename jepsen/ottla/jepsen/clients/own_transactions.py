"""The transactions workload, performed with Ottla's own client."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial

import trio

from ottla.client.admin import Admin, open_admin
from ottla.client.consumer import Consumer, open_consumer
from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.client.produce.delivery import Delivery
from ottla.client.producer import Producer, open_producer
from ottla.client.transactions.producer_transactions import ProducerTransaction
from ottla.client.transactions.transaction_flow import ProducerFencedError, TransactionAbortedError
from ottla.jepsen.checkers.transactions import OUTPUT_SIGN
from ottla.jepsen.clients.completions import DEADLINE_S, TROUBLE, failed, ok, troubled
from ottla.jepsen.clients.own import OwnClient
from ottla.jepsen.clients.own_queue import POLL_S, RECORDS_MAX, consumer_config
from ottla.jepsen.clients.own_sending import producer_config
from ottla.jepsen.clients.renewable import Renewable
from ottla.jepsen.history import EventKind, Json
from ottla.jepsen.workloads.keys import PARTITION_COUNT, key_of, partition_of
from ottla.jepsen.workloads.load import NOTHING_TO_READ, Completion, LoadPlan, Note, Op
from ottla.jepsen.workloads.transactions import INPUT, OUTPUT
from ottla.model.errors import only_error
from ottla.model.ids import TopicPartition

TIMEOUT_MS = 8_000
"""Transaction timeout in ms. The coordinator aborts the transaction of a dead producer after this
time."""
MOVE_S = 0.3
MOVED_MAX = 10
LATEST = -1


class AbortOnPurposeError(Exception):
    """Error that a workload raises inside a transaction to abort it deliberately."""


class OwnTransactionsClient(OwnClient):
    """Load client for one thread of the transactions workload, with Ottla's own client."""

    def __init__(
        self, nursery: trio.Nursery, bootstrap: str, thread: int, note: Note, plan: LoadPlan
    ) -> None:
        super().__init__(nursery, bootstrap, thread, note)
        self._plan = plan
        self._group = f"{plan.prefix}movers"
        level = "read_committed"
        reader = replace(consumer_config(None), isolation_level=level)
        member = replace(consumer_config(self._group), isolation_level=level)
        self._transactional_id = ""
        self._producer: Renewable[Producer] = Renewable(nursery, self._open_producer)
        self._reader: Renewable[Consumer] = Renewable(
            nursery, partial(open_consumer, bootstrap, reader)
        )
        self._member: Renewable[Consumer] = Renewable(
            nursery, partial(open_consumer, bootstrap, member)
        )
        self._admin: Renewable[Admin] = Renewable(
            nursery, partial(open_admin, bootstrap, timeout_s=DEADLINE_S)
        )
        self.parts = [self._producer, self._reader, self._member, self._admin]

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Awaitable[Completion]]]:
        """Functions that perform the workload's operations, by operation name."""
        return {
            "init": self._init,
            "txn": self._txn,
            "poll": self._poll,
            "assign": self._assign,
            "settle": self._settle,
            "committed": self._committed,
        }

    def _open_producer(self) -> AbstractAsyncContextManager[Producer]:
        config = replace(
            producer_config(idempotent=True),
            transactional_id=self._transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
        )
        return open_producer(self.bootstrap, config)

    async def _init(self, op: Op) -> Completion:
        await self._producer.crash()
        self._transactional_id = op.extra["transactional_id"]
        try:
            producer = await self._producer.get()
        except* TROUBLE as group:
            raise only_error(group) from None
        transactions = producer._transactions
        assert transactions is not None
        assert transactions.flow.identity is not None
        return ok(list(transactions.flow.identity), dict(op.extra))

    # ---- transactions

    async def _txn(self, op: Op) -> Completion:
        producer = self._producer.current
        if producer is None:
            return failed("no producer", extra={"lost": True})
        if op.extra.get("move"):
            return await self._move(producer, op)
        return await self._in_transaction(producer, op, op.value)

    async def _move(self, producer: Producer, op: Op) -> Completion:
        """Produce copies of polled records, and commit the consumed offsets in the same
        transaction. Returns the operation's completion (outcome event)."""
        if self._member.current is None:
            (await self._member.get()).subscribe([self._plan.prefix + INPUT])
        consumer = await self._member.get()
        records = await consumer.poll(MOVE_S, record_count_max=MOVED_MAX)
        if not records:
            return failed("there are no records to copy", [], {"refused": True})
        steps = [
            ["send", self._output_of(record), f"{op.extra['name']}/{place}{OUTPUT_SIGN}{value}"]
            for place, record in enumerate(records)
            if (value := (record.value or b"").decode())
        ]
        self.attempted = steps
        is_done = False
        try:
            done = await self._in_transaction(producer, op, steps, (consumer, records))
            is_done = done.kind is EventKind.OK
            return done
        finally:
            if not is_done:
                # The position of this consumer is past records that are not committed. A new one
                # begins at the committed offset.
                with trio.CancelScope(shield=True):
                    await self._member.crash()

    def _output_of(self, record: ConsumerRecord) -> str:
        return key_of(self._plan.prefix + OUTPUT, record.offset % PARTITION_COUNT)

    async def _in_transaction(
        self,
        producer: Producer,
        op: Op,
        steps: Json,
        moved: tuple[Consumer, list[ConsumerRecord]] | None = None,
    ) -> Completion:
        is_asked = False
        deliveries: list[Delivery] = []
        try:
            async with producer.transaction() as transaction:
                for _, key, value in steps:
                    topic, partition = partition_of(key)
                    data = value.encode()
                    deliveries.append(await producer.send(topic, data, partition=partition))
                await self._finish(transaction, op, moved)
                self.note("ask-commit", op.extra["name"])
                is_asked = True
        except AbortOnPurposeError:
            return failed("a change of mind", steps, {"refused": True})
        except TransactionAbortedError as error:
            return failed(f"aborted: {error}", steps, {"refused": True})
        except TROUBLE as error:
            extra = {"lost": True, "refused": isinstance(error, ProducerFencedError)}
            if not is_asked:
                return failed(str(error), steps, extra)
            return replace(troubled(op, error, value=steps), extra=extra)
        offsets = [int((await delivery).offset) for delivery in deliveries]
        return ok(
            [
                ["send", key, [offset, value]]
                for (_, key, value), offset in zip(steps, offsets, strict=True)
            ]
        )

    async def _finish(
        self,
        transaction: ProducerTransaction,
        op: Op,
        moved: tuple[Consumer, list[ConsumerRecord]] | None,
    ) -> None:
        if "pause_s" in op.extra:
            await trio.sleep(op.extra["pause_s"])
        if moved is not None:
            consumer, records = moved
            ends = {TopicPartition(one.topic, one.partition): one.offset + 1 for one in records}
            await transaction.send_offsets(ends, consumer.group_metadata())
        if op.extra.get("abort"):
            raise AbortOnPurposeError

    # ---- reading

    async def _assign(self, op: Op) -> Completion:
        reader = await self._reader.get()
        reader.assign([TopicPartition(*partition_of(key)) for key in op.value])
        return ok()

    async def _poll(self, op: Op) -> Completion:
        reader = self._reader.current
        if reader is None:
            return failed(NOTHING_TO_READ)
        read: dict[str, Json] = {}
        for record in await reader.poll(POLL_S, record_count_max=RECORDS_MAX):
            key = key_of(record.topic, record.partition)
            read.setdefault(key, []).append([int(record.offset), (record.value or b"").decode()])
        return ok([["poll", read]], {"mode": "assign"})

    # ---- final steps

    async def _settle(self, op: Op) -> Completion:
        """Wait until the producer has no open transaction, and return the operation's completion
        (outcome event)."""
        admin = await self._admin.get()
        latest = {TopicPartition(*partition_of(key)): LATEST for key in op.value}
        unstable: list[str] = []
        with trio.move_on_after(DEADLINE_S):
            while True:
                ends = await admin.list_offsets(latest)
                stable = await admin.list_offsets(latest, isolation_level="read_committed")
                unstable = [str(at) for at in latest if ends[at].offset != stable[at].offset]
                if not unstable:
                    return ok()
                await trio.sleep(POLL_S)
        return failed(f"transactions are open in {', '.join(unstable)}")

    async def _committed(self, op: Op) -> Completion:
        """Return a completion with the group's committed offsets, once none of them is pending in a
        transaction."""
        member = await self._member.get()
        partitions = {key: TopicPartition(*partition_of(key)) for key in op.value["keys"]}
        found = await member.committed(partitions.values())
        keys = {key: int(found[at].offset) if at in found else 0 for key, at in partitions.items()}
        return ok({"group": op.value["group"], "keys": keys})
