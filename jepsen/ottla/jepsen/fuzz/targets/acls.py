"""Fuzz target: ACLs and filters from clients, and decisions of the authorizer.

If an ACL is accepted, it must be stored and found again. A filter must find the same ACLs as a scan
of all ACLs, and the authorizer must decide like such a scan.
"""

from collections.abc import Iterator
from copy import copy
from functools import cache
from random import Random
from typing import Any

from ottla.jepsen.fuzz.chance import FuzzRng
from ottla.jepsen.fuzz.target import FuzzTarget, number_of, numbered
from ottla.jepsen.fuzz.targets.metadata import check_image
from ottla.jepsen.in_memory_controller import CountingRng, InMemoryController
from ottla.metadata.acl_table import AclTable, rule_of
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.security.acl_hosts import address_of
from ottla.model.security.acls import (
    ANY_USER,
    WILDCARD,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.security.authorizer import STANDARD_AUTHORIZER, AuthorizerConfig
from ottla.wire.codec import decode, encode
from ottla.wire.codec_examples import example
from ottla.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from ottla.wire.messages.create_acls_response import CreateAclsResponse
from ottla.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.delete_acls_response import DeleteAclsResponse

VERSIONS = CreateAclsRequest.VERSIONS
HOSTS = ("*", "10.0.0.1", "10.0.0.0/8", "2001:db8::/32", "host")
NAMES = ("*", "t", "topic", "topic-1", "*t")
ASKED_MAX = 20
"""Maximum number of ACLs of one fuzzing input that are checked with the authorizer. It is small,
because each checked ACL is compared with all other ACLs."""


@cache
def _cluster() -> InMemoryController:
    """Return the controller of a cluster with ACLs of every kind, which is the same for every
    input."""
    authorizer = AuthorizerConfig(
        class_name=STANDARD_AUTHORIZER, super_users=frozenset({"User:ANONYMOUS"})
    )
    cluster = InMemoryController(config=ControllerConfig(authorizer=authorizer))
    cluster.forward(_good_creations())
    return cluster


def _good_creations() -> CreateAclsRequest:
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=3 + at % 2,
                principal=ANY_USER if at % 3 else "User:al",
                host=HOSTS[at % len(HOSTS)],
                operation=2 + at % 9,
                permission_type=2 + at % 2,
            )
            for kind in (ResourceType.TOPIC, ResourceType.GROUP)
            for at, name in enumerate(NAMES)
        ]
    )


def _good_filters() -> DeleteAclsRequest:
    return DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=1 + at % 3,
                resource_name_filter=name,
                pattern_type_filter=1 + at % 4,
                principal_filter=ANY_USER if at % 2 else None,
                host_filter=None if at % 3 else "*",
                operation=1,
                permission_type=1,
            )
            for at, name in enumerate((None, *NAMES))
        ]
    )


def _check(data: bytes) -> None:
    cluster = copy(_cluster())
    cluster.rng = CountingRng(drawn=cluster.rng.drawn)
    number = number_of(data, 2 * len(VERSIONS))
    version = VERSIONS[number % len(VERSIONS)]
    if number < len(VERSIONS):
        _create(cluster, decode(CreateAclsRequest, version, data, min(2, len(data))), version)
    else:
        _delete(cluster, decode(DeleteAclsRequest, version, data, min(2, len(data))), version)
    check_image(cluster.image)


def _create(cluster: InMemoryController, request: Any, version: int) -> None:
    before = set(cluster.image.acls.ids)
    answer: Any = cluster.forward(request, version)
    decode(CreateAclsResponse, version, encode(answer, version))
    assert len(answer.results) == len(request.creations)
    acls = cluster.image.acls
    accepted = [
        _entry_of(one)
        for one, result in zip(request.creations, answer.results, strict=True)
        if result.error_code == ErrorCode.NONE
    ]
    assert set(acls.ids) == before | set(accepted)
    for entry in accepted[:ASKED_MAX]:
        _ask(acls, entry)


def _entry_of(asked: AclCreation) -> AclEntry:
    return AclEntry(
        resource_type=ResourceType(asked.resource_type),
        resource_name=asked.resource_name,
        pattern_type=PatternType(asked.resource_pattern_type),
        principal=asked.principal,
        host=asked.host,
        operation=AclOperation(asked.operation),
        permission=AclPermission(asked.permission_type),
    )


def _ask(acls: AclTable, entry: AclEntry) -> None:
    """Compare the authorizer's decisions with a scan of all ACLs, for the resource of an ACL and
    for a resource with a longer name."""
    authorizer = StandardAuthorizer(AuthorizerConfig(), acls=acls)
    operation = max(entry.operation, AclOperation.READ)
    host = "10.0.0.1" if entry.host == WILDCARD or "/" in entry.host else entry.host
    authorizer.is_allowed_somewhere(entry.principal, host, operation, entry.resource_type)
    for name in (entry.resource_name, f"{entry.resource_name}-x"):
        decided = authorizer.is_allowed(
            entry.principal, host, operation, entry.resource_type, name, is_logged=False
        )
        assert decided == _obvious(acls, entry, host, operation, name)


def _obvious(
    acls: AclTable, asked: AclEntry, host: str, operation: AclOperation, name: str
) -> bool:
    """Return the authorization decision that follows from a scan of all ACLs. The authorizer must
    make the same decision."""
    verdicts = set()
    for entry_id, entry in acls.entries.items():
        rule = rule_of(entry_id, entry)
        is_over = (
            name.startswith(entry.resource_name)
            if entry.pattern_type is PatternType.PREFIXED
            else entry.resource_name in (name, WILDCARD)
        )
        if (
            is_over
            and entry.resource_type is asked.resource_type
            and entry.principal in (asked.principal, ANY_USER)
            and rule.operations >> operation & 1
            and rule.holds_at(host, address_of(host))
        ):
            verdicts.add(entry.permission)
    return verdicts == {AclPermission.ALLOW}


def _delete(cluster: InMemoryController, request: Any, version: int) -> None:
    before = set(cluster.image.acls.ids)
    answer: Any = cluster.forward(request, version)
    decode(DeleteAclsResponse, version, encode(answer, version))
    gone: set[AclEntry] = set()
    for asked, result in zip(request.filters, answer.filter_results, strict=True):
        wanted = AclFilter.of_codes(
            resource_type=asked.resource_type_filter,
            resource_name=asked.resource_name_filter,
            pattern_type=asked.pattern_type_filter,
            principal=asked.principal_filter,
            host=asked.host_filter,
            operation=asked.operation,
            permission=asked.permission_type,
        )
        found = {one for one in before if not result.error_code and wanted.matches(one)}
        assert len(result.matching_acls) == len(found)
        gone |= found
    assert set(cluster.image.acls.ids) == before - gone


def _seeds(random: Random) -> Iterator[bytes]:
    rows = []
    rng = FuzzRng(random)
    for good in (_good_creations(), _good_filters()):
        for version in VERSIONS:
            examples = [encode(example(type(good), version, rng), version) for _ in range(6)]
            rows.append([encode(good, version), *(one for one in examples if len(one) < 2_000)])
    return numbered(rows)


ACLS = FuzzTarget(
    name="acls",
    sentence="ACLs and filters from clients, and decisions of the authorizer",
    check=_check,
    seeds=_seeds,
    refusals=(ProtocolError, RefusedError),
    allocation_ratio=100,
)
