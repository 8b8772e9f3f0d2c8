"""Changes of ACLs by CreateAcls and DeleteAcls.

Each ACL and each filter of a request succeeds or fails separately.  Creating an ACL that already
exists succeeds and writes no record.  All filters match the ACLs as they were before the request,
as in Kafka, so two filters may match the same ACL.  The number of ACLs that a request compares, and
that its response contains, is limited, because any client may choose the filters.
"""

from collections.abc import Iterator
from uuid import UUID

from ottla.controller.decision import Context, Decision, Draft
from ottla.metadata.features import METADATA_VERSION, METADATA_VERSION_OF_RANGES
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import acl_record, remove_acl_record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.explanations import Explanations
from ottla.model.limits import USER_OPERATION_RECORDS_MAX
from ottla.model.security.acl_hosts import range_of
from ottla.model.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    of_code,
)
from ottla.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from ottla.wire.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from ottla.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)

NAME_CHARS_MAX = 1_024
"""Maximum length in characters of a resource name or principal in an ACL. Every node stores ACLs in
memory."""

HOST_CHARS_MAX = 256

LOOKED_AT_MAX = 2_000_000
"""Maximum number of comparisons between ACLs and the filters of one request. Two million
comparisons take some seconds in a thread, and no other decision is made in that time. A filter with
a resource name or principal is compared with few ACLs."""

FOUND_MAX = 4 * USER_OPERATION_RECORDS_MAX
"""Maximum number of ACLs in a DeleteAcls response. It is larger than the number of ACLs that one
request may delete, because several filters may match the same ACL."""


def create_acls(
    image: MetadataImage, context: Context, request: CreateAclsRequest
) -> Decision[CreateAclsResponse]:
    """Return the decision on a CreateAcls request. Raises RefusedError, and creates no ACL, if the
    request contains too many."""
    _check_authorizer(context)
    has_ranges = image.features.get(METADATA_VERSION, 0) >= METADATA_VERSION_OF_RANGES
    explanations = Explanations()
    added: dict[AclEntry, UUID] = {}
    results = []
    for asked in request.creations:
        code, message = ErrorCode.NONE, None
        try:
            entry = _entry_of(asked, has_ranges=has_ranges)
        except RefusedError as refusal:
            code, message = refusal.code, refusal.message
        else:
            if entry not in image.acls.ids and entry not in added:
                added[entry] = _fresh_id(image, context)
        results.append(AclCreationResult(error_code=code, error_message=explanations.of(message)))
    if len(added) > USER_OPERATION_RECORDS_MAX:
        raise RefusedError(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )
    draft = Draft(image)
    draft.add(acl_record(entry_id, entry) for entry, entry_id in added.items())
    return draft.decision(CreateAclsResponse(results=results), is_atomic=True)


def delete_acls(
    image: MetadataImage, context: Context, request: DeleteAclsRequest
) -> Decision[DeleteAclsResponse]:
    """Return the decision on a DeleteAcls request, which deletes all ACLs that match at least one
    of its filters.

    Raises RefusedError and deletes no ACL if the filters match too many ACLs, or if too many
    comparisons are needed. With a partial deletion, an operator could overlook that only some
    filters were processed.
    """
    _check_authorizer(context)
    explanations = Explanations()
    search = _Search(image)
    results = []
    for asked in request.filters:
        code, message = ErrorCode.NONE, None
        found: list[DeleteAclsMatchingAcl] = []
        try:
            found = [_matching(entry) for entry in search.entries_of(_filter_of(asked))]
        except _TooMuchError as error:
            raise RefusedError(ErrorCode.INVALID_REQUEST, error.args[0]) from None
        except RefusedError as refusal:
            code, message = refusal.code, explanations.of(refusal.message)
        results.append(
            DeleteAclsFilterResult(error_code=code, error_message=message, matching_acls=found)
        )
    draft = Draft(image)
    draft.add(remove_acl_record(entry_id) for entry_id in sorted(search.found, key=int))
    return draft.decision(DeleteAclsResponse(filter_results=results), is_atomic=True)


class _TooMuchError(Exception):
    """Raised for a DeleteAcls request whose filters match too many ACLs, or need too many
    comparisons."""


