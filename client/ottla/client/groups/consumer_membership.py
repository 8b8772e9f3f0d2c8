"""A membership by the consumer protocol (KIP-848): heartbeats, and what they ask for is done.

Two tasks share one `ConsumerProtocolMember`: one sends heartbeats and never waits for the
application; the other gives up and takes partitions, when the application may be told.
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
from ottla.client.network.background import Bell, now_ms, open_background
from ottla.client.network.cluster import Cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse


class ConsumerMembership:
    """One consumer's place in a group of the consumer protocol."""

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
        self.tenure = 0
        self.member = member
        self.subscription = Subscription()
        self._coordinator = coordinator
        self._cluster = cluster
        self._config = config
        self._handover = handover
        self._settle_commits = settle_commits
        self._bell = Bell()
        self._work = Bell()
        self._answered = trio.lowlevel.ParkingLot()
        self._beat_ms = 0

    # What the group asks of it.

    def subscribe(self, subscription: Subscription) -> None:
        """Want this from now on."""
        self.subscription = subscription
        self.on_metadata()

    @property
    def member_id(self) -> str:
        """Its id in the group; empty before it has one."""
        return self.member.member_id

    def on_metadata(self) -> None:
        """Say what a pattern matches now; wake who waits for the name of a topic."""
        remote = self.subscription.remote_regex
        names = None if remote is not None else self.subscription.names(self._cluster.topics)
        self.member.subscribe(names, remote)
        self._bell.ring()
        self._work.ring()

    def membership(self) -> Membership:
        """Return as whom to commit."""
        if not self.member.is_in_group:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "the group went on without us")
        member = self.member
        return Membership(member.member_epoch, member.member_id, self._config.group_instance_id)

    def reader(self) -> Membership:
        """Return as whom to fetch offsets."""
        return self.membership() if self.member.is_in_group else NO_MEMBER

    async def may_repeat(self, code: ErrorCode, membership: Membership) -> bool:
        """Return whether a refused request may go again: once a newer epoch is known it may."""
        await trio.lowlevel.checkpoint()
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self._beat_at_once()
        if code != ErrorCode.STALE_MEMBER_EPOCH:
            return False
        while self.member.is_in_group and self.member.member_epoch == membership.generation_id:
            self._beat_at_once()
            await self._answered.park()
            if self.member.member_epoch == membership.generation_id:
                await trio.sleep(self._config.retry_backoff_ms / 1_000)
        return self.member.is_in_group

    async def leave(self) -> None:
        """Leave; a static member is expected back."""
        if self.member.is_in_group or self.member.state is MembershipState.JOINING:
            # Where it is not heard, the session's end tells the others.
            with suppress(ConnectionLostError, RefusedError, ProtocolError):
                await self._coordinator.request(
                    self.member.leave_request(),
                    ConsumerGroupHeartbeatResponse,
                    timeout_s=self._config.request_timeout_ms / 1_000,
                )

    def drop(self) -> None:
        """It is in no group any more, and has nothing."""
        self.member.on_left()
        self._lose()

    # The membership.

    async def serve(self) -> None:
        """Take part until cancelled; errors that it cannot mend are raised."""
        if self.subscription.topics_to_know is None:
            await self._learn_topics()
        self.member.join()
        async with open_background() as nursery:
            nursery.start_soon(self._change_hands)
            await self._beat_on()

    async def _learn_topics(self) -> None:
        while True:
            try:
                await self._cluster.metadata(None)
                break
            except (ConnectionLostError, ProtocolError):
                await trio.sleep(self._config.retry_backoff_ms / 1_000)
        self.on_metadata()

    async def _beat_on(self) -> None:
        while True:
            if self.member.state in (MembershipState.FENCED, MembershipState.STALE):
                await self._bell.wait()
                continue
            if self._handover.silent_ms() > self._config.poll_interval_ms_max:
                await self.leave()
                self.member.on_left(is_stale=True)
                self._lose()
            elif self.member.is_heartbeat_due or now_ms() >= self._beat_ms:
                await self._beat()
            else:
                await self._bell.wait(self._beat_ms)

    async def _beat(self) -> None:
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
            # Nobody could be asked who coordinates, or whoever does cannot read the question.
            if not error.is_retriable:
                raise
            self.member.on_no_answer()
            await self._pause()
            return
        step = self.member.on_answer(answer)
        self._beat_ms = now_ms() + self.member.heartbeat_interval_ms
        self._answered.unpark_all()
        if step is Step.JOIN_AGAIN:
            self._lose()
        elif step is not Step.GO_ON:
            if step is Step.FIND_COORDINATOR:
                await self._coordinator.forget()
            await self._pause()
        elif self.member.state is MembershipState.RECONCILING:
            self._work.ring()

    async def _pause(self) -> None:
        await trio.sleep(self._config.retry_backoff_ms / 1_000)
        self._beat_ms = 0

    def _beat_at_once(self) -> None:
        self._beat_ms = 0
        self._bell.ring()

    def _lose(self) -> None:
        """Whatever it has may be somebody else's by now."""
        self.tenure += 1
        self._handover.lose()
        self._answered.unpark_all()
        self._work.ring()

    async def _change_hands(self) -> None:
        """Tell the application of its losses, and bring what it reads to the target."""
        while True:
            await self._work.wait()
            if self.member.state in (MembershipState.FENCED, MembershipState.STALE):
                await self._handover.tell_lost()
                if self.member.state is MembershipState.STALE:
                    await self._handover.next_poll()
                self.member.join()
                self._bell.ring()
            while self.member.state is MembershipState.RECONCILING:
                await self._reconcile()

    async def _reconcile(self) -> None:
        names = await self._names_of_target()
        if self.member.next_owned(names) == self.member.owned:
            # The topic is so new that the brokers we ask do not know it yet, or it is gone.
            await trio.sleep(self._config.retry_backoff_ms / 1_000)
            return
        tenure, began_s = self.tenure, trio.current_time()
        async with self._handover.held():
            if self.tenure != tenure:
                return
            owned = self.member.next_owned(names)
            gone = _partitions(self.member.owned, names) - _partitions(owned, names)
            if gone:
                await self._settle_commits()
                await self._handover.revoke(at for _, at in gone)
                await self._settle_commits()
            if self.tenure == tenure:
                await self._handover.give(at for _, at in _partitions(owned, names))
            if self.tenure == tenure:
                self.member.on_reconciled(owned)
                self._coordinator.measures.note_rebalance(trio.current_time() - began_s)
                self._bell.ring()

    async def _names_of_target(self) -> dict[UUID, str]:
        """Return the names of the topics that were, or shall be, read, as far as they are known."""
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
