"""Shard of a coordinator: its state for one topic partition that this broker leads, with the
effects that are not performed yet. Pure."""

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from ottla.broker.coordinators.effects import Responder
from ottla.broker.replicas.partition import Partition
from ottla.model.ids import Epoch


class ReplayedShard(Protocol):
    """State of a coordinator that can be restored by a replay of its partition's log."""

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record of the shard's log. Raises CorruptDataError if the record cannot be
        read."""
        ...


class ShardHost(Protocol):
    """The methods of a coordinator that its shards (its state in each led partition) call."""

    def answer(self, responder: Responder | None, answer: Any, /) -> None:
        """Send the response to a coordinator request, if a client waits for it."""
        ...

    def note_due(self, led: Any, /) -> None:
        """Schedule the append of a coordinator shard's writes to its log for the end of the
        event-loop iteration."""
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
        """Schedule a call of the coordinator's `on_time` (which handles expired deadlines) at a
        monotonic time in milliseconds."""
        ...

    def work_soon(self) -> None:
        """Schedule the unfinished work of the shard (the coordinator's state in one topic
        partition), which runs in steps."""
        ...


ShardT = TypeVar("ShardT", bound=ReplayedShard)
WriteT = TypeVar("WriteT")


class LedShard(Generic[ShardT, WriteT]):
    """Coordinator state of one partition that this broker leads, and the ports that perform the
    effects of its decisions."""

    __slots__ = (
        "answers",
        "delay_reason",
        "epoch",
        "failure",
        "has_effects",
        "host",
        "is_active",
        "is_due",
        "load_at_ms",
        "load_ms",
        "partition",
        "shard",
        "writes",
        "written_turn",
    )

    def __init__(self, partition: Partition, shard: ShardT, host: ShardHost) -> None:
        self.partition = partition
        self.epoch: Epoch = partition.leader_epoch
        """Coordinator epoch of this shard, equal to the leader epoch of its partition."""
        self.shard = shard
        self.host = host
        self.is_active = False
        """True once the shard's log has been replayed and the shard serves requests."""
        self.failure: str | None = None
        """Reason why the shard's log cannot be replayed, or None if no replay has failed."""
        self.is_due = False
        """True while writes of this coordinator shard wait to be appended at the end of the
        event-loop iteration."""
        self.has_effects = False
        """True if effects were left in the shard, to be performed before its writes are
        appended."""
        self.load_at_ms = 0
        """Monotonic time in milliseconds before which the replay of the shard's log does not
        start."""
        self.delay_reason: str | None = None
        """Reason why the previous attempt to replay the shard's log failed, or None if no attempt
        has failed."""
        self.load_ms: int | None = None
        """Milliseconds that the replay of the shard's log took, or None before its end."""
        self.writes: list[WriteT] = []
        """Records that the shard decided in this event-loop iteration and that are not appended
        yet."""
        self.written_turn = 0
        """Number of the event-loop iteration in which a write of this shard was last appended at
        once. Only the transaction coordinator appends at once."""
        self.answers: list[tuple[Responder, Any]] = []
        """Responses to send when all of `writes` are committed, each with the callback that sends
        it."""

    @property
    def is_loading(self) -> bool:
        """True while the log of this coordinator shard is being replayed."""
        return not (self.is_active or self.failure)

    # ---- ports of the performer

    def answer(self, responder: Responder, answer: Any) -> None:
        """Send the coordinator's response to a waiting request now."""
        self.host.answer(responder, answer)

    def append(self, writes: Sequence[WriteT], answers: Sequence[tuple[Responder, Any]]) -> None:
        """Append the writes to the shard's log, usually at the end of the event-loop iteration.
        Sends the responses in `answers` once the writes are committed."""
        self.writes += writes
        self.answers += answers
        self.host.note_due(self)

    def send(self, order: Any) -> None:
        """Send a message of the coordinator to other brokers, such as the order to write a
        transaction's markers."""
        self.host.send(order)

    def wake(self, key: str) -> None:
        """Wake the requests that wait until the previous transaction of a transactional id is
        completed."""
        self.host.wake(key)

    def wake_at(self, deadline_ms: int) -> None:
        """Schedule a call of the coordinator's `on_time`, which handles expired deadlines, at a
        monotonic time in milliseconds."""
        self.host.wake_at(deadline_ms)

    def work_soon(self) -> None:
        """Schedule the unfinished work of the shard (the coordinator's state in one topic
        partition), which runs in steps."""
        self.host.work_soon()
