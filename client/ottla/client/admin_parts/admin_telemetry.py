"""Admin calls for client telemetry (KIP-714): subscriptions, reporting clients, last pushes.

A subscription is a resource of the kind CLIENT_METRICS and is changed like any other resource. A
client pushes its metrics to one broker, and only that broker knows the client and its pushes.
Requests about clients are therefore sent to one broker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from ottla.client.admin_parts.admin_calls import granted
from ottla.client.admin_parts.admin_configs import ConfigCalls, ConfigEntry, ConfigResource
from ottla.client.network.answer_checks import known
from ottla.client.network.cluster import raise_for
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
"""Initial cursor for `tail_client_metrics` that selects all pushes that the broker still stores.
The other initial cursor, FROM_NOW, selects only pushes that arrive later."""


@dataclass(frozen=True, slots=True)
class MetricsSubscription:
    """A subscription to the metrics of clients. Properties that were not set have their default
    values."""

    name: str
    """Name of the subscription."""
    metrics: tuple[str, ...]
    """Prefixes of the names of the requested metrics. `*` requests all metrics. An empty tuple
    requests none."""
    interval_ms: int
    """Interval between two pushes of a client's metrics, in ms."""
    match: tuple[str, ...]
    """Conditions of the form `NAME=REGULAR EXPRESSION`. The subscription applies to clients that
    satisfy all of them."""
    own: frozenset[str] = frozenset()
    """Keys of the properties that are set on the subscription. All other properties have their
    defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientInstanceDescription:
    """A client that has requested its telemetry subscription from a broker, as reported by that
    broker."""

    node: NodeId
    """Id of the broker that the client reports to."""
    client_instance_id: UUID
    """Client instance id that a broker has assigned to the client (KIP-714)."""
    client_id: str | None
    """Client id that the application has configured (`client.id`)."""
    software_name: str
    """Name of the client library."""
    software_version: str
    """Version of the client library."""
    source_address: str
    """IP address from which the client connects to the broker."""
    source_port: int
    """TCP port from which the client connects to the broker."""
    subscription_id: int
    """Id of the subscription that the client received most recently."""
    interval_ms: int
    """Interval between the client's pushes, in ms."""
    metrics: tuple[str, ...]
    """Prefixes of the names of the metrics that the client is requested to push."""
    last_get_ms_ago: int | None
    """Time in ms since the client last requested its subscription, or None if it has not requested
    one from this broker."""
    last_push_ms_ago: int | None
    """Time in ms since the client last pushed metrics, or None if it has not pushed metrics to this
    broker."""
    push_count: int
    """Number of pushes that the broker accepted."""
    push_bytes: int
    """Total size in bytes of the accepted pushes, as received (possibly compressed)."""
    last_error: ErrorCode
    """Error code of the broker's last response to the client."""
    is_terminating: bool
    """True if the client has announced that its last push was the final one."""


class PushedMetrics(NamedTuple):
    """Metrics that one client sent in one push."""

    node: NodeId
    """Id of the broker that received the push."""
    client_instance_id: UUID
    """Client instance id that a broker has assigned to the client (KIP-714)."""
    client_id: str | None
    """Client id that the application has configured (`client.id`)."""
    software_name: str
    """Name of the client library."""
    software_version: str
    """Version of the client library."""
    source_address: str
    """IP address from which the client connects to the broker."""
    received_ms: int
    """Time when the broker received the push, in ms since 1970."""
    otlp: bytes
    """Metrics as an uncompressed MetricsData message of OpenTelemetry's protocol."""


class TailedMetrics(NamedTuple):
    """Pushes of metrics that a broker received after a cursor, and the cursor for the next call."""

    cursor: int
    """Cursor to pass to the next call."""
    missed: int
    """Number of pushes after the requested cursor that the broker has already discarded."""
    pushes: tuple[PushedMetrics, ...]
    """Pushes of metrics that the broker received after the cursor, oldest first."""


