"""A consumer's membership in a group: its subscription, its partitions and its commits.

`group.protocol` selects the protocol: `classic_membership.py`, or `consumer_membership.py`
(KIP-848), in which the coordinator computes the assignment. Both change the assignment only while
the application waits for records. The application has then processed all records that it received
before, as at-least-once delivery requires.
"""

from collections.abc import Callable, Iterable
from typing import NoReturn, Protocol
from uuid import uuid4

import trio

from ottla.client.fetch.positions import Positions
from ottla.client.groups.classic_membership import ClassicMembership
from ottla.client.groups.committer import Committer, Offsets, PendingCommit
from ottla.client.groups.consumer_member import ConsumerProtocolMember
from ottla.client.groups.consumer_membership import ConsumerMembership
from ottla.client.groups.coordinator import Coordinator
from ottla.client.groups.group_member import NO_MEMBER, Membership
from ottla.client.groups.group_offsets import Committed, fetch_offsets
from ottla.client.groups.handover import Handover
from ottla.client.groups.subscription import Subscription
from ottla.client.network.background import WakeUp
from ottla.client.network.cluster import Cluster
from ottla.client.telemetry.measures import CoordinatorMeasures
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig

LEAVE_PATIENCE_S = 2.0
NO_LONGER_OURS = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
"""Error codes which mean that the group has removed the member. The member joins again
automatically."""


class MembershipDriver(Protocol):
    """Interface of a consumer's group membership, which both group protocols implement."""

    @property
    def loss_count(self) -> int:
        """Number of times that the member has lost or revoked all partitions."""
        ...

    @property
    def member_id(self) -> str:
        """Member id.  In the classic protocol, empty before the first join."""
        ...

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the current subscription of the member."""
        ...

    def on_metadata(self) -> None:
        """Handle a change of the topics, or of their partitions, in the client's metadata."""
        ...

    def membership(self) -> Membership:
        """Return the group membership under which offsets are committed. Raises RefusedError if the
        member has none."""
        ...

    def reader(self) -> Membership:
        """Return the group membership under which committed offsets are fetched."""
        ...

    async def may_repeat(self, code: ErrorCode, membership: Membership) -> bool:
        """Return whether the client should repeat a request that the coordinator refused with the
        error code `code`. Waits until the answer is known."""
        ...

    async def serve(self) -> None:
        """Maintain the consumer's group membership until cancelled."""
        ...

    async def leave(self) -> None:
        """Leave the group, so that the coordinator can assign the member's partitions to others."""
        ...

    def drop(self) -> None:
        """Discard the membership, and remove all partitions from the assignment."""
        ...


class MembershipTask:
    """A running task of a group membership, with its cancel scope and an event for its end."""

    __slots__ = ("ended", "scope")

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.ended = trio.Event()


class GroupCommitIdentity:
    """Group membership under which offsets are committed. A consumer with a subscription commits as
    a member of the group; any other consumer commits without a membership."""

    def __init__(self, group: "Group") -> None:
        self._group = group

    @property
    def loss_count(self) -> int:
        """Number of times that the member has lost or revoked all its partitions."""
        return self._group.driver.loss_count

    def membership(self) -> Membership:
        """Return the group membership under which offsets are committed. Raises RefusedError if the
        member has none."""
        return self._group.driver.membership() if self._group.is_subscribed else NO_MEMBER

    async def may_repeat(self, code: ErrorCode, membership: Membership) -> bool:
        """Return whether the client should repeat a request that the coordinator refused with the
        error code `code`. Waits until the answer is known."""
        if not self._group.is_subscribed:
            return False
        return await self._group.driver.may_repeat(code, membership)


