"""Registers the APIs of groups.  Pure."""

from ottla.broker.cluster.metadata_cache import MetadataCache
from ottla.broker.groups.consumer_group_apis import ConsumerGroupApis
from ottla.broker.groups.coordinator_door import CoordinatorDoor
from ottla.broker.groups.describe_consumers import ConsumerGroupDescribeApi
from ottla.broker.groups.framed_commits import FramedCommits
from ottla.broker.groups.group_admin_apis import GroupAdminApis
from ottla.broker.groups.membership_apis import MembershipApis
from ottla.broker.groups.offset_apis import OffsetApis
from ottla.broker.groups.transactional_offsets import TransactionalOffsetsApi
from ottla.broker.logs.transactional_appends import TransactionCoordinators
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
    TXN_OFFSET_COMMIT,
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
        TXN_OFFSET_COMMIT,
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
    transactions: TransactionCoordinators,
    timeout_ms: int,
) -> None:
    """Serve what is asked of groups; `transactions` is asked within the timeout."""
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
    framed = FramedCommits(coordinator, metadata)
    dispatcher.register(OFFSET_COMMIT, offsets.commit, frame_handler=framed.serve)
    dispatcher.register(OFFSET_FETCH, offsets.fetch)
    dispatcher.register(OFFSET_DELETE, offsets.delete)
    transactional = TransactionalOffsetsApi(
        coordinator, metadata, transactions, timeout_ms=timeout_ms
    )
    dispatcher.register(TXN_OFFSET_COMMIT, transactional.handle)
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
