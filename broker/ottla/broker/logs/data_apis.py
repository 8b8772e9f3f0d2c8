"""Registers the client APIs that work on this broker's own partitions. Pure."""

from collections.abc import Awaitable, Callable

from ottla.broker.logs.cold_reads import BringIn
from ottla.broker.logs.delete_records import DeleteRecordsApi
from ottla.broker.logs.early_requests import (
    EarlyRequests,
    UntilDone,
    named_by_index,
    named_by_leader_epochs,
)
from ottla.broker.logs.fetch import FetchApi
from ottla.broker.logs.fetch_session import FetchSessionCache
from ottla.broker.logs.leader_epochs import LeaderEpochsApi
from ottla.broker.logs.list_offsets import ListOffsetsApi, LookUps
from ottla.broker.logs.produce import ProduceApi
from ottla.broker.logs.replica_selection import RackAwareSelector
from ottla.broker.logs.transactional_appends import TransactionalAppends, TransactionCoordinators
from ottla.broker.quotas.replication_quota import ReplicationQuota
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.replicas.topic_traffic import BrokerTraffic
from ottla.broker.tier.remote_fetches import RemoteFetches, RemotePorts
from ottla.model.seams import Clock
from ottla.model.settings.storage.tier import (
    FETCH_WAIT_MS,
    LIST_OFFSETS_TIMEOUT_MS,
    TierConfig,
)
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.network.dispatch import Dispatcher
from ottla.node.network.purgatory import Purgatory
from ottla.node.network.request_times import RequestTimes
from ottla.node.part_registry import PartRegistry
from ottla.wire.apis import (
    DELETE_RECORDS,
    FETCH,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from ottla.wire.flat.flat_fetch import read_flat_fetch
from ottla.wire.flat.flat_produce import read_flat_produce


class DataApis:
    """Handlers of the client requests that read or write partitions, such as Produce, Fetch and
    ListOffsets."""

    def __init__(
        self,
        *,
        table: PartitionTable,
        purgatory: Purgatory,
        clock: Clock,
        sessions: FetchSessionCache,
        fetch_bytes_max: int,
        bring_in: BringIn,
        replication_quota: ReplicationQuota,
        traffic: BrokerTraffic,
        times: RequestTimes,
        coordinators: TransactionCoordinators,
        selector: RackAwareSelector | None,
        run_look_ups: Callable[[LookUps], Awaitable[None]],
        until_done: UntilDone,
        remote: RemotePorts,
        tier: TierConfig,
        errors: UnexpectedErrors,
    ) -> None:
        self._early = EarlyRequests(table, until_done)
        self.produce = ProduceApi(
            table=table,
            purgatory=purgatory,
            clock=clock,
            transactions=TransactionalAppends(table=table, clock=clock, coordinators=coordinators),
            early=self._early,
            traffic=traffic,
            times=times,
        )
        self.fetch = FetchApi(
            table=table,
            purgatory=purgatory,
            sessions=sessions,
            fetch_bytes_max=fetch_bytes_max,
            bring_in=bring_in,
            replication_quota=replication_quota,
            remote_fetches=RemoteFetches(remote.reads, remote.run, purgatory.wake, errors),
            remote_wait_ms=tier.fetch_wait_ms_max,
            times=times,
            selector=selector,
        )
        self.list_offsets = ListOffsetsApi(
            table=table,
            run_all=run_look_ups,
            remote=remote,
            remote_timeout_ms=tier.list_offsets_timeout_ms,
        )
        self.delete_records = DeleteRecordsApi(table=table, purgatory=purgatory)
        self.leader_epochs = LeaderEpochsApi(table=table)

    def register_with(self, parts: PartRegistry) -> None:
        """Register the dynamic settings of these handlers."""
        parts.setting(FETCH_WAIT_MS, self._set_fetch_wait)
        parts.setting(LIST_OFFSETS_TIMEOUT_MS, self._set_list_offsets_timeout)

    def _set_fetch_wait(self, wait_ms: int) -> None:
        self.fetch.remote_wait_ms = wait_ms

    def _set_list_offsets_timeout(self, timeout_ms: int) -> None:
        self.list_offsets.remote_timeout_ms = timeout_ms

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the handlers of Produce, Fetch, ListOffsets and the other client requests on
        partitions."""
        produce, fetch, behind = self.produce, self.fetch, self._early.behind
        dispatcher.register(PRODUCE, produce.handle, read_flat=read_flat_produce)
        dispatcher.register(FETCH, fetch.handle, read_flat=read_flat_fetch)
        for key, handle, named in (
            (LIST_OFFSETS, self.list_offsets.handle, named_by_index),
            (DELETE_RECORDS, self.delete_records.handle, named_by_index),
            (OFFSET_FOR_LEADER_EPOCH, self.leader_epochs.handle, named_by_leader_epochs),
        ):
            dispatcher.register(key, behind(handle, named))
