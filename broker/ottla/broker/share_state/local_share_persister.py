"""Share persister that calls the share coordinator in the same broker directly. Pure.

It does not search for another coordinator, and does not retry a call that was refused with
NOT_COORDINATOR. Simulations of one broker use only this persister. A broker's driver uses it for
the share partitions that the broker itself coordinates.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ottla.broker.coordinators.effects import Responder
from ottla.broker.coordinators.share_persister import (
    SharePartitionKey,
    ShareState,
    ShareSummary,
    StateBatch,
)
from ottla.broker.share_state.share_coordinator import ShareCoordinator
from ottla.model.errors import ErrorCode, RefusedError


class LocalSharePersister:
    """Implementation of `SharePersister` that stores all states in one share coordinator of the
    same process."""

    def __init__(self, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator

    def initialize(
        self,
        key: SharePartitionKey,
        *,
        state_epoch: int,
        start_offset: int,
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        """Create the durable state of a share partition, or reset it in a higher state epoch."""
        responder = _responder(on_done, lambda code: code)
        self._coordinator.ask(
            key,
            responder,
            lambda shard, now: shard.initialize(
                key, responder, now, state_epoch=state_epoch, start_offset=start_offset
            ),
        )

    def read(
        self, key: SharePartitionKey, *, leader_epoch: int, on_done: Callable[[ShareState], None]
    ) -> None:
        """Read the durable state of a share partition, and fence its older leaders."""
        responder = _responder(on_done, ShareState)
        self._coordinator.ask(
            key,
            responder,
            lambda shard, now: shard.read(key, responder, now, leader_epoch=leader_epoch),
            is_write=False,
        )

    def write(
        self,
        key: SharePartitionKey,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        """Merge changed state batches into the durable state of a share partition."""
        self._coordinator.write(
            key,
            _responder(on_done, lambda code: code),
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            batches=batches,
        )

    def delete(self, key: SharePartitionKey, *, on_done: Callable[[ErrorCode], None]) -> None:
        """Delete the durable state of a share partition."""
        responder = _responder(on_done, lambda code: code)
        self._coordinator.ask(key, responder, lambda shard, now: shard.delete(key, responder))

    def read_summary(
        self, key: SharePartitionKey, *, leader_epoch: int, on_done: Callable[[ShareSummary], None]
    ) -> None:
        """Read the epochs and the start offset of a share partition's durable state."""
        responder = _responder(on_done, ShareSummary)
        self._coordinator.ask(
            key,
            responder,
            lambda shard, now: shard.read_summary(key, responder),
            is_write=False,
        )


def _responder(on_done: Callable[[Any], None], failed: Callable[[ErrorCode], Any]) -> Responder:
    """Return a responder that passes the coordinator's answer to `on_done`. If the coordinator
    refuses, it passes the answer that `failed` builds from the error code."""

    def respond(answer: Any) -> None:
        if isinstance(answer, RefusedError):
            answer = failed(answer.code)
        elif isinstance(answer, ErrorCode):
            answer = failed(answer)
        on_done(answer)

    return respond
