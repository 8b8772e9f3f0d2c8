"""What clients do in a run of transactions: transfers, copies that go with their offsets, readers.

Two producers at a time have the same transactional id and take it from each other, as a program
that is started again while the old one still runs; half of them are killed or paused in the middle.
Movers consume from one topic and produce to another, offsets and records in one transaction, as
docs/delivery.md has it.  Readers see what is committed alone.  What all of them did is judged at
the end (`checkers.transactions`, `checkers.log`, `checkers.cycles`).
"""

import trio

from ottla.client.admin import open_admin
from ottla.client.consumer import Consumer, open_consumer
from ottla.client.produce.delivery import Delivery
from ottla.client.producer import Producer, open_producer
from ottla.client.transactions.producer_transactions import ProducerTransaction
from ottla.client.transactions.transaction_flow import TransactionAbortedError
from ottla.jepsen.checkers.transactions import OUTPUT_SIGN
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.whole.client_events import FINAL, SUBSCRIBED, key_of
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.history import ClientHistory
from ottla.jepsen.world.whole.machine import Machine, SharedWorld
from ottla.jepsen.world.whole.transactional_life import Sender, Sent, TransactionalLife
from ottla.jepsen.world.whole.workload import (
    MEMBER_PATIENCE_S,
    RETRY_S,
    ClientWorkload,
    WorkloadPlan,
    machine_time_ms,
    sitting_out,
)
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig, ProducerConfig

INPUT, OUTPUT = "orders", "copies"
"""Where movers read, and where they alone write."""

PRODUCERS_PER_ID = 2
TRANSACTIONS_MAX = 24
"""Of a producer, before it leaves its transactional id to another one."""

RECORDS_MAX = 4
"""Of a transaction."""

TIMEOUT_MS = 6_000
"""Of a transaction: shorter than most pauses."""

ABORTED_ONE_IN = 4
MOVED_MAX = 6
"""Records that are moved in one transaction."""


class ChangeOfMindError(Exception):
    """A program's own reason to abort."""


