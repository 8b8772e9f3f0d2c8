"""Registers the APIs that work on this broker's own partitions.  Pure."""

from collections.abc import Awaitable, Callable

from ottla.broker.logs.delete_records import DeleteRecordsApi
from ottla.broker.logs.fetch import FetchApi
from ottla.broker.logs.fetch_session import FetchSessionCache
from ottla.broker.logs.leader_epochs import LeaderEpochsApi
from ottla.broker.logs.list_offsets import ListOffsetsApi
from ottla.broker.logs.produce import ProduceApi
from ottla.broker.logs.producer_ids import Block, ProducerIdsApi
from ottla.broker.logs.replica_apis import REPLICA_API_KEYS
from ottla.broker.network.dispatch import Dispatcher
from ottla.broker.network.purgatory import Purgatory
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.replicas.topic_traffic import BrokerTraffic
from ottla.model.seams import Clock

PRODUCE = 0
FETCH = 1
LIST_OFFSETS = 2
DELETE_RECORDS = 21
INIT_PRODUCER_ID = 22
OFFSET_FOR_LEADER_EPOCH = 23

DATA_API_KEYS = REPLICA_API_KEYS | {
    PRODUCE,
    FETCH,
    LIST_OFFSETS,
    DELETE_RECORDS,
    INIT_PRODUCER_ID,
    OFFSET_FOR_LEADER_EPOCH,
}
"""What `register_data_apis` and `register_replica_apis` serve."""


def register_data_apis(
    dispatcher: Dispatcher,
    *,
    table: PartitionTable,
    purgatory: Purgatory,
    clock: Clock,
    sessions: FetchSessionCache,
    fetch_bytes_max: int,
    on_flush_due: Callable[[Partition], None],
    on_isr_due: Callable[[Partition], None],
    allocate_producer_ids: Callable[[], Awaitable[Block]],
    traffic: BrokerTraffic | None = None,
) -> None:
    """Serve what reads and writes logs."""
    produce = ProduceApi(
        table=table,
        purgatory=purgatory,
        clock=clock,
        on_flush_due=on_flush_due,
        traffic=traffic,
        times=dispatcher.times,
    )
    fetch = FetchApi(
        table=table,
        purgatory=purgatory,
        sessions=sessions,
        fetch_bytes_max=fetch_bytes_max,
        on_isr_due=on_isr_due,
        times=dispatcher.times,
    )
    dispatcher.register(PRODUCE, produce.handle, large_handler=produce.handle_large)
    dispatcher.register(FETCH, fetch.handle, large_handler=fetch.handle_large)
    dispatcher.register(LIST_OFFSETS, ListOffsetsApi(table=table).handle)
    deletion = DeleteRecordsApi(table=table, purgatory=purgatory)
    dispatcher.register(DELETE_RECORDS, deletion.handle)
    dispatcher.register(OFFSET_FOR_LEADER_EPOCH, LeaderEpochsApi(table=table).handle)
    dispatcher.register(INIT_PRODUCER_ID, ProducerIdsApi(allocate=allocate_producer_ids).handle)
