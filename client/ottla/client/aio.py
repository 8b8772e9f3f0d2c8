"""The clients of `ottla.client` for asyncio programs.

Import them with `from ottla.client.aio import open_producer, open_consumer, open_admin`. All
clients of an asyncio event loop share one background thread, in which the trio client runs. Names,
settings, results and errors are the same as in `ottla.client`. Methods and properties that are
synchronous in `ottla.client` are coroutines here.

If a task is cancelled, its call is cancelled as well. The cancelled call returns only after it has
stopped in the background thread. Records that a cancelled `poll` had already fetched are returned
by the next `poll`. If `send` is cancelled, the producer may nevertheless have accepted the record.
`send_nowait` raises `WouldBlock` if `send` would wait.
"""

from collections.abc import AsyncIterator, Iterable, Sequence

from trio import WouldBlock

from ottla.client.admin import Admin
from ottla.client.admin import open_admin as open_trio_admin
from ottla.client.aio_consumer import AioConsumer, AioPendingCommit
from ottla.client.aio_producer import AioDelivery, AioProducer, AioSentRecords, AioTransaction
from ottla.client.aio_share_consumer import (
    AioPendingAcknowledgement,
    AioShareBatch,
    AioShareConsumer,
    AioShareRecord,
)
from ottla.client.consumer import open_consumer as open_trio_consumer
from ottla.client.network.aio_bridge import Bridge, asked, borrowed_thread, opened
from ottla.client.network.client_block import client_block
from ottla.client.network.trio_thread import ClientClosedError
from ottla.client.produce.partitioner import PartitionChoice
from ottla.client.produce.producer_identities import ProducerIdentities
from ottla.client.producer import open_producer as open_trio_producer
from ottla.client.share_consumer import open_share_consumer as open_trio_share_consumer
from ottla.client.transactions.prepared_transactions import PreparedTransaction
from ottla.client.transactions.prepared_transactions import (
    complete_transactions as complete_trio_transactions,
)
from ottla.model.settings.client import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.model.settings.security.client_security import ClientSecurity
from ottla.model.settings.share_client import ShareConsumerConfig

Bootstrap = str | Iterable[str | tuple[str, int]]


class AioAdmin(Bridge[Admin]):
    """Admin client for asyncio. Created by `open_admin`."""

    abort_transaction = asked(Admin.abort_transaction)
    add_voter = asked(Admin.add_voter)
    alter_broker_configs = asked(Admin.alter_broker_configs)
    alter_configs = asked(Admin.alter_configs)
    alter_group_offsets = asked(Admin.alter_group_offsets)
    alter_quotas = asked(Admin.alter_quotas)
    alter_share_group_offsets = asked(Admin.alter_share_group_offsets)
    alter_reassignments = asked(Admin.alter_reassignments)
    alter_topic_configs = asked(Admin.alter_topic_configs)
    ask_quorum = asked(Admin.ask_quorum)
    broker_configs = asked(Admin.broker_configs)
    clean_logs = asked(Admin.clean_logs)
    client_instance_id = asked(Admin.client_instance_id)
    create_acls = asked(Admin.create_acls)
    create_partitions = asked(Admin.create_partitions)
    create_topic = asked(Admin.create_topic)
    create_topics = asked(Admin.create_topics)
    delete_acls = asked(Admin.delete_acls)
    delete_group = asked(Admin.delete_group)
    delete_group_offsets = asked(Admin.delete_group_offsets)
    delete_metrics_subscription = asked(Admin.delete_metrics_subscription)
    delete_password = asked(Admin.delete_password)
    delete_records = asked(Admin.delete_records)
    delete_share_group_offsets = asked(Admin.delete_share_group_offsets)
    delete_topic = asked(Admin.delete_topic)
    delete_topics = asked(Admin.delete_topics)
    create_token = asked(Admin.create_token)
    describe_tokens = asked(Admin.describe_tokens)
    end_token = asked(Admin.end_token)
    renew_token = asked(Admin.renew_token)
    describe_acls = asked(Admin.describe_acls)
    describe_cleaner = asked(Admin.describe_cleaner)
    describe_client_instances = asked(Admin.describe_client_instances)
    describe_cluster = asked(Admin.describe_cluster)
    describe_configs = asked(Admin.describe_configs)
    describe_features = asked(Admin.describe_features)
    update_features = asked(Admin.update_features)
    describe_group = asked(Admin.describe_group)
    describe_log_dirs = asked(Admin.describe_log_dirs)
    describe_metrics_subscription = asked(Admin.describe_metrics_subscription)
    describe_producers = asked(Admin.describe_producers)
    describe_quorum = asked(Admin.describe_quorum)
    describe_quota_usage = asked(Admin.describe_quota_usage)
    describe_quotas = asked(Admin.describe_quotas)
    describe_share_group = asked(Admin.describe_share_group)
    describe_streams_group = asked(Admin.describe_streams_group)
    describe_topic = asked(Admin.describe_topic)
    describe_topics = asked(Admin.describe_topics)
    describe_transaction = asked(Admin.describe_transaction)
    describe_users = asked(Admin.describe_users)
    elect_leaders = asked(Admin.elect_leaders)
    group_offsets = asked(Admin.group_offsets)
    list_groups = asked(Admin.list_groups)
    list_groups_of = asked(Admin.list_groups_of)
    list_metrics_subscriptions = asked(Admin.list_metrics_subscriptions)
    list_offsets = asked(Admin.list_offsets)
    list_reassignments = asked(Admin.list_reassignments)
    list_share_groups = asked(Admin.list_share_groups)
    list_topic_names = asked(Admin.list_topic_names)
    list_topics = asked(Admin.list_topics)
    list_transactions = asked(Admin.list_transactions)
    move_replicas = asked(Admin.move_replicas)
    remove_group_members = asked(Admin.remove_group_members)
    remove_voter = asked(Admin.remove_voter)
    unregister_controller = asked(Admin.unregister_controller)
    replace_configs = asked(Admin.replace_configs)
    retry_cleaning = asked(Admin.retry_cleaning)
    set_metrics_subscription = asked(Admin.set_metrics_subscription)
    set_password = asked(Admin.set_password)
    tail_client_metrics = asked(Admin.tail_client_metrics)
    share_group_deliveries = asked(Admin.share_group_deliveries)
    share_group_offsets = asked(Admin.share_group_offsets)
    share_group_records = asked(Admin.share_group_records)
    topic_configs = asked(Admin.topic_configs)
    try_alter_configs = asked(Admin.try_alter_configs)
    try_alter_group_offsets = asked(Admin.try_alter_group_offsets)
    try_alter_reassignments = asked(Admin.try_alter_reassignments)
    try_alter_share_group_offsets = asked(Admin.try_alter_share_group_offsets)
    try_create_partitions = asked(Admin.try_create_partitions)
    try_delete_records = asked(Admin.try_delete_records)
    try_describe_configs = asked(Admin.try_describe_configs)
    try_elect_leaders = asked(Admin.try_elect_leaders)


