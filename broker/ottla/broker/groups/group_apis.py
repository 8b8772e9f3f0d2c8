"""Registers the APIs of groups.  Pure."""

from ottla.broker.cluster.metadata_cache import MetadataCache
from ottla.broker.groups.consumer_group_apis import ConsumerGroupApis
from ottla.broker.groups.coordinator_door import CoordinatorDoor
from ottla.broker.groups.describe_consumers import ConsumerGroupDescribeApi
from ottla.broker.groups.group_admin_apis import GroupAdminApis
from ottla.broker.groups.membership_apis import MembershipApis
from ottla.broker.groups.offset_apis import OffsetApis
from ottla.broker.network.dispatch import Dispatcher
from ottla.metadata.features import GROUP_VERSION, GROUP_VERSION_OF_CONSUMERS
from ottla.model.settings.groups import GroupConfig
from ottla.wire.apis import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
)

GROUP_API_KEYS = frozenset(
    (
        OFFSET_COMMIT,
        OFFSET_FETCH,
        JOIN_GROUP,
        HEARTBEAT,
        LEAVE_GROUP,
        SYNC_GROUP,
        DESCRIBE_GROUPS,
        LIST_GROUPS,
        DELETE_GROUPS,
        OFFSET_DELETE,
        CONSUMER_GROUP_HEARTBEAT,
        CONSUMER_GROUP_DESCRIBE,
    )
)
"""What `register_group_apis` serves; any broker answers FindCoordinator from metadata."""


def register_group_apis(
    dispatcher: Dispatcher,
    *,
    config: GroupConfig,
    coordinator: CoordinatorDoor,
    metadata: MetadataCache,
) -> None:
    """Serve what is asked of groups."""
    members = MembershipApis(config, coordinator)
    dispatcher.register(JOIN_GROUP, members.join)
    dispatcher.register(SYNC_GROUP, members.sync)
    dispatcher.register(HEARTBEAT, members.heartbeat)
    dispatcher.register(LEAVE_GROUP, members.leave)
    consumers = ConsumerGroupApis(
        config,
        coordinator,
        lambda: metadata.image.features.get(GROUP_VERSION, 0) >= GROUP_VERSION_OF_CONSUMERS,
    )
    dispatcher.register(CONSUMER_GROUP_HEARTBEAT, consumers.heartbeat)
    offsets = OffsetApis(coordinator, metadata)
    dispatcher.register(OFFSET_COMMIT, offsets.commit)
    dispatcher.register(OFFSET_FETCH, offsets.fetch)
    dispatcher.register(OFFSET_DELETE, offsets.delete)
    admin = GroupAdminApis(coordinator)
    dispatcher.register(DESCRIBE_GROUPS, admin.describe)
    dispatcher.register(LIST_GROUPS, admin.list)
    dispatcher.register(DELETE_GROUPS, admin.delete)
    describing = ConsumerGroupDescribeApi(
        coordinator,
        default_assignor=config.consumer_assignors[0],
        is_served=consumers.is_served,
        image=lambda: metadata.image,
    )
    dispatcher.register(CONSUMER_GROUP_DESCRIBE, describing.describe)
