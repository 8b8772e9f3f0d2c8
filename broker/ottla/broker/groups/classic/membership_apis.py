"""Handlers of JoinGroup, SyncGroup, Heartbeat and LeaveGroup. Pure.

A handler checks everything that does not depend on the group, and passes the request on to the
coordinator. The coordinator responds at once, when the other members have joined, or when the
records are committed.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ottla.broker.coordinators.answer_collector import AnswerCollector
from ottla.broker.coordinators.effects import MemberClient, Responder
from ottla.broker.groups.classic.rebalance import Join, failed_join
from ottla.broker.groups.group_coordinator import GroupCoordinator
from ottla.broker.groups.group_records import (
    INSTANCE_ID_LENGTH_MAX,
    LISTED_COUNT_MAX,
    TEXT_LENGTH_MAX,
)
from ottla.model.errors import ErrorCode
from ottla.model.settings.groups import GroupConfig
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.node.network.steps import Steps, begun
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from ottla.wire.messages.sync_group_request import SyncGroupRequest
from ottla.wire.messages.sync_group_response import SyncGroupResponse

NULL_PROTOCOL_FROM = 7
"""First version of JoinGroup whose response may contain a null protocol."""

CLIENT_ID_LENGTH_MAX = 1_000
"""Maximum number of characters of a client id that the coordinator stores. A new member id begins
with the client id."""

PROTOCOL_IN_SYNC_FROM = 5
"""First version of SyncGroup that contains the protocol type and name that the member expects
(KIP-559)."""

SEVERAL_LEAVE_FROM = 3
"""First version of LeaveGroup that can name several members (KIP-345)."""


LEAVING_AT_ONCE_MAX = 200
"""Maximum number of members of a group that are removed per event-loop iteration. In a group of the
consumer protocol each removal takes about 50 µs. A larger request is served in steps, each of which
increments the group's epoch."""

ANSWERED_AT_ONCE_MAX = 2_000
"""Maximum number of LeaveGroup response entries that are built per event-loop iteration. Each entry
takes about a microsecond."""


