"""DescribeAcls: the ACLs that match a filter, from this broker's image."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from ottla.metadata import fold
from ottla.metadata.image import EMPTY
from ottla.metadata.records import acl_record
from ottla.model.errors import ErrorCode
from ottla.model.security.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.node.admin.describe_acls import DescribeAclsApi
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.network.steps import run_through
from ottla.wire.codec import decode, encode
from ottla.wire.messages.describe_acls_request import DescribeAclsRequest
from ottla.wire.messages.describe_acls_response import DescribeAclsResponse

ENTRY = AclEntry(
    resource_type=ResourceType.TOPIC,
    resource_name="t",
    pattern_type=PatternType.LITERAL,
    principal="User:al",
    host="*",
    operation=AclOperation.READ,
    permission=AclPermission.ALLOW,
)
ENTRIES = [
    ENTRY,
    replace(ENTRY, operation=AclOperation.WRITE),
    replace(ENTRY, resource_name="te", pattern_type=PatternType.PREFIXED),
    replace(ENTRY, resource_type=ResourceType.GROUP, resource_name="*", principal="User:*"),
]
CONTEXT: Any = None


def described(*, is_on: bool = True, **changes: Any) -> DescribeAclsResponse:
    metadata = MetadataCache(lambda topic: False)
    metadata.image = fold.apply_all(
        EMPTY, [acl_record(UUID(int=number), one) for number, one in enumerate(ENTRIES)]
    )
    fields: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    request = DescribeAclsRequest(**fields | changes)
    answer = DescribeAclsApi(metadata, is_on=is_on).handle(CONTEXT, request)
    response = answer if isinstance(answer, DescribeAclsResponse) else run_through(answer)
    for version in DescribeAclsResponse.VERSIONS:
        assert decode(DescribeAclsResponse, version, encode(response, version))
    assert isinstance(response, DescribeAclsResponse)
    return response


def entries_of(response: DescribeAclsResponse) -> set[AclEntry]:
    return {
        AclEntry(
            resource_type=ResourceType(resource.resource_type),
            resource_name=resource.resource_name,
            pattern_type=PatternType(resource.pattern_type),
            principal=one.principal,
            host=one.host,
            operation=AclOperation(one.operation),
            permission=AclPermission(one.permission_type),
        )
        for resource in response.resources
        for one in resource.acls
    }


def test_all_entries_are_shown_grouped_by_what_they_are_about() -> None:
    response = described()

    assert entries_of(response) == set(ENTRIES)
    assert sorted(len(resource.acls) for resource in response.resources) == [1, 1, 2]
    assert (response.error_code, response.error_message) == (0, None)


def test_a_filter_shows_what_it_asks_for() -> None:
    assert entries_of(described(principal_filter="User:*")) == {ENTRIES[3]}
    assert entries_of(described(operation=4)) == {ENTRIES[1]}
    assert entries_of(described(resource_name_filter="test", pattern_type_filter=2)) == {
        ENTRIES[2],
        ENTRIES[3],
    }
    assert entries_of(described(resource_name_filter="test")) == set()


def test_a_filter_of_unknown_codes_is_refused() -> None:
    assert described(resource_type_filter=50).error_code == ErrorCode.INVALID_REQUEST
    assert described(permission_type=0).error_code == ErrorCode.INVALID_REQUEST


def test_without_an_authorizer_there_are_none_to_show() -> None:
    response = described(is_on=False)

    assert response.error_code == ErrorCode.SECURITY_DISABLED
    assert response.error_message == "No Authorizer is configured on the broker"
    assert response.resources == []
