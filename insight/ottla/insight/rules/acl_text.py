"""Formats ACLs and their operations as text, and parses principals and operations. Pure."""

from ottla.model.errors import ConfigError
from ottla.model.security.acls import (
    WILDCARD,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
)

OPERATION_NAMES = {
    one.name.lower().replace("_", "-"): one for one in AclOperation if one >= AclOperation.ALL
}
"""ACL operations by the names that commands accept."""


def principal_of(text: str) -> str:
    """Return a principal in Kafka's notation, such as User:alice. A name without a type becomes a
    user."""
    if not text:
        raise ConfigError("principal", "is empty; name a user, or Type:name")
    return text if ":" in text else f"User:{text}"


def operation_named(text: str) -> AclOperation | None:
    """Return the ACL operation with a name such as read, describe-configs or DescribeConfigs, or
    None if no operation has that name."""
    given = text.lower().replace("_", "-")
    for name, operation in OPERATION_NAMES.items():
        # Kafka's tool writes DescribeConfigs, without a dash.
        if given in (name, name.replace("-", "")):
            return operation
    return None


def sentence_of(entry: AclEntry) -> str:
    """Return a text that describes an ACL in words."""
    kind = entry.resource_type.name.lower().replace("_", " ")
    name = f"{kind} {entry.resource_name}"
    if entry.pattern_type is PatternType.PREFIXED:
        name = f"{kind}s that begin with {entry.resource_name}"
    elif entry.resource_name == WILDCARD:
        name = f"every {kind}"
    verb = "allows" if entry.permission is AclPermission.ALLOW else "denies"
    host = "" if entry.host == WILDCARD else f" from {entry.host}"
    return f"an entry {verb} {entry.principal}{host} to {word_of(entry.operation)} on {name}"


def word_of(operation: AclOperation) -> str:
    """Return the name of an ACL operation as commands accept it, such as describe-configs."""
    return operation.name.lower().replace("_", "-")
