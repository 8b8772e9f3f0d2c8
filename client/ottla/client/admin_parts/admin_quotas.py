"""Admin calls for the quotas of users, client ids and IP addresses."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.admin_parts.admin_calls import AdminCalls, refusal_of
from ottla.client.network.cluster import raise_for
from ottla.model.errors import RefusedError
from ottla.model.ids import NodeId
from ottla.model.quotas.quota_limits import QuotaEntity
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
"""Entity that has quotas: a user, a client id, a user together with a client id, or an IP address.
The components of the tuple are sorted."""


class QuotaChange(NamedTuple):
    """Changes to the quotas of one entity, such as a user. The value None removes a quota."""

    owner: QuotaOwner
    limits: Mapping[str, float | None]


class QuotaUsage(NamedTuple):
    """Usage of one quota by one client at one broker: its measured rate and its throttle time."""

    node: NodeId
    key: str
    user: str
    """Name of the user. Empty if the quota applies to a client id without a user."""
    client_id: str
    limit: float
    rate: float
    """Measured rate of the client per second, in the unit of the quota."""
    throttle_ms: int
    """Time in ms for which the broker will still throttle the client."""


class QuotaCalls(AdminCalls):
    """Methods of the admin client that describe and change quotas."""

    async def describe_quota_usage(self, node: NodeId, *, count_max: int) -> list[QuotaUsage]:
        """Return the usage of quotas by clients at one broker, in at most `count_max` entries.

        The entries of each quota start with the clients that are being throttled.
        """
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
        """Return all quotas of the cluster, by entity and quota key."""
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
        """Change the quotas of several entities by one request.

        Returns a list with the RefusedError of each entity, in order, or None if its quotas were
        changed. With `is_trial`, the changes are only validated.
        """
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
        answer = await self._retry_until_timeout(
            lambda: self._cluster.request(request, AlterClientQuotasResponse)
        )
        return [refusal_of(entry.error_code, entry.error_message) for entry in answer.entries]
