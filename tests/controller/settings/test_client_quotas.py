"""AlterClientQuotas: valid quotas and entities, and refusals, which store nothing."""

import math

import pytest

from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.model.errors import ErrorCode
from ottla.model.quotas.quota_limits import QuotaEntity
from ottla.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from ottla.wire.messages.alter_client_quotas_response import AlterClientQuotasResponse

RATE = "producer_byte_rate"
LOADER = (("client-id", "loader"),)
Entity = tuple[tuple[str, str | None], ...]


@pytest.fixture
def cluster() -> InMemoryController:
    cluster = InMemoryController()
    cluster.start(1)
    return cluster


def entry(entity: Entity, *limits: tuple[str, float | None]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=type_, entity_name=name) for type_, name in entity],
        ops=[OpData(key=key, value=limit or 0, remove=limit is None) for key, limit in limits],
    )


def alter(
    cluster: InMemoryController, *entries: EntryData, validate_only: bool = False
) -> list[tuple[int, str | None]]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    response = cluster.forward(request)
    assert isinstance(response, AlterClientQuotasResponse)
    return [(one.error_code, one.error_message) for one in response.entries]


def test_limits_are_set_changed_and_removed(cluster: InMemoryController) -> None:
    whole = (QuotaEntity("client-id", True, ""), QuotaEntity("user", False, "anna"))
    entity = (("user", "anna"), ("client-id", None))

    assert alter(cluster, entry(entity, (RATE, 1_024), ("request_percentage", 12.5))) == [(0, None)]
    assert dict(cluster.image.client_quotas[whole]) == {RATE: 1_024, "request_percentage": 12.5}

    alter(cluster, entry(entity, (RATE, 2_048), ("request_percentage", None)))
    assert dict(cluster.image.client_quotas[whole]) == {RATE: 2_048}

    alter(cluster, entry(entity, (RATE, None)))
    assert whole not in cluster.image.client_quotas


def test_what_is_so_already_writes_no_record(cluster: InMemoryController) -> None:
    alter(cluster, entry(LOADER, (RATE, 1_024)))
    before = cluster.image

    alter(cluster, entry(LOADER, (RATE, 1_024)), entry((("user", "u"),), (RATE, None)))

    assert cluster.image == before


def test_a_trial_changes_nothing(cluster: InMemoryController) -> None:
    assert alter(cluster, entry(LOADER, (RATE, 1_024)), validate_only=True) == [(0, None)]
    assert not cluster.image.client_quotas


def test_entries_fail_one_by_one_and_each_as_a_whole(cluster: InMemoryController) -> None:
    answers = alter(
        cluster,
        entry(LOADER, (RATE, 1_024), ("consumer_byte_rate", -1)),
        entry((("user", None),), (RATE, 7)),
    )

    assert [code for code, _ in answers] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert list(cluster.image.client_quotas) == [(QuotaEntity("user", True, ""),)]


@pytest.mark.parametrize(
    ("key", "limit", "reason"),
    [
        (RATE, 0.0, "must be above 0"),
        (RATE, -5.0, "must be above 0"),
        (RATE, 1.5, "must be a whole number"),
        (RATE, math.nan, "must be a finite number"),
        (RATE, math.inf, "must be a finite number"),
        (RATE, 1e30, "must be at most"),
        ("request_percentage", 0.0, "must be above 0"),
        ("controller_mutation_rate", 0.0, "must be above 0"),
        ("controller_mutation_rate", -0.5, "must be above 0"),
        ("controller_mutation_rate", math.nan, "must be a finite number"),
        ("controller_mutation_rate", math.inf, "must be a finite number"),
        ("connection_creation_rate", 5.0, "Invalid configuration key"),
        ("no_such_rate", 5.0, "Invalid configuration key"),
    ],
)
def test_what_is_no_limit_is_refused(
    cluster: InMemoryController, key: str, limit: float, reason: str
) -> None:
    # 0 would read as a removal in `entry`.
    asked = EntryData(
        entity=[EntityData(entity_type="client-id", entity_name="loader")],
        ops=[OpData(key=key, value=limit, remove=False)],
    )

    ((code, message),) = alter(cluster, asked)

    assert code == ErrorCode.INVALID_REQUEST
    assert message is not None
    assert reason in message
    assert not cluster.image.client_quotas


@pytest.mark.parametrize(
    ("entity", "reason"),
    [
        ((), "Invalid empty client quota entity"),
        ((("user", ""),), "Empty user is not supported"),
        ((("group", "g"),), "Unhandled client quota entity type: group"),
        ((("user", "a"), ("user", "b")), "a type is named twice"),
        ((("ip", "10.0.0.1"), ("user", "a")), "IP entity should not be combined"),
        ((("ip", "not an address"),), "is not an IP address"),
    ],
)
def test_who_cannot_be_limited_is_refused(
    cluster: InMemoryController, entity: Entity, reason: str
) -> None:
    ((code, message),) = alter(cluster, entry(entity, (RATE, 5)))

    assert code == ErrorCode.INVALID_REQUEST
    assert message is not None
    assert reason in message
    assert not cluster.image.client_quotas


@pytest.mark.parametrize("limit", [0.0, 10.0, 2_147_483_647.0])
@pytest.mark.parametrize("name", ["10.0.0.1", "::1", None])
def test_connections_of_an_address_are_limited(
    cluster: InMemoryController, name: str | None, limit: float
) -> None:
    asked = EntryData(
        entity=[EntityData(entity_type="ip", entity_name=name)],
        ops=[OpData(key="connection_creation_rate", value=limit, remove=False)],
    )

    assert alter(cluster, asked) == [(0, None)]
    entity = (QuotaEntity("ip", name is None, name or ""),)
    assert dict(cluster.image.client_quotas[entity]) == {"connection_creation_rate": limit}


@pytest.mark.parametrize("limit", [-1.0, 1.5, math.nan, math.inf, 2_147_483_648.0])
def test_what_is_no_rate_of_connections_is_refused(
    cluster: InMemoryController, limit: float
) -> None:
    asked = EntryData(
        entity=[EntityData(entity_type="ip", entity_name="10.0.0.1")],
        ops=[OpData(key="connection_creation_rate", value=limit, remove=False)],
    )

    ((code, message),) = alter(cluster, asked)

    assert code == ErrorCode.INVALID_REQUEST and message
    assert not cluster.image.client_quotas


def test_an_entity_is_answered_as_kafka_sorts_its_parts() -> None:
    cluster = InMemoryController()
    asked = entry((("user", "anna"), ("client-id", "loader")), (RATE, 1.0))
    reply = cluster.forward(AlterClientQuotasRequest(entries=[asked]))
    assert isinstance(reply, AlterClientQuotasResponse)
    (found,) = reply.entries
    assert [part.entity_type for part in found.entity] == ["client-id", "user"]
