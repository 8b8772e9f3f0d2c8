"""A membership by the classic protocol: joins, syncs, heartbeats, and hands over what it is given.

An eager member gives everything back before it joins again; a cooperative one (KIP-429) reads on,
gives back only what somebody else shall have, and then lets the group rebalance once more.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

import trio

from ottla.client.groups.coordinator import Coordinator
from ottla.client.groups.group_member import GroupMember, Membership, Step
from ottla.client.groups.handover import Handover
from ottla.client.groups.sticky_user_data import NO_GENERATION
from ottla.client.groups.subscription import Subscription
from ottla.client.network.background import now_ms, open_background
from ottla.client.network.cluster import Cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.settings.client import ConsumerConfig
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.sync_group_response import SyncGroupResponse

JOIN_PATIENCE_MS = 5_000
"""A join is answered when the slowest member has joined: wait this much longer than that may be."""
LEAVE_PATIENCE_S = 2.0
OVERTAKEN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})
"""Refusals of a commit that was under way while the group went into its next generation."""


class ClassicMembership:
    """One consumer's place in a group of the classic protocol."""

    def __init__(
        self,
        *,
        coordinator: Coordinator,
        cluster: Cluster,
        config: ConsumerConfig,
        handover: Handover,
        settle_commits: Callable[[], Awaitable[None]],
    ) -> None:
        self.tenure = 0
        self.subscription = Subscription()
        self._cluster = cluster
        self._config = config
        self._member = GroupMember(coordinator.key, config)
        self._coordinator = coordinator
        self._handover = handover
        self._settle_commits = settle_commits
        self._bell = handover.bell
        self._entered = trio.lowlevel.ParkingLot()
        self._joined_topics: frozenset[str] = frozenset()
        self._joined_with: dict[str, int] = {}
        self._is_due = False
        self._is_joining = False
        self._is_stale = False

    # What the group asks of it.

    def subscribe(self, subscription: Subscription) -> None:
        """Want this from now on."""
        if subscription.remote_regex is not None:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, "a SubscriptionPattern needs group.protocol=consumer"
            )
        self.subscription = subscription
        self._rejoin()

    @property
    def member_id(self) -> str:
        """Its id in the group; empty before it has one."""
        return self._member.member_id

    def on_metadata(self) -> None:
        """Join again where the topics, or their partitions, are not those it joined with."""
        if self._member.generation_id == NO_GENERATION:
            return
        if self.subscription.names(self._cluster.topics) != self._joined_topics or (
            self._member.is_leader and self._counts(self._joined_with) != self._joined_with
        ):
            self._rejoin()

    def membership(self) -> Membership:
        """Return as whom to commit."""
        if self._member.generation_id == NO_GENERATION:
            # As nobody in particular it would be let in, past those who have the partitions now.
            raise RefusedError(ErrorCode.ILLEGAL_GENERATION, "the group went on without us")
        return self._member.membership

    def reader(self) -> Membership:
        """Return as whom to fetch offsets: nobody asks for a name."""
        return Membership()

    async def may_repeat(self, code: ErrorCode, membership: Membership) -> bool:
        """Return whether a refused commit may go again, under the generation there is now."""
        await trio.lowlevel.checkpoint()
        tenure = self.tenure
        if code in OVERTAKEN:
            while self._is_joining and self.tenure == tenure:
                await self._entered.park()
            if self.tenure != tenure:
                return False
            if self._member.membership != membership:
                return self._member.is_cooperative
        if code in (*OVERTAKEN, ErrorCode.UNKNOWN_MEMBER_ID):
            self._take_code(code)
            self._rejoin()
        return False

    async def leave(self, reason: str = "the consumer was closed") -> None:
        """Leave; a static member stays, its session outlives a restart."""
        if self._config.group_instance_id is None and self._member.member_id:
            # Where it is not heard, the session's end tells the others.
            with suppress(ConnectionLostError, RefusedError):
                await self._coordinator.request(
                    self._member.leave_request(reason),
                    LeaveGroupResponse,
                    timeout_s=LEAVE_PATIENCE_S,
                )

    def drop(self) -> None:
        """It is in no group any more, and has nothing."""
        self._member.forget(is_expelled=True)
        self._lose()

    # The membership.

    async def serve(self) -> None:
        """Take part until cancelled; errors that it cannot mend are raised."""
        while True:
            try:
                await self._handover.tell_lost()
                if self._is_stale:
                    await self._handover.next_poll()
                    self._is_stale = False
                began_s = trio.current_time()
                if self._member.is_cooperative:
                    await self._join_cooperatively()
                else:
                    await self._join_eagerly()
                self._coordinator.measures.note_rebalance(trio.current_time() - began_s)
                await self._stay()
            except (ConnectionLostError, ProtocolError):
                await trio.sleep(self._config.retry_backoff_ms / 1_000)

    async def _join_eagerly(self) -> None:
        async with self._handover.held():
            if self._member.generation_id != NO_GENERATION:
                await self._while_beating(self._give_all_back)
            self.tenure += 1
            await self._handover.tell_lost()
            await self._enter()
            await self._while_beating(lambda: self._handover.give(self._member.assignment))

    async def _give_all_back(self) -> None:
        await self._settle_commits()
        await self._handover.revoke(tuple(self._handover.positions))
        await self._settle_commits()

    async def _join_cooperatively(self) -> None:
        await self._enter()
        if set(self._handover.positions) != set(self._member.assignment):
            await self._while_beating(self._change_hands)

    async def _change_hands(self) -> None:
        """Give up what is somebody else's now, take what is new."""
        tenure = self.tenure
        async with self._handover.held():
            if self.tenure != tenure:
                return
            gone = set(self._handover.positions) - set(self._member.assignment)
            if gone:
                await self._settle_commits()
                await self._handover.revoke(gone)
                await self._settle_commits()
                self._is_due = True  # who shall have it may have it now
            if self.tenure == tenure:
                await self._handover.give(self._member.assignment)

    async def _enter(self) -> None:
        """Join and sync, as often as it takes."""
        self._is_joining = True
        try:
            while True:
                self._is_due = False
                await self._cluster.metadata(self.subscription.topics_to_know)
                topics = self.subscription.names(self._cluster.topics)
                self._joined_topics = topics
                step = self._after(
                    self._member.on_joined(
                        await self._coordinator.request(
                            self._member.join_request(topics),
                            JoinGroupResponse,
                            timeout_s=self._join_patience_s,
                        )
                    )
                )
                if step is Step.GO_ON:
                    step = await self._sync()
                if step is Step.GO_ON:
                    return
                await self._on_step(step)
        finally:
            self._is_joining = False
            self._entered.unpark_all()

    async def _sync(self) -> Step:
        if self._member.is_leader:
            wanted = self._member.subscribed_topics
            await self._cluster.metadata(wanted)
            self._joined_with = self._counts(wanted)
        return self._after(
            self._member.on_synced(
                await self._coordinator.request(
                    self._member.sync_request(self._joined_with),
                    SyncGroupResponse,
                    timeout_s=self._join_patience_s,
                )
            )
        )

    @property
    def _join_patience_s(self) -> float:
        return (self._config.poll_interval_ms_max + JOIN_PATIENCE_MS) / 1_000

    async def _stay(self) -> None:
        """Send heartbeats until the group must, and may, be joined again."""
        beat_ms = now_ms() + self._config.heartbeat_interval_ms
        while self._member.generation_id != NO_GENERATION:
            if self._is_due:
                if self._member.is_cooperative:
                    return
                self._handover.ask()
                if self._handover.is_begun:
                    return
            await self._leave_if_silent()
            now = now_ms()
            if now >= beat_ms:
                beat_ms = now + self._config.heartbeat_interval_ms
                try:
                    await self._beat()
                except (ConnectionLostError, ProtocolError):
                    # The session bears it; the next heartbeat finds its way.
                    await trio.sleep(self._config.retry_backoff_ms / 1_000)
                    beat_ms = now_ms()
            else:
                await self._bell.wait(beat_ms)

    async def _while_beating(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do what may take the application's time, and stay in the group meanwhile."""
        async with open_background() as nursery:
            nursery.start_soon(self._beat_on)
            await work()

    async def _beat_on(self) -> None:
        while self._member.generation_id != NO_GENERATION:
            await trio.sleep(self._config.heartbeat_interval_ms / 1_000)
            try:
                await self._leave_if_silent()
                await self._beat()
            except (ConnectionLostError, ProtocolError):
                pass  # the next one finds its way, or the session ends

    async def _beat(self) -> None:
        if self._member.generation_id == NO_GENERATION:
            await trio.lowlevel.checkpoint()
            return
        answer = await self._coordinator.request(
            self._member.heartbeat_request(),
            HeartbeatResponse,
            timeout_s=self._config.session_timeout_ms / 1_000,
        )
        step = self._take_code(answer.error_code)
        if step is Step.JOIN_AGAIN:
            self._rejoin()
        elif step is not Step.GO_ON:
            await self._on_step(step)

    async def _leave_if_silent(self) -> None:
        if self._handover.silent_ms() <= self._config.poll_interval_ms_max:
            return
        await self.leave("max.poll.interval.ms passed without a poll")
        self._is_stale = True
        self.drop()

    async def _on_step(self, step: Step) -> None:
        if step is Step.FIND_COORDINATOR:
            await self._coordinator.forget()
        if step is not Step.JOIN_AGAIN:
            await trio.sleep(self._config.retry_backoff_ms / 1_000)

    def _take_code(self, code: int) -> Step:
        return self._after(self._member.on_code(code))

    def _after(self, step: Step) -> Step:
        if self._member.generation_id == NO_GENERATION:
            self._lose()
        return step

    def _lose(self) -> None:
        """Whatever it has may be somebody else's by now."""
        self.tenure += 1
        self._handover.lose()
        self._entered.unpark_all()
        self._bell.ring()

    def _rejoin(self) -> None:
        self._is_due = True
        self._bell.ring()

    def _counts(self, topics: Iterable[str]) -> dict[str, int]:
        known = self._cluster.topics
        return {topic: len(known[topic].partitions) for topic in topics if topic in known}
