"""CreateAcls and DeleteAcls: ACLs that are stored, deleted and refused."""

from dataclasses import replace
from typing import Any

import pytest

from ottla.controller.decision import decided
from ottla.controller.security import acls
from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.records import feature_level_record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.security.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.security.authorizer import STANDARD_AUTHORIZER, AuthorizerConfig
from ottla.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from ottla.wire.messages.create_acls_response import CreateAclsResponse
from ottla.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.delete_acls_response import DeleteAclsResponse

AUTHORIZER = AuthorizerConfig(
    class_name=STANDARD_AUTHORIZER, super_users=frozenset({"User:ANONYMOUS"})
)
ENTRY = AclEntry(
    resource_type=ResourceType.TOPIC,
    resource_name="t",
    pattern_type=PatternType.LITERAL,
    principal="User:al",
    host="*",
    operation=AclOperation.READ,
    permission=AclPermission.ALLOW,
)


@pytest.fixture
def cluster() -> InMemoryController:
    return InMemoryController(config=ControllerConfig(authorizer=AUTHORIZER))


def creation(entry: AclEntry, **changes: Any) -> AclCreation:
    fields: dict[str, Any] = {
        "resource_type": int(entry.resource_type),
        "resource_name": entry.resource_name,
        "resource_pattern_type": int(entry.pattern_type),
        "principal": entry.principal,
        "host": entry.host,
        "operation": int(entry.operation),
        "permission_type": int(entry.permission),
    }
    return AclCreation(**fields | changes)


def create(
    cluster: InMemoryController, *asked: AclEntry | AclCreation
) -> list[tuple[int, str | None]]:
    creations = [one if isinstance(one, AclCreation) else creation(one) for one in asked]
    response = cluster.forward(CreateAclsRequest(creations=creations))
    assert isinstance(response, CreateAclsResponse)
    return [(one.error_code, one.error_message) for one in response.results]


def wanted(**changes: Any) -> DeleteAclsFilter:
    fields: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return DeleteAclsFilter(**fields | changes)


def delete(cluster: InMemoryController, *filters: DeleteAclsFilter) -> DeleteAclsResponse:
    response = cluster.forward(DeleteAclsRequest(filters=list(filters)))
    assert isinstance(response, DeleteAclsResponse)
    return response


def names_of(response: DeleteAclsResponse) -> list[list[str]]:
    return [[one.resource_name for one in found.matching_acls] for found in response.filter_results]


def stored(cluster: InMemoryController) -> set[AclEntry]:
    return set(cluster.image.acls.entries.values())


def test_entries_are_stored_as_they_were_asked_for(cluster: InMemoryController) -> None:
    prefixed = replace(ENTRY, pattern_type=PatternType.PREFIXED, host="10.0.0.0/8")

    assert create(cluster, ENTRY, prefixed) == [(0, None), (0, None)]
    assert stored(cluster) == {ENTRY, prefixed}


def test_an_entry_that_exists_is_accepted_and_writes_nothing(cluster: InMemoryController) -> None:
    create(cluster, ENTRY)
    before = cluster.next_offset

    assert create(cluster, ENTRY, ENTRY) == [(0, None), (0, None)]
    assert cluster.next_offset == before
    assert create(cluster, replace(ENTRY, host="10.0.0.1"), replace(ENTRY, host="10.0.0.1"))
    assert cluster.next_offset == before + 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resource_type": 0}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
        ({"resource_pattern_type": -1}, "Invalid patternType UNKNOWN"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        (
            {"resource_type": 4, "resource_name": "mine"},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        ({"resource_name": "n" * 1_025}, "Resource name must not be longer than 1024 characters"),
        ({"principal": "User:" + "n" * 1_020}, "Principal must not be longer than 1024 characters"),
        ({"principal": "al"}, "Could not parse principal from `al` (no colon is present "),
        ({"host": ""}, "Host pattern cannot be null or empty"),
        ({"host": "h" * 257}, "Host must not be longer than 256 characters"),
        ({"host": "10.0.0.0/33"}, "Invalid CIDR notation '10.0.0.0/33'"),
    ],
)
def test_what_cannot_be_an_entry_is_refused_alone(
    cluster: InMemoryController, changes: dict[str, Any], message: str
) -> None:
    refused, served = create(cluster, creation(ENTRY, **changes), ENTRY)

    assert refused[0] == ErrorCode.INVALID_REQUEST
    assert (refused[1] or "").startswith(message)
    assert served == (0, None)
    assert stored(cluster) == {ENTRY}


