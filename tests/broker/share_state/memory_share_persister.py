"""Share persister in memory, with the rules of the share coordinator, for tests of its callers."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ottla.broker.coordinators.share_persister import (
    SharePartitionKey,
    ShareState,
    ShareSummary,
    StateBatch,
)
from ottla.broker.share_state.share_partition_state import SharePartitionState, check_batches
from ottla.model.errors import ErrorCode, RefusedError


class MemorySharePersister:
    """Implementation of `SharePersister` that answers during the call, unless `is_held` is True.

    A held call has its effect at once, as at a coordinator; its answer waits for `release`.
    """

    def __init__(self) -> None:
        self.states: dict[SharePartitionKey, SharePartitionState] = {}
        self.failures: deque[ErrorCode] = deque()
        """Codes with which the next calls fail, without effect."""
        self.is_held = False
        self.calls: list[tuple[str, SharePartitionKey]] = []
        """Name and share partition of each call so far."""
        self._held: deque[Callable[[], None]] = deque()
        self._now_ms = 0

    @property
    def held_count(self) -> int:
        """Number of answers that wait for `release`."""
        return len(self._held)

    def release(self) -> None:
        """Give the held answers, in their order."""
        while self._held:
            self._held.popleft()()

    def initialize(
        self,
        key: SharePartitionKey,
        *,
        state_epoch: int,
        start_offset: int,
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        def act() -> ErrorCode:
            state = self.states.get(key)
            is_new = state is None
            if state is None:
                state = SharePartitionState()
            state.check_state(state_epoch)
            if is_new or state_epoch > state.state_epoch:
                self._now_ms += 1
                snapshot = state.initial_snapshot(
                    state_epoch=state_epoch,
                    start_offset=start_offset,
                    now_ms=self._now_ms,
                    is_new=is_new,
                )
                state.apply_snapshot(snapshot)
                self.states[key] = state
            return ErrorCode.NONE

        self._answer("initialize", key, act, on_done, lambda code: code)

    def read(
        self, key: SharePartitionKey, *, leader_epoch: int, on_done: Callable[[ShareState], None]
    ) -> None:
        def act() -> ShareState:
            state = self._initialized(key)
            state.check_leader(leader_epoch)
            state.apply_update(state.update_of_leader(leader_epoch))
            return state.as_read()

        self._answer("read", key, act, on_done, ShareState)

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
        def act() -> ErrorCode:
            state = self._initialized(key)
            state.check_leader(leader_epoch)
            state.check_state(state_epoch)
            check_batches(batches)
            update = state.update_of_write(
                start_offset=start_offset,
                delivery_complete_count=delivery_complete_count,
                batches=batches,
            )
            state.apply_update(update)
            return ErrorCode.NONE

        self._answer("write", key, act, on_done, lambda code: code)

    def delete(self, key: SharePartitionKey, *, on_done: Callable[[ErrorCode], None]) -> None:
        def act() -> ErrorCode:
            self.states.pop(key, None)
            return ErrorCode.NONE

        self._answer("delete", key, act, on_done, lambda code: code)

    def read_summary(
        self, key: SharePartitionKey, *, leader_epoch: int, on_done: Callable[[ShareSummary], None]
    ) -> None:
        def act() -> ShareSummary:
            state = self.states.get(key)
            return ShareSummary(ErrorCode.NONE) if state is None else state.as_summary()

        self._answer("read_summary", key, act, on_done, ShareSummary)

    def _initialized(self, key: SharePartitionKey) -> SharePartitionState:
        state = self.states.get(key)
        if state is None:
            raise RefusedError(ErrorCode.INVALID_REQUEST)
        return state

    def _answer(
        self,
        name: str,
        key: SharePartitionKey,
        act: Callable[[], Any],
        on_done: Callable[[Any], None],
        failed: Callable[[ErrorCode], Any],
    ) -> None:
        self.calls.append((name, key))
        if self.failures:
            answer = failed(self.failures.popleft())
        else:
            try:
                answer = act()
            except RefusedError as refusal:
                answer = failed(refusal.code)
        if self.is_held:
            self._held.append(partial(on_done, answer))
        else:
            on_done(answer)
