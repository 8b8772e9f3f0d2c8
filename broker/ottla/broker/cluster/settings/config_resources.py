"""ListConfigResources: lists the resources that have dynamic settings (KIP-1142; version 0: client
metrics). Pure."""

from collections.abc import Iterable

from ottla.broker.cluster.cluster_view import ClusterView
from ottla.model.errors import ErrorCode
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.resources import ConfigKind
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.network.dispatch import RequestContext
from ottla.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from ottla.wire.messages.list_config_resources_response import (
    ConfigResource,
    ListConfigResourcesResponse,
)

EVERY_TYPE = (
    ConfigKind.TOPIC,
    ConfigKind.BROKER,
    ConfigKind.BROKER_LOGGER,
    ConfigKind.CLIENT_METRICS,
    ConfigKind.GROUP,
)


class ListConfigResourcesApi:
    """Handler of ListConfigResources, versions 0 and 1."""

    def __init__(self, *, config: BrokerConfig, metadata: MetadataCache) -> None:
        self._config = config
        self._metadata = metadata

    def handle(
        self, context: RequestContext, request: ListConfigResourcesRequest
    ) -> ListConfigResourcesResponse:
        """Answer the request with the resources that have dynamic settings. If the request names
        resource types, only resources of these types are returned."""
        known = (ConfigKind.CLIENT_METRICS,) if context.api_version == 0 else EVERY_TYPE
        asked = dict.fromkeys(request.resource_types or known)
        if not asked.keys() <= set(known):
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        view = ClusterView(self._metadata.image, self._config, context.peer)
        return ListConfigResourcesResponse(
            config_resources=[
                ConfigResource(resource_name=name, resource_type=resource_type)
                for resource_type in asked
                for name in _names(view, resource_type)
            ]
        )


def _names(view: ClusterView, resource_type: int) -> Iterable[str]:
    match resource_type:
        case ConfigKind.TOPIC:
            return sorted(view.image.topic_ids)
        case ConfigKind.BROKER | ConfigKind.BROKER_LOGGER:
            return [str(broker.node_id) for broker in view.brokers()]
    return sorted(name for kind, name in view.image.configs if kind == resource_type)
