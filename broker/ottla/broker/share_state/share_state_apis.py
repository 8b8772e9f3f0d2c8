"""Requests for the state of share partitions (KIP-932): Initialize, Read, Write, Delete and
ReadSummary. Pure.

Only brokers send them. A request names partitions of one group; each is decided and refused alone.
The response is sent when every partition has its answer. As in Kafka a request without group id
gets an empty response.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ottla.broker.coordinators.answer_collector import AnswerCollector
from ottla.broker.coordinators.effects import Responder
from ottla.broker.coordinators.share_persister import SharePartitionKey, ShareState, ShareSummary
from ottla.broker.share_state.share_coordinator import ShareCoordinator
from ottla.broker.share_state.share_state_records import state_batches_of
from ottla.model.errors import ERRORS, ErrorCode, RefusedError
from ottla.node.network.dispatch import Dispatcher, HandlerResult, RequestContext
from ottla.node.network.steps import Answer, StepPace, begun
from ottla.wire.apis import (
    DELETE_SHARE_GROUP_STATE,
    INITIALIZE_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE_SUMMARY,
    WRITE_SHARE_GROUP_STATE,
)
from ottla.wire.codec_types import Message
from ottla.wire.messages import delete_share_group_state_response as deleted
from ottla.wire.messages import initialize_share_group_state_response as initialized
from ottla.wire.messages import read_share_group_state_response as states
from ottla.wire.messages import read_share_group_state_summary_response as summaries
from ottla.wire.messages import write_share_group_state_response as written
from ottla.wire.messages.delete_share_group_state_request import DeleteShareGroupStateRequest
from ottla.wire.messages.initialize_share_group_state_request import (
    InitializeShareGroupStateRequest,
)
from ottla.wire.messages.read_share_group_state_request import ReadShareGroupStateRequest
from ottla.wire.messages.read_share_group_state_summary_request import (
    ReadShareGroupStateSummaryRequest,
)
from ottla.wire.messages.write_share_group_state_request import WriteShareGroupStateRequest

PARTITION_COST = 5
"""Cost of one share partition in a request, in entries of a response."""

Ask: TypeAlias = Callable[[SharePartitionKey, Any, Responder], None]
"""Asks the coordinator about one partition of a request."""

Finish: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], Message]
"""Builds the response from the topics of the request and the answers, which are in their order."""


class ShareStateApis:
    """Handlers of the requests for the state of share partitions."""

    def __init__(self, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the handlers."""
        dispatcher.register(INITIALIZE_SHARE_GROUP_STATE, self.initialize)
        dispatcher.register(READ_SHARE_GROUP_STATE, self.read)
        dispatcher.register(WRITE_SHARE_GROUP_STATE, self.write)
        dispatcher.register(DELETE_SHARE_GROUP_STATE, self.delete)
        dispatcher.register(READ_SHARE_GROUP_STATE_SUMMARY, self.read_summary)

    def initialize(
        self, context: RequestContext, request: InitializeShareGroupStateRequest
    ) -> HandlerResult:
        """Create the states of new share partitions, or reset them."""

        def ask(key: SharePartitionKey, part: Any, responder: Responder) -> None:
            self._coordinator.ask(
                key,
                responder,
                lambda shard, now: shard.initialize(
                    key,
                    responder,
                    now,
                    state_epoch=part.state_epoch,
                    start_offset=part.start_offset,
                ),
            )

        return begun(_serve(context, request, ask, _initialized))

    def read(self, context: RequestContext, request: ReadShareGroupStateRequest) -> HandlerResult:
        """Return states to the leaders of the partitions, and fence older leaders."""

        def ask(key: SharePartitionKey, part: Any, responder: Responder) -> None:
            self._coordinator.ask(
                key,
                responder,
                lambda shard, now: shard.read(key, responder, now, leader_epoch=part.leader_epoch),
            )

        return begun(_serve(context, request, ask, _states))

    def write(self, context: RequestContext, request: WriteShareGroupStateRequest) -> HandlerResult:
        """Merge the changes of the leaders of the partitions."""

        def ask(key: SharePartitionKey, part: Any, responder: Responder) -> None:
            self._coordinator.write(
                key,
                responder,
                state_epoch=part.state_epoch,
                leader_epoch=part.leader_epoch,
                start_offset=part.start_offset,
                delivery_complete_count=part.delivery_complete_count,
                batches=state_batches_of(part.state_batches),
            )

        return begun(_serve(context, request, ask, _written))

    def delete(
        self, context: RequestContext, request: DeleteShareGroupStateRequest
    ) -> HandlerResult:
        """Delete the states of share partitions."""

        def ask(key: SharePartitionKey, part: Any, responder: Responder) -> None:
            self._coordinator.ask(key, responder, lambda shard, now: shard.delete(key, responder))

        return begun(_serve(context, request, ask, _deleted))

    def read_summary(
        self, context: RequestContext, request: ReadShareGroupStateSummaryRequest
    ) -> HandlerResult:
        """Return the epochs and start offsets of share partitions."""

        def ask(key: SharePartitionKey, part: Any, responder: Responder) -> None:
            self._coordinator.ask(
                key,
                responder,
                lambda shard, now: shard.read_summary(key, responder),
                is_write=False,
            )

        return begun(_serve(context, request, ask, _summaries))


