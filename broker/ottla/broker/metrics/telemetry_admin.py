"""Handlers of DescribeClientInstances and TailClientMetrics (Ottla's own, keys 20002 and 20003).
Pure.

These APIs report the clients that push metrics to this broker, and the latest pushes. Each response
is bounded. A query about ten thousand clients therefore takes many short requests and does not
block the event loop. TailClientMetrics returns the pushed bytes, which the caller decodes.
"""

from collections.abc import Iterable
from contextlib import suppress
from heapq import nsmallest
from uuid import UUID

from ottla.broker.metrics.telemetry_tail import TelemetryTail
from ottla.model.errors import CorruptDataError
from ottla.model.ids import NodeId
from ottla.node.network.dispatch import RequestContext
from ottla.storage.directories.meta_properties import uuid_from_text
from ottla.telemetry.clients.client_labels import ClientLabels
from ottla.telemetry.clients.exporter import LabelledPush
from ottla.telemetry.clients.instances import ClientInstance
from ottla.wire.messages import describe_client_instances_response as instances_response
from ottla.wire.messages.describe_client_instances_request import DescribeClientInstancesRequest
from ottla.wire.messages.describe_client_instances_response import DescribeClientInstancesResponse
from ottla.wire.messages.tail_client_metrics_request import TailClientMetricsRequest
from ottla.wire.messages.tail_client_metrics_response import ClientPush, TailClientMetricsResponse

INSTANCES_MAX = 1_000
"""Maximum number of clients in one DescribeClientInstances response. Building a response of this
size blocks the event loop for some milliseconds."""
TAIL_BYTES_MAX = 1_048_576


class TelemetryAdminApi:
    """Handlers of DescribeClientInstances and TailClientMetrics, version 0, which report the
    clients that push metrics."""

    def __init__(
        self, *, node_id: NodeId, instances: Iterable[ClientInstance], tail: TelemetryTail
    ) -> None:
        self._node_id = node_id
        self._instances = instances
        self._tail = tail

    def describe_instances(
        self, context: RequestContext, request: DescribeClientInstancesRequest
    ) -> DescribeClientInstancesResponse:
        """Answer the request with the clients whose instance ids follow the request's instance id,
        in ascending order."""
        following = [one for one in self._instances if _id(one) > request.after.int]
        limit = min(max(1, request.limit), INSTANCES_MAX)
        return DescribeClientInstancesResponse(
            node_id=self._node_id,
            more=len(following) > limit,
            instances=[
                _described(one, context.arrived_ms) for one in nsmallest(limit, following, key=_id)
            ],
        )

    def tail(
        self, context: RequestContext, request: TailClientMetricsRequest
    ) -> TailClientMetricsResponse:
        """Answer the request at once with the stored metric pushes of clients from its cursor
        on."""
        found = self._tail.since(
            request.cursor,
            names=None if request.client is None else _names(request.client),
            bytes_max=min(max(0, request.max_bytes), TAIL_BYTES_MAX),
        )
        return TailClientMetricsResponse(
            node_id=self._node_id,
            cursor=found.cursor,
            missed=found.missed,
            pushes=[_pushed(labels, push) for labels, push in found.pushes],
        )


def _id(instance: ClientInstance) -> int:
    return instance.id.int


def _described(instance: ClientInstance, now_ms: int) -> instances_response.ClientInstance:
    traits = instance.traits
    asked = instance.effective
    return instances_response.ClientInstance(
        client_instance_id=instance.id,
        client_id=traits.client_id,
        client_software_name=traits.software_name,
        client_software_version=traits.software_version,
        client_source_address=traits.source_address,
        client_source_port=traits.source_port,
        subscription_id=asked.subscription_id,
        push_interval_ms=asked.interval_ms,
        metrics=list(asked.metrics),
        last_get_ms_ago=_ago(instance.last_get_ms, now_ms),
        last_push_ms_ago=_ago(instance.last_push_ms, now_ms),
        push_count=instance.push_count,
        push_bytes=instance.push_bytes,
        last_error_code=instance.last_error,
        terminating=instance.is_terminating,
    )


def _ago(moment_ms: int | None, now_ms: int) -> int:
    return -1 if moment_ms is None else max(0, now_ms - moment_ms)


def _pushed(labels: ClientLabels, push: LabelledPush) -> ClientPush:
    return ClientPush(
        client_instance_id=labels.client_instance_id,
        client_id=labels.client_id,
        client_software_name=labels.software_name,
        client_software_version=labels.software_version,
        client_source_address=labels.source_address,
        received_ms=push.received_ms,
        metrics=push.otlp,
    )


def _names(client: str) -> set[str | UUID]:
    """Return the possible meanings of the text `client`: a client id, and also a client instance id
    if the text is a UUID."""
    names: set[str | UUID] = {client}
    with suppress(CorruptDataError):
        names.add(uuid_from_text(client))
    return names
