"""A consumer's place in a group: what it wants, what it may hand out, what it commits.

Which protocol it takes part by is `group.protocol`: `classic_membership.py` or, where the
coordinator shares out, `consumer_membership.py` (KIP-848).  Both change what the application reads
only while it waits for records, so what was handed out before is processed (at least once).
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
from ottla.client.network.background import Bell
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
"""Answers to a member that the group went on without; it finds its way back by itself."""


class MembershipDriver(Protocol):
    """A membership by one of the protocols."""

    @property
    def tenure(self) -> int:
        """How often all it had was lost or given back."""
        ...

    @property
    def member_id(self) -> str:
        """Its id in the group; empty before it has one."""
        ...

    def subscribe(self, subscription: Subscription) -> None:
        """Want this from now on."""
        ...

    def on_metadata(self) -> None:
        """What is known of topics has changed."""
        ...

    def membership(self) -> Membership:
        """Return as whom to commit; RefusedError when it is nobody at present."""
        ...

    def reader(self) -> Membership:
        """Return as whom to fetch offsets."""
        ...

    async def may_repeat(self, code: ErrorCode, membership: Membership) -> bool:
        """Say, once it is known, whether a refused request is worth repeating."""
        ...

    async def serve(self) -> None:
        """Take part until cancelled."""
        ...

    async def leave(self) -> None:
        """Say that it goes."""
        ...

    def drop(self) -> None:
        """It is in no group any more, and has nothing."""
        ...


class Serving:
    """A membership's task: how to end it, and its end."""

    __slots__ = ("ended", "scope")

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.ended = trio.Event()


class Tenancy:
    """As whom to commit: as a member where the group assigns, else as nobody in particular."""

    def __init__(self, group: "Group") -> None:
        self._group = group

    @property
    def tenure(self) -> int:
        """How often all it had was lost or given back."""
        return self._group.driver.tenure

    def membership(self) -> Membership:
        """Return as whom to commit; RefusedError when it is nobody at present."""
        return self._group.driver.membership() if self._group.is_subscribed else NO_MEMBER

    async def may_repeat(self, code: ErrorCode, membership: Membership) -> bool:
        """Say, once it is known, whether a refused request is worth repeating."""
        if not self._group.is_subscribed:
            return False
        return await self._group.driver.may_repeat(code, membership)


