"""OffsetCommit: commits offsets of groups. Pure.

`OffsetCommitApi.handle` serves every request. The offsets of a `FlatCommit` are read directly from
the bytes of the request, without message objects. Only the encoding of its response differs. A
request with many offsets is committed in steps, so that other requests are not delayed. Requests
name topics by id from version 10 on, and by name in earlier versions. The coordinator stores both,
so that offsets of a deleted topic are not used for a new topic with its name.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final, TypeAlias

from ottla.broker.coordinators.answer_collector import AnswerCollector
from ottla.broker.coordinators.effects import Instant, Responder
from ottla.broker.groups.group_coordinator import GroupCoordinator
from ottla.broker.groups.offsets.topic_commit import OffsetTopic, TopicCommit
from ottla.broker.groups.shard import GroupShard
from ottla.metadata.image import Topic
from ottla.model.errors import ErrorCode
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.node.network.response_queue import ResponseSlot
from ottla.node.network.steps import STEP_COST, VALUES_PER_STEP, StepPace, Steps, begun
from ottla.wire.apis import OFFSETS_TOPIC_IDS_FROM
from ottla.wire.flat.flat_commit import CommitRow, FlatCommit, flat_commit_answer
from ottla.wire.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestTopic
from ottla.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

CommitForm: TypeAlias = OffsetCommitRequest | FlatCommit
"""OffsetCommit request, either as message objects or as a `FlatCommit`, whose offsets are read
directly from the request's bytes."""

COMMITS_PER_PIECE: Final = 500
"""Maximum number of partitions whose offsets are committed per event-loop iteration. Committing
them takes at most ten milliseconds. A smaller value yields to other tasks more often. A larger
value delays other connections."""

COMMITTERS_MAX: Final = 1_024
"""Maximum number of cached `TopicCommitter` objects (group member and topic). A smaller value
repeats some lookups. A larger value takes up to two KiB for each object."""


class TopicCommitter:
    """Cache entry for a group member (or a group without members) and a topic in commit requests.
    Repeated commits then need no lookup of the topic."""

    __slots__ = ("partitions", "place", "request", "topic")

    def __init__(self, flat: FlatCommit, topic: Topic) -> None:
        self.request = flat.head()
        """Fields that are equal in all OffsetCommit requests of the member: all fields except the
        topics."""
        self.place = flat.place
        self.topic = OffsetTopic(self.request.group_id, topic.name, topic.id)
        self.partitions: Collection[int] = topic.partitions


class FlatTopicCommit(TopicCommit):
    """Offsets of one topic in a `FlatCommit` (an OffsetCommit request that is read directly from
    its bytes), with the topic's part of the response."""

    __slots__ = ("_committer", "_slot")

    def __init__(
        self, slot: ResponseSlot, committer: TopicCommitter, rows: list[CommitRow]
    ) -> None:
        # Without the parent's constructor, whose call costs as much as the fields.
        self.topic = committer.topic
        self.rows = rows
        self._slot = slot
        self._committer = committer

    def decide(self, shard: GroupShard, now: Instant) -> None:
        """Commit the offsets in the coordinator shard that serves the group."""
        version = self._slot.header.api_version
        shard.commit(self._committer.request, (self,), self.answer, now, version)

    def answer(self, said: Any) -> None:
        """Complete the OffsetCommit response with one error code for all partitions, or with one
        error code for each partition."""
        slot, rows = self._slot, self.rows
        # A check for ErrorCode would cost three times as much, because of its metaclass.
        codes: list[ErrorCode] = said[0] if isinstance(said, list) else [said] * len(rows)
        correlation_id, place = slot.correlation_id, self._committer.place
        answer = flat_commit_answer(correlation_id, place, rows, codes, slot.settle_charge())
        slot.complete_frame([answer])


