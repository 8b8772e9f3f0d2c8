"""Membership in a share group: the task that sends a member's heartbeats.

The task never waits for the application. A member therefore remains in the group even if the
application processes a record for a long time.
"""

from collections.abc import Callable
from contextlib import suppress

import trio

from ottla.client.groups.coordinator import Coordinator
from ottla.client.groups.group_member import Step
from ottla.client.network.background import WakeUp, now_ms
from ottla.client.network.connection import ConnectionLostError
from ottla.client.share.share_member import ShareGroupMember
from ottla.client.share.share_session import NO_SHARE_GROUPS
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.settings.share_client import ShareConsumerConfig
from ottla.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

LEAVE_PATIENCE_S = 2.0


class ShareMembership:
    """Membership of one share consumer in its group."""

    def __init__(
        self,
        member: ShareGroupMember,
        *,
        coordinator: Coordinator,
        config: ShareConsumerConfig,
        on_assigned: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.member = member
        self.coordinator = coordinator
        self._config = config
        self._on_assigned = on_assigned
        """Function to call after the assignment has changed."""
        self._on_failure = on_failure
        self._wake_up = WakeUp()
        self._due_ms = 0
        self._is_leaving = False
        self._is_joined = False

    def identity(self) -> dict[str, str]:
        """Return the labels that identify the group and the member in client metrics (KIP-714)."""
        return {"group_id": self.member.group_id, "group_member_id": self.member.member_id}

    def wake(self) -> None:
        """Send a heartbeat now, because the subscription has changed."""
        self._wake_up.set()

    async def run(self) -> None:
        """Maintain the group membership while the consumer has a subscription, until cancelled."""
        while True:
            member = self.member
            if not member.topics or self._is_leaving:
                await self._wake_up.wait()
            elif member.is_heartbeat_due or now_ms() >= self._due_ms:
                await self._send_heartbeat()
            else:
                await self._wake_up.wait(self._due_ms)

    async def leave(self) -> None:
        """Leave the group. If the request is lost, the coordinator removes the member after the
        session timeout."""
        self._is_leaving = True
        if not self._is_joined:
            return
        with (
            suppress(ConnectionLostError, RefusedError, ProtocolError),
            trio.move_on_after(LEAVE_PATIENCE_S),
        ):
            await self.coordinator.request(
                self.member.leave_request(),
                ShareGroupHeartbeatResponse,
                timeout_s=LEAVE_PATIENCE_S,
            )

    async def _send_heartbeat(self) -> None:
        member = self.member
        self._is_joined = True
        try:
            answer = await self.coordinator.request(
                member.heartbeat_request(),
                ShareGroupHeartbeatResponse,
                timeout_s=self._config.request_timeout_ms / 1_000,
            )
            before = member.assignment
            step = member.on_answer(answer)
        except (ConnectionLostError, ProtocolError):
            member.on_no_answer()
            await self._pause()
            return
        except RefusedError as error:
            member.on_no_answer()
            if not error.is_retriable:
                self._on_failure(self._explained(error))
                member.subscribe(())
            await self._pause()
            return
        self._due_ms = now_ms() + member.heartbeat_interval_ms
        if member.assignment != before:
            self._on_assigned()
        if step is not Step.GO_ON:
            if step is Step.FIND_COORDINATOR:
                await self.coordinator.forget()
            await self._pause()

    def _explained(self, error: RefusedError) -> RefusedError:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return RefusedError(error.code, f"{NO_SHARE_GROUPS} ({error.message})")
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return RefusedError(
                error.code,
                f"{self.member.group_id!r} is a group of another type; choose another group.id "
                f"({error.message})",
            )
        return error

    async def _pause(self) -> None:
        await trio.sleep(self._config.retry_backoff_ms / 1_000)
        self._due_ms = 0
