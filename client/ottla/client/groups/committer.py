"""Commits the offsets of a group in the background, in order.

One commit is in flight at a time. Commits that the application requests in the meantime are merged
into the next commit, which contains the most recently requested offset of each partition.
Invariants:
- NeverOvertaken: a commit is sent only after all earlier commits have succeeded or failed.
- ReportedOnce: an error is raised to the task that awaits the commit, or by the next poll if no
  task awaits it.
"""

from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import Any, NoReturn, Protocol

import trio

from ottla.client.groups.coordinator import MOVED, Coordinator
from ottla.client.groups.group_member import Membership
from ottla.client.groups.group_offsets import Committed, try_commit
from ottla.client.network.background import WakeUp
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import ErrorCode, OttlaError, ProtocolError, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig

Offsets = Mapping[TopicPartition, Committed]


class PendingCommit:
    """A commit in progress. Awaiting it waits for the coordinator's confirmation.

    Awaiting it raises RefusedError if the commit fails. The codes ILLEGAL_GENERATION,
    UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH and REBALANCE_IN_PROGRESS mean that the commit was too
    late: another member may already be reading the partitions from an earlier committed offset.
    """

    __slots__ = ("_error", "_event", "_is_watched", "_tenure", "offsets")

    def __init__(self, offsets: Offsets, loss_count: int, *, is_watched: bool) -> None:
        self.offsets = offsets
        """Offsets that the commit contains, by partition."""
        self._tenure = loss_count
        """Value of `CommitIdentity.loss_count` when the commit was requested."""
        self._is_watched = is_watched
        """True if a task awaits the commit, or has awaited it, so that its error is raised in that
        task."""
        self._event = trio.Event()
        self._error: OttlaError | None = None

    def __await__(self) -> Generator[Any, Any, None]:
        return self.wait().__await__()

    @property
    def is_settled(self) -> bool:
        """True if the commit has succeeded or failed."""
        return self._event.is_set()

    @property
    def error(self) -> OttlaError | None:
        """Error of the commit, or None if it succeeded or is still in progress."""
        return self._error

    async def wait(self) -> None:
        """Wait for the coordinator's confirmation. Raises the error of the commit if the commit
        fails."""
        self._is_watched = True
        await self._event.wait()
        self.result()

    def result(self) -> None:
        """Raise the error of the commit if the commit has failed. The caller must first wait until
        `is_settled` is True."""
        assert self.is_settled
        self._is_watched = True
        if self._error is not None:
            raise self._error

    async def _settled(self) -> None:
        """Wait until the commit has succeeded or failed."""
        await self._event.wait()

    def _settle(self, error: OttlaError | None) -> None:
        """Record the outcome of the commit: an error, or None for success."""
        self._error = error
        self._event.set()


class CommitIdentity(Protocol):
    """Interface that supplies the group membership under which offsets are committed."""

    @property
    def loss_count(self) -> int:
        """Number of times that the member has lost or revoked all its partitions. If the number has
        increased since records were read, the member must not commit their offsets."""
        ...

    def membership(self) -> Membership:
        """Return the group membership under which offsets are committed. Raises RefusedError if the
        member has none."""
        ...

    async def may_repeat(self, code: ErrorCode, membership: Membership) -> bool:
        """Return whether the client should repeat a commit that the coordinator refused with the
        error code `code`.

        If the answer depends on a rebalance in progress, waits until the rebalance has ended.
        """
        ...


class Committer:
    """Queue of a group's commits. It sends them in order, one at a time."""

    def __init__(
        self,
        coordinator: Coordinator,
        config: ConsumerConfig,
        *,
        identity: CommitIdentity,
        on_untold: Callable[[PendingCommit], None],
    ) -> None:
        self._coordinator = coordinator
        self._timeout_s = config.default_api_timeout_ms / 1_000
        self._retry_wait_s = config.retry_backoff_ms / 1_000
        self._identity = identity
        self._on_untold = on_untold
        self._queue: deque[PendingCommit] = deque()
        self._last: PendingCommit | None = None
        self._wake_up = WakeUp()

    def submit(
        self, offsets: Offsets, *, is_watched: bool = False, is_late: bool = False
    ) -> PendingCommit:
        """Enqueue a commit, and return it as PendingCommit. If `is_watched` is True, the commit's
        error is raised only to the task that awaits the commit, not by the next poll. If
        `is_late` is True, the commit is refused, because the member has lost the partitions of
        the records."""
        tenure = self._identity.loss_count - is_late
        commit = PendingCommit(offsets, tenure, is_watched=is_watched)
        if not offsets and not self.is_busy:
            commit._settle(None)
            return commit
        self._queue.append(commit)
        self._last = commit
        self._wake_up.set()
        return commit

    @property
    def is_busy(self) -> bool:
        """True if a commit is queued or in flight."""
        return self._last is not None and not self._last.is_settled

    async def settled(self) -> None:
        """Wait until all commits that were requested before this call have succeeded or failed."""
        await trio.lowlevel.checkpoint()
        if self._last is not None:
            await self._last._settled()

    async def run(self) -> NoReturn:
        """Send the commits that the application has requested, in order, until cancelled."""
        while True:
            await self._wake_up.wait()
            while self._queue:
                together = list(self._queue)
                self._queue.clear()
                await self._send(together)

    async def _send(self, together: list[PendingCommit]) -> None:
        late = RefusedError(ErrorCode.ILLEGAL_GENERATION, "the group has removed this member")
        offsets: dict[TopicPartition, Committed] = {}
        failed: dict[TopicPartition, OttlaError] = {}
        for commit in together:
            if commit._tenure == self._identity.loss_count:
                offsets.update(commit.offsets)
        await self._deliver(offsets, failed)
        for commit in together:
            found = next((failed[at] for at in commit.offsets if at in failed), None)
            if not all(at in offsets for at in commit.offsets):
                found = late
            commit._settle(found)
            if found is not None and not commit._is_watched:
                self._on_untold(commit)

    async def _deliver(self, offsets: Offsets, failed: dict[TopicPartition, OttlaError]) -> None:
        """Commit the offsets, and repeat retriable failures until the timeout.

        Adds the errors of partitions that could not be committed to `failed`.
        """
        left = dict(offsets)
        trouble: OttlaError = ConnectionLostError("no request was sent")
        loss_count = self._identity.loss_count
        with trio.move_on_after(self._timeout_s):
            while left and self._identity.loss_count == loss_count:
                try:
                    membership = self._identity.membership()
                    sent_s = trio.current_time()
                    refused = await try_commit(self._coordinator, left, membership)
                    self._coordinator.measures.commits_s.note(trio.current_time() - sent_s)
                except ConnectionLostError as error:
                    trouble = error
                    await trio.sleep(self._retry_wait_s)
                    continue
                except (RefusedError, ProtocolError) as error:
                    failed.update(dict.fromkeys(left, error))
                    return
                left = {at: one for at, one in left.items() if at in refused}
                verdicts: dict[ErrorCode, bool] = {}
                for at, trouble in refused.items():
                    if trouble.code not in verdicts:
                        verdicts[trouble.code] = await self._is_worth_it(trouble, membership)
                    if not verdicts[trouble.code]:
                        failed[at] = trouble
                        del left[at]
        failed.update(dict.fromkeys(left, trouble))

    async def _is_worth_it(self, refusal: RefusedError, membership: Membership) -> bool:
        if not refusal.is_retriable:
            return await self._identity.may_repeat(refusal.code, membership)
        if refusal.code in MOVED:
            await self._coordinator.forget()
        await trio.sleep(self._retry_wait_s)
        return True
