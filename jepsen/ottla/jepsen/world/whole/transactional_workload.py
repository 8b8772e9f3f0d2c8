"""Clients of a simulation that use transactions: producers that transfer amounts between
partitions, movers that copy consumed records, and readers.

Two producers at a time have the same transactional id and fence each other, like a program that is
restarted while the old process still runs. Half of them are killed or paused in a transaction.
Movers consume from one topic and produce to another, with offsets and records in one transaction,
as docs/delivery.md describes. Readers use read_committed. The whole history is checked at the end
(`checkers.transactions`, `checkers.log`, `checkers.cycles`).
"""

from typing import Any

import trio

from ottla.client.admin import open_admin
from ottla.client.consumer import Consumer, open_consumer
from ottla.client.produce.delivery import Delivery
from ottla.client.producer import Producer, open_producer
from ottla.client.transactions.producer_transactions import ProducerTransaction
from ottla.client.transactions.transaction_flow import (
    TransactionAbortedError,
    TransactionProtocol,
)
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
    ignoring_faults,
    machine_time_ms,
)
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig, ProducerConfig

INPUT, OUTPUT = "orders", "copies"
"""The topic that movers (consumers that copy records) read, and the topic to which only movers
write."""

PRODUCERS_PER_ID = 2
TRANSACTIONS_MAX = 24
"""Maximum number of transactions of a simulated producer. After them, another producer initialises
its transactional id."""

RECORDS_MAX = 4
"""Maximum number of records in a simulated producer's transaction."""

TIMEOUT_MS = 6_000
"""Transaction timeout of the simulated producers in ms. It is shorter than most pauses of the
clients' processes."""

ABORTED_ONE_IN = 4
SHORT_REST_S, LONG_REST_S = 0.2, 6.0
"""Maximum duration in seconds of a short and of a long pause of a producer between two
transactions, in runs with clients of two versions."""

MOVED_MAX = 6
"""Maximum number of records that a mover (a consumer that copies records) moves in one
transaction."""


class DeliberateAbortError(Exception):
    """Raised inside a transaction that the simulated producer aborts deliberately."""