class OffsetCommitApi:
    """Handler of OffsetCommit, versions 2 to 10."""

    def __init__(self, coordinator: GroupCoordinator, metadata: MetadataCache) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._image = metadata.image
        """Metadata image in which the topics of the cached `TopicCommitter` objects were looked
        up."""
        self._by_name: dict[bytes, TopicCommitter] = {}
        self._by_id: dict[bytes, TopicCommitter] = {}
        """Cached `TopicCommitter` objects, by the bytes of a `FlatCommit` that identify the member
        and the topic."""

    def handle(self, context: RequestContext, request: CommitForm) -> HandlerResult:
        """Commit a group's offsets for partitions that exist. The response is sent when their
        records are committed."""
        if isinstance(request, FlatCommit):
            if self._image is not self._metadata.image:
                self._forget_all()
            committers = self._by_id if request.is_by_id else self._by_name
            committer = committers.get(request.committer) or self._look_up(request)
            if committer is not None:
                partitions = committer.partitions
                for row in request.rows:
                    if row[0] not in partitions:
                        break
                else:
                    commit = FlatTopicCommit(context, committer, request.rows)
                    group_id = committer.topic.group_id
                    self._coordinator.perform(group_id, commit.answer, commit.decide, is_write=True)
                    return None
            request = request.decoded()
        return begun(self._commit(context, request))

    def _forget_all(self) -> None:
        """Drop all cached `TopicCommitter` objects, because topics may have changed in the
        metadata."""
        self._image = self._metadata.image
        self._by_name.clear()
        self._by_id.clear()

    def _look_up(self, flat: FlatCommit) -> TopicCommitter | None:
        """Look up the `TopicCommitter` (group member and topic) for a `FlatCommit`, and cache it.
        Returns None if the topic does not exist."""
        version = OFFSETS_TOPIC_IDS_FROM if flat.is_by_id else 0
        topic = self._topic(flat.name, flat.topic_id, version)
        if topic is None:
            return None
        committers = self._by_id if flat.is_by_id else self._by_name
        if len(committers) >= COMMITTERS_MAX:
            committers.clear()
        committer = committers[flat.committer] = TopicCommitter(flat, topic)
        return committer

    def _commit(self, context: RequestContext, request: OffsetCommitRequest) -> Steps[None]:
        version = context.api_version
        found: list[Topic | None] = []
        pieces: list[list[TopicCommit]] = [[]]
        left = COMMITS_PER_PIECE
        pace = StepPace()
        for asked in request.topics:
            topic = self._topic(asked.name, asked.topic_id, version)
            found.append(topic)
            if pace.is_due():
                yield
            if topic is None:
                continue
            rows = yield from _known_rows(asked, topic, pace)
            of_topic = OffsetTopic(request.group_id, topic.name, topic.id)
            at = 0
            while at < len(rows):
                part = rows[at : at + left]
                pieces[-1].append(TopicCommit(of_topic, part))
                at += len(part)
                left -= len(part)
                if not left:
                    pieces.append([])
                    left = COMMITS_PER_PIECE
        pieces = [piece for piece in pieces if piece]

        def answer(answers: Sequence[Any]) -> None:
            codes: list[ErrorCode] = []
            for piece, said in zip(pieces, answers, strict=True):
                if isinstance(said, ErrorCode):
                    codes += [said] * sum(len(commit.rows) for commit in piece)
                else:
                    codes += [code for topic in said for code in topic]
            context.complete_begun(begun(_response(request, found, codes, version)))

        collector = AnswerCollector(len(pieces), answer)
        for at, piece in enumerate(pieces):
            self._commit_piece(request, piece, collector.responder(at), version)
            if len(pieces) > 1:
                yield

    def _commit_piece(
        self,
        request: OffsetCommitRequest,
        piece: list[TopicCommit],
        responder: Responder,
        version: int,
    ) -> None:
        self._coordinator.perform(
            request.group_id,
            responder,
            lambda shard, now: shard.commit(request, piece, responder, now, version),
            is_write=True,
        )

    def _topic(self, name: str, topic_id: Any, version: int) -> Topic | None:
        image = self._metadata.image
        return (
            image.topics.get(topic_id) if version >= OFFSETS_TOPIC_IDS_FROM else image.topic(name)
        )


def _known_rows(
    asked: OffsetCommitRequestTopic, topic: Topic, pace: StepPace
) -> Steps[list[CommitRow]]:
    """Return the offsets to commit for the existing partitions of a topic that an OffsetCommit
    request names."""
    there = topic.partitions
    rows: list[CommitRow] = []
    for at in range(0, len(asked.partitions), VALUES_PER_STEP):
        part = asked.partitions[at : at + VALUES_PER_STEP]
        for one in part:
            if one.partition_index in there:
                metadata = one.committed_metadata or ""
                rows.append(
                    (
                        one.partition_index,
                        one.committed_offset,
                        one.committed_leader_epoch,
                        metadata,
                    )
                )
        if pace.is_due(len(part) * STEP_COST // VALUES_PER_STEP):
            yield
    return rows


def _response(
    request: OffsetCommitRequest, found: list[Topic | None], codes: list[ErrorCode], version: int
) -> Steps[OffsetCommitResponse]:
    """Build the OffsetCommit response. `codes` contains the error codes of the partitions that
    exist, in order."""
    # Built without constructors, whose named arguments would be most of the cost.
    pace = StepPace()
    left = iter(codes)
    topics: list[OffsetCommitResponseTopic] = []
    for asked, topic in zip(request.topics, found, strict=True):
        partitions: list[OffsetCommitResponsePartition] = []
        for one in asked.partitions:
            part = OffsetCommitResponsePartition.__new__(OffsetCommitResponsePartition)
            part.partition_index = one.partition_index
            part.error_code = missing_code(one.partition_index, topic, version) or next(left)
            partitions.append(part)
            if pace.is_due():
                yield
        answer = OffsetCommitResponseTopic.__new__(OffsetCommitResponseTopic)
        answer.name, answer.topic_id, answer.partitions = asked.name, asked.topic_id, partitions
        topics.append(answer)
        if pace.is_due():
            yield
    response = OffsetCommitResponse.__new__(OffsetCommitResponse)
    response.throttle_time_ms = 0
    response.topics = topics
    return response


def missing_code(index: int, topic: Topic | None, version: int) -> ErrorCode:
    """Return the error code for a missing partition that an OffsetCommit request names, or NONE if
    the partition exists."""
    if topic is None and version >= OFFSETS_TOPIC_IDS_FROM:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if topic is None or index not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE
