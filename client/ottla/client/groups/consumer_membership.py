"""Membership in a group by the consumer protocol (KIP-848): sends heartbeats and reacts to their
responses.

Two tasks share one `ConsumerProtocolMember`. The first task sends heartbeats and never waits for
the application. The second task revokes and assigns partitions whenever it can notify the
application.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from uuid import UUID

import trio

from ottla.client.groups.consumer_member import Assignment, ConsumerProtocolMember, MembershipState
from ottla.client.groups.coordinator import Coordinator
from ottla.client.groups.group_member import NO_MEMBER, Membership, Step
from ottla.client.groups.handover import Handover
from ottla.client.groups.subscription import Subscription
from ottla.client.network.background import WakeUp, now_ms, open_background
from ottla.client.network.cluster import Cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse


class ConsumerMembership:
    """Membership of one consumer in a group of the consumer protocol."""

    def __init__(
        self,
        member: ConsumerProtocolMember,
        *,
        coordinator: Coordinator,
        cluster: Cluster,
        config: ConsumerConfig,
        handover: Handover,
        settle_commits: Callable[[], Awaitable[None]],
    ) -> None:
        self.loss_count = 0
        self.member = member
        self.subscription = Subscription()
        self._coordinator = coordinator
        self._cluster = cluster
        self._config = config
        self._handover = handover
        self._settle_commits = settle_commits
        self._wake_up = WakeUp()
        self._work = WakeUp()
        self._answered = trio.lowlevel.ParkingLot()
        self._heartbeat_at_ms = 0

    # Called by the group.

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the current subscription of the member."""
        self.subscription = subscription
        self.on_metadata()

    @property
    def member_id(self) -> str:
        """Member id, which the client generates itself."""
        return self.member.member_id

    def on_metadata(self) -> None:
        """Update the topics that the subscription's pattern matches, and wake tasks that wait for
        the name of a topic."""
        remote = self.subscription.remote_regex
        names = None if remote is not None else self.subscription.names(self._cluster.topics)
        self.member.subscribe(names, remote)
        self._wake_up.set()
        self._work.set()

    def membership(self) -> Membership:
        """Return the ids under which offsets are committed: member and member epoch.

        Raises RefusedError if the member has no member epoch.
        """
        if not self.member.is_in_group:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has removed this member")
        member = self.member
        return Membership(member.member_epoch, member.member_id, self._config.group_instance_id)

    def reader(self) -> Membership:
        """Return the group membership under which committed offsets are fetched."""
        return self.membership() if self.member.is_in_group else NO_MEMBER

    async def may_repeat(self, code: ErrorCode, membership: Membership) -> bool:
        """Return whether the client should repeat a request that the coordinator refused with the
        error code `code`.

        Returns True only if the present member epoch is newer than the epoch in `membership`, under
        which the request was sent. Waits for a newer epoch after STALE_MEMBER_EPOCH.
        """
        await trio.lowlevel.checkpoint()
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self._make_heartbeat_due()
        if code != ErrorCode.STALE_MEMBER_EPOCH:
            return False
        while self.member.is_in_group and self.member.member_epoch == membership.generation_id:
            self._make_heartbeat_due()
            await self._answered.park()
            if self.member.member_epoch == membership.generation_id:
                await trio.sleep(self._config.retry_backoff_ms / 1_000)
        return self.member.is_in_group

    async def leave(self) -> None:
        """Leave the group.  A static member leaves only temporarily."""
        if self.member.is_in_group or self.member.state is MembershipState.JOINING:
            # If the request is lost, the coordinator removes the member when its session times out.
            with suppress(ConnectionLostError, RefusedError, ProtocolError):
                await self._coordinator.request(
                    self.member.leave_request(),
                    ConsumerGroupHeartbeatResponse,
                    timeout_s=self._config.request_timeout_ms / 1_000,
                )

    def drop(self) -> None:
        """Discard the member epoch, and remove all partitions from the assignment."""
        self.member.on_left()
        self._lose()

    # Background tasks.

    async def serve(self) -> None:
        """Maintain the consumer's group membership until cancelled. Raises permanent errors."""
        if self.subscription.topics_to_know is None:
            await self._learn_topics()
        self.member.join()
        async with open_background() as nursery:
            nursery.start_soon(self._change_hands)
            await self._send_heartbeats()

    async def _learn_topics(self) -> None:
        while True:
            try:
                await self._cluster.metadata(None)
                break
            except (ConnectionLostError, ProtocolError):
                await trio.sleep(self._config.retry_backoff_ms / 1_000)
        self.on_metadata()

    async def _send_heartbeats(self) -> None:
        while True:
            if self.member.state in (MembershipState.FENCED, MembershipState.STALE):
                await self._wake_up.wait()
                continue
            if self._handover.silent_ms() > self._config.poll_interval_ms_max:
                await self.leave()
                self.member.on_left(is_stale=True)
                self._lose()
            elif self.member.is_heartbeat_due or now_ms() >= self._heartbeat_at_ms:
                await self._send_heartbeat()
            else:
                await self._wake_up.wait(self._heartbeat_at_ms)

    async def _send_heartbeat(self) -> None:
        try:
            answer = await self._coordinator.request(
                self.member.heartbeat_request(),
                ConsumerGroupHeartbeatResponse,
                timeout_s=self._config.request_timeout_ms / 1_000,
            )
        except (ConnectionLostError, ProtocolError):
            self.member.on_no_answer()
            await self._pause()
            return
        except RefusedError as error:
            # Either no broker could be asked for the coordinator, or the coordinator does not
            # support the request.
            if not error.is_retriable:
                raise
            self.member.on_no_answer()
            await self._pause()
            return
        step = self.member.on_answer(answer)
        self._heartbeat_at_ms = now_ms() + self.member.heartbeat_interval_ms
        self._answered.unpark_all()
        if step is Step.JOIN_AGAIN:
            self._lose()
        elif step is not Step.GO_ON:
            if step is Step.FIND_COORDINATOR:
                await self._coordinator.forget()
            await self._pause()
        elif self.member.state is MembershipState.RECONCILING:
            self._work.set()

    async def _pause(self) -> None:
        await trio.sleep(self._config.retry_backoff_ms / 1_000)
        self._heartbeat_at_ms = 0

    def _make_heartbeat_due(self) -> None:
        self._heartbeat_at_ms = 0
        self._wake_up.set()

    def _lose(self) -> None:
        """Remove all partitions from the assignment at once, because other members may own them
        already."""
        self.loss_count += 1
        self._handover.lose()
        self._answered.unpark_all()
        self._work.set()

    async def _change_hands(self) -> None:
        """Notify the application of lost partitions, then revoke and add partitions until the
        member owns its target assignment."""
        while True:
            await self._work.wait()
            if self.member.state in (MembershipState.FENCED, MembershipState.STALE):
                await self._handover.notify_lost()
                if self.member.state is MembershipState.STALE:
                    await self._handover.next_poll()
                self.member.join()
                self._wake_up.set()
            while self.member.state is MembershipState.RECONCILING:
                await self._reconcile()

    async def _reconcile(self) -> None:
        names = await self._names_of_target()
        if self.member.next_owned(names) == self.member.owned:
            # The brokers do not know the topic yet, or it was deleted.
            await trio.sleep(self._config.retry_backoff_ms / 1_000)
            return
        loss_count, began_s = self.loss_count, trio.current_time()
        async with self._handover.held():
            if self.loss_count != loss_count:
                return
            owned = self.member.next_owned(names)
            gone = _partitions(self.member.owned, names) - _partitions(owned, names)
            if gone:
                await self._settle_commits()
                await self._handover.revoke(at for _, at in gone)
                await self._settle_commits()
            if self.loss_count == loss_count:
                await self._handover.give(at for _, at in _partitions(owned, names))
            if self.loss_count == loss_count:
                self.member.on_reconciled(owned)
                self._coordinator.measures.note_rebalance(trio.current_time() - began_s)
                self._wake_up.set()

    async def _names_of_target(self) -> dict[UUID, str]:
        """Return the known names, by topic id, of the topics that are being read or are in the
        target assignment."""
        unknown = [one for one in self.member.target if one not in self._cluster.names]
        if unknown:
            with suppress(ConnectionLostError, ProtocolError):
                await self._cluster.learn_names(unknown)
        known = self._cluster.names
        return {
            topic_id: known[topic_id]
            for topic_id in (*self.member.owned, *self.member.target)
            if topic_id in known
        }


def _partitions(assignment: Assignment, names: dict[UUID, str]) -> set[tuple[UUID, TopicPartition]]:
    return {
        (topic_id, TopicPartition(names[topic_id], index))
        for topic_id, indexes in assignment.items()
        if topic_id in names
        for index in indexes
    }
