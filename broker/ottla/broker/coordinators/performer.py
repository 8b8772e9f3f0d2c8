"""Performs the effects of a coordinator's shard through its ports, in one fixed order.

Every event of a shard ends with a call of `perform`. Real coordinators, simulations and fuzzers
differ only in their ports. The order is: responses that depend on no write, the append, messages to
other brokers, wake-ups, the next deadline.

This order and `ShardPorts.append` guarantee AnsweredIsCommitted: a response that depends on a write
is sent when the write is committed.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from ottla.broker.coordinators.effects import Responder, ShardEffects

WriteT = TypeVar("WriteT")
WriteOfPortsT = TypeVar("WriteOfPortsT", contravariant=True)


class ShardPorts(Protocol[WriteOfPortsT]):
    """Ports through which the effects of a coordinator's shard are performed: to clients, a log,
    other brokers and a timer."""

    def answer(self, responder: Responder, answer: Any, /) -> None:
        """Send the coordinator's response to a waiting request now."""
        ...

    def append(
        self, writes: Sequence[WriteOfPortsT], answers: Sequence[tuple[Responder, Any]], /
    ) -> None:
        """Append the writes to the shard's log in order, now or at the end of the event-loop
        iteration. Sends the responses in `answers` once all writes are committed.

        Without writes, the responses wait until all records that were appended before are
        committed.
        """
        ...

    def send(self, order: Any, /) -> None:
        """Send a message of the coordinator to other brokers, such as the order to write a
        transaction's markers."""
        ...

    def wake(self, key: str, /) -> None:
        """Wake the requests that wait until the previous transaction of a transactional id is
        completed."""
        ...

    def wake_at(self, deadline_ms: int, /) -> None:
        """Schedule a call of `on_time`, which handles expired deadlines, at a monotonic time in
        milliseconds."""
        ...

    def work_soon(self) -> None:
        """Schedule the unfinished work of the shard (the coordinator's state in one topic
        partition), which runs in steps."""
        ...


def perform(effects: ShardEffects[WriteT], ports: ShardPorts[WriteT]) -> None:
    """Perform the effects of one event on a coordinator's shard (records, responses, deadlines)
    through `ports`."""
    # Most events have one or two kinds of effects, and an empty loop takes longer than the test.
    if effects.answers:
        for responder, answer in effects.answers:
            ports.answer(responder, answer)
    if effects.writes or effects.committed_answers:
        ports.append(effects.writes, effects.committed_answers)
    if effects.orders:
        for order in effects.orders:
            ports.send(order)
    if effects.completed:
        for key in effects.completed:
            ports.wake(key)
    if effects.has_work:
        ports.work_soon()
    if effects.next_deadline_ms is not None:
        ports.wake_at(effects.next_deadline_ms)
