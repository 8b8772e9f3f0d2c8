"""Quotas of users, client ids and addresses."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.admin_parts.admin_calls import AdminCalls, refusal_of
from ottla.client.network.cluster import raise_for
from ottla.model.errors import RefusedError
from ottla.model.ids import NodeId
from ottla.model.quota_limits import QuotaEntity
from ottla.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from ottla.wire.messages.alter_client_quotas_response import AlterClientQuotasResponse
from ottla.wire.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from ottla.wire.messages.describe_client_quotas_response import DescribeClientQuotasResponse
from ottla.wire.messages.describe_quota_usage_request import DescribeQuotaUsageRequest
from ottla.wire.messages.describe_quota_usage_response import DescribeQuotaUsageResponse

QuotaOwner = tuple[QuotaEntity, ...]
"""Whom limits are for: a user, a client id or both, or an address; sorted."""


class QuotaChange(NamedTuple):
    """What to change of one owner's limits; None removes a limit."""

    owner: QuotaOwner
    limits: Mapping[str, float | None]


class QuotaUsage(NamedTuple):
    """What one client uses of one limit at one broker."""

    node: NodeId
    key: str
    user: str
    """Empty where the limit is for a client id alone."""
    client_id: str
    limit: float
    rate: float
    """Per second."""
    throttle_ms: int
    """For how long the client is still throttled."""


class QuotaCalls(AdminCalls):
    """Calls about quotas."""

    async def describe_quota_usage(self, node: NodeId, *, count_max: int) -> list[QuotaUsage]:
        """Return what limited clients use of a broker, of each quota the throttled ones first."""
        answer = await self._cluster.request(
            DescribeQuotaUsageRequest(count_max=count_max), DescribeQuotaUsageResponse, node=node
        )
        raise_for(answer.error_code, answer.error_message)
        return [
            QuotaUsage(
                node,
                one.quota_key,
                one.user,
                one.client_id,
                one.limit,
                one.rate,
                one.throttle_ms,
            )
            for one in answer.clients
        ]

    async def describe_quotas(self) -> dict[QuotaOwner, dict[str, float]]:
        """Return every limit there is, by its owner and key."""
        answer = await self._cluster.request(
            DescribeClientQuotasRequest(), DescribeClientQuotasResponse
        )
        raise_for(answer.error_code, answer.error_message)
        return {
            tuple(
                sorted(
                    QuotaEntity(part.entity_type, part.entity_name is None, part.entity_name or "")
                    for part in entry.entity
                )
            ): {value.key: value.value for value in entry.values}
            for entry in answer.entries or ()
        }

    async def alter_quotas(
        self, changes: Iterable[QuotaChange], *, is_trial: bool = False
    ) -> list[RefusedError | None]:
        """Change limits in one request; return for each owner why it was refused, or None."""
        request = AlterClientQuotasRequest(
            entries=[
                EntryData(
                    entity=[
                        EntityData(
                            entity_type=part.type,
                            entity_name=None if part.is_default else part.name,
                        )
                        for part in change.owner
                    ],
                    ops=[
                        OpData(key=key, value=limit or 0.0, remove=limit is None)
                        for key, limit in change.limits.items()
                    ],
                )
                for change in changes
            ],
            validate_only=is_trial,
        )
        answer = await self._sit_out(
            lambda: self._cluster.request(request, AlterClientQuotasResponse)
        )
        return [refusal_of(entry.error_code, entry.error_message) for entry in answer.entries]
