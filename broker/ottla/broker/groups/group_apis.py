"""Registers the handlers of requests about groups. Pure."""

from ottla.broker.coordinators.share_persister import SharePersister
from ottla.broker.groups.classic.membership_apis import MembershipApis
from ottla.broker.groups.consumer.consumer_group_apis import ConsumerGroupApis
from ottla.broker.groups.consumer.describe_consumers import ConsumerGroupDescribeApi
from ottla.broker.groups.group_admin_apis import GroupAdminApis
from ottla.broker.groups.group_coordinator import GroupCoordinator
from ottla.broker.groups.offsets.offset_apis import OffsetApis
from ottla.broker.groups.offsets.offset_commit_api import OffsetCommitApi
from ottla.broker.groups.offsets.transactional_offsets import TransactionalOffsetsApi
from ottla.broker.groups.share.describe_share_groups import ShareGroupDescribeApi
from ottla.broker.groups.share.end_offsets import EndOffsets
from ottla.broker.groups.share.share_group_apis import ShareGroupApis
from ottla.broker.groups.share.share_offset_apis import ShareOffsetApis
from ottla.broker.logs.transactional_appends import TransactionCoordinators
from ottla.metadata.features import (
    GROUP_VERSION,
    GROUP_VERSION_OF_CONSUMERS,
    is_share_enabled,
)
from ottla.model.settings.groups import GroupConfig
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.network.dispatch import Dispatcher
from ottla.wire.apis import (
    ALTER_SHARE_GROUP_OFFSETS,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_GROUPS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
)
from ottla.wire.flat.flat_commit import read_flat_commit


def register_group_apis(
    dispatcher: Dispatcher,
    *,
    config: GroupConfig,
    coordinator: GroupCoordinator,
    metadata: MetadataCache,
    transactions: TransactionCoordinators,
    timeout_ms: int,
) -> None:
    """Register the handlers of all requests about groups and offsets. `timeout_ms` is the time in
    milliseconds within which a transaction coordinator in `transactions` must answer."""
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
    commits = OffsetCommitApi(coordinator, metadata)
    dispatcher.register(OFFSET_COMMIT, commits.handle, read_flat=read_flat_commit)
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


def register_share_group_apis(
    dispatcher: Dispatcher,
    *,
    coordinator: GroupCoordinator,
    metadata: MetadataCache,
    persister: SharePersister,
    ends: EndOffsets,
) -> None:
    """Register the handlers of all requests about share groups."""

    def is_served() -> bool:
        return is_share_enabled(metadata.image.features)

    dispatcher.register(SHARE_GROUP_HEARTBEAT, ShareGroupApis(coordinator, is_served).heartbeat)
    describing = ShareGroupDescribeApi(
        coordinator, is_served=is_served, image=lambda: metadata.image
    )
    dispatcher.register(SHARE_GROUP_DESCRIBE, describing.describe)
    offsets = ShareOffsetApis(
        coordinator, persister, ends, is_served=is_served, image=lambda: metadata.image
    )
    dispatcher.register(DESCRIBE_SHARE_GROUP_OFFSETS, offsets.describe)
    dispatcher.register(ALTER_SHARE_GROUP_OFFSETS, offsets.alter)
    dispatcher.register(DELETE_SHARE_GROUP_OFFSETS, offsets.delete)
