"""ShareAcknowledge: ends or renews the acquisition of records without a fetch (KIP-932).

Pure. The response is sent when the new states of all partitions are durable.
"""

from functools import partial
from uuid import UUID

from ottla.broker.logs.leader_hints import HINTED
from ottla.broker.shares.share_delivery import LeaderHints, ShareDelivery
from ottla.broker.shares.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, PartitionId, SessionKey
from ottla.model.errors import ErrorCode, RefusedError
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.node.network.steps import Answer, StepPace, begun
from ottla.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from ottla.wire.messages.share_acknowledge_response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


class ShareAcknowledgement:
    """ShareAcknowledge request in progress, and the outcomes for its partitions so far."""

    def __init__(self, delivery: ShareDelivery, context: RequestContext, group_id: str) -> None:
        self.parts: dict[PartitionId, ErrorCode] = {}
        """Error codes for the ShareAcknowledge response, by partition."""
        self._delivery = delivery
        self._context = context
        self._group_id = group_id
        self._left = 1
        """Number of partitions whose acknowledgements have no outcome yet. The number is one higher
        until the acknowledgements of all partitions have begun."""

    def begin(self) -> None:
        """Count one more partition whose acknowledgements have no result yet."""
        self._left += 1

    def on_begun(self) -> None:
        """Record that the acknowledgements of all partitions have begun. Sends the response if no
        partition is waiting for an outcome."""
        self._conclude()

    def on_done(self, partition_id: PartitionId, code: ErrorCode) -> None:
        """Record the outcome of the acknowledgements for one partition. The last outcome sends the
        response."""
        self.parts[partition_id] = code
        self._conclude()

    def _conclude(self) -> None:
        self._left -= 1
        if not self._left:
            self._context.complete(self._response())

    def _response(self) -> ShareAcknowledgeResponse:
        delivery = self._delivery
        response = ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=delivery.lock_duration_ms(self._group_id)
        )
        hints = LeaderHints(delivery.table)
        topics: dict[UUID, ShareAcknowledgeTopicResponse] = {}
        for (topic_id, index), code in self.parts.items():
            part = PartitionData(partition_index=index, error_code=code)
            if code in HINTED:
                leader_id, leader_epoch = hints.leader(topic_id, index)
                part.current_leader = LeaderIdAndEpoch(
                    leader_id=leader_id, leader_epoch=leader_epoch
                )
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = ShareAcknowledgeTopicResponse(topic_id=topic_id)
                response.responses.append(topic)
            topic.partitions.append(part)
        response.node_endpoints = [
            NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in hints.endpoints(self._context)
        ]
        return response


class ShareAcknowledgeApi:
    """Handler of ShareAcknowledge, versions 1 and 2."""

    def __init__(self, delivery: ShareDelivery) -> None:
        self._delivery = delivery

    def handle(self, context: RequestContext, request: ShareAcknowledgeRequest) -> HandlerResult:
        """Acknowledge the records of all partitions in the ShareAcknowledge request."""
        delivery, epoch = self._delivery, request.share_session_epoch
        code = delivery.refusal(request.group_id, request.member_id)
        if code is ErrorCode.NONE and epoch == INITIAL_EPOCH:
            code = ErrorCode.INVALID_SHARE_SESSION_EPOCH
        if code is not ErrorCode.NONE:
            return ShareAcknowledgeResponse(error_code=code)
        return begun(self._serve(context, request))

    def _serve(self, context: RequestContext, request: ShareAcknowledgeRequest) -> Answer:
        delivery, epoch = self._delivery, request.share_session_epoch
        key = SessionKey(request.group_id or "", request.member_id or "")
        try:
            session = delivery.sessions.find(key, epoch)
        except RefusedError as refusal:
            return ShareAcknowledgeResponse(error_code=refusal.code)
        delivery.figures.acknowledge_count += 1
        whole = ShareAcknowledgement(delivery, context, key.group_id)
        pace = StepPace()
        for topic in request.topics:
            for partition in topic.partitions:
                partition_id = topic.topic_id, partition.partition_index
                whole.begin()
                delivery.acknowledge(
                    context,
                    key,
                    partition_id,
                    partition.acknowledgement_batches,
                    partial(whole.on_done, partition_id),
                    is_renew_ack=request.is_renew_ack,
                )
                if pace.is_due(1 + len(partition.acknowledgement_batches)):
                    yield
        if epoch == FINAL_EPOCH:
            delivery.close(session)
        whole.on_begun()
        return None
