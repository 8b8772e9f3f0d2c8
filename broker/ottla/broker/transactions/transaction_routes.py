"""Registers the handlers of requests about transactions. Pure."""

from collections.abc import Callable

from ottla.broker.transactions.producer_id_supply import ProducerIdSupply
from ottla.broker.transactions.transaction_admin_apis import TransactionAdminApis
from ottla.broker.transactions.transaction_apis import CreateTopic, TransactionApis
from ottla.broker.transactions.transaction_coordinator import TransactionCoordinator
from ottla.metadata.image import MetadataImage
from ottla.node.network.dispatch import Dispatcher
from ottla.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
)


def register_transaction_apis(
    dispatcher: Dispatcher,
    *,
    coordinator: TransactionCoordinator,
    ids: ProducerIdSupply,
    image: Callable[[], MetadataImage],
    wall_ms: Callable[[], int],
    create_topic: CreateTopic,
) -> None:
    """Register the handlers of all requests about transactions."""
    producers = TransactionApis(coordinator, image=image, ids=ids, create_topic=create_topic)
    dispatcher.register(INIT_PRODUCER_ID, producers.init_producer_id)
    dispatcher.register(ADD_PARTITIONS_TO_TXN, producers.add_partitions)
    dispatcher.register(ADD_OFFSETS_TO_TXN, producers.add_offsets)
    dispatcher.register(END_TXN, producers.end)
    admin = TransactionAdminApis(coordinator, wall_ms)
    dispatcher.register(DESCRIBE_TRANSACTIONS, admin.describe)
    dispatcher.register(LIST_TRANSACTIONS, admin.list)
