"""Client telemetry (KIP-714): what clients are asked to report, who does, what they told last.

A subscription is a CLIENT_METRICS resource, changed as any other.  Clients and their pushes are
known to the broker each client pushes to, and to nobody else, so those are asked broker by broker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from ottla.client.admin_parts.admin_calls import granted
from ottla.client.admin_parts.admin_configs import ConfigCalls, ConfigEntry, ConfigResource
from ottla.client.network.cluster import raise_for
from ottla.client.network.told import known
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.model.settings.resources import ConfigKind, ConfigSource
from ottla.wire.messages.describe_client_instances_request import DescribeClientInstancesRequest
from ottla.wire.messages.describe_client_instances_response import (
    ClientInstance,
    DescribeClientInstancesResponse,
)
from ottla.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from ottla.wire.messages.list_config_resources_response import ListConfigResourcesResponse
from ottla.wire.messages.tail_client_metrics_request import TailClientMetricsRequest
from ottla.wire.messages.tail_client_metrics_response import ClientPush, TailClientMetricsResponse

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
TAIL_BYTES = 1_048_576
FROM_NOW = -1
FROM_OLDEST = 0
"""Cursors to begin a tail with."""


@dataclass(frozen=True, slots=True)
class MetricsSubscription:
    """What clients are asked to report; every part says what it is by itself or by default."""

    name: str
    """Name of the subscription."""
    metrics: tuple[str, ...]
    """Prefixes of names; `*` is all, none is nothing."""
    interval_ms: int
    """Interval between pushes, in ms."""
    match: tuple[str, ...]
    """`NAME=REGULAR EXPRESSION`, all of which a client must fulfil."""
    own: frozenset[str] = frozenset()
    """The keys that the subscription itself sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientInstanceDescription:
    """One client that asked what to report, as the broker it talks to sees it."""

    node: NodeId
    """Id of the broker that the client reports to."""
    client_instance_id: UUID
    """Id of the client instance."""
    client_id: str | None
    """The client's `client.id`."""
    software_name: str
    """Name of the client's library."""
    software_version: str
    """Version of the client's library."""
    source_address: str
    """Address that the client connects from."""
    source_port: int
    """Port that the client connects from."""
    subscription_id: int
    """Of what it was asked for last."""
    interval_ms: int
    """Interval between pushes, in ms."""
    metrics: tuple[str, ...]
    """Prefixes of the metrics that it is asked for."""
    last_get_ms_ago: int | None
    """Age of its last request for a subscription, in ms."""
    last_push_ms_ago: int | None
    """Age of its last push, in ms."""
    push_count: int
    """Pushes that were taken in, and their bytes as they came."""
    push_bytes: int
    """Size of its last push, in bytes."""
    last_error: ErrorCode
    """What its last request was answered with."""
    is_terminating: bool
    """Whether it announced its last push."""


class PushedMetrics(NamedTuple):
    """What one client pushed at one time."""

    node: NodeId
    """Id of the broker that received the push."""
    client_instance_id: UUID
    """Id of the client instance."""
    client_id: str | None
    """The client's `client.id`."""
    software_name: str
    """Name of the client's library."""
    software_version: str
    """Version of the client's library."""
    source_address: str
    """Address that the client connects from."""
    received_ms: int
    """Wall time of the broker."""
    otlp: bytes
    """MetricsData of OpenTelemetry, unpacked."""


class TailedMetrics(NamedTuple):
    """What came since the cursor that was asked with."""

    cursor: int
    """To ask with next."""
    missed: int
    """Pushes that came and went before anybody asked."""
    pushes: tuple[PushedMetrics, ...]
    """Pushes, the oldest first."""


