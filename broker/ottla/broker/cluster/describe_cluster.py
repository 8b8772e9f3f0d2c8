"""DescribeCluster: the brokers, for admin clients (KIP-700, KIP-919, KIP-1073).  Pure."""

from ottla.broker.cluster.cluster_view import ClusterView
from ottla.broker.cluster.metadata_cache import MetadataCache
from ottla.model.errors import ErrorCode
from ottla.model.settings.broker import BrokerConfig
from ottla.node.authorization.questions import cluster_operations
from ottla.node.network.dispatch import RequestContext
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_cluster_response import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2
FENCED_FROM = 2


class DescribeClusterApi:
    """Handler of DescribeCluster, versions 0 to 2."""

    def __init__(self, *, config: BrokerConfig, cluster_id: str, metadata: MetadataCache) -> None:
        self._config = config
        self._cluster_id = cluster_id
        self._metadata = metadata

    def handle(
        self, context: RequestContext, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        """Answer with the live brokers, and with the fenced ones if requested."""
        if request.endpoint_type != BROKERS:
            return _wrong_endpoint(request.endpoint_type)
        view = ClusterView(self._metadata.image, self._config, context.peer)
        return DescribeClusterResponse(
            cluster_id=self._cluster_id,
            controller_id=view.controller_id,
            brokers=[
                DescribeClusterBroker(
                    broker_id=broker.node_id,
                    host=broker.host,
                    port=broker.port,
                    rack=broker.rack,
                    is_fenced=broker.is_fenced and context.api_version >= FENCED_FROM,
                )
                for broker in view.brokers(with_fenced=request.include_fenced_brokers)
            ],
            cluster_authorized_operations=cluster_operations(
                context.permissions, is_asked=request.include_cluster_authorized_operations
            ),
        )


def _wrong_endpoint(endpoint_type: int) -> DescribeClusterResponse:
    """Return the response that refuses an endpoint type which brokers do not describe."""
    if endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an "
            "endpoint of type CONTROLLER",
            endpoint_type=BROKERS,
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        error_message=f"Unsupported endpoint type {endpoint_type}",
        endpoint_type=BROKERS,
    )