@client_block
async def open_producer(
    bootstrap: Bootstrap,
    config: ProducerConfig | None = None,
    *,
    ends_at_failure: bool = False,
    identities: ProducerIdentities | None = None,
    partition_by: PartitionChoice | None = None,
) -> AsyncIterator[AioProducer]:
    """Open and yield a producer, as `ottla.client.open_producer` does. Its buffered records are
    sent at the end of the caller's `async with` block.

    The function `partition_by` is called in the background thread of the clients.
    """
    manager = open_trio_producer(
        bootstrap,
        config,
        ends_at_failure=ends_at_failure,
        identities=identities,
        partition_by=partition_by,
    )
    async with opened(manager) as (thread, kept):
        producer = AioProducer(thread, kept)
        try:
            yield producer
            await producer.flush()
        except BaseException:
            producer._discard(ClientClosedError())
            raise


@client_block
async def open_consumer(
    bootstrap: Bootstrap, config: ConsumerConfig | None = None
) -> AsyncIterator[AioConsumer]:
    """Open and yield a consumer, as `ottla.client.open_consumer` does."""
    async with opened(open_trio_consumer(bootstrap, config)) as (thread, kept):
        consumer = AioConsumer(thread, kept)
        yield consumer
        # Records that the application has not received are not processed: they are not committed at
        # the end of the block.
        await consumer._act(lambda _: None)


@client_block
async def open_share_consumer(
    bootstrap: Bootstrap, config: ShareConsumerConfig
) -> AsyncIterator[AioShareConsumer]:
    """Open and yield a share consumer, as `ottla.client.open_share_consumer` does."""
    async with opened(open_trio_share_consumer(bootstrap, config)) as (thread, kept):
        yield AioShareConsumer(thread, kept)


@client_block
async def open_admin(
    bootstrap: Bootstrap,
    config: AdminConfig | None = None,
    *,
    client_id: str = "ottla",
    timeout_s: float = 30.0,
    security: ClientSecurity | None = None,
    enable_metrics_push: bool = False,
) -> AsyncIterator[AioAdmin]:
    """Open and yield an admin client, as `ottla.client.open_admin` does."""
    manager = open_trio_admin(
        bootstrap,
        config,
        client_id=client_id,
        timeout_s=timeout_s,
        security=security,
        enable_metrics_push=enable_metrics_push,
    )
    async with opened(manager) as (thread, kept):
        yield AioAdmin(thread, kept)


async def complete_transactions(
    bootstrap: Bootstrap,
    prepared: Sequence[PreparedTransaction],
    config: ProducerConfig | None = None,
    *,
    is_commit: bool,
) -> None:
    """Commit or abort prepared transactions, as `ottla.client.complete_transactions` does."""

    async def ask() -> None:
        await complete_trio_transactions(bootstrap, prepared, config, is_commit=is_commit)

    async with borrowed_thread() as thread:
        await thread.run(ask)


__all__ = [
    "AioAdmin",
    "AioConsumer",
    "AioDelivery",
    "AioPendingAcknowledgement",
    "AioPendingCommit",
    "AioProducer",
    "AioSentRecords",
    "AioShareBatch",
    "AioShareConsumer",
    "AioShareRecord",
    "AioTransaction",
    "ClientClosedError",
    "WouldBlock",
    "complete_transactions",
    "open_admin",
    "open_consumer",
    "open_producer",
    "open_share_consumer",
]