def _serve(context: RequestContext, request: Any, ask: Ask, finish: Finish) -> Answer:
    slot = context.slot
    topics = request.topics if request.group_id.strip() else []
    pace = StepPace()
    count = 0
    for topic in topics:
        count += len(topic.partitions)
        if pace.is_due():
            yield
    collector = AnswerCollector(count, lambda answers: slot.complete(finish(topics, answers)))
    at = 0
    for topic in topics:
        for part in topic.partitions:
            key = SharePartitionKey(request.group_id, topic.topic_id, part.partition)
            ask(key, part, collector.responder(at))
            at += 1
            if pace.is_due(PARTITION_COST + len(getattr(part, "state_batches", ()))):
                yield
        if pace.is_due():
            yield
    return None


def _code_and_message(answer: Any) -> dict[str, Any]:
    """Return the error fields of a partition's result."""
    if isinstance(answer, RefusedError):
        return {"error_code": answer.code, "error_message": answer.message}
    if isinstance(answer, ErrorCode) and answer is not ErrorCode.NONE:
        return {"error_code": answer, "error_message": ERRORS[answer].meaning}
    return {"error_code": ErrorCode.NONE, "error_message": None}


def _initialized(topics: Sequence[Any], answers: Sequence[Any]) -> Message:
    left = iter(answers)
    return initialized.InitializeShareGroupStateResponse(
        results=[
            initialized.InitializeStateResult(
                topic_id=topic.topic_id,
                partitions=[
                    initialized.PartitionResult(
                        partition=part.partition, **_code_and_message(next(left))
                    )
                    for part in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def _written(topics: Sequence[Any], answers: Sequence[Any]) -> Message:
    left = iter(answers)
    return written.WriteShareGroupStateResponse(
        results=[
            written.WriteStateResult(
                topic_id=topic.topic_id,
                partitions=[
                    written.PartitionResult(
                        partition=part.partition, **_code_and_message(next(left))
                    )
                    for part in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def _deleted(topics: Sequence[Any], answers: Sequence[Any]) -> Message:
    left = iter(answers)
    return deleted.DeleteShareGroupStateResponse(
        results=[
            deleted.DeleteStateResult(
                topic_id=topic.topic_id,
                partitions=[
                    deleted.PartitionResult(
                        partition=part.partition, **_code_and_message(next(left))
                    )
                    for part in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def _states(topics: Sequence[Any], answers: Sequence[Any]) -> Message:
    left = iter(answers)
    return states.ReadShareGroupStateResponse(
        results=[
            states.ReadStateResult(
                topic_id=topic.topic_id,
                partitions=[_state_result(part.partition, next(left)) for part in topic.partitions],
            )
            for topic in topics
        ]
    )


def _state_result(partition: int, answer: Any) -> states.PartitionResult:
    result = states.PartitionResult(partition=partition, **_code_and_message(answer))
    if isinstance(answer, ShareState):
        result.state_epoch = answer.state_epoch
        result.start_offset = answer.start_offset
        result.state_batches = [states.StateBatch(**batch._asdict()) for batch in answer.batches]
    return result


def _summaries(topics: Sequence[Any], answers: Sequence[Any]) -> Message:
    left = iter(answers)
    return summaries.ReadShareGroupStateSummaryResponse(
        results=[
            summaries.ReadStateSummaryResult(
                topic_id=topic.topic_id,
                partitions=[
                    _summary_result(part.partition, next(left)) for part in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def _summary_result(partition: int, answer: Any) -> summaries.PartitionResult:
    result = summaries.PartitionResult(partition=partition, **_code_and_message(answer))
    if isinstance(answer, ShareSummary):
        result.state_epoch = answer.state_epoch
        result.leader_epoch = answer.leader_epoch
        result.start_offset = answer.start_offset
        result.delivery_complete_count = answer.delivery_complete_count
    return result
