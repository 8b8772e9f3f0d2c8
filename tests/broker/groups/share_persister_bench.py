"""A share persister in memory, for tests of groups: it can hold its answers back, and fail."""

from collections.abc import Callable, Sequence
from typing import Any

from ottla.broker.coordinators.share_persister import (
    SharePartitionKey,
    ShareState,
    ShareSummary,
    StateBatch,
)
from ottla.model.errors import ErrorCode


class SharePersisterBench:
    """Durable states of share partitions: epoch and start offset of each."""

    def __init__(self) -> None:
        self.states: dict[SharePartitionKey, tuple[int, int]] = {}
        self.calls: list[tuple[str, SharePartitionKey]] = []
        self.is_answering = True
        self.code = ErrorCode.NONE
        """Answer to changes, which are performed only if it is NONE."""
        self.summaries: dict[SharePartitionKey, ShareSummary] = {}
        self._held: list[Callable[[], None]] = []

    def answer_all(self) -> None:
        """Perform the calls that were held back, and answer them."""
        self.is_answering = True
        held, self._held = self._held, []
        for call in held:
            call()

    def _do(self, name: str, key: SharePartitionKey, call: Callable[[], None]) -> None:
        self.calls.append((name, key))
        if self.is_answering:
            call()
        else:
            self._held.append(call)

    def initialize(
        self,
        key: SharePartitionKey,
        *,
        state_epoch: int,
        start_offset: int,
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        def call() -> None:
            code = self.code
            stored_epoch, _ = self.states.get(key, (-1, -1))
            if code is ErrorCode.NONE and state_epoch < stored_epoch:
                code = ErrorCode.FENCED_STATE_EPOCH
            if code is ErrorCode.NONE and state_epoch > stored_epoch:
                self.states[key] = (state_epoch, start_offset)
            on_done(code)

        self._do("initialize", key, call)

    def read(
        self, key: SharePartitionKey, *, leader_epoch: int, on_done: Callable[[ShareState], None]
    ) -> None:
        raise AssertionError("groups read summaries only")

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
        raise AssertionError("groups write no deliveries")

    def delete(self, key: SharePartitionKey, *, on_done: Callable[[ErrorCode], None]) -> None:
        def call() -> None:
            if self.code is ErrorCode.NONE:
                self.states.pop(key, None)
            on_done(self.code)

        self._do("delete", key, call)

    def read_summary(
        self,
        key: SharePartitionKey,
        *,
        leader_epoch: int,
        on_done: Callable[[ShareSummary], None],
    ) -> None:
        epoch, start = self.states.get(key, (-1, -1))
        found: Any = self.summaries.get(key)
        if found is None:
            found = ShareSummary(ErrorCode.NONE, epoch, 0, start, 0)
        self._do("read_summary", key, lambda: on_done(found))
