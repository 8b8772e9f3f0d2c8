"""DescribeGroups, ListGroups and DeleteGroups: what admins ask of groups.  Pure."""

from collections.abc import Sequence

from ottla.broker.authorization.questions import may, may_on_cluster, operations_on
from ottla.broker.groups.classic_group import ClassicGroup
from ottla.broker.groups.coordinator_door import CoordinatorDoor, Gathering
from ottla.broker.groups.describe import describe, describe_missing
from ottla.broker.groups.effects import Asker
from ottla.broker.network.dispatch import HandlerResult, Permissions, RequestContext
from ottla.broker.network.steps import StepPace, Steps, begun
from ottla.model.acls import AclOperation, ResourceType
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.wire.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from ottla.wire.messages.list_groups_request import ListGroupsRequest
from ottla.wire.messages.list_groups_response import ListedGroup, ListGroupsResponse

GROUP_DELETION_COST = 5


class GroupAdminApis:
    """Serves DescribeGroups 0-6, ListGroups 0-5 and DeleteGroups 0-3."""

    def __init__(self, coordinator: CoordinatorDoor) -> None:
        self._coordinator = coordinator

    def describe(self, context: RequestContext, request: DescribeGroupsRequest) -> HandlerResult:
        """Answer for each group by itself, once however often it is named."""
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
            group = self._coordinator.shard_of(group_id).groups.get(group_id)
        except RefusedError as refusal:
            return DescribedGroup(group_id=group_id, error_code=refusal.code)
        if not isinstance(group, ClassicGroup):
            is_other_type = group is not None
            found = describe_missing(group_id, context.api_version, is_other_type=is_other_type)
        else:
            found = describe(group)
        if request.include_authorized_operations and found.error_code == ErrorCode.NONE:
            found.authorized_operations = operations_on(
                context.permissions, ResourceType.GROUP, group_id
            )
        return found

    def list(self, context: RequestContext, request: ListGroupsRequest) -> HandlerResult:
        """Answer with the groups of this broker that are in one of the states, of one type."""
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
                        group_state=group.state.value,
                        group_type=group.type,
                    )
                )
        if self._coordinator.is_loading:
            response.error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return response

    def delete(self, context: RequestContext, request: DeleteGroupsRequest) -> HandlerResult:
        """Delete groups that nobody is in; answer, once for each, when all is committed."""
        return begun(self._delete_all(context, request))

    def _delete_all(self, context: RequestContext, request: DeleteGroupsRequest) -> Steps[None]:
        group_ids = list(dict.fromkeys(request.groups_names))
        pace = StepPace()

        def answer(codes: Sequence[ErrorCode]) -> None:
            context.slot.complete_begun(begun(_deleted(group_ids, codes)))

        gathering = Gathering(len(group_ids), answer)
        for at, group_id in enumerate(group_ids):
            self._delete(group_id, gathering.asker(at))
            if pace.is_due(GROUP_DELETION_COST):
                yield

    def _delete(self, group_id: str, asker: Asker) -> None:
        self._coordinator.perform(
            group_id,
            asker,
            lambda shard, now: shard.delete_group(group_id, asker),
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
