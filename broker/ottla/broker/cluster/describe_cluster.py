"""DescribeCluster: describes the brokers to admin clients (KIP-700, KIP-919, KIP-1073). Pure."""

from ottla.broker.cluster.cluster_view import ClusterView
from ottla.model.settings.broker import BrokerConfig
from ottla.node.admin.describe_cluster import BROKERS, wrong_endpoint
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.authorization.questions import cluster_operations
from ottla.node.network.dispatch import RequestContext
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_cluster_response import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)

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
        """Answer the request with the live brokers. Fenced brokers are included if the request asks
        for them."""
        if request.endpoint_type != BROKERS:
            return wrong_endpoint(request.endpoint_type, BROKERS, context.api_version)
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
