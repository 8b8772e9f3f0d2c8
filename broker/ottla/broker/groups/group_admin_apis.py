"""Handlers of DescribeGroups, ListGroups and DeleteGroups. Pure."""

from collections.abc import Sequence

from ottla.broker.coordinators.answer_collector import AnswerCollector
from ottla.broker.coordinators.effects import Responder
from ottla.broker.groups.classic.describe_classic import describe_missing
from ottla.broker.groups.group_coordinator import GroupCoordinator
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.security.acls import AclOperation, ResourceType
from ottla.node.authorization.questions import may, may_on_cluster, operations_on
from ottla.node.network.dispatch import HandlerResult, Permissions, RequestContext
from ottla.node.network.steps import StepPace, Steps, begun
from ottla.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.wire.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from ottla.wire.messages.list_groups_request import ListGroupsRequest
from ottla.wire.messages.list_groups_response import ListedGroup, ListGroupsResponse

GROUP_DELETION_COST = 5


class GroupAdminApis:
    """Handlers of DescribeGroups (versions 0 to 6), ListGroups (0 to 5) and DeleteGroups (0 to
    3)."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def describe(self, context: RequestContext, request: DescribeGroupsRequest) -> HandlerResult:
        """Describe each group once, even if it is named several times."""
        return begun(self._describe_all(context, request))

    def _describe_all(
        self, context: RequestContext, request: DescribeGroupsRequest
    ) -> Steps[DescribeGroupsResponse]:
        pace = StepPace()
        groups = []
        for group_id in dict.fromkeys(request.groups):
            groups.append(self._describe(context, request, group_id))
            if pace.is_due(1 + len(groups[-1].members)):
                yield
        return DescribeGroupsResponse(groups=groups)

    def _describe(
        self, context: RequestContext, request: DescribeGroupsRequest, group_id: str
    ) -> DescribedGroup:
        try:
            shard = self._coordinator.shard_of(group_id)
        except RefusedError as refusal:
            return DescribedGroup(group_id=group_id, error_code=refusal.code)
        described = shard.describe(group_id)
        if described is None:
            is_other_type = group_id in shard.groups
            found = describe_missing(group_id, context.api_version, is_other_type=is_other_type)
        else:
            found = described
        if request.include_authorized_operations and found.error_code == ErrorCode.NONE:
            found.authorized_operations = operations_on(
                context.permissions, ResourceType.GROUP, group_id
            )
        return found

    def list(self, context: RequestContext, request: ListGroupsRequest) -> HandlerResult:
        """List the groups of this broker, filtered by state and type."""
        return begun(self._list(request, context.permissions))

    def _list(
        self, request: ListGroupsRequest, permissions: Permissions | None
    ) -> Steps[ListGroupsResponse]:
        if may_on_cluster(permissions, AclOperation.DESCRIBE):
            permissions = None
        states = frozenset(state.lower() for state in request.states_filter)
        types = frozenset(kind.lower() for kind in request.types_filter)
        pace = StepPace()
        response = ListGroupsResponse()
        for shard in list(self._coordinator.shards()):
            for group in list(shard.list_groups(states, types)):
                if pace.is_due():
                    yield
                if not may(
                    permissions,
                    AclOperation.DESCRIBE,
                    ResourceType.GROUP,
                    group.group_id,
                    is_logged=False,
                ):
                    continue
                response.groups.append(
                    ListedGroup(
                        group_id=group.group_id,
                        protocol_type=group.protocol_type or "",
                        group_state=group.state_name,
                        group_type=group.type,
                    )
                )
        if self._coordinator.is_loading:
            response.error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return response

    def delete(self, context: RequestContext, request: DeleteGroupsRequest) -> HandlerResult:
        """Delete empty groups. The response has an error code for each group, and is sent when all
        deletions are committed."""
        return begun(self._delete_all(context, request))

    def _delete_all(self, context: RequestContext, request: DeleteGroupsRequest) -> Steps[None]:
        group_ids = list(dict.fromkeys(request.groups_names))
        pace = StepPace()

        def answer(codes: Sequence[ErrorCode]) -> None:
            context.complete_begun(begun(_deleted(group_ids, codes)))

        collector = AnswerCollector(len(group_ids), answer)
        for at, group_id in enumerate(group_ids):
            self._delete(group_id, collector.responder(at))
            if pace.is_due(GROUP_DELETION_COST):
                yield

    def _delete(self, group_id: str, responder: Responder) -> None:
        self._coordinator.perform(
            group_id,
            responder,
            lambda shard, now: shard.delete_group(
                group_id, responder, lambda: self._delete(group_id, responder)
            ),
            is_write=True,
        )


def _deleted(group_ids: list[str], codes: Sequence[ErrorCode]) -> Steps[DeleteGroupsResponse]:
    pace = StepPace()
    response = DeleteGroupsResponse()
    for group_id, code in zip(group_ids, codes, strict=True):
        response.results.append(DeletableGroupResult(group_id=group_id, error_code=code))
        if pace.is_due():
            yield
    return response
