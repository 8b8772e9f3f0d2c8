"""DescribeClientQuotas: which entities a filter matches, and which filters make no sense."""

from typing import Any

import pytest

from ottla.broker.cluster.describe_client_quotas import ANY, DEFAULT, EXACT, DescribeClientQuotasApi
from ottla.metadata import fold
from ottla.metadata.image import EMPTY
from ottla.metadata.records import client_quota_record
from ottla.model.errors import ErrorCode
from ottla.model.quotas.quota_limits import QuotaEntity
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.network.steps import run_through
from ottla.wire.messages.describe_client_quotas_request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from ottla.wire.messages.describe_client_quotas_response import DescribeClientQuotasResponse

ANNA = QuotaEntity("user", False, "anna")
ANY_USER = QuotaEntity("user", True, "")
LOADER = QuotaEntity("client-id", False, "loader")
ENTITIES = [(ANNA,), (ANY_USER,), (LOADER,), (LOADER, ANNA)]
Asked = tuple[str, int, str | None]


def described(*asked: Asked, strict: bool = False) -> DescribeClientQuotasResponse:
    metadata = MetadataCache(lambda topic: False)
    metadata.image = fold.apply_all(
        EMPTY,
        [client_quota_record(entity, "producer_byte_rate", 7) for entity in ENTITIES],
    )
    api = DescribeClientQuotasApi(metadata)
    components = [
        ComponentData(entity_type=type_, match_type=match_type, match=match)
        for type_, match_type, match in asked
    ]
    request = DescribeClientQuotasRequest(components=components, strict=strict)
    context: Any = None
    response = run_through(api.handle(context, request))
    assert isinstance(response, DescribeClientQuotasResponse)
    return response


def found(*asked: Asked, strict: bool = False) -> list[tuple[QuotaEntity, ...]]:
    response = described(*asked, strict=strict)
    assert response.error_code == ErrorCode.NONE
    assert response.entries is not None
    return sorted(
        tuple(
            QuotaEntity(part.entity_type, part.entity_name is None, part.entity_name or "")
            for part in one.entity
        )
        for one in response.entries
    )


def test_all_quotas_are_described_without_a_filter() -> None:
    assert found() == sorted(ENTITIES)
    response = described(("user", DEFAULT, None))
    assert response.entries is not None
    assert [(one.key, one.value) for one in response.entries[0].values] == [
        ("producer_byte_rate", 7)
    ]


def test_a_component_matches_a_name_the_default_or_any() -> None:
    assert found(("user", EXACT, "anna")) == [(LOADER, ANNA), (ANNA,)]
    assert found(("user", DEFAULT, None)) == [(ANY_USER,)]
    assert found(("user", ANY, None)) == [(LOADER, ANNA), (ANNA,), (ANY_USER,)]
    assert found(("user", ANY, None), ("client-id", EXACT, "loader")) == [(LOADER, ANNA)]


def test_a_strict_filter_leaves_out_who_has_other_parts() -> None:
    assert found(("user", EXACT, "anna"), strict=True) == [(ANNA,)]
    assert found(strict=True) == []


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("user", DEFAULT, None)], ErrorCode.INVALID_REQUEST),
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "anna")], ErrorCode.INVALID_REQUEST),
        ([("ip", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_make_no_sense_are_refused(asked: list[Asked], code: ErrorCode) -> None:
    response = described(*asked)

    assert response.error_code == code
    assert response.error_message
    assert response.entries is None