class MembershipApis:
    """Handlers of JoinGroup (versions 0 to 9), SyncGroup (0 to 5), Heartbeat (0 to 4) and
    LeaveGroup (0 to 5)."""

    def __init__(self, config: GroupConfig, coordinator: GroupCoordinator) -> None:
        self._config = config
        self._coordinator = coordinator

    def join(self, context: RequestContext, request: JoinGroupRequest) -> None:
        """Pass a JoinGroup request to the coordinator, which answers it when the member's next
        generation begins."""
        version = context.api_version

        def answer(answer: JoinGroupResponse | ErrorCode) -> None:
            if isinstance(answer, ErrorCode):
                answer = failed_join(answer, request.member_id)
            if answer.protocol_name is None and version < NULL_PROTOCOL_FROM:
                answer.protocol_name = ""
            context.complete(answer)

        config = self._config
        timeout_ms = request.session_timeout_ms
        if not request.group_id:
            answer(ErrorCode.INVALID_GROUP_ID)
        elif not _fits_in_records(request):
            answer(ErrorCode.INVALID_REQUEST)
        elif not config.session_timeout_ms_min <= timeout_ms <= config.session_timeout_ms_max:
            answer(ErrorCode.INVALID_SESSION_TIMEOUT)
        else:
            join = Join(request, version, client_of(context), answer)
            self._coordinator.perform(
                request.group_id, answer, lambda shard, now: shard.join(join, now)
            )

    def sync(self, context: RequestContext, request: SyncGroupRequest) -> None:
        """Pass a SyncGroup request to the coordinator, which answers it when the leader has sent
        the assignment."""

        def answer(answer: SyncGroupResponse | ErrorCode) -> None:
            if isinstance(answer, ErrorCode):
                answer = SyncGroupResponse(error_code=answer)
            context.complete(answer)

        names_protocol = request.protocol_type is not None and request.protocol_name is not None
        if not request.group_id:
            answer(ErrorCode.INVALID_GROUP_ID)
        elif context.api_version >= PROTOCOL_IN_SYNC_FROM and not names_protocol:
            answer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif len(request.assignments) > LISTED_COUNT_MAX:
            answer(ErrorCode.INVALID_REQUEST)
        else:
            self._coordinator.perform(
                request.group_id, answer, lambda shard, now: shard.sync(request, answer, now)
            )

    def heartbeat(self, context: RequestContext, request: HeartbeatRequest) -> None:
        """Pass a Heartbeat request to the coordinator, which answers it at once."""

        def answer(code: ErrorCode) -> None:
            context.complete(HeartbeatResponse(error_code=code))

        if not request.group_id:
            answer(ErrorCode.INVALID_GROUP_ID)
        else:
            self._coordinator.perform(
                request.group_id, answer, lambda shard, now: shard.heartbeat(request, answer, now)
            )

    def leave(self, context: RequestContext, request: LeaveGroupRequest) -> HandlerResult:
        """Remove the members that a LeaveGroup request names from a group. Old request versions
        name one member, and their response has one error code."""
        members = request.members
        is_single = context.api_version < SEVERAL_LEAVE_FROM
        if is_single:
            members = [MemberIdentity(member_id=request.member_id)]

        def answer(answer: Any) -> None:
            if isinstance(answer, ErrorCode):
                context.complete(LeaveGroupResponse(error_code=answer))
            elif is_single:
                context.complete(LeaveGroupResponse(error_code=answer[0]))
            else:
                context.complete(_left(members, answer))

        if not request.group_id:
            answer(ErrorCode.INVALID_GROUP_ID)
        elif len(members) > LISTED_COUNT_MAX:
            answer(ErrorCode.INVALID_REQUEST)
        elif len(members) > LEAVING_AT_ONCE_MAX:
            return begun(self._leave_in_steps(context, request.group_id, members))
        else:
            self._leave(request.group_id, members, answer)
        return None

    def _leave(self, group_id: str, members: list[MemberIdentity], responder: Responder) -> None:
        self._coordinator.perform(
            group_id, responder, lambda shard, now: shard.leave(group_id, members, responder, now)
        )

    def _leave_in_steps(
        self, context: RequestContext, group_id: str, members: list[MemberIdentity]
    ) -> Steps[None]:
        """Remove the members that a LeaveGroup request names, in several steps, and answer when all
        are removed."""
        starts = range(0, len(members), LEAVING_AT_ONCE_MAX)

        def answer(answers: Sequence[list[ErrorCode] | ErrorCode]) -> None:
            codes: list[ErrorCode] = []
            for one in answers:
                if isinstance(one, ErrorCode):
                    context.complete(LeaveGroupResponse(error_code=one))
                    return
                codes += one
            context.complete_begun(begun(_left_in_steps(members, codes)))

        collector = AnswerCollector(len(starts), answer)
        for at, start in enumerate(starts):
            part = members[start : start + LEAVING_AT_ONCE_MAX]
            self._leave(group_id, part, collector.responder(at))
            yield


def _left(members: list[MemberIdentity], codes: list[ErrorCode]) -> LeaveGroupResponse:
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=code,
            )
            for member, code in zip(members, codes, strict=True)
        ]
    )


def _left_in_steps(
    members: list[MemberIdentity], codes: list[ErrorCode]
) -> Steps[LeaveGroupResponse]:
    response = LeaveGroupResponse()
    for start in range(0, len(members), ANSWERED_AT_ONCE_MAX):
        end = start + ANSWERED_AT_ONCE_MAX
        response.members += _left(members[start:end], codes[start:end]).members
        yield
    return response


def _fits_in_records(request: JoinGroupRequest) -> bool:
    """Return True if all texts in a JoinGroup request, and a member id derived from them, are short
    enough for a record."""
    return (
        len(request.protocols) <= LISTED_COUNT_MAX
        and len(request.group_instance_id or "") <= INSTANCE_ID_LENGTH_MAX
        and max(map(len, _texts_of(request))) <= TEXT_LENGTH_MAX
    )


def _texts_of(request: JoinGroupRequest) -> Iterator[str]:
    """Yield the texts in a JoinGroup request that the group's record stores. Flexible request
    versions do not limit the length of a text."""
    yield request.protocol_type
    yield request.member_id
    for protocol in request.protocols:
        yield protocol.name


def client_of(context: RequestContext) -> MemberClient:
    """Return the client id and host of the client that sent a request. The host has Java's notation
    for addresses."""
    name = context.client_id or ""
    return MemberClient(name[:CLIENT_ID_LENGTH_MAX], f"/{context.peer.peer_host}")
