"""Parses ACLs from a command line, and formats them for tables. Pure."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ottla.cli.options import Option, option
from ottla.cli.suggestions import did_you_mean
from ottla.insight.rules.acl_text import (
    OPERATION_NAMES,
    operation_named,
    principal_of,
    word_of,
)
from ottla.model.errors import ConfigError
from ottla.model.security.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)

RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
}
"""ACL resource type for each command-line option that names a resource, by argument name."""

COLUMNS = ("PRINCIPAL", "HOST", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "PATTERN")
WRITES = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
READS = (AclOperation.READ, AclOperation.DESCRIBE)

Pattern = tuple[ResourceType, str]


def resource_options(*, is_repeatable: bool) -> Iterator[Option]:
    """Yield the command-line options that name resources of ACLs."""
    for name in RESOURCES:
        noun = name.replace("_", " ")
        yield option(
            f"--{name.replace('_', '-')} NAME",
            f"{noun} of this name; '*' for every {noun}",
            action="append" if is_repeatable else "store",
        )
    yield option("--cluster", "the cluster itself")
    yield option("--prefixed", "the given names are prefixes (default: whole names)")


def operation_of(text: str) -> AclOperation:
    """Return the ACL operation with a name such as read or describe-configs. Raises ConfigError if
    the name is unknown."""
    operation = operation_named(text)
    if operation is None:
        cure = did_you_mean(text.lower().replace("_", "-"), OPERATION_NAMES)
        names = ", ".join(OPERATION_NAMES)
        raise ConfigError("--operation", f"is {text!r}; it must be one of {names}{cure}")
    return operation


def patterns_of(arguments: argparse.Namespace) -> list[Pattern]:
    """Return the resource patterns that the command-line arguments name."""
    found: list[Pattern] = []
    for name, kind in RESOURCES.items():
        given = getattr(arguments, name) or []
        names = [given] if isinstance(given, str) else given
        found += [(kind, one) for one in names]
    if arguments.cluster:
        found.append((ResourceType.CLUSTER, CLUSTER_NAME))
    return found


def entries_of(arguments: argparse.Namespace) -> list[AclEntry]:
    """Return the ACLs in the arguments of 'ottla acl create'. Raises ConfigError if they are
    incomplete."""
    patterns = patterns_of(arguments)
    if not patterns:
        raise ConfigError(
            "resource", "is not named; add --topic, --group, --transactional-id or --cluster"
        )
    operations = _operations(arguments, patterns)
    permissions = [(AclPermission.ALLOW, one) for one in arguments.allow]
    permissions += [(AclPermission.DENY, one) for one in arguments.deny]
    if not permissions:
        raise ConfigError("principal", "is not named; add --allow USER or --deny USER")
    pattern_type = PatternType.PREFIXED if arguments.prefixed else PatternType.LITERAL
    return [
        AclEntry(
            resource_type=kind,
            resource_name=name,
            pattern_type=PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern_type,
            principal=principal_of(principal),
            host=host,
            operation=operation,
            permission=permission,
        )
        for permission, principal in permissions
        for host in arguments.host or [WILDCARD]
        for kind, name in patterns
        for operation in operations[kind]
    ]


def _operations(
    arguments: argparse.Namespace, patterns: Sequence[Pattern]
) -> dict[ResourceType, list[AclOperation]]:
    """Return the requested ACL operations for each resource type. Raises ConfigError if an
    operation applies to no resource type, or if a type has no operation."""
    asked = [operation_of(part) for text in arguments.operation for part in text.split(",") if part]
    found: dict[ResourceType, list[AclOperation]] = {kind: [] for kind, _ in patterns}
    if arguments.producer:
        _extend(found, ResourceType.TOPIC, WRITES)
        _extend(found, ResourceType.TRANSACTIONAL_ID, (AclOperation.WRITE, AclOperation.DESCRIBE))
    if arguments.consumer:
        _extend(found, ResourceType.TOPIC, READS)
        _extend(found, ResourceType.GROUP, (AclOperation.READ,))
    for kind in found:
        _extend(found, kind, [one for one in asked if one in (AclOperation.ALL, *OPERATIONS[kind])])
    unknown = [one for one in asked if not any(one in operations for operations in found.values())]
    if unknown:
        kinds = " and ".join(kind.name.lower() for kind in found)
        raise ConfigError("--operation", f"{word_of(unknown[0])} does not exist for {kinds}")
    for kind, operations in found.items():
        if not operations:
            raise ConfigError(
                "--operation",
                f"has none for {kind.name.lower()}; it has all, "
                f"{', '.join(map(word_of, OPERATIONS[kind]))}",
            )
    return found


def _extend(
    found: dict[ResourceType, list[AclOperation]],
    kind: ResourceType,
    operations: Iterable[AclOperation],
) -> None:
    if kind in found:
        found[kind] += [one for one in operations if one not in found[kind]]


def filter_of(arguments: argparse.Namespace) -> AclFilter:
    """Return the ACL filter in the arguments of 'ottla acl list' and 'ottla acl delete'. Raises
    ConfigError if the arguments name two resources."""
    patterns = patterns_of(arguments)
    if len(patterns) > 1:
        raise ConfigError("resource", "is named twice; name one, or none for all")
    kind, name = patterns[0] if patterns else (ResourceType.ANY, None)
    pattern_type = PatternType.ANY
    if name is not None and kind is not ResourceType.CLUSTER:
        pattern_type = PatternType.PREFIXED if arguments.prefixed else PatternType.LITERAL
        if arguments.matching:
            pattern_type = PatternType.MATCH
    return AclFilter(
        resource_type=kind,
        resource_name=name,
        pattern_type=pattern_type,
        principal=None if arguments.principal is None else principal_of(arguments.principal),
        host=arguments.host,
        operation=(
            AclOperation.ANY if arguments.operation is None else operation_of(arguments.operation)
        ),
    )


def row_of(entry: AclEntry) -> tuple[Any, ...]:
    """Return an ACL as a row of the table that `ottla acl list` prints."""
    return (
        entry.principal,
        entry.host,
        entry.permission.name.lower(),
        word_of(entry.operation),
        entry.resource_type.name.lower().replace("_", "-"),
        entry.resource_name,
        entry.pattern_type.name.lower(),
    )
