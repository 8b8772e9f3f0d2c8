"""FindCoordinator and ListGroups, for as long as this broker coordinates no groups.  Pure.

Clients take COORDINATOR_NOT_AVAILABLE as "not yet" and ask again.
"""

from ottla.broker.dispatch import RequestContext
from ottla.model.errors import ErrorCode, row_of
from ottla.model.ids import NO_NODE
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from ottla.wire.messages.list_groups_request import ListGroupsRequest
from ottla.wire.messages.list_groups_response import ListGroupsResponse

BATCHED_FROM = 4
"""The first version that asks for several keys at once (KIP-699)."""

GROUP, TRANSACTION, SHARE = 0, 1, 2
SHARE_FROM = 6

NO_PORT = -1


class CoordinatorApi:
    """Serves FindCoordinator 0-6 and ListGroups 0-5."""

    def handle_find(
        self, context: RequestContext, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        """Answer that there is no coordinator yet."""
        version = context.api_version
        known = (GROUP, TRANSACTION, SHARE) if version >= SHARE_FROM else (GROUP, TRANSACTION)
        code = (
            ErrorCode.COORDINATOR_NOT_AVAILABLE
            if request.key_type in known
            else ErrorCode.INVALID_REQUEST
        )
        message = row_of(code).meaning
        if version < BATCHED_FROM:
            return FindCoordinatorResponse(
                error_code=code, error_message=message, node_id=NO_NODE, port=NO_PORT
            )
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(
                    key=key, node_id=NO_NODE, port=NO_PORT, error_code=code, error_message=message
                )
                for key in request.coordinator_keys
            ]
        )

    def handle_list(
        self, context: RequestContext, request: ListGroupsRequest
    ) -> ListGroupsResponse:
        """Answer with no groups: this broker has none."""
        return ListGroupsResponse()