class _Search:
    """Search for the ACLs that match the filters of one request, within the limits for a
    request."""

    def __init__(self, image: MetadataImage) -> None:
        self._acls = image.acls
        self._looked_at_count = self._found_count = 0
        self.found: set[UUID] = set()

    def entries_of(self, wanted: AclFilter) -> Iterator[AclEntry]:
        """Yield the ACLs that match a filter, in order of their ids."""
        ids = []
        for entry_id, entry in self._acls.candidates(wanted):
            self._looked_at_count += 1
            if wanted.matches(entry):
                ids.append(entry_id)
            if self._looked_at_count > LOOKED_AT_MAX:
                raise _TooMuchError(
                    "The filters look at too many acls. Name a resource or a principal in each, or "
                    "send fewer at a time."
                )
        self._found_count += len(ids)
        self.found.update(ids)
        if len(self.found) > USER_OPERATION_RECORDS_MAX or self._found_count > FOUND_MAX:
            raise _TooMuchError(
                f"Cannot remove more than {USER_OPERATION_RECORDS_MAX} acls in a single delete "
                "operation."
            )
        for entry_id in sorted(ids, key=int):
            yield self._acls.entries[entry_id]


def _check_authorizer(context: Context) -> None:
    if not context.config.authorizer.is_on:
        raise RefusedError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def _fresh_id(image: MetadataImage, context: Context) -> UUID:
    while True:
        fresh = context.rng.uuid()
        if fresh not in image.acls.entries:
            return fresh


def _entry_of(asked: AclCreation, *, has_ranges: bool) -> AclEntry:
    """Return the ACL that one entry of a CreateAcls request describes.

    Raises RefusedError if the entry is invalid.
    """
    entry = AclEntry(
        resource_type=of_code(ResourceType, asked.resource_type),
        resource_name=asked.resource_name,
        pattern_type=of_code(PatternType, asked.resource_pattern_type),
        principal=asked.principal,
        host=asked.host,
        operation=of_code(AclOperation, asked.operation),
        permission=of_code(AclPermission, asked.permission_type),
    )
    if entry.resource_type is ResourceType.CLUSTER and entry.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not entry.resource_name:
        raise _invalid("Invalid empty resource name")
    if entry.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise _invalid(f"Invalid resourceType {entry.resource_type.name}")
    if entry.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {entry.pattern_type.name}")
    if entry.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise _invalid(f"Invalid operation {entry.operation.name}")
    if entry.permission not in (AclPermission.DENY, AclPermission.ALLOW):
        raise _invalid(f"Invalid permissionType {entry.permission.name}")
    if len(entry.resource_name) > NAME_CHARS_MAX:
        raise _invalid(f"Resource name must not be longer than {NAME_CHARS_MAX} characters")
    _check_principal(entry.principal)
    _check_host(entry.host, has_ranges=has_ranges)
    return entry


def _check_principal(principal: str) -> None:
    if len(principal) > NAME_CHARS_MAX:
        raise _invalid(f"Principal must not be longer than {NAME_CHARS_MAX} characters")
    if ":" not in principal:
        raise _invalid(
            f"Could not parse principal from `{principal}` (no colon is present separating the "
            "principal type from the principal name)"
        )


def _check_host(host: str, *, has_ranges: bool) -> None:
    if not host:
        raise _invalid("Host pattern cannot be null or empty")
    if len(host) > HOST_CHARS_MAX:
        raise _invalid(f"Host must not be longer than {HOST_CHARS_MAX} characters")
    if host == WILDCARD or "/" not in host:
        return
    if not has_ranges:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION,
            "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.",
        )
    if range_of(host) is None:
        raise _invalid(f"Invalid CIDR notation '{host}'")


def _filter_of(asked: DeleteAclsFilter) -> AclFilter:
    wanted = AclFilter.of_codes(
        resource_type=asked.resource_type_filter,
        resource_name=asked.resource_name_filter,
        pattern_type=asked.pattern_type_filter,
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=asked.operation,
        permission=asked.permission_type,
    )
    if wanted.has_unknown_pattern:
        raise _invalid("Unknown patternFilter.")
    if wanted.has_unknown_entry:
        raise _invalid("Unknown entryFilter.")
    return wanted


def _matching(entry: AclEntry) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=entry.resource_type,
        resource_name=entry.resource_name,
        pattern_type=entry.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_REQUEST, message)
