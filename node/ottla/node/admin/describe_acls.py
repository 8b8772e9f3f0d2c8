"""DescribeAcls: describes the ACLs that match a filter, grouped by resource."""

from ottla.metadata.acl_table import AclTable, PatternKey, pattern_key
from ottla.model.errors import ErrorCode
from ottla.model.security.acls import AclFilter
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.network.dispatch import RequestContext
from ottla.node.network.steps import Answer, StepPace, Steps
from ottla.wire.messages.describe_acls_request import DescribeAclsRequest
from ottla.wire.messages.describe_acls_response import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)


class DescribeAclsApi:
    """Handler of DescribeAcls, versions 1 to 3."""

    def __init__(self, metadata: MetadataCache, *, is_on: bool) -> None:
        """Create the handler. If `is_on` is False, because this node has no authorizer,
        DescribeAcls is refused as in Kafka."""
        self._metadata = metadata
        self._is_on = is_on

    def handle(
        self, context: RequestContext, request: DescribeAclsRequest
    ) -> Answer | DescribeAclsResponse:
        """Return the response to DescribeAcls: the ACLs of the metadata image that match the
        filter."""
        if not self._is_on:
            return _refused(
                ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker"
            )
        wanted = AclFilter.of_codes(
            resource_type=request.resource_type_filter,
            resource_name=request.resource_name_filter,
            pattern_type=request.pattern_type_filter,
            principal=request.principal_filter,
            host=request.host_filter,
            operation=request.operation,
            permission=request.permission_type,
        )
        if wanted.has_unknown_pattern:
            return _refused(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
        if wanted.has_unknown_entry:
            return _refused(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
        return _answer(self._metadata.image.acls, wanted)


def _answer(acls: AclTable, wanted: AclFilter) -> Steps[DescribeAclsResponse]:
    pace = StepPace()
    resources: dict[PatternKey, DescribeAclsResource] = {}
    for _, entry in acls.candidates(wanted):
        if wanted.matches(entry):
            key = pattern_key(entry)
            resource = resources.get(key)
            if resource is None:
                resource = resources[key] = DescribeAclsResource(
                    resource_type=key.resource_type,
                    resource_name=key.name,
                    pattern_type=key.pattern_type,
                    acls=[],
                )
            resource.acls.append(
                AclDescription(
                    principal=entry.principal,
                    host=entry.host,
                    operation=entry.operation,
                    permission_type=entry.permission,
                )
            )
        if pace.is_due():
            yield
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))


def _refused(code: ErrorCode, message: str) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=message)
