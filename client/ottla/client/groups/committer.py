"""Commits a group's offsets in the background, in order.

One commit travels at a time; those asked for meanwhile travel together in the next one, where the
later offset of a partition stands for the earlier.  Invariants: NeverOvertaken (a commit is sent
when all before it are settled), ToldOnce (an error comes out of the awaited commit, or else of the
next poll).
"""

from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import Any, NoReturn, Protocol

import trio

from ottla.client.groups.coordinator import MOVED, Coordinator
from ottla.client.groups.group_member import Membership
from ottla.client.groups.group_offsets import Committed, try_commit
from ottla.client.network.background import Bell
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import ErrorCode, OttlaError, ProtocolError, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig

Offsets = Mapping[TopicPartition, Committed]


class PendingCommit:
    """A commit under way: `await` it to know that the coordinator has it.

    RefusedError says that it does not: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH
    or REBALANCE_IN_PROGRESS that it came too late, and somebody may read on from an earlier commit.
    """

    __slots__ = ("_error", "_event", "is_watched", "offsets", "tenure")

    def __init__(self, offsets: Offsets, tenure: int, *, is_watched: bool) -> None:
        self.offsets = offsets
        """Offsets to commit, by partition."""
        self.tenure = tenure
        """Count of losses of all partitions before the commit; for the client's own use."""
        self.is_watched = is_watched
        """Whether somebody was, or will be, told of an error."""
        self._event = trio.Event()
        self._error: OttlaError | None = None

    def __await__(self) -> Generator[Any, Any, None]:
        return self.wait().__await__()

    @property
    def is_settled(self) -> bool:
        """Whether it is known what became of it."""
        return self._event.is_set()

    @property
    def error(self) -> OttlaError | None:
        """Why it failed; None while that is not known, and when it has not."""
        return self._error

    async def wait(self) -> None:
        """Wait until the coordinator has it, or raise why it has not."""
        self.is_watched = True
        await self._event.wait()
        self.result()

    def result(self) -> None:
        """Raise why the coordinator does not have it, if it has not; it must be settled."""
        assert self.is_settled
        self.is_watched = True
        if self._error is not None:
            raise self._error

    async def settled(self) -> None:
        """Wait until it is known what became of it."""
        await self._event.wait()

    def settle(self, error: OttlaError | None) -> None:
        """Say what became of it."""
        self._error = error
        self._event.set()


class Tenant(Protocol):
    """Who commits."""

    @property
    def tenure(self) -> int:
        """How often all it had was lost or given back: what it read before is not its own."""
        ...

    def membership(self) -> Membership:
        """Return as whom to commit; RefusedError when it is nobody at present."""
        ...

    async def may_repeat(self, code: ErrorCode, membership: Membership) -> bool:
        """Say, once it is known, whether a commit refused with this code is worth repeating."""
        ...


class Committer:
    """Sends one group's commits."""

    def __init__(
        self,
        coordinator: Coordinator,
        config: ConsumerConfig,
        *,
        tenant: Tenant,
        on_untold: Callable[[PendingCommit], None],
    ) -> None:
        self._coordinator = coordinator
        self._timeout_s = config.default_api_timeout_ms / 1_000
        self._retry_wait_s = config.retry_backoff_ms / 1_000
        self._tenant = tenant
        self._on_untold = on_untold
        self._queue: deque[PendingCommit] = deque()
        self._last: PendingCommit | None = None
        self._bell = Bell()

    def submit(self, offsets: Offsets, *, is_watched: bool = False) -> PendingCommit:
        """Take a commit; of one that is watched an error is told to nobody but who awaits it."""
        commit = PendingCommit(offsets, self._tenant.tenure, is_watched=is_watched)
        if not offsets and not self.is_busy:
            commit.settle(None)
            return commit
        self._queue.append(commit)
        self._last = commit
        self._bell.ring()
        return commit

    @property
    def is_busy(self) -> bool:
        """Whether a commit waits or travels."""
        return self._last is not None and not self._last.is_settled

    async def settled(self) -> None:
        """Wait until all commits that were taken are settled."""
        await trio.lowlevel.checkpoint()
        if self._last is not None:
            await self._last.settled()

    async def run(self) -> NoReturn:
        """Send what is submitted, until cancelled."""
        while True:
            await self._bell.wait()
            while self._queue:
                together = list(self._queue)
                self._queue.clear()
                await self._send(together)

    async def _send(self, together: list[PendingCommit]) -> None:
        late = RefusedError(ErrorCode.ILLEGAL_GENERATION, "the group went on without us")
        offsets: dict[TopicPartition, Committed] = {}
        failed: dict[TopicPartition, OttlaError] = {}
        for commit in together:
            if commit.tenure == self._tenant.tenure:
                offsets.update(commit.offsets)
        await self._deliver(offsets, failed)
        for commit in together:
            found = next((failed[at] for at in commit.offsets if at in failed), None)
            if not all(at in offsets for at in commit.offsets):
                found = late
            commit.settle(found)
            if found is not None and not commit.is_watched:
                self._on_untold(commit)

    async def _deliver(self, offsets: Offsets, failed: dict[TopicPartition, OttlaError]) -> None:
        """Repeat what is worth it until the time is over; note the partitions that failed."""
        left = dict(offsets)
        trouble: OttlaError = ConnectionLostError("nobody was asked")
        tenure = self._tenant.tenure
        with trio.move_on_after(self._timeout_s):
            while left and self._tenant.tenure == tenure:
                try:
                    membership = self._tenant.membership()
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
            return await self._tenant.may_repeat(refusal.code, membership)
        if refusal.code in MOVED:
            await self._coordinator.forget()
        await trio.sleep(self._retry_wait_s)
        return True
