"""Admin calls that describe transactions and abort hanging transactions.

A transaction coordinator knows each transaction by its transactional id. The leader of a partition
knows the partition's open transactions by producer id (`describe_producers`). A hanging transaction
is known to a leader but to no coordinator, so it is never ended. It blocks all read_committed
consumers of the partition.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ottla.client.admin_parts.admin_calls import AdminCalls, refusal_of
from ottla.client.admin_parts.admin_replicas import ActiveProducer
from ottla.client.network.answer_checks import only
from ottla.client.network.cluster import raise_for
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, ProducerId, TopicPartition
from ottla.wire.apis import COORDINATOR_KEYS_FROM
from ottla.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from ottla.wire.messages.describe_transactions_response import DescribeTransactionsResponse
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.list_transactions_request import ListTransactionsRequest
from ottla.wire.messages.list_transactions_response import ListTransactionsResponse
from ottla.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.wire.messages.write_txn_markers_response import WriteTxnMarkersResponse

TRANSACTION_KEY_TYPE = 1
DURATION_FROM, PATTERN_FROM = 1, 2
"""First version of ListTransactions that can filter by duration, and first version that can filter
by a pattern of the transactional id."""

ANY_COORDINATOR_EPOCH = 0
"""Coordinator epoch of an abort marker for a partition that has no earlier marker."""


class TransactionListing(NamedTuple):
    """A transactional id, as listed by its coordinator, with the state of its transaction."""

    transactional_id: str
    producer_id: ProducerId
    state: str
    coordinator: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """State of one transactional id and its transaction, as reported by its coordinator."""

    transactional_id: str
    coordinator: NodeId
    state: str
    """Kafka's name of the state: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit or
    CompleteAbort."""
    producer_id: ProducerId
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    """Start time of the open transaction, in ms since 1970.  None if no transaction is open."""
    partitions: frozenset[TopicPartition]


class TransactionCalls(AdminCalls):
    """Methods of the admin client that describe and abort transactions."""

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[ProducerId] = (),
        longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all coordinators that match all filters, sorted.

        `pattern` is a regular expression (RE2) that must match the whole id. Raises
        RefusedError(INVALID_REQUEST) for an unknown state, and RefusedError(UNSUPPORTED_VERSION) if
        a broker is too old for a filter.
        """
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=-1 if longer_than_ms is None else longer_than_ms,
            transactional_id_pattern=pattern,
        )
        found = []
        for broker in (await self._cluster.metadata([])).brokers:
            node = NodeId(broker.node_id)
            found += await self._retry_until_timeout(partial(self._listed_by, node, request))
        return sorted(found)

    async def _listed_by(
        self, node: NodeId, request: ListTransactionsRequest
    ) -> list[TransactionListing]:
        version = await self._cluster.version_of(request.API_KEY, node)
        for is_wanted, first, what in (
            (request.duration_filter >= 0, DURATION_FROM, "how long they are open"),
            (request.transactional_id_pattern is not None, PATTERN_FROM, "a pattern"),
        ):
            if is_wanted and version < first:
                raise RefusedError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"broker {node} does not know how to list transactions by {what}",
                )
        answer = await self._cluster.request(request, ListTransactionsResponse, node=node)
        raise_for(answer.error_code)
        if answer.unknown_state_filters:
            names = ", ".join(map(repr, answer.unknown_state_filters))
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                f"there is no state {names}; states are Empty, Ongoing, PrepareCommit, "
                "PrepareAbort, CompleteCommit and CompleteAbort",
            )
        return [
            TransactionListing(
                one.transactional_id, ProducerId(one.producer_id), one.transaction_state, node
            )
            for one in answer.transaction_states
        ]

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Return the state of a transactional id, as reported by its coordinator.

        Raises RefusedError(TRANSACTIONAL_ID_NOT_FOUND) if the id is unknown.
        """
        return await self._retry_until_timeout(partial(self._described_once, transactional_id))

    async def _described_once(self, transactional_id: str) -> TransactionDescription:
        node = await self._transaction_coordinator(transactional_id)
        answer = await self._cluster.request(
            DescribeTransactionsRequest(transactional_ids=[transactional_id]),
            DescribeTransactionsResponse,
            node=node,
        )
        row = only(answer.transaction_states, "transaction")
        raise_for(row.error_code, f"transactional id {transactional_id!r}")
        return TransactionDescription(
            transactional_id=transactional_id,
            coordinator=node,
            state=row.transaction_state,
            producer_id=ProducerId(row.producer_id),
            producer_epoch=row.producer_epoch,
            timeout_ms=row.transaction_timeout_ms,
            start_ms=row.transaction_start_time_ms if row.transaction_start_time_ms >= 0 else None,
            partitions=frozenset(
                TopicPartition(topic.topic, index)
                for topic in row.topics
                for index in topic.partitions
            ),
        )

    async def _transaction_coordinator(self, transactional_id: str) -> NodeId:
        request = FindCoordinatorRequest(
            key_type=TRANSACTION_KEY_TYPE, coordinator_keys=[transactional_id]
        )
        answer = await self._cluster.request(
            request, FindCoordinatorResponse, version=COORDINATOR_KEYS_FROM
        )
        found = only(answer.coordinators, "coordinator")
        raise_for(found.error_code, found.error_message or None)
        return NodeId(found.node_id)

    async def abort_transaction(self, at: TopicPartition, producer: ActiveProducer) -> None:
        """Abort a producer's open transaction in one partition, by writing an abort marker into
        that partition.

        Other partitions of the transaction get no marker. If a coordinator still knows the
        transaction, the call breaks the guarantee that all partitions of a transaction have the
        same outcome.
        """
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=at.topic, partition_indexes=[at.partition])],
            coordinator_epoch=max(producer.coordinator_epoch, ANY_COORDINATOR_EPOCH),
        )
        await self._retry_until_timeout(partial(self._mark_once, at, marker))

    async def _mark_once(self, at: TopicPartition, marker: WritableTxnMarker) -> None:
        leader = await self._cluster.leader_of(at)
        answer = await self._cluster.request(
            WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, node=leader
        )
        row = only(only(only(answer.markers, "marker").topics, "topic").partitions, "partition")
        if (refusal := refusal_of(row.error_code)) is not None:
            self._cluster.forget_leaders()
            raise refusal
