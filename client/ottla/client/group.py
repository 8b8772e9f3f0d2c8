"""A consumer's membership in a group, by the classic protocol: joins, heartbeats, commits.

A rebalance begins only while the application waits for records: whatever was handed out before
that counts as processed, so the positions committed then lose nothing (at least once).  While the
group rebalances nothing is handed out; partitions are given back before others may have them.
"""

import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import NoReturn

import trio

from ottla.client.background import Bell, now_ms
from ottla.client.cluster import Cluster
from ottla.client.connection import ConnectionLostError
from ottla.client.coordinator import Coordinator
from ottla.client.group_member import (
    NO_GENERATION,
    NO_MEMBER,
    GroupMember,
    Membership,
    Step,
)
from ottla.client.group_offsets import Committed, commit_offsets, fetch_offsets
from ottla.client.positions import Positions
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.sync_group_response import SyncGroupResponse

JOIN_PATIENCE_MS = 5_000
"""A join is answered when the slowest member has joined: wait this much longer than that may be."""
LEAVE_PATIENCE_S = 2.0

Listener = Callable[[tuple[TopicPartition, ...]], Awaitable[None]]
COMMIT_LOST = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)
"""A commit that came too late: somebody else may have the partitions."""


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
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.is_rebalancing = False
        """Whether nothing may be handed out now."""
        self.is_app_waiting = False
        """Whether the application waits for records: what it was given is processed."""
        self.on_revoked: Listener | None = None
        self.on_given: Listener | None = None
        self._cluster = cluster
        self._positions = positions
        self._config = config
        self._on_assigned = on_assigned
        self._on_failure = on_failure
        self._member = GroupMember(group_id, config)
        self._coordinator = Coordinator(
            cluster,
            group_id,
            client_id=config.client_id,
            retry_wait_s=config.retry_backoff_ms / 1_000,
        )
        self._bell = Bell()
        self._topics: frozenset[str] | None = None
        self._pattern: re.Pattern[str] | None = None
        self._joined_topics: frozenset[str] = frozenset()
        self._joined_with: dict[str, int] = {}
        self._is_due = False
        self._polled_ms = 0
        self._committed_ms = 0
        self._to_commit: dict[TopicPartition, Committed] | None = None

    # What the consumer tells it.

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics to know of; None for all of them (a pattern may match any)."""
        if self._pattern is not None:
            return None
        return self._topics or frozenset()

    @property
    def is_subscribed(self) -> bool:
        """Say whether the group decides what is read."""
        return self._topics is not None or self._pattern is not None

    def subscribe(self, topics: Iterable[str] | None, pattern: re.Pattern[str] | None) -> None:
        """Take part with these topics, or with all whose whole name matches."""
        self._topics = None if topics is None else frozenset(topics)
        self._pattern = pattern
        self._is_due = True
        self._polled_ms = now_ms()
        self._bell.ring()

    def on_poll(self) -> None:
        """The application asks for records: what it was given before is processed."""
        self._polled_ms = now = now_ms()
        if (
            self._config.enable_auto_commit
            and not self.is_rebalancing
            and now - self._committed_ms >= self._config.auto_commit_interval_ms
        ):
            self._committed_ms = now
            self._to_commit = self.processed()
            self._bell.ring()
        if self._is_due:
            self._bell.ring()

    def set_waiting(self) -> None:
        """The application waits for records from now on."""
        self.is_app_waiting = True
        if self._is_due:
            self._bell.ring()

    def on_metadata(self) -> None:
        """Join again where the topics, or their partitions, are not those it joined with."""
        if not self.is_subscribed or self._member.generation_id == NO_GENERATION:
            return
        if self._wanted_topics() != self._joined_topics or (
            self._member.is_leader and self._counts(self._joined_with) != self._joined_with
        ):
            self._is_due = True
            self._bell.ring()

    def processed(self) -> dict[TopicPartition, Committed]:
        """Return the positions as they may be committed now."""
        found: dict[TopicPartition, Committed] = {}
        for at in self._positions:
            position = self._positions.place(at).position
            if position is not None:
                found[at] = Committed(position.offset, position.epoch)
        return found

    async def commit(self, offsets: dict[TopicPartition, Committed]) -> None:
        """Commit and wait until the coordinator has it; RefusedError when it is too late."""
        if not offsets:
            await trio.lowlevel.checkpoint()
            return
        membership = self._committer()
        try:
            await self._coordinator.until_it_answers(
                lambda: commit_offsets(self._coordinator, offsets, membership),
                self._config.default_api_timeout_ms / 1_000,
            )
        except RefusedError as error:
            if error.code in COMMIT_LOST:
                self._member.on_code(error.code)
                self._is_due = True
                self._bell.ring()
            raise

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """Return what the group has committed."""
        wanted = tuple(partitions)
        if not wanted:
            await trio.lowlevel.checkpoint()
            return {}
        return await self._coordinator.until_it_answers(
            lambda: fetch_offsets(
                self._coordinator,
                wanted,
                is_read_committed=self._config.isolation_level == "read_committed",
            ),
            self._config.default_api_timeout_ms / 1_000,
        )

    async def leave(self, *, has_processed: bool) -> None:
        """Leave, with a last commit if that is automatic and all is processed; static ones stay."""
        try:
            if has_processed and self._config.enable_auto_commit and not self.is_rebalancing:
                offsets = self.processed()
                with trio.move_on_after(LEAVE_PATIENCE_S):
                    await self._commit_quietly(offsets)
            if self.is_subscribed and self._config.group_instance_id is None:
                await self._leave("the consumer was closed")
                self._member.forget(is_expelled=True)
            self._topics = self._pattern = None
        finally:
            await self._coordinator.forget()

    # The membership.

    async def run(self) -> NoReturn:
        """Join, and join again whenever that is due, until cancelled."""
        while True:
            while not self.is_subscribed:
                await self._bell.wait()
                await self._commit_waiting()
            try:
                await self._wait_for_app()
                await self._rebalance()
                await self._serve()
            except (ConnectionLostError, ProtocolError):
                await trio.sleep(self._config.retry_backoff_ms / 1_000)
            except RefusedError as error:
                self._on_failure(error)
                self._member.forget(is_expelled=True)
                self.is_rebalancing = False
                self._topics = self._pattern = None

    @property
    def _may_begin(self) -> bool:
        """Whether nothing that was handed out is still being processed."""
        return self.is_app_waiting or not any(True for _ in self._positions)

    async def _wait_for_app(self) -> None:
        while not self._may_begin:
            await self._bell.wait()
        # From here to the end of the rebalance nothing is handed out.
        self.is_rebalancing = True

    async def _rebalance(self) -> None:
        await self._give_back()
        while True:
            self._is_due = False
            await self._cluster.metadata(self.topics)
            topics = self._wanted_topics()
            self._joined_topics = topics
            step = self._member.on_joined(
                await self._coordinator.request(
                    self._member.join_request(topics),
                    JoinGroupResponse,
                    timeout_s=(self._config.poll_interval_ms_max + JOIN_PATIENCE_MS) / 1_000,
                )
            )
            if step is Step.GO_ON:
                step = await self._sync()
            if step is Step.GO_ON:
                break
            await self._on_step(step)
        self._positions.assign(self._member.assignment)
        if self.on_given is not None:
            await self.on_given(self._member.assignment)
        self.is_rebalancing = False
        self._committed_ms = now_ms()
        self._on_assigned()

    async def _sync(self) -> Step:
        if self._member.is_leader:
            wanted = self._member.subscribed_topics
            await self._cluster.metadata(wanted)
            self._joined_with = self._counts(wanted)
        return self._member.on_synced(
            await self._coordinator.request(
                self._member.sync_request(self._joined_with),
                SyncGroupResponse,
                timeout_s=(self._config.poll_interval_ms_max + JOIN_PATIENCE_MS) / 1_000,
            )
        )

    async def _serve(self) -> None:
        """Heartbeat and commit until the group must, and may, be joined again."""
        beat_ms = now_ms() + self._config.heartbeat_interval_ms
        while self._member.generation_id != NO_GENERATION:
            if self._is_due and self._may_begin:
                return
            await self._commit_waiting()
            now = now_ms()
            if self.is_app_waiting:
                self._polled_ms = now
            elif now - self._polled_ms > self._config.poll_interval_ms_max:
                await self._leave("max.poll.interval.ms passed without a poll")
                self._member.forget(is_expelled=True)
                self._is_due = True
                return
            if now >= beat_ms:
                beat_ms = now + self._config.heartbeat_interval_ms
                await self._beat()
            else:
                await self._bell.wait(beat_ms)

    async def _beat(self) -> None:
        answer = await self._coordinator.request(
            self._member.heartbeat_request(),
            HeartbeatResponse,
            timeout_s=self._config.session_timeout_ms / 1_000,
        )
        step = self._member.on_code(answer.error_code)
        if step is Step.JOIN_AGAIN:
            self._is_due = True
        elif step is not Step.GO_ON:
            await self._on_step(step)

    async def _on_step(self, step: Step) -> None:
        if step is Step.FIND_COORDINATOR:
            await self._coordinator.forget()
        if step is not Step.JOIN_AGAIN:
            await trio.sleep(self._config.retry_backoff_ms / 1_000)

    async def _give_back(self) -> None:
        held = tuple(self._positions)
        if held:
            if self._config.enable_auto_commit and self._member.generation_id != NO_GENERATION:
                await self._commit_quietly(self.processed())
            if self.on_revoked is not None:
                await self.on_revoked(held)
        self._to_commit = None
        self._positions.assign(())

    async def _commit_waiting(self) -> None:
        offsets, self._to_commit = self._to_commit, None
        if offsets:
            await self._commit_quietly(offsets)

    async def _commit_quietly(self, offsets: dict[TopicPartition, Committed]) -> None:
        """Commit; when that fails, somebody reads the records again: at least once."""
        try:
            if offsets:
                await commit_offsets(self._coordinator, offsets, self._committer())
        except ConnectionLostError:
            pass
        except RefusedError as error:
            if error.code in COMMIT_LOST:
                self._is_due = True

    def _committer(self) -> Membership:
        if not self.is_subscribed:
            return NO_MEMBER
        if self._member.generation_id == NO_GENERATION:
            # As nobody in particular it would be let in, past those who have the partitions now.
            raise RefusedError(ErrorCode.ILLEGAL_GENERATION, "the group went on without us")
        return self._member.membership

    async def _leave(self, reason: str) -> None:
        if not self._member.member_id:
            return
        # Where it is not heard, the session's end tells the others.
        with suppress(ConnectionLostError, RefusedError):
            await self._coordinator.request(
                self._member.leave_request(reason),
                LeaveGroupResponse,
                timeout_s=LEAVE_PATIENCE_S,
            )

    def _wanted_topics(self) -> frozenset[str]:
        if self._pattern is None:
            return self._topics or frozenset()
        return frozenset(
            name
            for name, topic in self._cluster.topics.items()
            if self._pattern.fullmatch(name) and not topic.is_internal
        )

    def _counts(self, topics: Iterable[str]) -> dict[str, int]:
        known = self._cluster.topics
        return {topic: len(known[topic].partitions) for topic in topics if topic in known}
