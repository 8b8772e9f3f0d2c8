"""Membership in a group by the classic protocol: join, sync, heartbeats, and the assignment of
partitions.

An eager member gives up all partitions before it joins again. A cooperative member (KIP-429)
continues to read. It gives up only the partitions that are no longer in its assignment, and then
triggers another rebalance.
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
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.sync_group_response import SyncGroupResponse

JOIN_PATIENCE_MS = 5_000
"""Time in ms that a member waits for the response to JoinGroup, in addition to the rebalance
timeout. The slowest member may use the whole rebalance timeout."""
LEAVE_PATIENCE_S = 2.0
OVERTAKEN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})
"""Error codes of a commit that was still in flight when the group started its next generation."""


class ClassicMembership:
    """Membership of one consumer in a group of the classic protocol."""

    def __init__(
        self,
        *,
        coordinator: Coordinator,
        cluster: Cluster,
        config: ConsumerConfig,
        handover: Handover,
        settle_commits: Callable[[], Awaitable[None]],
    ) -> None:
        self.loss_count = 0
        self.subscription = Subscription()
        self._cluster = cluster
        self._config = config
        self._member = GroupMember(coordinator.key, config)
        self._coordinator = coordinator
        self._handover = handover
        self._settle_commits = settle_commits
        self._wake_up = handover.wake_up
        self._entered = trio.lowlevel.ParkingLot()
        self._joined_topics: frozenset[str] = frozenset()
        self._group_topics: frozenset[str] = frozenset()
        """Topics that any member subscribed to at the last join, if this member is the leader."""
        self._joined_with: dict[str, int] = {}
        """Partition count of each subscribed topic at the last join. Topics that did not exist are
        absent."""
        self._is_due = False
        self._is_joining = False
        self._is_stale = False

    # Called by the group.

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the current subscription of the member."""
        if subscription.remote_regex is not None:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, "a SubscriptionPattern needs group.protocol=consumer"
            )
        self.subscription = subscription
        self._rejoin()

    @property
    def member_id(self) -> str:
        """Member id that the coordinator has assigned. Empty before the first join."""
        return self._member.member_id

    def on_metadata(self) -> None:
        """Join the group again if the subscribed topics or their partition counts have changed
        since the last join."""
        if self._member.generation_id == NO_GENERATION:
            return
        if self.subscription.names(self._cluster.topics) != self._joined_topics or (
            self._member.is_leader and self._counts(self._group_topics) != self._joined_with
        ):
            self._rejoin()

    def membership(self) -> Membership:
        """Return the ids under which offsets are committed: group generation and member.

        Raises RefusedError(ILLEGAL_GENERATION) if the group has removed the member.
        """
        if self._member.generation_id == NO_GENERATION:
            # A commit without a member id would be accepted, although other members own the
            # partitions.
            raise RefusedError(ErrorCode.ILLEGAL_GENERATION, "the group has removed this member")
        return self._member.membership

    def reader(self) -> Membership:
        """Return the group membership under which committed offsets are fetched. In the classic
        protocol, it contains no member id."""
        return Membership()

    async def may_repeat(self, code: ErrorCode, membership: Membership) -> bool:
        """Return whether the client should repeat a commit, under the current generation, that the
        coordinator refused with `code`.

        Waits until a join in progress has ended.
        """
        await trio.lowlevel.checkpoint()
        loss_count = self.loss_count
        if code in OVERTAKEN:
            while self._is_joining and self.loss_count == loss_count:
                await self._entered.park()
            if self.loss_count != loss_count:
                return False
            if self._member.membership != membership:
                return self._member.is_cooperative
        if code in (*OVERTAKEN, ErrorCode.UNKNOWN_MEMBER_ID):
            self._take_code(code)
            self._rejoin()
        return False

    async def leave(self, reason: str = "the consumer was closed") -> None:
        """Leave the group. A static member sends no LeaveGroup request, so that its session
        survives a restart."""
        if self._config.group_instance_id is None and self._member.member_id:
            # If the request is lost, the coordinator removes the member when its session times out.
            with suppress(ConnectionLostError, RefusedError):
                await self._coordinator.request(
                    self._member.leave_request(reason),
                    LeaveGroupResponse,
                    timeout_s=LEAVE_PATIENCE_S,
                )

    def drop(self) -> None:
        """Discard the member id and the generation, and remove all partitions from the
        assignment."""
        self._member.forget(is_expelled=True)
        self._lose()

    # Background tasks.

    async def serve(self) -> None:
        """Maintain the consumer's group membership until cancelled. Raises permanent errors."""
        while True:
            try:
                await self._handover.notify_lost()
                if self._is_stale:
                    await self._handover.next_poll()
                    self._is_stale = False
                began_s = trio.current_time()
                if self._member.is_cooperative:
                    await self._join_cooperatively()
                else:
                    await self._join_eagerly()
                self._coordinator.measures.note_rebalance(trio.current_time() - began_s)
                await self._stay_member()
            except (ConnectionLostError, ProtocolError):
                await trio.sleep(self._config.retry_backoff_ms / 1_000)

    async def _join_eagerly(self) -> None:
        async with self._handover.held():
            if self._member.generation_id != NO_GENERATION:
                await self._while_sending_heartbeats(self._give_all_back)
            self.loss_count += 1
            await self._handover.notify_lost()
            await self._enter()
            await self._while_sending_heartbeats(
                lambda: self._handover.give(self._member.assignment)
            )

    async def _give_all_back(self) -> None:
        await self._settle_commits()
        await self._handover.revoke(tuple(self._handover.positions))
        await self._settle_commits()

    async def _join_cooperatively(self) -> None:
        await self._enter()
        if set(self._handover.positions) != set(self._member.assignment):
            await self._while_sending_heartbeats(self._change_hands)

    async def _change_hands(self) -> None:
        """Revoke partitions that are no longer assigned to this member, and add newly assigned
        partitions."""
        loss_count = self.loss_count
        async with self._handover.held():
            if self.loss_count != loss_count:
                return
            gone = set(self._handover.positions) - set(self._member.assignment)
            if gone:
                await self._settle_commits()
                await self._handover.revoke(gone)
                await self._settle_commits()
                self._is_due = True  # Join once more: the new owners may have the partitions now.
            if self.loss_count == loss_count:
                await self._handover.give(self._member.assignment)

    async def _enter(self) -> None:
        """Send JoinGroup and SyncGroup, repeatedly if necessary, until the member has an
        assignment."""
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
            self._group_topics = self._member.subscribed_topics
            await self._cluster.metadata(self._group_topics)
            self._joined_with = self._counts(self._group_topics)
        return self._after(
            self._member.on_synced(
                await self._coordinator.request(
                    self._member.sync_request(self._joined_with, self._racks()),
                    SyncGroupResponse,
                    timeout_s=self._join_patience_s,
                )
            )
        )

    def _racks(self) -> dict[TopicPartition, frozenset[str]]:
        """Return the known racks of the replicas of each partition of the group's topics."""
        topics = self._cluster.topics
        return {
            topics[topic].at[index]: racks
            for topic in self._group_topics
            if topic in topics
            for index, racks in topics[topic].racks.items()
        }

    @property
    def _join_patience_s(self) -> float:
        return (self._config.poll_interval_ms_max + JOIN_PATIENCE_MS) / 1_000

    async def _stay_member(self) -> None:
        """Send heartbeats until the member has to join again and is allowed to."""
        heartbeat_at_ms = now_ms() + self._config.heartbeat_interval_ms
        while self._member.generation_id != NO_GENERATION:
            if self._is_due:
                if self._member.is_cooperative:
                    return
                self._handover.ask()
                if self._handover.is_begun:
                    return
            await self._leave_if_silent()
            now = now_ms()
            if now >= heartbeat_at_ms:
                heartbeat_at_ms = now + self._config.heartbeat_interval_ms
                try:
                    await self._send_heartbeat()
                except (ConnectionLostError, ProtocolError):
                    # The session tolerates a lost heartbeat; the next one looks up the coordinator.
                    await trio.sleep(self._config.retry_backoff_ms / 1_000)
                    heartbeat_at_ms = now_ms()
            else:
                await self._wake_up.wait(heartbeat_at_ms)

    async def _while_sending_heartbeats(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work`, which may wait for the application. Heartbeats are sent until `work`
        returns."""
        async with open_background() as nursery:
            nursery.start_soon(self._send_heartbeats)
            await work()

    async def _send_heartbeats(self) -> None:
        while self._member.generation_id != NO_GENERATION:
            await trio.sleep(self._config.heartbeat_interval_ms / 1_000)
            try:
                await self._leave_if_silent()
                await self._send_heartbeat()
            except (ConnectionLostError, ProtocolError):
                pass  # the next heartbeat looks up the coordinator, or the session times out

    async def _send_heartbeat(self) -> None:
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
        """Remove all partitions from the assignment at once, because other members may own them
        already."""
        self.loss_count += 1
        self._handover.lose()
        self._entered.unpark_all()
        self._wake_up.set()

    def _rejoin(self) -> None:
        self._is_due = True
        self._wake_up.set()

    def _counts(self, topics: Iterable[str]) -> dict[str, int]:
        known = self._cluster.topics
        return {topic: len(known[topic].partitions) for topic in topics if topic in known}
