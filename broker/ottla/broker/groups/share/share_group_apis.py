"""Handler of ShareGroupHeartbeat (KIP-932). Pure.

The handler checks everything that does not depend on the group, and passes the request on. The
response is sent when the records that it depends on are committed.
"""

from collections.abc import Callable

from ottla.broker.groups.classic.membership_apis import client_of
from ottla.broker.groups.consumer.consumer_member import JOINING_EPOCH, LEAVING_EPOCH
from ottla.broker.groups.group_coordinator import GroupCoordinator
from ottla.broker.groups.group_records import LISTED_COUNT_MAX, TEXT_LENGTH_MAX
from ottla.broker.groups.share.share_rebalance import ShareHeartbeat, refused_share_heartbeat
from ottla.model.errors import ErrorCode, RefusedError
from ottla.node.network.dispatch import RequestContext
from ottla.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from ottla.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse


class ShareGroupApis:
    """Handler of ShareGroupHeartbeat, version 1.

    `is_served` returns True if the cluster's share.version includes share groups.
    """

    def __init__(self, coordinator: GroupCoordinator, is_served: Callable[[], bool]) -> None:
        self._coordinator = coordinator
        self._is_served = is_served

    def heartbeat(self, context: RequestContext, request: ShareGroupHeartbeatRequest) -> None:
        """Pass a member's ShareGroupHeartbeat to the coordinator, which answers with the member's
        epoch and assignment once they are committed."""

        def answer(answer: ShareGroupHeartbeatResponse | ErrorCode) -> None:
            if isinstance(answer, ErrorCode):
                answer = refused_share_heartbeat(RefusedError(answer))
            context.complete(answer)

        try:
            if not self._is_served():
                raise RefusedError(ErrorCode.UNSUPPORTED_VERSION)
            check_share_heartbeat(request)
        except RefusedError as refusal:
            context.complete(refused_share_heartbeat(refusal))
            return
        heartbeat = ShareHeartbeat(request, client_of(context), answer)
        self._coordinator.perform(
            request.group_id,
            answer,
            lambda shard, now: shard.shares.handle_heartbeat(heartbeat, now),
        )


def check_share_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Raise RefusedError for a ShareGroupHeartbeat request that is invalid for every group."""
    _refuse_blank(request.member_id, "MemberId")
    _refuse_blank(request.group_id, "GroupId")
    _refuse_blank(request.rack_id, "RackId")
    names = request.subscribed_topic_names
    if request.member_epoch == JOINING_EPOCH and not names:
        raise _invalid("SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVING_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if len(names or ()) > LISTED_COUNT_MAX:
        raise _invalid(f"SubscribedTopicNames has more than {LISTED_COUNT_MAX} names.")
    texts = (request.member_id, request.rack_id or "", *(name or "" for name in names or ()))
    if max(map(len, texts)) > TEXT_LENGTH_MAX:
        raise _invalid(f"No text may have more than {TEXT_LENGTH_MAX} characters.")


def _refuse_blank(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(reason: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_REQUEST, reason)
