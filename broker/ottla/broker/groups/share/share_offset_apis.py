"""Handlers of DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets
(KIP-932). Pure.

The share coordinators store the start offsets. The lag of a partition is the number of records from
the start offset to the end offset. Records that need no further delivery are not counted
(KIP-1226).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla.broker.coordinators.answer_collector import AnswerCollector
from ottla.broker.coordinators.effects import Responder
from ottla.broker.coordinators.share_persister import (
    NO_START_OFFSET,
    SharePartitionKey,
    SharePersister,
    ShareSummary,
)
from ottla.broker.groups.group_coordinator import GroupCoordinator
from ottla.broker.groups.group_records import LISTED_COUNT_MAX
from ottla.broker.groups.share.end_offsets import EndOffsetAnswers, EndOffsets
from ottla.broker.groups.share.partition_states import ask_in_rounds
from ottla.broker.groups.share.share_groups import DeletedOffsets
from ottla.broker.groups.share.share_rebalance import NewOffset
from ottla.metadata.image import MetadataImage, Topic
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.node.authorization.questions import may_describe_topic
from ottla.node.network.dispatch import HandlerResult, Permissions, RequestContext
from ottla.node.network.steps import StepPace, Steps, begun
from ottla.wire.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest
from ottla.wire.messages.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.wire.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
from ottla.wire.messages.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ottla.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.wire.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

NO_LAG = -1

GROUP_COST = 20
"""Cost of the first step of describing a share group's offsets, relative to the cost of one entry
in a response."""

NO_LEADER_EPOCH = 0


class ShareOffsetApis:
    """Handlers of DescribeShareGroupOffsets (versions 0 and 1), AlterShareGroupOffsets (0) and
    DeleteShareGroupOffsets (0).

    `is_served` returns True if the cluster's share.version includes share groups. `image` returns
    the metadata with the topics.
    """

    def __init__(
        self,
        coordinator: GroupCoordinator,
        persister: SharePersister,
        ends: EndOffsets,
        *,
        is_served: Callable[[], bool],
        image: Callable[[], MetadataImage],
    ) -> None:
        self._coordinator = coordinator
        self._persister = persister
        self._ends = ends
        self._is_served = is_served
        self._image = image

    # ---- describing

    def describe(
        self, context: RequestContext, request: DescribeShareGroupOffsetsRequest
    ) -> HandlerResult:
        """Describe the offsets of each share group once, even if it is named several times. The
        response is sent when the offsets of every group are known."""
        return begun(self._describe_all(context, request))

    def _describe_all(
        self, context: RequestContext, request: DescribeShareGroupOffsetsRequest
    ) -> Steps[None]:
        groups = list({one.group_id: one for one in request.groups}.values())
        pace = StepPace()

        def on_all(found: Sequence[DescribeShareGroupOffsetsResponseGroup]) -> None:
            context.complete(DescribeShareGroupOffsetsResponse(groups=list(found)))

        collector = AnswerCollector(len(groups), on_all)
        for at, asked in enumerate(groups):
            self._describe(asked, context.permissions, collector.responder(at))
            if pace.is_due(GROUP_COST):
                yield

    def _describe(
        self,
        asked: DescribeShareGroupOffsetsRequestGroup,
        permissions: Permissions | None,
        responder: Responder,
    ) -> None:
        found = DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)
        try:
            if not self._is_served():
                raise RefusedError(ErrorCode.UNSUPPORTED_VERSION)
            if not asked.group_id:
                raise RefusedError(ErrorCode.INVALID_GROUP_ID)
            wanted = self._wanted(asked, found, permissions)
        except RefusedError as refusal:
            found.error_code, found.error_message = refusal.code, refusal.message
            responder(found)
            return

        def on_summaries(summaries: Sequence[ShareSummary]) -> None:
            ends = [
                TopicPartition(topic.name, index)
                for (topic, index), summary in zip(wanted, summaries, strict=True)
                if summary.start_offset != NO_START_OFFSET
            ]
            self._ends.ask(
                ends, lambda offsets: responder(_described(found, wanted, summaries, offsets))
            )

        def read(at: int, on_done: Responder) -> None:
            topic, index = wanted[at]
            self._persister.read_summary(
                SharePartitionKey(asked.group_id, topic.id, index),
                leader_epoch=NO_LEADER_EPOCH,
                on_done=on_done,
            )

        ask_in_rounds(len(wanted), read, on_summaries)

    def _wanted(
        self,
        asked: DescribeShareGroupOffsetsRequestGroup,
        found: DescribeShareGroupOffsetsResponseGroup,
        permissions: Permissions | None,
    ) -> list[tuple[Topic, int]]:
        """Return the partitions whose offsets a request names. Adds an error to `found` for each
        topic that does not exist, or that the client may not describe."""
        shard, image = self._coordinator.shard_of(asked.group_id), self._image()
        if asked.topics is None:
            group = shard.shares.find(asked.group_id)
            initialized = {} if group is None else group.partitions.initialized
            return [
                (topic, index)
                for topic_id in sorted(initialized)
                if (topic := image.topics.get(topic_id)) is not None
                and may_describe_topic(permissions, topic.name)
                for index in sorted(initialized[topic_id].partitions)
            ]
        _check_count(len(one.partitions) for one in asked.topics)
        wanted = []
        for one in asked.topics:
            known = image.topic(one.topic_name)
            is_allowed = may_describe_topic(permissions, one.topic_name)
            if is_allowed and known is not None:
                wanted += [(known, index) for index in one.partitions]
                continue
            code = ErrorCode.NONE if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            found.topics.append(
                DescribeShareGroupOffsetsResponseTopic(
                    topic_name=one.topic_name,
                    topic_id=ZERO_UUID,
                    partitions=[
                        DescribeShareGroupOffsetsResponsePartition(
                            partition_index=index,
                            start_offset=NO_START_OFFSET,
                            leader_epoch=NO_LEADER_EPOCH,
                            error_code=code,
                        )
                        for index in one.partitions
                    ],
                )
            )
        return wanted

    # ---- changing

    def alter(self, context: RequestContext, request: AlterShareGroupOffsetsRequest) -> None:
        """Set start offsets of a share group that has no members. The group is created if it does
        not exist."""
        response = AlterShareGroupOffsetsResponse()
        places: list[AlterShareGroupOffsetsResponsePartition] = []
        wanted: list[NewOffset] = []
        image = self._image()

        def answer(codes: Sequence[ErrorCode] | ErrorCode | RefusedError) -> None:
            if isinstance(codes, ErrorCode | RefusedError):
                refusal = codes if isinstance(codes, RefusedError) else RefusedError(codes)
                context.complete(
                    AlterShareGroupOffsetsResponse(
                        error_code=refusal.code, error_message=refusal.message
                    )
                )
                return
            for place, code in zip(places, codes, strict=True):
                _refuse_place(place, code)
            context.complete(response)

        try:
            self._check(request.group_id, (len(one.partitions) for one in request.topics))
        except RefusedError as refusal:
            answer(refusal)
            return
        for topic in request.topics:
            known = image.topic(topic.topic_name)
            placed = AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name, topic_id=ZERO_UUID if known is None else known.id
            )
            response.responses.append(placed)
            for one in topic.partitions:
                place = AlterShareGroupOffsetsResponsePartition(partition_index=one.partition_index)
                placed.partitions.append(place)
                if known is None or one.partition_index not in known.partitions:
                    _refuse_place(place, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                elif one.start_offset < 0:
                    _refuse_place(place, ErrorCode.INVALID_REQUEST)
                else:
                    wanted.append(NewOffset(known.id, one.partition_index, one.start_offset))
                    places.append(place)
        self._coordinator.perform(
            request.group_id,
            answer,
            lambda shard, now: shard.shares.alter_offsets(request.group_id, wanted, answer),
            is_write=True,
        )

    def delete(self, context: RequestContext, request: DeleteShareGroupOffsetsRequest) -> None:
        """Delete the offsets of the named topics for a share group that has no members."""

        def answer(deleted: Sequence[DeletedOffsets] | ErrorCode | RefusedError) -> None:
            if isinstance(deleted, ErrorCode | RefusedError):
                refusal = deleted if isinstance(deleted, RefusedError) else RefusedError(deleted)
                context.complete(
                    DeleteShareGroupOffsetsResponse(
                        error_code=refusal.code, error_message=refusal.message
                    )
                )
                return
            response = DeleteShareGroupOffsetsResponse()
            for one in deleted:
                place = DeleteShareGroupOffsetsResponseTopic(
                    topic_name=one.name, topic_id=one.topic_id
                )
                _refuse_place(place, one.code, one.reason)
                response.responses.append(place)
            context.complete(response)

        names = list(dict.fromkeys(one.topic_name for one in request.topics))
        try:
            self._check(request.group_id, (1 for _ in names))
        except RefusedError as refusal:
            answer(refusal)
            return
        self._coordinator.perform(
            request.group_id,
            answer,
            lambda shard, now: shard.shares.delete_offsets(request.group_id, names, answer),
            is_write=True,
        )

    def _check(self, group_id: str, counts: Iterable[int]) -> None:
        if not self._is_served():
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION)
        if not group_id:
            raise RefusedError(ErrorCode.INVALID_GROUP_ID)
        _check_count(counts)


def _check_count(counts: Iterable[int]) -> None:
    if sum(counts) > LISTED_COUNT_MAX:
        reason = f"A request may have no more than {LISTED_COUNT_MAX} partitions of a group."
        raise RefusedError(ErrorCode.INVALID_REQUEST, reason)


def _refuse_place(place: Any, code: ErrorCode, reason: str | None = None) -> None:
    """Set the error code of a response entry for a group, topic or partition, and its message if
    there is an error."""
    place.error_code = code
    if code is not ErrorCode.NONE:
        place.error_message = reason or RefusedError(code).message


def _described(
    found: DescribeShareGroupOffsetsResponseGroup,
    wanted: Sequence[tuple[Topic, int]],
    summaries: Sequence[ShareSummary],
    ends: EndOffsetAnswers,
) -> DescribeShareGroupOffsetsResponseGroup:
    topics: dict[str, DescribeShareGroupOffsetsResponseTopic] = {}
    for (topic, index), summary in zip(wanted, summaries, strict=True):
        place = topics.get(topic.name)
        if place is None:
            place = topics[topic.name] = DescribeShareGroupOffsetsResponseTopic(
                topic_name=topic.name, topic_id=topic.id
            )
            found.topics.append(place)
        place.partitions.append(_place(index, summary, ends.get(TopicPartition(topic.name, index))))
    return found


def _place(
    index: int, summary: ShareSummary, end: int | ErrorCode | None
) -> DescribeShareGroupOffsetsResponsePartition:
    place = DescribeShareGroupOffsetsResponsePartition(
        partition_index=index,
        start_offset=summary.start_offset,
        leader_epoch=summary.leader_epoch,
        lag=NO_LAG,
    )
    # As in Kafka, an error of the share coordinator is described as an unknown offset.
    if summary.code is not ErrorCode.NONE or end is None:
        place.start_offset = NO_START_OFFSET
        place.leader_epoch = NO_LEADER_EPOCH if summary.code else summary.leader_epoch
    elif isinstance(end, ErrorCode):
        _refuse_place(place, end)
    elif summary.delivery_complete_count >= 0:
        # The start offset may be beyond the end that the leader knew when it was asked.
        place.lag = max(0, end - summary.start_offset - summary.delivery_complete_count)
    return place