class Group:
    """A consumer's relation to its group: its membership, if it has subscribed, and its commits."""

    def __init__(
        self,
        group_id: str,
        *,
        cluster: Cluster,
        positions: Positions,
        config: ConsumerConfig,
        on_assigned: Callable[[], None],
        on_failure: Callable[[Exception | PendingCommit], None],
    ) -> None:
        self.handover = Handover(positions, on_end=on_assigned, on_failure=on_failure)
        self._positions = positions
        self._config = config
        self._on_failure = on_failure
        self._coordinator = Coordinator(
            cluster,
            group_id,
            client_id=config.client_id,
            retry_wait_s=config.retry_backoff_ms / 1_000,
        )
        self._commit_identity = GroupCommitIdentity(self)
        self._committer = Committer(
            self._coordinator, config, identity=self._commit_identity, on_untold=on_failure
        )
        self.driver = self._make_driver(cluster)
        self._subscription = Subscription()
        self._wake_up = WakeUp()
        self._serving: MembershipTask | None = None
        self._leaving = trio.Lock()
        self._is_commit_due = False

    def _make_driver(self, cluster: Cluster) -> MembershipDriver:
        if self._config.group_protocol == "classic":
            return ClassicMembership(
                coordinator=self._coordinator,
                cluster=cluster,
                config=self._config,
                handover=self.handover,
                settle_commits=self._settle_commits,
            )
        # The member chooses its id itself and keeps it as long as it lives (KIP-1082).
        member = ConsumerProtocolMember(self._coordinator.key, str(uuid4()), self._config)
        return ConsumerMembership(
            member,
            coordinator=self._coordinator,
            cluster=cluster,
            config=self._config,
            handover=self.handover,
            settle_commits=self._settle_commits,
        )

    # Called by the consumer.

    @property
    def topics(self) -> frozenset[str] | None:
        """Topics whose metadata the consumer needs. None means all topics, because the subscription
        contains a pattern that may match any of them."""
        return self._subscription.topics_to_know

    @property
    def subscription(self) -> Subscription:
        """The current subscription. `bool(subscription)` is False if the consumer has not
        subscribed."""
        return self._subscription

    @property
    def is_subscribed(self) -> bool:
        """True if the consumer has subscribed, so that the group assigns its partitions."""
        return bool(self._subscription)

    def subscribe(self, subscription: Subscription) -> None:
        """Join the group with a subscription, or replace the subscription."""
        self.driver.subscribe(subscription)
        self._subscription = subscription
        self.handover.has_polled = True
        self._wake_up.set()

    @property
    def coordinator_address(self) -> str | None:
        """Address of the coordinator as `host:port`, or None if the coordinator is unknown."""
        return self._coordinator.address

    @property
    def measures(self) -> CoordinatorMeasures:
        """Measurements of commits and rebalances, for client metrics."""
        return self._coordinator.measures

    def identity(self) -> dict[str, str]:
        """Return the resource attributes that KIP-714 defines for group members: the ids of the
        group and of the member."""
        config = self._config
        found = {"group_id": self._coordinator.key}
        if config.group_instance_id is not None:
            found["group_instance_id"] = config.group_instance_id
        if self.is_subscribed and self.driver.member_id:
            found["group_member_id"] = self.driver.member_id
        return found

    def on_poll(self) -> None:
        """Record that the application has polled. All records that it received earlier count as
        processed."""
        # This runs for every record of an iterator, so it does not read the clock.
        handover = self.handover
        handover.has_polled = True
        handover.has_lost_records = False
        if handover.is_held:
            handover.begin()
        elif self._is_commit_due:
            self._is_commit_due = not self._config.auto_commit_interval_ms
            self._committer.submit(self.processed(), is_watched=True)

    def on_metadata(self) -> None:
        """Handle a change of the topics, or of their partitions, in the client's metadata."""
        if self.is_subscribed:
            self.driver.on_metadata()

    def processed(self) -> dict[TopicPartition, Committed]:
        """Return the positions after all processed records, by partition. They may be committed
        now."""
        found: dict[TopicPartition, Committed] = {}
        for at in self._positions:
            position = self._positions.place(at).position
            if position is not None:
                found[at] = Committed(position.offset, position.epoch)
        return found

    def commit(self, offsets: Offsets, *, is_awaited: bool) -> PendingCommit:
        """Enqueue a commit behind all commits that were requested earlier, and return it."""
        is_late = self.handover.has_lost_records
        return self._committer.submit(offsets, is_watched=is_awaited, is_late=is_late)

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """Return the committed offsets of the group."""
        wanted = tuple(partitions)
        if not wanted:
            await trio.lowlevel.checkpoint()
            return {}
        with trio.move_on_after(self._config.default_api_timeout_ms / 1_000):
            while True:
                reader = self.driver.reader() if self.is_subscribed else NO_MEMBER
                try:
                    return await self._fetch(wanted, reader)
                except RefusedError as error:
                    if reader == NO_MEMBER or not await self.driver.may_repeat(error.code, reader):
                        raise
        raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, "the group's offsets are not known")

    async def _fetch(
        self, wanted: tuple[TopicPartition, ...], reader: Membership
    ) -> dict[TopicPartition, Committed]:
        return await self._coordinator.until_it_answers(
            lambda: fetch_offsets(
                self._coordinator,
                wanted,
                member=reader,
                # As in Java, at any isolation level: a program that commits offsets in transactions
                # would read and copy the records of a transaction in progress again.
                require_stable=True,
            ),
            self._config.default_api_timeout_ms / 1_000,
        )

    async def leave(self, *, has_processed: bool) -> None:
        """Leave the group and remove all partitions from the assignment.

        With automatic commits and `has_processed`, processed records are committed first. The call
        takes at most about `LEAVE_PATIENCE_S` seconds, even if the coordinator does not respond.
        """
        if self.handover.is_in_listener:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "a callback cannot leave the group")
        try:
            async with self._leaving:
                await self._leave(has_processed=has_processed)
        finally:
            self._wake_up.set()

    async def _leave(self, *, has_processed: bool) -> None:
        try:
            await self._stop_serving()
            if has_processed:
                await self._give_back()
            if self.is_subscribed:
                with trio.move_on_after(LEAVE_PATIENCE_S):
                    await self.driver.leave()
                self._subscription = Subscription()
                self.driver.drop()
        finally:
            await self._coordinator.forget()

    async def _stop_serving(self) -> None:
        """Cancel the task that maintains the membership, and wait until it has ended. At most one
        such task may wait for the application."""
        if self._serving is not None:
            self._serving.scope.cancel()
            with trio.move_on_after(LEAVE_PATIENCE_S):
                await self._serving.ended.wait()
        # A join that waits at the coordinator would block the requests behind it.
        await self._coordinator.forget_unanswered()

    async def _give_back(self) -> None:
        with trio.move_on_after(LEAVE_PATIENCE_S):
            await self._settle_commits()
        if self.is_subscribed:
            async with self.handover.held(is_app_done=True):
                await self.handover.revoke(tuple(self._positions))
            with trio.move_on_after(LEAVE_PATIENCE_S):
                await self._committer.settled()

    # Background tasks.

    async def commit_on(self) -> NoReturn:
        """Send requested commits until cancelled. The consumer runs this method in the
        background."""
        async with trio.open_nursery() as nursery:
            if self._config.enable_auto_commit:
                nursery.start_soon(self._note_due_commits)
            await self._committer.run()

    async def _note_due_commits(self) -> None:
        while self._config.auto_commit_interval_ms:
            await trio.sleep(self._config.auto_commit_interval_ms / 1_000)
            self._is_commit_due = True
        self._is_commit_due = True

    async def run(self) -> NoReturn:
        """Maintain the group membership while the consumer has a subscription, until cancelled."""
        while True:
            while not self.is_subscribed or self._leaving.locked():
                await self._wake_up.wait()
            serving = self._serving = MembershipTask()
            try:
                with serving.scope:
                    await self.driver.serve()
            except RefusedError as error:
                self._on_failure(error)
                self._subscription = Subscription()
                self.driver.drop()
                await self.handover.notify_lost()
                self.handover.end()
            finally:
                self._serving = None
                serving.ended.set()

    async def _settle_commits(self) -> None:
        """Wait until all commits have succeeded or failed. With automatic commits, commit processed
        records first."""
        if self._config.enable_auto_commit:
            self._committer.submit(self.processed(), is_watched=True)
        await self._committer.settled()
