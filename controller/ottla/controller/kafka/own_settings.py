"""Settings of this controller: descriptions for clients, and refusals of changes. Pure.

The only settings of a controller that can change at run time are the limits of connections. Kafka's
controllers accept and store any key, even a read-only one, without an effect; Ottla refuses such
keys. It also refuses to begin tiered storage of a topic, where Kafka, which never asks the object
store, accepts it. Settings of all brokers, which the active controller stores, take effect on
controllers too.
"""

from collections.abc import Callable

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import TOPIC_RESOURCE
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.settings.connections import ConnectionConfig, is_connection_bound
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.declare import definitions
from ottla.model.settings.dynamic import described_definitions
from ottla.model.settings.quorum import QuorumConfig
from ottla.model.settings.quotas import MutationQuotaConfig
from ottla.model.settings.resources import ConfigKind
from ottla.model.settings.storage.tiered_topics import is_tiered_text
from ottla.model.settings.storage.topic import REMOTE_STORAGE_ENABLE
from ottla.node.admin.alter_configs import Resource, gives_tiered_storage
from ottla.node.admin.describe_configs import DescribedNode
from ottla.node.admin.log_levels import LogLevels
from ottla.wire.messages.describe_configs_request import DescribeConfigsResource
from ottla.wire.messages.describe_configs_response import DescribeConfigsResourceResult

TIERED_BY_BROKERS = (
    f"{REMOTE_STORAGE_ENABLE}=true is refused by a controller, which cannot ask the object store:"
    " send this change to a broker"
)


class ControllerSettings:
    """Settings of the resources that a controller describes: itself, its loggers, and all brokers
    together."""

    def __init__(
        self, config: ControllerConfig, loggers: LogLevels, image: Callable[[], MetadataImage]
    ) -> None:
        self._image = image
        known = {
            **described_definitions(),
            **definitions(MutationQuotaConfig),
            **definitions(QuorumConfig),
            **definitions(ConnectionConfig),
            **definitions(ControllerConfig),
        }
        self._node = DescribedNode(config.node_id, config.texts, known, loggers)

    def configs_of(self, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
        """Return the settings of a resource. Raises RefusedError if the resource has no settings at
        a controller."""
        if resource.resource_type == ConfigKind.BROKER:
            return self._node.broker_configs(self._image(), resource.resource_name)
        if resource.resource_type == ConfigKind.BROKER_LOGGER:
            return self._node.logger_configs(resource.resource_name)
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            "A controller describes its own settings and loggers; ask a broker for others",
        )


def obstacle_of(node_id: NodeId, image: Callable[[], MetadataImage], resource: Resource) -> str:
    """Return the reason why a change of settings is refused, or an empty string if it is allowed.

    Changes of this controller's own settings are refused, except for its limits of connections. A
    topic gets tiered storage only from a broker, which asks the object store first."""
    if resource.resource_type == ConfigKind.TOPIC:
        return TIERED_BY_BROKERS if _begins_tiering(image(), resource) else ""
    if resource.resource_type != ConfigKind.BROKER or resource.resource_name != str(node_id):
        return ""
    static = [one.name for one in resource.configs if not is_connection_bound(one.name)]
    if not static:
        return ""
    return (
        f"Cannot update these configs dynamically: {', '.join(static[:10])}; a controller has no"
        " dynamic settings of its own but bounds of connections: change its file, and restart it"
    )


def _begins_tiering(image: MetadataImage, resource: Resource) -> bool:
    """Return whether a change gives tiered storage to an existing topic that does not have it."""
    name = resource.resource_name
    return (
        gives_tiered_storage(resource.configs)
        and name in image.topic_ids
        and not is_tiered_text(image.config(TOPIC_RESOURCE, name).get(REMOTE_STORAGE_ENABLE))
    )
