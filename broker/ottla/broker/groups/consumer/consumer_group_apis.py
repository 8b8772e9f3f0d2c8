"""Handler of ConsumerGroupHeartbeat (KIP-848). Pure.

The handler checks everything that does not depend on the group, and passes the request on. The
response is sent when the records that it depends on are committed.
"""

from collections.abc import Callable

from ottla.broker.groups.classic.membership_apis import client_of
from ottla.broker.groups.consumer.consumer_group import CONSUMER
from ottla.broker.groups.consumer.consumer_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_FOR_A_WHILE_EPOCH,
    NO_REBALANCE_TIMEOUT_MS,
)
from ottla.broker.groups.consumer.consumer_rebalance import MemberHeartbeat, refused_heartbeat
from ottla.broker.groups.group_coordinator import GroupCoordinator
from ottla.broker.groups.group_records import (
    INSTANCE_ID_LENGTH_MAX,
    LISTED_COUNT_MAX,
    TEXT_LENGTH_MAX,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.groups import GroupConfig
from ottla.node.network.dispatch import RequestContext
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

OWNED_COUNT_MAX = 100_000
"""Maximum number of topics and partitions that one group member may list as owned in a heartbeat.
Reading a list of this length takes about 20 ms."""

OWN_MEMBER_ID_FROM = 1
"""First version of ConsumerGroupHeartbeat in which a consumer generates its own member id
(KIP-1082)."""


class ConsumerGroupApis:
    """Handler of ConsumerGroupHeartbeat, versions 0 and 1.

    `is_finalised` returns True if the cluster's group.version includes the consumer protocol.
    """

    def __init__(
        self,
        config: GroupConfig,
        coordinator: GroupCoordinator,
        is_finalised: Callable[[], bool],
    ) -> None:
        self._config = config
        self._coordinator = coordinator
        self._is_finalised = is_finalised

    def is_served(self) -> bool:
        """Return True if this broker and its cluster support the consumer protocol."""
        return CONSUMER in self._config.rebalance_protocols and self._is_finalised()

    def heartbeat(self, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> None:
        """Pass a member's ConsumerGroupHeartbeat to the coordinator, which answers with the
        member's epoch and assignment once they are committed."""

        def answer(answer: ConsumerGroupHeartbeatResponse | ErrorCode) -> None:
            if isinstance(answer, ErrorCode):
                answer = refused_heartbeat(RefusedError(answer))
            context.complete(answer)

        try:
            if not self.is_served():
                raise RefusedError(ErrorCode.UNSUPPORTED_VERSION)
            check_heartbeat(request, context.api_version, self._config.consumer_assignors)
        except RefusedError as refusal:
            context.complete(refused_heartbeat(refusal))
            return
        heartbeat = MemberHeartbeat(request, client_of(context), answer, context.permissions)
        self._coordinator.perform(
            request.group_id,
            answer,
            lambda shard, now: shard.consumers.handle_heartbeat(heartbeat, now),
        )


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]
) -> None:
    """Raise RefusedError for a ConsumerGroupHeartbeat request that is invalid for every group."""
    epoch = request.member_epoch
    if version >= OWN_MEMBER_ID_FROM or epoch > JOINING_EPOCH or epoch == LEAVING_EPOCH:
        _refuse_blank(request.member_id, "MemberId")
    _refuse_blank(request.group_id, "GroupId")
    if request.instance_id is not None:
        _refuse_blank(request.instance_id, "InstanceId")
    if request.rack_id is not None:
        _refuse_blank(request.rack_id, "RackId")
    if epoch == JOINING_EPOCH:
        _check_join(request)
    elif epoch == LEAVING_FOR_A_WHILE_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVING_FOR_A_WHILE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )
    if len(request.subscribed_topic_names or ()) > LISTED_COUNT_MAX:
        raise _invalid(f"SubscribedTopicNames has more than {LISTED_COUNT_MAX} names.")
    owned = request.topic_partitions
    if owned and sum(len(one.partitions) + 1 for one in owned) > OWNED_COUNT_MAX:
        raise _invalid(f"TopicPartitions has more than {OWNED_COUNT_MAX} partitions.")
    if len(request.instance_id or "") > INSTANCE_ID_LENGTH_MAX:
        raise _invalid(f"InstanceId has more than {INSTANCE_ID_LENGTH_MAX} characters.")
    if max(map(len, _texts_of(request))) > TEXT_LENGTH_MAX:
        raise _invalid(f"No text may have more than {TEXT_LENGTH_MAX} characters.")


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == NO_REBALANCE_TIMEOUT_MS:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )


def _refuse_blank(text: str, name: str) -> None:
    if not text.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(reason: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_REQUEST, reason)


def _texts_of(request: ConsumerGroupHeartbeatRequest) -> list[str]:
    """Return the texts in a ConsumerGroupHeartbeat request that become keys of records. Flexible
    request versions do not limit the length of a text."""
    return [request.member_id, request.rack_id or "", request.subscribed_topic_regex or ""]
