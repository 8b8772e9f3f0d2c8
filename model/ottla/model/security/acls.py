"""ACL entries: their fields with Kafka's codes, and filters. Pure.

An `Authorizer` (authorizer.py) makes the decisions. The entries are stored in the metadata log. The
codes are the numbers of Kafka's AclBinding classes and never change.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

E = TypeVar("E", bound=IntEnum)

CLUSTER_NAME = "kafka-cluster"
"""Name of the only resource of type CLUSTER."""

WILDCARD = "*"
"""Wildcard `*` in ACL entries. As a literal resource name it matches every resource of the type,
and as a host it matches every host."""

ANONYMOUS_USER = "ANONYMOUS"
"""User name of clients and nodes that have not authenticated, as in Kafka."""

ANONYMOUS = f"User:{ANONYMOUS_USER}"
"""Principal of clients and nodes that have not authenticated."""

ANY_USER = "User:*"
"""Principal `User:*` in ACL entries that apply to every user."""


class ResourceType(IntEnum):
    """Type of the resource that an ACL entry is for."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Rule by which an ACL entry's resource name is compared with the name of a resource. LITERAL
    compares the whole name, PREFIXED its start. MATCH and ANY occur only in filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Operation of a principal on a resource, as in ACL entries."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Effect of an ACL entry: it allows or denies the operation."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_OP = AclOperation

OPERATIONS: dict[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        _OP.READ,
        _OP.WRITE,
        _OP.CREATE,
        _OP.DELETE,
        _OP.ALTER,
        _OP.DESCRIBE,
        _OP.DESCRIBE_CONFIGS,
        _OP.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        _OP.READ,
        _OP.DELETE,
        _OP.DESCRIBE,
        _OP.DESCRIBE_CONFIGS,
        _OP.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        _OP.CREATE,
        _OP.ALTER,
        _OP.DESCRIBE,
        _OP.CLUSTER_ACTION,
        _OP.DESCRIBE_CONFIGS,
        _OP.ALTER_CONFIGS,
        _OP.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_OP.WRITE, _OP.DESCRIBE, _OP.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_OP.DESCRIBE,),
    ResourceType.USER: (_OP.CREATE_TOKENS, _OP.DESCRIBE_TOKENS),
}
"""Operations that exist for each resource type (Kafka's AclEntry.supportedOperations). The bit
field `authorizedOperations` in responses has one bit for each of them."""


def of_code(kind: type[E], code: int) -> E:
    """Return the member of an enum with a code from a request, or UNKNOWN if no member has the
    code."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AclEntry:
    """One ACL entry, as it is stored in the metadata log."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    """Principal in Kafka's notation, such as `User:alice`, or `User:*` for every user."""
    host: str
    """Host that the entry applies to: an IP address, a CIDR range (KIP-1276), or `*` for every
    host."""
    operation: AclOperation
    permission: AclPermission


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Filter that selects ACL entries, with the rules of Kafka's AclBindingFilter.

    A field with the value None or ANY matches every entry.
    """

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    """Pattern type of the entries. MATCH selects all entries that apply to the resource with the
    filter's name, and ANY selects entries of all pattern types."""
    principal: str | None = None
    host: str | None = None
    """Host of the entries, compared as text. A filter for an address does not match an entry for a
    range that contains the address."""
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    @classmethod
    def of_codes(
        cls,
        *,
        resource_type: int,
        resource_name: str | None,
        pattern_type: int,
        principal: str | None,
        host: str | None,
        operation: int,
        permission: int,
    ) -> "AclFilter":
        """Return the filter for the codes and names in a request."""
        return cls(
            resource_type=of_code(ResourceType, resource_type),
            resource_name=resource_name,
            pattern_type=of_code(PatternType, pattern_type),
            principal=principal,
            host=host,
            operation=of_code(AclOperation, operation),
            permission=of_code(AclPermission, permission),
        )

    @property
    def has_unknown_pattern(self) -> bool:
        """True if the filter has a resource type or a pattern type with an unknown code."""
        return not self.resource_type or not self.pattern_type

    @property
    def has_unknown_entry(self) -> bool:
        """True if the filter has an operation or a permission with an unknown code."""
        return not self.operation or not self.permission

    def matches(self, entry: AclEntry) -> bool:
        """Return whether an entry matches the filter."""
        return (
            self.resource_type in (ResourceType.ANY, entry.resource_type)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermission.ANY, entry.permission)
            and self._matches_pattern(entry)
        )

    def _matches_pattern(self, entry: AclEntry) -> bool:
        name = self.resource_name
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, entry.pattern_type):
            return False
        if name is None or name == entry.resource_name:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if entry.pattern_type is PatternType.PREFIXED:
            return name.startswith(entry.resource_name)
        return entry.resource_name == WILDCARD
