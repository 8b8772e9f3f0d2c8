"""Handlers of DescribeTransactions and ListTransactions, which report transactions to operators.
Pure."""

from collections.abc import Callable

from ottla.broker.groups.consumer.subscription_regex import TopicRegex, compile_topic_regex, matches
from ottla.broker.transactions.transaction import (
    NO_PRODUCER_EPOCH,
    Transaction,
    TransactionStatus,
)
from ottla.broker.transactions.transaction_coordinator import TransactionCoordinator
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.security.acls import AclOperation, ResourceType
from ottla.node.authorization.questions import may, may_describe_topic
from ottla.node.network.dispatch import HandlerResult, Permissions, RequestContext
from ottla.node.network.steps import StepPace, Steps, begun
from ottla.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from ottla.wire.messages.describe_transactions_response import (
    DescribeTransactionsResponse,
    TopicData,
)
from ottla.wire.messages.describe_transactions_response import (
    TransactionState as DescribedTransaction,
)
from ottla.wire.messages.list_transactions_request import ListTransactionsRequest
from ottla.wire.messages.list_transactions_response import ListTransactionsResponse
from ottla.wire.messages.list_transactions_response import TransactionState as ListedTransaction

STATUS_TITLES = {status.title: status for status in TransactionStatus}

NO_DURATION = -1


class TransactionAdminApis:
    """Handlers of DescribeTransactions (version 0) and ListTransactions (0 to 2)."""

    def __init__(self, coordinator: TransactionCoordinator, wall_ms: Callable[[], int]) -> None:
        self._coordinator = coordinator
        self._wall_ms = wall_ms

    def describe(
        self, context: RequestContext, request: DescribeTransactionsRequest
    ) -> HandlerResult:
        """Describe each transactional id once, even if it is named several times."""
        return begun(self._describe_all(request, context.permissions))

    def _describe_all(
        self, request: DescribeTransactionsRequest, permissions: Permissions | None
    ) -> Steps[DescribeTransactionsResponse]:
        pace = StepPace()
        states = []
        for transactional_id in dict.fromkeys(request.transactional_ids):
            states.append(self._describe(transactional_id, permissions))
            if pace.is_due(1 + sum(len(topic.partitions) for topic in states[-1].topics)):
                yield
        return DescribeTransactionsResponse(transaction_states=states)

    def _describe(
        self, transactional_id: str, permissions: Permissions | None
    ) -> DescribedTransaction:
        try:
            facts = self._coordinator.shard_of(transactional_id).described(transactional_id)
        except RefusedError as refusal:
            return DescribedTransaction(error_code=refusal.code, transactional_id=transactional_id)
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(facts.partitions):
            if may_describe_topic(permissions, topic, is_logged=False):
                by_topic.setdefault(topic, []).append(index)
        return DescribedTransaction(
            transactional_id=transactional_id,
            transaction_state=facts.status.title,
            transaction_timeout_ms=facts.timeout_ms,
            transaction_start_time_ms=facts.start_ms,
            producer_id=facts.producer_id,
            producer_epoch=facts.producer_epoch,
            topics=[TopicData(topic=name, partitions=ids) for name, ids in by_topic.items()],
        )

    def list(self, context: RequestContext, request: ListTransactionsRequest) -> HandlerResult:
        """List the transactions of this coordinator that match the filters."""
        return begun(self._list(request, context.permissions))

    def _list(
        self, request: ListTransactionsRequest, permissions: Permissions | None
    ) -> Steps[ListTransactionsResponse]:
        if self._coordinator.is_loading:
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        unknown = [name for name in request.state_filters if name not in STATUS_TITLES]
        try:
            passes = _TransactionFilter(request, self._wall_ms())
        except RefusedError as refusal:
            return ListTransactionsResponse(error_code=refusal.code, unknown_state_filters=unknown)
        pace = StepPace()
        found = []
        for shard in list(self._coordinator.shards()):
            for transaction in list(shard.transactions.values()):
                if passes.matches(transaction) and may(
                    permissions,
                    AclOperation.DESCRIBE,
                    ResourceType.TRANSACTIONAL_ID,
                    transaction.transactional_id,
                    is_logged=False,
                ):
                    found.append(
                        ListedTransaction(
                            transactional_id=transaction.transactional_id,
                            producer_id=transaction.facts.producer_id,
                            transaction_state=transaction.facts.status.title,
                        )
                    )
                if pace.is_due():
                    yield
        return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)


class _TransactionFilter:
    """Filters of transactions in a ListTransactions request.

    The constructor raises RefusedError(INVALID_REGULAR_EXPRESSION) if the pattern is not a regular
    expression.
    """

    def __init__(self, request: ListTransactionsRequest, now_ms: int) -> None:
        self._are_states_named = bool(request.state_filters)
        self._states = {
            STATUS_TITLES[name] for name in request.state_filters if name in STATUS_TITLES
        }
        self._producer_ids = frozenset(request.producer_id_filters)
        self._duration_ms = request.duration_filter
        self._now_ms = now_ms
        self._pattern: TopicRegex | None = None
        if request.transactional_id_pattern:
            self._pattern = compile_topic_regex(request.transactional_id_pattern)

    def matches(self, transaction: Transaction) -> bool:
        """Return True if a transaction matches all filters of the request."""
        facts = transaction.facts
        is_dying = transaction.pending is TransactionStatus.DEAD
        if is_dying or facts.producer_epoch == NO_PRODUCER_EPOCH:
            return False
        if self._are_states_named and facts.status not in self._states:
            return False
        if self._producer_ids and facts.producer_id not in self._producer_ids:
            return False
        if self._duration_ms > NO_DURATION and self._now_ms - facts.start_ms <= self._duration_ms:
            return False
        pattern = self._pattern
        return pattern is None or bool(matches(pattern, (transaction.transactional_id,)))