def test_a_range_needs_the_metadata_version_that_has_it(cluster: InMemoryController) -> None:
    cluster.take(decided(cluster.image, [feature_level_record(METADATA_VERSION, 31)], None))
    ranged = replace(ENTRY, host="10.0.0.0/8")

    [(code, message)] = create(cluster, ranged)
    assert code == ErrorCode.UNSUPPORTED_VERSION
    assert message == "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."

    cluster.take(decided(cluster.image, [feature_level_record(METADATA_VERSION, 32)], None))
    assert create(cluster, ranged) == [(0, None)]


def test_filters_delete_what_they_match_and_tell_each_of_it(cluster: InMemoryController) -> None:
    prefixed = replace(ENTRY, resource_name="te", pattern_type=PatternType.PREFIXED)
    wildcard = replace(ENTRY, resource_name="*")
    other = replace(ENTRY, resource_name="other")
    create(cluster, ENTRY, prefixed, wildcard, other)

    response = delete(
        cluster,
        wanted(resource_name_filter="test", pattern_type_filter=2),
        wanted(resource_name_filter="*"),
        wanted(resource_name_filter="nothing"),
        wanted(pattern_type_filter=0),
    )

    first, *others = names_of(response)
    assert sorted(first) == ["*", "te"]
    assert others == [["*"], [], []]
    codes = [one.error_code for one in response.filter_results]
    assert codes == [0, 0, 0, ErrorCode.INVALID_REQUEST]
    assert stored(cluster) == {ENTRY, other}


def test_an_entry_may_come_again_after_it_went(cluster: InMemoryController) -> None:
    create(cluster, ENTRY)
    delete(cluster, wanted(resource_name_filter="t"))
    assert stored(cluster) == set()

    assert create(cluster, ENTRY) == [(0, None)]
    assert stored(cluster) == {ENTRY}


def test_more_entries_than_one_operation_may_write_are_refused(
    cluster: InMemoryController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acls, "USER_OPERATION_RECORDS_MAX", 2)
    many = [replace(ENTRY, resource_name=f"t{number}") for number in range(3)]

    with pytest.raises(RefusedError) as caught:
        create(cluster, *many)
    assert caught.value.code == ErrorCode.POLICY_VIOLATION

    create(cluster, *many[:2])
    create(cluster, many[2])
    with pytest.raises(RefusedError) as caught:
        delete(cluster, wanted())
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert len(stored(cluster)) == 3
    assert len(names_of(delete(cluster, wanted(resource_name_filter="t1")))) == 1


def test_filters_that_find_the_same_over_and_over_are_refused_as_a_whole(
    cluster: InMemoryController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acls, "FOUND_MAX", 4)
    create(cluster, ENTRY, replace(ENTRY, resource_name="u"))

    with pytest.raises(RefusedError) as caught:
        delete(cluster, *[wanted()] * 3)
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert len(stored(cluster)) == 2


def test_filters_that_look_at_everything_are_bounded_and_named_ones_are_not(
    cluster: InMemoryController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acls, "LOOKED_AT_MAX", 150)
    create(cluster, *[replace(ENTRY, resource_name=f"t{number}") for number in range(100)])

    by_name = [wanted(resource_name_filter=f"t{number}") for number in range(100)]
    nowhere = wanted(host_filter="10.9.9.9")
    with pytest.raises(RefusedError) as caught:
        delete(cluster, nowhere, nowhere)
    assert caught.value.code == ErrorCode.INVALID_REQUEST

    delete(cluster, *by_name)
    assert stored(cluster) == set()


def test_without_an_authorizer_there_are_no_entries() -> None:
    cluster = InMemoryController()

    for request in (CreateAclsRequest(creations=[creation(ENTRY)]), DeleteAclsRequest(filters=[])):
        with pytest.raises(RefusedError) as caught:
            cluster.forward(request)
        assert caught.value.code == ErrorCode.SECURITY_DISABLED