class TransactionalWorkload(ClientWorkload):
    """The clients of a run of transactions."""

    def __init__(
        self,
        world: SharedWorld,
        cluster: SimulatedCluster,
        history: ClientHistory,
        plan: WorkloadPlan,
    ) -> None:
        super().__init__(world, cluster, history, plan)
        self.group = "movers"
        self.movers, self.members = self.members, []
        """They are waited for in `unsettled`."""
        self._events = history.events
        self._bootstrap = cluster.bootstrap
        self._producer_lives: list[TransactionalLife] = []

    @property
    def machines(self) -> list[Machine]:
        """Return all clients' machines."""
        return [*super().machines, *self.movers]

    @property
    def written(self) -> list[TopicPartition]:
        """Return the partitions that transfers are written to."""
        return [at for at in self.partitions if at.topic != OUTPUT]

    # ---- producers

    async def _produce(self, machine: Machine, is_stopping: trio.Event) -> None:
        chance = self._chance(machine)
        number = self.producers.index(machine) // PRODUCERS_PER_ID
        while not is_stopping.is_set():
            if self.is_quiet:
                await is_stopping.wait()
                return
            with sitting_out():
                await self._transfer_many(f"writer-{number}", machine, chance, is_stopping)
            await trio.sleep(RETRY_S + 2 * chance.random())

    async def _transfer_many(
        self, transactional_id: str, machine: Machine, chance: Chance, is_stopping: trio.Event
    ) -> None:
        life = self._producer_life(transactional_id, machine)
        config = self._config_of(transactional_id, chance)
        async with open_producer(self._bootstrap, config) as producer:
            life.begins_with(producer)
            for number in range(1 + chance.below(TRANSACTIONS_MAX)):
                await trio.sleep(self._plan.send_interval_s * 2 * chance.random())
                if self.is_quiet or is_stopping.is_set():
                    return
                await self._transfer(producer, life, number, chance)

    def _producer_life(self, transactional_id: str, machine: Machine) -> TransactionalLife:
        name = self._life(machine.name)
        life = TransactionalLife(self._events, transactional_id, name, machine)
        self._producer_lives.append(life)
        return life

    def _config_of(self, transactional_id: str, chance: Chance) -> ProducerConfig:
        return ProducerConfig(
            transactional_id=transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            linger_ms=0,
            request_timeout_ms=chance.pick((1_500, 5_000)),
            delivery_timeout_ms=8_000,
            block_ms_max=8_000,
            compression_type=self._plan.compression,
            client_id=transactional_id,
        )

    async def _transfer(
        self, producer: Producer, life: TransactionalLife, number: int, chance: Chance
    ) -> None:
        """Move amounts between partitions: those of one transaction add up to nothing."""
        amounts = [1 + chance.below(9) for _ in range(1 + chance.below(RECORDS_MAX - 1))]
        amounts.append(-sum(amounts))
        sent = [
            (chance.pick(self.written), f"{life.name}/{amount:+d}/{number * RECORDS_MAX + place}")
            for place, amount in enumerate(amounts)
        ]
        is_aborted = chance.below(ABORTED_ONE_IN) == 0
        is_slow = chance.below(4) == 0

        async def send(transaction: ProducerTransaction) -> list[Delivery]:
            deliveries = []
            for at, value in sent:
                deliveries.append(await self._send_value(producer, at, value))
                if is_slow:
                    await trio.sleep(chance.random())
            if chance.below(2):
                await deliveries[-1]
            if is_aborted:
                raise ChangeOfMindError
            return deliveries

        await self._in_transaction(producer, life, str(number), sent, send)

    async def _send_value(self, producer: Producer, at: TopicPartition, value: str) -> Delivery:
        self._history.sent_count += 1
        return await producer.send(
            at.topic,
            value.encode(),
            key=self._record_key(value.encode()),
            partition=at.partition,
            timestamp_ms=machine_time_ms(),
        )

    async def _in_transaction(
        self,
        producer: Producer,
        life: TransactionalLife,
        name: str,
        sent: Sent,
        send: Sender,
    ) -> bool:
        """Note a transaction and how it ended; return whether it is committed."""
        begun = life.begins(name, sent)
        is_asked, life.is_in_transaction = False, True
        try:
            async with producer.transaction() as transaction:
                deliveries = await send(transaction)
                self._events.does("ask-commit", begun.extra["name"])
                is_asked = True
        except ChangeOfMindError:
            self._events.fails(begun, "a change of mind")
            return False
        except TransactionAbortedError as error:
            self._events.fails(begun, str(error))
            return False
        except Exception as error:
            # Once its commit was asked for only its coordinator knows.
            if not is_asked:
                self._events.fails(begun, repr(error))
            raise
        finally:
            life.is_in_transaction = False
        offsets = [int((await delivery).offset) for delivery in deliveries]
        self._history.acknowledged_count += len(offsets)
        self._history.commit_count += 1
        life.commits(begun, sent, offsets)
        return True

    # ---- movers

    async def _take_part(self, machine: Machine, is_stopping: trio.Event) -> None:
        chance = self._chance(machine)
        config = ConsumerConfig(
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            request_timeout_ms=5_000,
            default_api_timeout_ms=10_000,
            client_id=machine.name,
        )
        while not is_stopping.is_set():
            with sitting_out():
                life = self._producer_life(machine.name, machine)
                async with (
                    open_consumer(self._bootstrap, config) as consumer,
                    open_producer(
                        self._bootstrap, self._config_of(machine.name, chance)
                    ) as producer,
                ):
                    life.begins_with(producer)
                    consumer.subscribe([INPUT])
                    await self._move_many(consumer, producer, life, chance, is_stopping)
            await trio.sleep(RETRY_S)

    async def _move_many(
        self,
        consumer: Consumer,
        producer: Producer,
        life: TransactionalLife,
        chance: Chance,
        is_stopping: trio.Event,
    ) -> None:
        process = self._events.process()
        number = 0
        while not is_stopping.is_set():
            begun = self._events.begins_poll(process, SUBSCRIBED)
            records = await consumer.poll(MEMBER_PATIENCE_S, record_count_max=MOVED_MAX)
            self._events.ends_poll(begun, records)
            if not records:
                continue
            sent: Sent = []
            ends: dict[TopicPartition, int] = {}
            for record in records:
                value = (record.value or b"").decode()
                target = TopicPartition(OUTPUT, chance.below(self._plan.partition_count))
                sent.append((target, f"{life.name}/{number}{OUTPUT_SIGN}{value}"))
                ends[TopicPartition(record.topic, record.partition)] = record.offset + 1
                number += 1
            is_aborted = chance.below(2 * ABORTED_ONE_IN) == 0
            is_slow = chance.below(4) == 0

            async def send(
                transaction: ProducerTransaction,
                sent: Sent = sent,
                ends: dict[TopicPartition, int] = ends,
                *,
                is_aborted: bool = is_aborted,
                is_slow: bool = is_slow,
            ) -> list[Delivery]:
                deliveries = [await self._send_value(producer, at, value) for at, value in sent]
                if is_slow:
                    await trio.sleep(2 * chance.random())
                await transaction.send_offsets(ends, consumer.group_metadata())
                if is_aborted:
                    raise ChangeOfMindError
                return deliveries

            if not await self._in_transaction(producer, life, str(number), sent, send):
                return  # the consumer stands behind what was aborted: open another one

    # ---- readers

    def _reader_config(self, chance: Chance, name: str) -> ConsumerConfig:
        return ConsumerConfig(
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_wait_ms_max=chance.pick((100, 500)),
            request_timeout_ms=5_000,
            default_api_timeout_ms=10_000,
            client_id=name,
        )

    async def _read(self, machine: Machine, is_stopping: trio.Event) -> None:
        chance = self._chance(machine)
        while not is_stopping.is_set():
            with sitting_out():
                config = self._reader_config(chance, machine.name)
                async with open_consumer(self._bootstrap, config) as consumer:
                    consumer.assign(self.partitions)
                    consumer.seek_to_beginning()
                    process = self._events.process()
                    # Each begins again some time: what is committed stays so for a new reader.
                    with trio.move_on_after(1 + 10 * chance.random()):
                        while not is_stopping.is_set():
                            begun = self._events.begins_poll(process)
                            records = await consumer.poll(1.0)
                            self._events.ends_poll(begun, records)
                            self._history.read_count += len(records)
            await trio.sleep(RETRY_S)

    # ---- the end

    async def probe(self, patience_s: float, partitions: object = None) -> None:
        """Have a fresh producer commit one record to every partition.  Raises RefusedError."""
        name = self._life("probe")
        life = TransactionalLife(self._events, name, name)
        sent = [
            (at, f"{life.name}/+0/{number}")
            for number, at in enumerate(self.partitions)
            if at.topic != OUTPUT
        ]
        config = ProducerConfig(
            transactional_id=life.name,
            transaction_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=5_000,
            delivery_timeout_ms=int(patience_s * 1_000),
            block_ms_max=int(patience_s * 1_000),
            linger_ms=0,
        )
        async with open_producer(self._bootstrap, config) as producer:
            life.begins_with(producer)

            async def send(transaction: ProducerTransaction) -> list[Delivery]:
                return [await self._send_value(producer, at, value) for at, value in sent]

            await self._in_transaction(producer, life, "0", sent, send)

    async def unsettled(self) -> list[str]:
        """Return who is in a transaction, and the partitions that movers are behind in."""
        busy = [life.name for life in self._producer_lives if life.is_busy]
        if busy:
            return busy
        async with open_admin(self._bootstrap, timeout_s=20.0) as admin:
            latest = dict.fromkeys(self.partitions, -1)
            ends = await admin.list_offsets(latest)
            stable = await admin.list_offsets(latest, isolation_level="read_committed")
            told = await admin.group_offsets(self.group) if self.movers else {}
        found = [
            f"{at} ends at {ends[at].offset} and is stable up to {stable[at].offset}"
            for at in self.partitions
            if ends[at].offset != stable[at].offset
        ]
        if found or not self.movers:
            return found
        last = await self._last_offsets({at: int(ends[at].offset) for at in self.moved})
        for at, offset in last.items():
            committed = int(told[at].offset) if at in told else 0
            if committed <= offset:
                found.append(f"{at} is moved up to {committed} of {offset + 1}")
        if not found:
            keys = {key_of(at): int(told[at].offset) if at in told else 0 for at in self.moved}
            begun = self._events.begins("committed", None, extra=FINAL)
            self._events.ends(begun, {"group": self.group, "keys": keys})
        return found

    @property
    def moved(self) -> list[TopicPartition]:
        """Return the partitions that movers read."""
        return [at for at in self.partitions if at.topic == INPUT]

    async def _last_offsets(self, ends: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offset of each partition's last record that is committed."""
        found: dict[TopicPartition, int] = {}
        config = ConsumerConfig(auto_offset_reset="earliest", isolation_level="read_committed")
        async with open_consumer(self._bootstrap, config) as consumer:
            for at, end in ends.items():
                consumer.assign([at])
                consumer.seek_to_beginning(at)
                while await consumer.position(at) < end:
                    for record in await consumer.poll(1.0):
                        found[at] = record.offset
        return found

    async def read_all(self, ends: dict[TopicPartition, int]) -> None:
        """Read every partition from its start to its end."""
        config = ConsumerConfig(
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            request_timeout_ms=5_000,
        )
        async with open_consumer(self._bootstrap, config) as consumer:
            for at in self.partitions:
                process = self._events.process()
                consumer.assign([at])
                consumer.seek_to_beginning(at)
                while await consumer.position(at) < ends[at]:
                    begun = self._events.begins_poll(process, FINAL)
                    self._events.ends_poll(begun, await consumer.poll(5.0))
