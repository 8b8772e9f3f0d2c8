"""Handlers of requests for the state of share partitions (KIP-932): Initialize, Read, Write, Delete
and ReadSummary. Pure.

Only brokers send these requests. A request names partitions of one group. The handler handles or
refuses each partition separately. The response is sent when all partitions have a result. As in
Kafka, a request without a group id gets an empty response.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from ottla.broker.coordinators.effects import Responder
from ottla.broker.coordinators.share_persister import SharePartitionKey, ShareState, ShareSummary
from ottla.broker.share_state.share_coordinator import ShareCoordinator
from ottla.broker.share_state.share_state_records import state_batches_of
from ottla.model.errors import ERRORS, ErrorCode, RefusedError
from ottla.node.network.dispatch import Dispatcher, HandlerResult, RequestContext
from ottla.node.network.response_queue import ResponseSlot
from ottla.node.network.steps import STEP_COST, Answer, StepPace, begun
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

PARTITION_COST = 8
"""Cost of handling one share partition of a request, relative to the cost of one entry in a
response."""

Ask: TypeAlias = Callable[[SharePartitionKey, Any, Responder], None]
"""Function that passes one share partition of a request to the share coordinator. Its arguments are
the share partition's key, its entry in the request, and the callback for the result."""

Fill: TypeAlias = Callable[[Any, Any], None]
"""Function that copies the share coordinator's result for a share partition to the partition's
entry in the response."""


class ResponseForm(NamedTuple):
    """Message classes of one kind of response: the whole response, a topic in it, and a partition
    in that topic."""

    response: Callable[[], Any]
    topic: Callable[..., Any]
    partition: Callable[..., Any]
    fill: Fill


class ShareStateApis:
    """Handlers of the five requests for the state of share partitions, which brokers send."""

    def __init__(self, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the handlers of the five requests for the state of share partitions."""
        dispatcher.register(INITIALIZE_SHARE_GROUP_STATE, self.initialize)
        dispatcher.register(READ_SHARE_GROUP_STATE, self.read)
        dispatcher.register(WRITE_SHARE_GROUP_STATE, self.write)
        dispatcher.register(DELETE_SHARE_GROUP_STATE, self.delete)
        dispatcher.register(READ_SHARE_GROUP_STATE_SUMMARY, self.read_summary)

    def initialize(
        self, context: RequestContext, request: InitializeShareGroupStateRequest
    ) -> HandlerResult:
        """Create the states of new share partitions, or reset existing states in a higher state
        epoch."""

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

        return begun(_serve(context, request, ask, INITIALIZED))

    def read(self, context: RequestContext, request: ReadShareGroupStateRequest) -> HandlerResult:
        """Return the states of share partitions to their leaders. Older leaders are fenced from
        then on."""

        def ask(key: SharePartitionKey, part: Any, responder: Responder) -> None:
            self._coordinator.ask(
                key,
                responder,
                lambda shard, now: shard.read(key, responder, now, leader_epoch=part.leader_epoch),
                is_write=False,
            )

        return begun(_serve(context, request, ask, STATES))

    def write(self, context: RequestContext, request: WriteShareGroupStateRequest) -> HandlerResult:
        """Merge the changes from leaders of share partitions into the stored states."""

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

        return begun(_serve(context, request, ask, WRITTEN))

    def delete(
        self, context: RequestContext, request: DeleteShareGroupStateRequest
    ) -> HandlerResult:
        """Delete the states of the share partitions that the request names."""

        def ask(key: SharePartitionKey, part: Any, responder: Responder) -> None:
            self._coordinator.ask(key, responder, lambda shard, now: shard.delete(key, responder))

        return begun(_serve(context, request, ask, DELETED))

    def read_summary(
        self, context: RequestContext, request: ReadShareGroupStateSummaryRequest
    ) -> HandlerResult:
        """Return the epochs and start offsets of the share partitions that the request names."""

        def ask(key: SharePartitionKey, part: Any, responder: Responder) -> None:
            self._coordinator.ask(
                key,
                responder,
                lambda shard, now: shard.read_summary(key, responder),
                is_write=False,
            )

        return begun(_serve(context, request, ask, SUMMARIES))


class OpenResponse:
    """Response to a request for share partition states. It is sent when each of the request's
    partitions has an answer."""

    __slots__ = ("_open_count", "_response", "_slot", "partition_count")

    def __init__(self, slot: ResponseSlot, response: Message) -> None:
        self._slot = slot
        self._response = response
        self._open_count = 1
        """Number of partitions without an answer. While the handler runs, the number is one
        higher."""
        self.partition_count = 0

    def responder(self, result: Any, fill: Fill) -> Responder:
        """Return a callback that fills the response's entry for one partition with the
        coordinator's answer."""
        self._open_count += 1
        self.partition_count += 1

        def respond(answer: Any) -> None:
            if isinstance(answer, RefusedError):
                result.error_code = answer.code
                if answer.message != ERRORS[answer.code].meaning:
                    # The usual message would only multiply the size of the response.
                    result.error_message = answer.message
            elif isinstance(answer, ErrorCode):
                result.error_code = answer
            else:
                fill(result, answer)
            self.end_part()

        return respond

    def end_part(self) -> None:
        """Count an answer that has arrived, or the end of the handler. Sends the response if no
        answer is missing and the handler has ended."""
        self._open_count -= 1
        if self._open_count:
            return
        if self.partition_count > STEP_COST:
            self._slot.complete_large(self._response)
        else:
            self._slot.complete(self._response)


def _serve(context: RequestContext, request: Any, ask: Ask, form: ResponseForm) -> Answer:
    response = form.response()
    waiting = OpenResponse(context, response)
    pace = StepPace()
    for topic in request.topics if request.group_id.strip() else ():
        found = form.topic(topic_id=topic.topic_id)
        response.results.append(found)
        for part in topic.partitions:
            result = form.partition(partition=part.partition)
            found.partitions.append(result)
            key = SharePartitionKey(request.group_id, topic.topic_id, part.partition)
            ask(key, part, waiting.responder(result, form.fill))
            if pace.is_due(PARTITION_COST + len(getattr(part, "state_batches", ()))):
                yield
        if pace.is_due():
            yield
    waiting.end_part()
    return None


def _fill_nothing(result: Any, answer: Any) -> None:
    """Leave the response's entry for a partition unchanged, since the answer contains only an error
    code."""


def _fill_state(result: Any, answer: ShareState) -> None:
    result.state_epoch = answer.state_epoch
    result.start_offset = answer.start_offset
    result.state_batches = [states.StateBatch(**batch._asdict()) for batch in answer.batches]


def _fill_summary(result: Any, answer: ShareSummary) -> None:
    result.state_epoch = answer.state_epoch
    result.leader_epoch = answer.leader_epoch
    result.start_offset = answer.start_offset
    result.delivery_complete_count = answer.delivery_complete_count


INITIALIZED = ResponseForm(
    initialized.InitializeShareGroupStateResponse,
    initialized.InitializeStateResult,
    initialized.PartitionResult,
    _fill_nothing,
)
STATES = ResponseForm(
    states.ReadShareGroupStateResponse,
    states.ReadStateResult,
    states.PartitionResult,
    _fill_state,
)
WRITTEN = ResponseForm(
    written.WriteShareGroupStateResponse,
    written.WriteStateResult,
    written.PartitionResult,
    _fill_nothing,
)
DELETED = ResponseForm(
    deleted.DeleteShareGroupStateResponse,
    deleted.DeleteStateResult,
    deleted.PartitionResult,
    _fill_nothing,
)
SUMMARIES = ResponseForm(
    summaries.ReadShareGroupStateSummaryResponse,
    summaries.ReadStateSummaryResult,
    summaries.PartitionResult,
    _fill_summary,
)