class TelemetryCalls(ConfigCalls):
    """Calls about client telemetry."""

    async def list_metrics_subscriptions(self) -> list[MetricsSubscription]:
        """Return every subscription, by name."""
        request = ListConfigResourcesRequest()

        async def attempt() -> list[str]:
            version = await self._cluster.version_of(ListConfigResourcesRequest.API_KEY)
            # Version 0 knows of nothing but client metrics, and has no field to say so.
            request.resource_types = [ConfigKind.CLIENT_METRICS] if version else []
            answer = await self._cluster.request(
                request, ListConfigResourcesResponse, version=version
            )
            raise_for(answer.error_code)
            return sorted(one.resource_name for one in answer.config_resources)

        names = await self._sit_out(attempt)
        return await self._describe_subscriptions(names) if names else []

    async def describe_metrics_subscription(self, name: str) -> MetricsSubscription:
        """Return what a subscription asks for; one that does not exist has defaults only."""
        (found,) = await self._describe_subscriptions([name])
        return found

    async def set_metrics_subscription(
        self,
        name: str,
        *,
        metrics: Sequence[str] | None = None,
        interval_ms: int | None = None,
        match: Sequence[str] | None = None,
        is_rehearsal: bool = False,
    ) -> None:
        """Make a subscription or change it; what is None stays as it is.

        Clients hear of it when they next ask or push.
        """
        changes: dict[str, str] = {}
        if metrics is not None:
            changes[METRICS] = ",".join(metrics)
        if interval_ms is not None:
            changes[INTERVAL_MS] = str(interval_ms)
        if match is not None:
            changes[MATCH] = ",".join(match)
        await self.alter_configs(_resource(name), changes, is_rehearsal=is_rehearsal)

    async def delete_metrics_subscription(self, name: str, *, is_rehearsal: bool = False) -> None:
        """Delete a subscription, whether it exists or not."""
        gone = dict.fromkeys((METRICS, INTERVAL_MS, MATCH))
        await self.alter_configs(_resource(name), gone, is_rehearsal=is_rehearsal)

    async def describe_client_instances(self, node: NodeId) -> list[ClientInstanceDescription]:
        """Return the clients that report to one broker."""
        found: dict[UUID, ClientInstanceDescription] = {}
        request = DescribeClientInstancesRequest()
        while True:
            answer = await self._cluster.request(
                request, DescribeClientInstancesResponse, node=node
            )
            raise_for(answer.error_code, answer.error_message)
            for told in answer.instances:
                found[told.client_instance_id] = _instance(node, told)
            if not (answer.more and answer.instances):
                return list(found.values())
            request.after = answer.instances[-1].client_instance_id

    async def tail_client_metrics(
        self,
        node: NodeId,
        cursor: int = FROM_NOW,
        *,
        client: str | None = None,
        bytes_max: int = TAIL_BYTES,
    ) -> TailedMetrics:
        """Return what clients pushed to one broker after a cursor, the oldest first.

        With `client` only what that client id, or client instance id as Kafka prints it, pushed.
        A broker keeps little: whoever asks seldom misses some, and is told how many.
        """
        request = TailClientMetricsRequest(cursor=cursor, client=client, max_bytes=bytes_max)
        answer = await self._cluster.request(request, TailClientMetricsResponse, node=node)
        raise_for(answer.error_code, answer.error_message)
        pushes = tuple(_push(node, told) for told in answer.pushes)
        return TailedMetrics(answer.cursor, answer.missed, pushes)

    async def _describe_subscriptions(self, names: Sequence[str]) -> list[MetricsSubscription]:
        outcomes = await self.try_describe_configs([_resource(name) for name in names])
        return [_subscription(at.name, granted(found)) for at, found in outcomes.items()]


def _resource(name: str) -> ConfigResource:
    return ConfigResource(ConfigKind.CLIENT_METRICS, name)


def _subscription(name: str, settings: Mapping[str, ConfigEntry]) -> MetricsSubscription:
    texts = {key: one.value or "" for key, one in settings.items()}
    return MetricsSubscription(
        name=name,
        metrics=_parts(texts.get(METRICS, "")),
        interval_ms=int(texts.get(INTERVAL_MS, "0")),
        match=_parts(texts.get(MATCH, "")),
        own=frozenset(
            key for key, one in settings.items() if one.source is ConfigSource.CLIENT_METRICS
        ),
    )


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _instance(node: NodeId, told: ClientInstance) -> ClientInstanceDescription:
    return ClientInstanceDescription(
        node=node,
        client_instance_id=told.client_instance_id,
        client_id=told.client_id,
        software_name=told.client_software_name,
        software_version=told.client_software_version,
        source_address=told.client_source_address,
        source_port=told.client_source_port,
        subscription_id=told.subscription_id,
        interval_ms=told.push_interval_ms,
        metrics=tuple(told.metrics),
        last_get_ms_ago=None if told.last_get_ms_ago < 0 else told.last_get_ms_ago,
        last_push_ms_ago=None if told.last_push_ms_ago < 0 else told.last_push_ms_ago,
        push_count=told.push_count,
        push_bytes=told.push_bytes,
        last_error=known(ErrorCode, told.last_error_code, ErrorCode.UNKNOWN_SERVER_ERROR),
        is_terminating=told.terminating,
    )


def _push(node: NodeId, told: ClientPush) -> PushedMetrics:
    return PushedMetrics(
        node=node,
        client_instance_id=told.client_instance_id,
        client_id=told.client_id,
        software_name=told.client_software_name,
        software_version=told.client_software_version,
        source_address=told.client_source_address,
        received_ms=told.received_ms,
        otlp=bytes(told.metrics),
    )