class Group:
    """One consumer's place in its group."""

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
        self._tenancy = Tenancy(self)
        self._committer = Committer(
            self._coordinator, config, tenant=self._tenancy, on_untold=on_failure
        )
        self.driver = self._make_driver(cluster)
        self._subscription = Subscription()
        self._bell = Bell()
        self._serving: Serving | None = None
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
        # The member chooses its id itself, and keeps it as long as it lives (KIP-1082).
        member = ConsumerProtocolMember(self._coordinator.key, str(uuid4()), self._config)
        return ConsumerMembership(
            member,
            coordinator=self._coordinator,
            cluster=cluster,
            config=self._config,
            handover=self.handover,
            settle_commits=self._settle_commits,
        )

    # What the consumer tells it.

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics to know of; None for all of them (a pattern may match any)."""
        return self._subscription.topics_to_know

    @property
    def is_subscribed(self) -> bool:
        """Whether the group decides what is read."""
        return bool(self._subscription)

    def subscribe(self, subscription: Subscription) -> None:
        """Take part with what this stands for."""
        self.driver.subscribe(subscription)
        self._subscription = subscription
        self.handover.has_polled = True
        self._bell.ring()

    @property
    def coordinator_address(self) -> str | None:
        """Where its coordinator was found; None before that, and when it is looked for again."""
        return self._coordinator.address

    @property
    def measures(self) -> CoordinatorMeasures:
        """Commits and rebalances."""
        return self._coordinator.measures

    def identity(self) -> dict[str, str]:
        """Return group and member by KIP-714's names of resource attributes."""
        config = self._config
        found = {"group_id": self._coordinator.key}
        if config.group_instance_id is not None:
            found["group_instance_id"] = config.group_instance_id
        if self.is_subscribed and self.driver.member_id:
            found["group_member_id"] = self.driver.member_id
        return found

    def on_poll(self) -> None:
        """The application asks for records: what it was given before is processed."""
        # This is done for every record of an iterator: nothing here looks at the clock.
        handover = self.handover
        handover.has_polled = True
        if handover.is_held:
            handover.begin()
        elif self._is_commit_due:
            self._is_commit_due = not self._config.auto_commit_interval_ms
            self._committer.submit(self.processed(), is_watched=True)

    def on_metadata(self) -> None:
        """What is known of topics has changed."""
        if self.is_subscribed:
            self.driver.on_metadata()

    def processed(self) -> dict[TopicPartition, Committed]:
        """Return the positions as they may be committed now."""
        found: dict[TopicPartition, Committed] = {}
        for at in self._positions:
            position = self._positions.place(at).position
            if position is not None:
                found[at] = Committed(position.offset, position.epoch)
        return found

    def commit(self, offsets: Offsets, *, is_awaited: bool) -> PendingCommit:
        """Commit behind all commits that were asked for before."""
        return self._committer.submit(offsets, is_watched=is_awaited)

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """Return what the group has committed."""
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
                is_read_committed=self._config.isolation_level == "read_committed",
            ),
            self._config.default_api_timeout_ms / 1_000,
        )

    async def leave(self, *, has_processed: bool) -> None:
        """Leave, having committed what is processed if that is automatic; then read nothing.

        It ends within some `LEAVE_PATIENCE_S`, whatever the coordinator does.
        """
        if self.handover.is_in_listener:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "a callback cannot leave the group")
        try:
            async with self._leaving:
                await self._leave(has_processed=has_processed)
        finally:
            self._bell.ring()

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
        """Cancel the membership's task and wait for its end: only one may hold the application."""
        if self._serving is not None:
            self._serving.scope.cancel()
            with trio.move_on_after(LEAVE_PATIENCE_S):
                await self._serving.ended.wait()
        # A join that is held at the coordinator would hold what is sent behind it.
        await self._coordinator.forget_unanswered()

    async def _give_back(self) -> None:
        with trio.move_on_after(LEAVE_PATIENCE_S):
            await self._settle_commits()
        if self.is_subscribed:
            async with self.handover.held(is_app_done=True):
                await self.handover.revoke(tuple(self._positions))
            with trio.move_on_after(LEAVE_PATIENCE_S):
                await self._committer.settled()

    # Behind the scenes.

    async def commit_on(self) -> NoReturn:
        """Send commits; the consumer runs it."""
        async with trio.open_nursery() as nursery:
            if self._config.enable_auto_commit:
                nursery.start_soon(self._tell_the_time)
            await self._committer.run()

    async def _tell_the_time(self) -> None:
        while self._config.auto_commit_interval_ms:
            await trio.sleep(self._config.auto_commit_interval_ms / 1_000)
            self._is_commit_due = True
        self._is_commit_due = True

    async def run(self) -> NoReturn:
        """Take part whenever that is wanted, until cancelled."""
        while True:
            while not self.is_subscribed or self._leaving.locked():
                await self._bell.wait()
            serving = self._serving = Serving()
            try:
                with serving.scope:
                    await self.driver.serve()
            except RefusedError as error:
                self._on_failure(error)
                self._subscription = Subscription()
                self.driver.drop()
                await self.handover.tell_lost()
                self.handover.end()
            finally:
                self._serving = None
                serving.ended.set()

    async def _settle_commits(self) -> None:
        """Commit what is processed, if that is automatic, and wait for all other commits."""
        if self._config.enable_auto_commit:
            self._committer.submit(self.processed(), is_watched=True)
        await self._committer.settled()