class TelemetryCalls(ConfigCalls):
    """Methods of the admin client for client telemetry (KIP-714)."""

    async def list_metrics_subscriptions(self) -> list[MetricsSubscription]:
        """Return all subscriptions to client metrics, sorted by name."""
        request = ListConfigResourcesRequest()

        async def attempt() -> list[str]:
            version = await self._cluster.version_of(ListConfigResourcesRequest.API_KEY)
            # Version 0 lists client metrics only, and has no field for the kind.
            request.resource_types = [ConfigKind.CLIENT_METRICS] if version else []
            answer = await self._cluster.request(
                request, ListConfigResourcesResponse, version=version
            )
            raise_for(answer.error_code)
            return sorted(one.resource_name for one in answer.config_resources)

        names = await self._retry_until_timeout(attempt)
        return await self._describe_subscriptions(names) if names else []

    async def describe_metrics_subscription(self, name: str) -> MetricsSubscription:
        """Return a subscription to client metrics. If it does not exist, the result has the default
        of every property."""
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
        """Create or change a subscription to client metrics. An argument of None leaves that
        property unchanged.

        A client receives the change when it next pushes metrics or requests its subscription. With
        `is_rehearsal`, the change is only validated.
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
        """Delete a subscription to client metrics if it exists. With `is_rehearsal`, the request is
        only validated."""
        gone = dict.fromkeys((METRICS, INTERVAL_MS, MATCH))
        await self.alter_configs(_resource(name), gone, is_rehearsal=is_rehearsal)

    async def describe_client_instances(self, node: NodeId) -> list[ClientInstanceDescription]:
        """Return the clients that report metrics to one broker."""
        found: dict[UUID, ClientInstanceDescription] = {}
        request = DescribeClientInstancesRequest()
        while True:
            answer = await self._cluster.request(
                request, DescribeClientInstancesResponse, node=node
            )
            raise_for(answer.error_code, answer.error_message)
            for row in answer.instances:
                found[row.client_instance_id] = _instance(node, row)
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
        """Return the pushes of metrics that one broker received after a cursor, oldest first.

        `client` selects the pushes of one client id, or of one client instance id in Kafka's text
        form. A broker stores only a few pushes. A slow caller misses pushes; `missed` in the result
        is their number.
        """
        request = TailClientMetricsRequest(cursor=cursor, client=client, max_bytes=bytes_max)
        answer = await self._cluster.request(request, TailClientMetricsResponse, node=node)
        raise_for(answer.error_code, answer.error_message)
        pushes = tuple(_push(node, row) for row in answer.pushes)
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


def _instance(node: NodeId, row: ClientInstance) -> ClientInstanceDescription:
    return ClientInstanceDescription(
        node=node,
        client_instance_id=row.client_instance_id,
        client_id=row.client_id,
        software_name=row.client_software_name,
        software_version=row.client_software_version,
        source_address=row.client_source_address,
        source_port=row.client_source_port,
        subscription_id=row.subscription_id,
        interval_ms=row.push_interval_ms,
        metrics=tuple(row.metrics),
        last_get_ms_ago=None if row.last_get_ms_ago < 0 else row.last_get_ms_ago,
        last_push_ms_ago=None if row.last_push_ms_ago < 0 else row.last_push_ms_ago,
        push_count=row.push_count,
        push_bytes=row.push_bytes,
        last_error=known(ErrorCode, row.last_error_code, ErrorCode.UNKNOWN_SERVER_ERROR),
        is_terminating=row.terminating,
    )


def _push(node: NodeId, row: ClientPush) -> PushedMetrics:
    return PushedMetrics(
        node=node,
        client_instance_id=row.client_instance_id,
        client_id=row.client_id,
        software_name=row.client_software_name,
        software_version=row.client_software_version,
        source_address=row.client_source_address,
        received_ms=row.received_ms,
        otlp=bytes(row.metrics),
    )
