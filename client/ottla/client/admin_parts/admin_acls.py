"""Admin calls that describe, create and delete ACLs."""

from collections.abc import Sequence

from ottla.client.admin_parts.admin_calls import AdminCalls, refusal_of
from ottla.client.network.cluster import raise_for
from ottla.model.security.acls import (
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    of_code,
)
from ottla.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from ottla.wire.messages.create_acls_response import CreateAclsResponse
from ottla.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.delete_acls_response import DeleteAclsResponse
from ottla.wire.messages.describe_acls_request import DescribeAclsRequest
from ottla.wire.messages.describe_acls_response import DescribeAclsResponse


class AclCalls(AdminCalls):
    """Methods of the admin client that describe, create and delete ACLs."""

    async def describe_acls(self, wanted: AclFilter) -> list[AclEntry]:
        """Return the ACLs that match a filter, sorted.

        Raises RefusedError if the cluster refuses the request.
        """
        answer = await self._retry_until_timeout(lambda: self._described(wanted))
        return sorted(
            _entry(
                resource.resource_type,
                resource.resource_name,
                resource.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for resource in answer.resources
            for acl in resource.acls
        )

    async def create_acls(self, entries: Sequence[AclEntry]) -> None:
        """Create ACLs. ACLs that already exist are left unchanged.

        If the cluster refuses some of the ACLs, it creates all others, and the RefusedError of the
        first refused ACL is raised.
        """
        request = CreateAclsRequest(creations=[creation_of(one) for one in entries])
        answer = await self._retry_until_timeout(
            lambda: self._cluster.request(request, CreateAclsResponse)
        )
        for result in answer.results:
            refusal = refusal_of(result.error_code, result.error_message)
            if refusal is not None:
                raise refusal

    async def delete_acls(self, unwanted: AclFilter) -> list[AclEntry]:
        """Delete the ACLs that match a filter, and return them sorted.

        Raises RefusedError if the cluster refuses the request.
        """
        request = DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=unwanted.resource_type,
                    resource_name_filter=unwanted.resource_name,
                    pattern_type_filter=unwanted.pattern_type,
                    principal_filter=unwanted.principal,
                    host_filter=unwanted.host,
                    operation=unwanted.operation,
                    permission_type=unwanted.permission,
                )
            ]
        )
        answer = await self._retry_until_timeout(
            lambda: self._cluster.request(request, DeleteAclsResponse)
        )
        found: list[AclEntry] = []
        for result in answer.filter_results:
            raise_for(result.error_code, result.error_message)
            for acl in result.matching_acls:
                raise_for(acl.error_code, acl.error_message)
                found.append(
                    _entry(
                        acl.resource_type,
                        acl.resource_name,
                        acl.pattern_type,
                        acl.principal,
                        acl.host,
                        acl.operation,
                        acl.permission_type,
                    )
                )
        return sorted(found)

    async def _described(self, wanted: AclFilter) -> DescribeAclsResponse:
        answer = await self._cluster.request(
            DescribeAclsRequest(
                resource_type_filter=wanted.resource_type,
                resource_name_filter=wanted.resource_name,
                pattern_type_filter=wanted.pattern_type,
                principal_filter=wanted.principal,
                host_filter=wanted.host,
                operation=wanted.operation,
                permission_type=wanted.permission,
            ),
            DescribeAclsResponse,
        )
        raise_for(answer.error_code, answer.error_message)
        return answer


def _entry(
    resource_type: int,
    name: str,
    pattern_type: int,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> AclEntry:
    return AclEntry(
        resource_type=of_code(ResourceType, resource_type),
        resource_name=name,
        pattern_type=of_code(PatternType, pattern_type),
        principal=principal,
        host=host,
        operation=of_code(AclOperation, operation),
        permission=of_code(AclPermission, permission),
    )


def creation_of(entry: AclEntry) -> AclCreation:
    """Return the entry of a CreateAcls request for one ACL."""
    return AclCreation(
        resource_type=entry.resource_type,
        resource_name=entry.resource_name,
        resource_pattern_type=entry.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
