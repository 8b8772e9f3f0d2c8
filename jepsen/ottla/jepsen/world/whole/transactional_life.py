"""Events of one simulated transactional producer and its transactions, recorded in a history."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ottla.client.produce.delivery import Delivery
from ottla.client.producer import Producer
from ottla.client.transactions.producer_transactions import ProducerTransaction
from ottla.jepsen.history import Event
from ottla.jepsen.world.whole.client_events import ClientEvents, key_of
from ottla.jepsen.world.whole.machine import Machine
from ottla.model.ids import TopicPartition

Sent: TypeAlias = list[tuple[TopicPartition, str]]
"""Partition and value of each record that one transaction sends."""

Sender: TypeAlias = Callable[[ProducerTransaction], Awaitable[list[Delivery]]]
"""Function that sends the records of a transaction and returns their deliveries in the same
order."""


class TransactionalLife:
    """A producer, from its initialisation of a transactional id to its end, and its recorded
    transactions."""

    def __init__(
        self,
        events: ClientEvents,
        transactional_id: str,
        name: str,
        machine: Machine | None = None,
    ) -> None:
        """Create the record of a producer. `name` is unique among the producers of the run.
        `machine` is the simulated machine on which the producer runs, or None if its machine is
        never stopped."""
        self.name = name
        self.is_in_transaction = False
        self._machine = machine
        self._start_count = 0 if machine is None else machine.start_count
        self._events = events
        self._process = events.process()
        self._init = events.begins(
            "init", extra={"transactional_id": transactional_id, "producer": name}
        )

    @property
    def is_busy(self) -> bool:
        """True if the producer is in a transaction and the process that runs it is running."""
        machine = self._machine
        is_running = machine is None or (
            machine.is_running and machine.start_count == self._start_count
        )
        return self.is_in_transaction and is_running

    def begins_with(self, producer: Producer) -> None:
        """Record that the producer has initialised its transactional id."""
        transactions = producer._transactions
        assert transactions is not None
        assert transactions.flow.identity is not None
        self._events.ends(self._init, list(transactions.flow.identity))

    def begins(self, name: str, sent: Sent) -> Event:
        """Record the start of the transaction `name` that sends the records `sent`, and return the
        event."""
        steps = [["send", key_of(at), value] for at, value in sent]
        extra = {"name": f"{self.name}/{name}", "producer": self.name}
        return self._events.begins("txn", steps, process=self._process, extra=extra)

    def commits(self, begun: Event, sent: Sent, offsets: list[int]) -> None:
        """Record that a transaction was committed, with the offsets at which its records were
        stored."""
        steps = [
            ["send", key_of(at), [offset, value]]
            for (at, value), offset in zip(sent, offsets, strict=True)
        ]
        self._events.ends(begun, steps)
