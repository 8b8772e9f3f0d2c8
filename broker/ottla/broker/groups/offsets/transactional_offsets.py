"""TxnOffsetCommit: stores offsets that take effect when their transaction is committed. Pure.

Before the first write, the transaction coordinator verifies that the group's partition of
`__consumer_offsets` belongs to the transaction, or adds it.
"""

from collections.abc import Coroutine, Sequence
from typing import Any

from ottla.broker.coordinators.answer_collector import AnswerCollector
from ottla.broker.coordinators.commit_wait import client_code
from ottla.broker.coordinators.effects import Responder
from ottla.broker.groups.group_coordinator import GroupCoordinator
from ottla.broker.groups.offsets.commit_rules import TransactionalCommit
from ottla.broker.groups.offsets.topic_commit import OffsetTopic, TopicCommit
from ottla.broker.logs.transactional_appends import TransactionCoordinators
from ottla.broker.logs.verification_requests import (
    Outcome,
    offsets_code,
    operation_of_offsets,
)
from ottla.metadata.image import Topic
from ottla.model.errors import ErrorCode, RefusedError
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.node.network.steps import Answer, StepPace, Steps, begun
from ottla.storage.producers.verification import UNGUARDED, VerificationGuard
from ottla.wire.flat.flat_commit import CommitRow
from ottla.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
)
from ottla.wire.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

TRANSACTIONAL_TOPIC_IDS_FROM = 6
"""First version of TxnOffsetCommit that names topics by id (KIP-1319)."""

OFFSETS_PER_PIECE = 500
"""Number of partitions whose offsets are committed per event-loop iteration. Committing them takes
at most about ten milliseconds."""

UNCHANGED_CODES = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
)
"""Error codes of a TxnOffsetCommit that a producer receives unchanged. Other codes result from a
failed append to the coordinator's log, and are replaced by codes that clients expect."""