class TransactionalWorkload(ClientWorkload):
    """Clients of a simulated run that write and read in transactions."""

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
        """Consumers that copy records (movers). `unsettled` waits until they have copied all
        records."""
        self._events = history.events
        self._bootstrap = cluster.bootstrap
        self._producer_lives: list[TransactionalLife] = []

    @property
    def machines(self) -> list[Machine]:
        """Machines of all clients, including movers (consumers that copy records)."""
        return [*super().machines, *self.movers]

    @property
    def written(self) -> list[TopicPartition]:
        """Partitions that receive the records of transfers from one partition to another."""
        return [at for at in self.partitions if at.topic != OUTPUT]

    # ---- producers

    async def _produce(self, machine: Machine, is_stopping: trio.Event) -> None:
        chance = self._chance(machine)
        number = self.producers.index(machine) // PRODUCERS_PER_ID
        while not is_stopping.is_set():
            if self.is_quiet:
                await is_stopping.wait()
                return
            with ignoring_faults():
                await self._transfer_many(f"writer-{number}", machine, chance, is_stopping)
            await trio.sleep(RETRY_S + 2 * chance.random())

    async def _transfer_many(
        self, transactional_id: str, machine: Machine, chance: Chance, is_stopping: trio.Event
    ) -> None:
        life = self._producer_life(transactional_id, machine)
        config = self._config_of(transactional_id, chance)
        async with open_producer(self._bootstrap, config) as producer:
            life.begins_with(producer)
            self._choose_version(producer, chance)
            is_committed = True
            for number in range(1 + chance.below(TRANSACTIONS_MAX)):
                await self._rest(producer, chance, is_committed=is_committed)
                if self.is_quiet or is_stopping.is_set():
                    return
                is_committed = await self._transfer(producer, life, number, chance)

    async def _rest(self, producer: Producer, chance: Chance, *, is_committed: bool) -> None:
        """Wait for a random time before a producer's next transaction. `is_committed` is True if
        the producer's last transaction was committed."""
        await trio.sleep(self._plan.send_interval_s * 2 * chance.random())

    def _choose_version(self, producer: Producer, chance: Chance) -> None:
        """Choose the transaction version that a producer uses. Here every producer uses the version
        of the cluster."""

    def _aborted_one_in(self, producer: Producer) -> int:
        return ABORTED_ONE_IN

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
    ) -> bool:
        """Transfer amounts between partitions in one transaction. The amounts of the transaction
        add up to zero.

        Returns whether the transaction was committed.
        """
        amounts = [1 + chance.below(9) for _ in range(1 + chance.below(RECORDS_MAX - 1))]
        amounts.append(-sum(amounts))
        sent = [
            (chance.pick(self.written), f"{life.name}/{amount:+d}/{number * RECORDS_MAX + place}")
            for place, amount in enumerate(amounts)
        ]
        is_aborted = chance.below(self._aborted_one_in(producer)) == 0
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
                raise DeliberateAbortError
            return deliveries

        return await self._in_transaction(producer, life, str(number), sent, send)

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
        """Run a producer's transaction, and record it and its outcome. Returns whether it was
        committed."""
        begun = life.begins(name, sent)
        is_asked, life.is_in_transaction = False, True
        try:
            async with producer.transaction() as transaction:
                deliveries = await send(transaction)
                self._events.does("ask-commit", begun.extra["name"])
                is_asked = True
        except DeliberateAbortError:
            self._events.fails(begun, "a change of mind")
            return False
        except TransactionAbortedError as error:
            self._events.fails(begun, str(error))
            return False
        except Exception as error:
            # Once its commit was requested, only the coordinator knows the outcome.
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
            with ignoring_faults():
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
                    raise DeliberateAbortError
                return deliveries

            if not await self._in_transaction(producer, life, str(number), sent, send):
                return  # the consumer's position is past aborted records: open another one

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
            with ignoring_faults():
                config = self._reader_config(chance, machine.name)
                async with open_consumer(self._bootstrap, config) as consumer:
                    consumer.assign(self.partitions)
                    consumer.seek_to_beginning()
                    process = self._events.process()
                    # Each reader starts again after a time, since committed records must be the
                    # same for a new reader.
                    with trio.move_on_after(1 + 10 * chance.random()):
                        while not is_stopping.is_set():
                            begun = self._events.begins_poll(process)
                            records = await consumer.poll(1.0)
                            self._events.ends_poll(begun, records)
                            self._history.read_count += len(records)
            await trio.sleep(RETRY_S)

    # ---- final steps

    async def probe(self, patience_s: float, partitions: object = None) -> None:
        """Commit one record to every partition with a new producer. Raises RefusedError if that
        fails."""
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
        """Return descriptions of the producers that are in a transaction, and of the partitions in
        which movers (consumers that copy records) lag."""
        busy = [life.name for life in self._producer_lives if life.is_busy]
        if busy:
            return busy
        async with open_admin(self._bootstrap, timeout_s=20.0) as admin:
            latest = dict.fromkeys(self.partitions, -1)
            ends = await admin.list_offsets(latest)
            stable = await admin.list_offsets(latest, isolation_level="read_committed")
            answer = await admin.group_offsets(self.group) if self.movers else {}
        found = [
            f"{at} ends at {ends[at].offset} and is stable up to {stable[at].offset}"
            for at in self.partitions
            if ends[at].offset != stable[at].offset
        ]
        if found or not self.movers:
            return found
        last = await self._last_offsets({at: int(ends[at].offset) for at in self.moved})
        for at, offset in last.items():
            committed = int(answer[at].offset) if at in answer else 0
            if committed <= offset:
                found.append(f"{at} is moved up to {committed} of {offset + 1}")
        if not found:
            keys = {key_of(at): int(answer[at].offset) if at in answer else 0 for at in self.moved}
            begun = self._events.begins("committed", None, extra=FINAL)
            self._events.ends(begun, {"group": self.group, "keys": keys})
        return found

    @property
    def moved(self) -> list[TopicPartition]:
        """Partitions from which movers (consumers that copy records) read."""
        return [at for at in self.partitions if at.topic == INPUT]

    async def _last_offsets(self, ends: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offset of each partition's last committed record."""
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
        """Read every partition from its start to its end offset in `ends`, and record every
        poll."""
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


class MixedTransactionalWorkload(TransactionalWorkload):
    """The clients of `TransactionalWorkload`, half of whose producers are old: from before
    transaction version 2.

    An old producer adds each partition at the coordinator itself (AddPartitionsToTxn), and keeps
    its epoch from one transaction to the next. It shares its transactional id with new producers.

    A new producer that is fenced between two transactions has the epoch just before its successor's
    epoch, and aborts the transaction that it begins. If the successor is old and its last
    transaction was aborted, the coordinator could mistake this abort for a retry. Only the rule for
    clients of different versions prevents that. To test this rule, old producers abort often and
    pause afterwards, and new producers pause until then.
    """

    def __init__(
        self,
        world: SharedWorld,
        cluster: SimulatedCluster,
        history: ClientHistory,
        plan: WorkloadPlan,
    ) -> None:
        super().__init__(world, cluster, history, plan)
        self._aborted_by_old = trio.Event()

    def _choose_version(self, producer: Producer, chance: Chance) -> None:
        if chance.below(2):
            old: Any = producer._transactions
            old._find_protocol = _explicit  # in this one object

    async def _transfer(
        self, producer: Producer, life: TransactionalLife, number: int, chance: Chance
    ) -> bool:
        is_committed = await super()._transfer(producer, life, number, chance)
        if not is_committed and _is_old(producer):
            self._aborted_by_old.set()
            self._aborted_by_old = trio.Event()
        return is_committed

    def _aborted_one_in(self, producer: Producer) -> int:
        return 2 if _is_old(producer) else 2 * ABORTED_ONE_IN

    async def _rest(self, producer: Producer, chance: Chance, *, is_committed: bool) -> None:
        if _is_old(producer) == is_committed:
            await trio.sleep(SHORT_REST_S * chance.random())
        else:
            is_over = trio.Event() if _is_old(producer) else self._aborted_by_old
            with trio.move_on_after(LONG_REST_S * chance.random()):
                await is_over.wait()


def _is_old(producer: Producer) -> bool:
    transactions: Any = producer._transactions
    return transactions._find_protocol is _explicit


async def _explicit(deadline: float) -> TransactionProtocol:
    await trio.lowlevel.checkpoint()
    return TransactionProtocol.EXPLICIT