class TransactionalOffsetsApi:
    """Handler of TxnOffsetCommit, versions 0 to 6."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        metadata: MetadataCache,
        transactions: TransactionCoordinators,
        *,
        timeout_ms: int,
    ) -> None:
        """Create the handler. `timeout_ms` is the maximum time in milliseconds to wait for the
        transaction coordinator."""
        self._coordinator = coordinator
        self._metadata = metadata
        self._transactions = transactions
        self._timeout_ms = timeout_ms

    def handle(self, context: RequestContext, request: TxnOffsetCommitRequest) -> HandlerResult:
        """Write a group's offsets for partitions that exist, as part of a transaction. The response
        is sent when the offsets' records are committed."""
        return begun(self._begin(context, request))

    def _begin(self, context: RequestContext, request: TxnOffsetCommitRequest) -> Answer:
        if not (yield from self._has_existing_partition(request, context.api_version)):
            # Nothing will be written, so the transaction coordinator need not be asked.
            return (yield from self._refused(context, request, ErrorCode.NONE))
        if not request.group_id:
            return (yield from self._refused(context, request, ErrorCode.INVALID_GROUP_ID))
        operation = operation_of_offsets(context.api_version)
        try:
            place, guard = self._coordinator.begin_transaction(
                request.group_id,
                producer_id=request.producer_id,
                epoch=request.producer_epoch,
                is_bumping=operation.is_add,
            )
        except RefusedError as refusal:
            return (yield from self._refused(context, request, _client_code(refusal.code)))
        if guard is None:
            return (yield from self._commit(context, request, None))
        if not (operation.is_add or self._transactions.is_verifying):
            return (yield from self._commit(context, request, UNGUARDED))
        outcome = self._transactions.ask(
            request.transactional_id,
            producer_id=request.producer_id,
            epoch=request.producer_epoch,
            operation=operation,
            partitions=[(place[0], place[1])],
            timeout_ms=self._timeout_ms,
        )
        if isinstance(outcome, dict):
            return (yield from self._commit_verified(context, request, outcome, guard))
        return self._commit_later(context, request, outcome, guard)

    def _has_existing_partition(self, request: TxnOffsetCommitRequest, version: int) -> Steps[bool]:
        """Return whether the TxnOffsetCommit request names at least one partition that exists."""
        pace = StepPace()
        for asked in request.topics:
            topic = self._topic(asked.name, asked.topic_id, version)
            known = {} if topic is None else topic.partitions
            for one in asked.partitions if known else ():
                if one.partition_index in known:
                    return True
                if pace.is_due():
                    yield
            if pace.is_due():
                yield
        return False

    async def _commit_later(
        self,
        context: RequestContext,
        request: TxnOffsetCommitRequest,
        verified: Coroutine[Any, Any, Outcome],
        guard: VerificationGuard,
    ) -> Any:
        """Write a group's offsets once another broker's transaction coordinator has verified the
        transaction."""
        return self._commit_verified(context, request, await verified, guard)

    def _commit_verified(
        self,
        context: RequestContext,
        request: TxnOffsetCommitRequest,
        outcome: Outcome,
        guard: VerificationGuard,
    ) -> Answer:
        """Write a group's offsets if the transaction coordinator has confirmed the transaction."""
        (code,) = outcome.values()
        if code is not ErrorCode.NONE:
            operation = operation_of_offsets(context.api_version)
            refused = _client_code(offsets_code(code, operation))
            return (yield from self._refused(context, request, refused))
        return (yield from self._commit(context, request, guard))

    def _commit(
        self,
        context: RequestContext,
        request: TxnOffsetCommitRequest,
        guard: VerificationGuard | None,
    ) -> Steps[None]:
        version = context.api_version
        pieces: list[list[TopicCommit]] = []
        known: list[tuple[int, int]] = []
        pace = StepPace()
        response, answers = yield from self._unanswered(request, version, pace)
        for at, asked in enumerate(request.topics):
            topic = self._topic(asked.name, asked.topic_id, version)
            if topic is None:
                continue
            there: list[CommitRow] = []
            for which, one in enumerate(asked.partitions):
                if one.partition_index in topic.partitions:
                    metadata = one.committed_metadata or ""
                    there.append(
                        (
                            one.partition_index,
                            one.committed_offset,
                            one.committed_leader_epoch,
                            metadata,
                        )
                    )
                    known.append((at, which))
                if pace.is_due():
                    yield
            of_topic = OffsetTopic(request.group_id, topic.name, topic.id)
            for start in range(0, len(there), OFFSETS_PER_PIECE):
                part = there[start : start + OFFSETS_PER_PIECE]
                pieces.append([TopicCommit(of_topic, part)])

        def answer(said: Sequence[Any]) -> None:
            codes: list[ErrorCode] = []
            for piece, each in zip(pieces, said, strict=True):
                if isinstance(each, ErrorCode):
                    codes += [_client_code(each)] * len(piece[0].rows)
                else:
                    codes += each[0]
            for (at, which), code in zip(known, codes, strict=True):
                answers[at][which].error_code = code
            context.complete(response)

        gathering = AnswerCollector(len(pieces), answer)
        commit = TransactionalCommit(request, version)
        for at, piece in enumerate(pieces):
            self._commit_piece(commit, piece, gathering.responder(at), guard)
            if len(pieces) > 1:
                yield

    def _commit_piece(
        self,
        commit: TransactionalCommit,
        piece: list[TopicCommit],
        responder: Responder,
        guard: VerificationGuard | None,
    ) -> None:
        self._coordinator.commit_in_transaction(
            commit.request.group_id,
            responder,
            lambda shard, now: shard.offsets_in_transaction(commit, piece, now),
            guard,
        )

    def _topic(self, name: str, topic_id: Any, version: int) -> Topic | None:
        image = self._metadata.image
        if version >= TRANSACTIONAL_TOPIC_IDS_FROM:
            return image.topics.get(topic_id)
        return image.topic(name)

    def _unanswered(
        self, request: TxnOffsetCommitRequest, version: int, pace: StepPace
    ) -> Steps[tuple[TxnOffsetCommitResponse, list[list[TxnOffsetCommitResponsePartition]]]]:
        """Return a TxnOffsetCommit response with errors only for missing partitions. Also returns
        the response's entries for the existing partitions."""
        by_id = version >= TRANSACTIONAL_TOPIC_IDS_FROM
        response = TxnOffsetCommitResponse()
        answers = []
        for asked in request.topics:
            topic = self._topic(asked.name, asked.topic_id, version)
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic is None and by_id:
                missing = ErrorCode.UNKNOWN_TOPIC_ID
            partitions = []
            for one in asked.partitions:
                partitions.append(
                    TxnOffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=missing
                    )
                )
                if pace.is_due():
                    yield
            answers.append(partitions)
            response.topics.append(
                TxnOffsetCommitResponseTopic(
                    name=asked.name, topic_id=asked.topic_id, partitions=partitions
                )
            )
        return response, answers

    def _refused(
        self, context: RequestContext, request: TxnOffsetCommitRequest, code: ErrorCode
    ) -> Steps[TxnOffsetCommitResponse]:
        """Return a TxnOffsetCommit response with one error code for every partition that exists."""
        version = context.api_version
        pace = StepPace()
        response, answers = yield from self._unanswered(request, version, pace)
        for asked, partitions in zip(request.topics, answers, strict=True):
            topic = self._topic(asked.name, asked.topic_id, version)
            known = {} if topic is None else topic.partitions
            for one in partitions if known else ():
                if one.partition_index in known:
                    one.error_code = code
                if pace.is_due():
                    yield
        return response


def _client_code(code: ErrorCode) -> ErrorCode:
    return code if code in UNCHANGED_CODES or code is ErrorCode.NONE else client_code(code)
