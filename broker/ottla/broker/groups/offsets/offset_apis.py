"""OffsetFetch and OffsetDelete: read and delete the committed offsets of groups. Pure.

Requests name topics by id from version 10 on, and by name in earlier versions. The coordinator
stores both, so that offsets of a deleted topic are not used for a new topic with its name.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from ottla.broker.coordinators.answer_collector import AnswerCollector
from ottla.broker.coordinators.effects import Responder
from ottla.broker.groups.group_coordinator import GroupCoordinator
from ottla.broker.groups.offsets.committed_offsets import PENDING, UNSTABLE, CommittedOffset
from ottla.broker.groups.offsets.offset_commit_api import COMMITS_PER_PIECE
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_EPOCH
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.authorization.questions import may_describe_topic
from ottla.node.network.dispatch import HandlerResult, Permissions, RequestContext
from ottla.node.network.steps import (
    Answer,
    StepPace,
    Steps,
    add_in_steps,
    begun,
)
from ottla.wire.apis import OFFSETS_TOPIC_IDS_FROM
from ottla.wire.codec_types import ZERO_UUID
from ottla.wire.messages.offset_delete_request import OffsetDeleteRequest
from ottla.wire.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

SEVERAL_GROUPS_FROM = 8
"""First version of OffsetFetch that can name several groups (KIP-709)."""

ERROR_OF_ALL_FROM = 2
"""First version of OffsetFetch whose response has one error code for the whole request."""

NO_OFFSET = -1

FetchedPartition: TypeAlias = OffsetFetchResponsePartition | OffsetFetchResponsePartitions
FetchedTopic: TypeAlias = OffsetFetchResponseTopic | OffsetFetchResponseTopics
"""OffsetFetch response entry for a topic. Versions before SEVERAL_GROUPS_FROM use another class
than later versions. Each entry is created in the right class at once, because converting hundreds
of thousands of entries would be slow."""

GROUP_COST = 5
"""Cost of requesting one group's offsets from the coordinator, relative to the cost of one entry in
a response."""

OFFSETS_PER_COST = 4
"""Number of committed offsets that the handler looks up in the time that it needs to add one offset
to a response."""


class OffsetApis:
    """Handlers of OffsetFetch (versions 1 to 10) and OffsetDelete (0)."""

    def __init__(self, coordinator: GroupCoordinator, metadata: MetadataCache) -> None:
        self._coordinator = coordinator
        self._metadata = metadata

    # ---- OffsetFetch

    def fetch(self, context: RequestContext, request: OffsetFetchRequest) -> HandlerResult:
        """Answer the OffsetFetch request with the committed offsets of each requested group. The
        response contains each group once, even if it is named several times."""
        return begun(self._fetch(context, request))

    def _fetch(self, context: RequestContext, request: OffsetFetchRequest) -> Steps[None]:
        version = context.api_version
        asked = request.groups
        if version < SEVERAL_GROUPS_FROM:
            asked = [(yield from _as_group(request))]
        groups = yield from asked_once(asked)
        pace = StepPace()

        def answer(found: Sequence[Any]) -> None:
            steps = self._fetched(groups, found, version, context.permissions)
            context.complete_begun(begun(steps))

        gathering = AnswerCollector(len(groups), answer)
        for at, group in enumerate(groups):
            self._ask(group, version, gathering.responder(at), is_stable=request.require_stable)
            if pace.is_due(GROUP_COST + gathering.size_of(at) // OFFSETS_PER_COST):
                yield

    def _ask(
        self, group: OffsetFetchRequestGroup, version: int, responder: Responder, *, is_stable: bool
    ) -> None:
        wanted = None
        # For very many partitions, it is cheaper to read all offsets of the group.
        if sum(len(topic.partition_indexes) for topic in group.topics or ()) > COMMITS_PER_PIECE:
            wanted = None
        elif group.topics is not None:
            wanted = [
                (name, index)
                for topic in group.topics
                if (name := self._name_of(topic, version)) is not None
                for index in topic.partition_indexes
            ]
        self._coordinator.perform(
            group.group_id,
            responder,
            lambda shard, now: shard.fetch_offsets(
                group.group_id,
                wanted,
                responder,
                member_id=group.member_id,
                member_epoch=group.member_epoch,
                is_stable=is_stable,
            ),
        )

    def _fetched(
        self,
        groups: list[OffsetFetchRequestGroup],
        found: Sequence[Any],
        version: int,
        permissions: Permissions | None,
    ) -> Steps[OffsetFetchResponse]:
        """Build the OffsetFetch response from the offsets or error codes that the coordinator
        returned."""
        pace = StepPace()
        answers: list[OffsetFetchResponseGroup] = []
        for group, offsets in zip(groups, found, strict=True):
            answer = OffsetFetchResponseGroup(group_id=group.group_id)
            answers.append(answer)
            topics: list[Any] = answer.topics
            if isinstance(offsets, ErrorCode):
                answer.error_code = offsets
            elif group.topics is None:
                topics += yield from self._all_topics(offsets, version, pace, permissions)
            else:
                known = {(topic, index): offset for topic, index, offset in offsets}
                for topic in group.topics:
                    topics.append(
                        (yield from self._topic_of(topic, known, version, pace, permissions))
                    )
            if pace.is_due():
                yield
        if version >= SEVERAL_GROUPS_FROM:
            return OffsetFetchResponse(groups=answers)
        return (yield from _single(answers[0], groups[0], version, pace))

    def _name_of(self, topic: OffsetFetchRequestTopics, version: int) -> str | None:
        if version < OFFSETS_TOPIC_IDS_FROM:
            return topic.name
        known = self._metadata.image.topics.get(topic.topic_id)
        return None if known is None else known.name

    def _topic_of(
        self,
        asked: OffsetFetchRequestTopics,
        found: dict[tuple[str, int], CommittedOffset | None],
        version: int,
        pace: StepPace,
        permissions: Permissions | None,
    ) -> Steps[FetchedTopic]:
        name = self._name_of(asked, version)
        code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.NONE
        if name is not None and not may_describe_topic(permissions, name):
            name, code = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partitions = []
        for index in asked.partition_indexes:
            offset = None if name is None else found.get((name, index))
            partitions.append(_fetched_partition(index, offset, version, code))
            if pace.is_due():
                yield
        if pace.is_due():
            yield
        return _fetched_topic(asked.name, asked.topic_id, partitions, version)

    def _all_topics(
        self,
        answer: list[tuple[str, int, CommittedOffset]],
        version: int,
        pace: StepPace,
        permissions: Permissions | None,
    ) -> Steps[list[FetchedTopic]]:
        """Return all committed offsets of a group by topic, for an OffsetFetch response. In
        versions that name topics by id, offsets of deleted topics are left out."""
        by_name: dict[str, list[FetchedPartition]] = {}
        for topic, index, offset in answer:
            if offset is PENDING:
                continue  # Only pending offsets exist.
            by_name.setdefault(topic, []).append(_fetched_partition(index, offset, version))
            if pace.is_due():
                yield
        topics = []
        for name, partitions in by_name.items():
            if pace.is_due():
                yield
            if not may_describe_topic(permissions, name, is_logged=False):
                continue
            known = self._metadata.image.topic(name)
            if known is not None and version >= OFFSETS_TOPIC_IDS_FROM:
                topics.append(_fetched_topic("", known.id, partitions, version))
            elif version < OFFSETS_TOPIC_IDS_FROM:
                topics.append(_fetched_topic(name, ZERO_UUID, partitions, version))
        return topics

    # ---- OffsetDelete

    def delete(self, context: RequestContext, request: OffsetDeleteRequest) -> HandlerResult:
        """Delete a group's offsets of topics to which no member subscribes. The response is sent
        when the deletion is committed.

        The response contains each partition once, even if it is named twice.
        """
        return begun(self._delete(context, request))

    def _delete(self, context: RequestContext, request: OffsetDeleteRequest) -> Answer:
        if not request.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        image = self._metadata.image
        pace = StepPace()
        named: dict[str, dict[int, None]] = {}
        wanted: list[tuple[str, int]] = []
        for topic in request.topics:
            indexes = named.setdefault(topic.name, {})
            is_there = image.topic(topic.name) is not None
            for one in topic.partitions:
                if is_there and one.partition_index not in indexes:
                    wanted.append((topic.name, one.partition_index))
                indexes[one.partition_index] = None
                if pace.is_due():
                    yield
            if pace.is_due():
                yield
        # Without offsets to delete, the coordinator still reports whether the group exists.
        starts = range(0, max(1, len(wanted)), COMMITS_PER_PIECE)
        pieces = [wanted[at : at + COMMITS_PER_PIECE] for at in starts]

        def answer(answers: Sequence[Any]) -> None:
            codes: dict[tuple[str, int], ErrorCode] = {}
            for piece, said in zip(pieces, answers, strict=True):
                if isinstance(said, ErrorCode):
                    context.complete(OffsetDeleteResponse(error_code=said))
                    return
                codes.update(zip(piece, said, strict=True))
            context.complete_begun(begun(_deleted(named, codes)))

        gathering = AnswerCollector(len(pieces), answer)
        for at, piece in enumerate(pieces):
            self._delete_piece(request.group_id, piece, gathering.responder(at))
            if len(pieces) > 1:
                yield
        return None

    def _delete_piece(
        self, group_id: str, piece: list[tuple[str, int]], responder: Responder
    ) -> None:
        self._coordinator.perform(
            group_id,
            responder,
            lambda shard, now: shard.delete_offsets(group_id, piece, responder),
            is_write=True,
        )


def asked_once(
    groups: Iterable[OffsetFetchRequestGroup],
) -> Steps[list[OffsetFetchRequestGroup]]:
    """Return the groups of an OffsetFetch request without duplicates of groups, topics and
    partitions. A null list of topics means all topics.

    If a request names a group several times, the member id and epoch of its first entry are used.
    """
    pace = StepPace()
    asked: dict[str, OffsetFetchRequestGroup] = {}
    topics: dict[str, dict[tuple[str, UUID], dict[int, None]] | None] = {}
    for group in groups:
        if pace.is_due():
            yield
        if group.group_id not in asked:
            asked[group.group_id] = group
            topics[group.group_id] = {}
        known = topics[group.group_id]
        if known is None or group.topics is None:
            topics[group.group_id] = None
            continue
        for topic in group.topics:
            indexes = known.setdefault((topic.name, topic.topic_id), {})
            yield from add_in_steps(indexes, topic.partition_indexes, pace)
    for group_id, group in asked.items():
        known = topics[group_id]
        group.topics = None if known is None else []
        for (name, topic_id), indexes in (known or {}).items():
            assert group.topics is not None
            group.topics.append(
                OffsetFetchRequestTopics(
                    name=name, topic_id=topic_id, partition_indexes=list(indexes)
                )
            )
            if pace.is_due():
                yield
    return list(asked.values())


def _fetched_partition(
    index: int,
    offset: CommittedOffset | None,
    version: int,
    code: ErrorCode = ErrorCode.NONE,
) -> FetchedPartition:
    """Return the OffsetFetch response entry for a partition. A partition without a committed offset
    is not an error."""
    if offset is UNSTABLE or offset is PENDING:
        code = ErrorCode.UNSTABLE_OFFSET_COMMIT
    is_of_several = version >= SEVERAL_GROUPS_FROM
    return (OffsetFetchResponsePartitions if is_of_several else OffsetFetchResponsePartition)(
        partition_index=index,
        committed_offset=NO_OFFSET if offset is None else offset.offset,
        committed_leader_epoch=NO_EPOCH if offset is None else offset.leader_epoch,
        metadata="" if offset is None else offset.metadata,
        error_code=code,
    )


def _fetched_topic(
    name: str, topic_id: UUID, partitions: list[FetchedPartition], version: int
) -> FetchedTopic:
    """Return the OffsetFetch response entry for a topic, as an object of the class for the
    request's version."""
    made: list[Any] = partitions
    if version < SEVERAL_GROUPS_FROM:
        return OffsetFetchResponseTopic(name=name, partitions=made)
    return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=made)


def _as_group(request: OffsetFetchRequest) -> Steps[OffsetFetchRequestGroup]:
    """Convert an OffsetFetch request of an old version, which names one group, to a group entry of
    newer versions."""
    topics: list[OffsetFetchRequestTopics] | None = None
    if request.topics is not None:
        pace = StepPace()
        topics = []
        for topic in request.topics:
            indexes = topic.partition_indexes
            topics.append(OffsetFetchRequestTopics(name=topic.name, partition_indexes=indexes))
            if pace.is_due():
                yield
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _single(
    answer: OffsetFetchResponseGroup, asked: OffsetFetchRequestGroup, version: int, pace: StepPace
) -> Steps[OffsetFetchResponse]:
    """Convert the OffsetFetch response for one group to the format of versions that support only
    one group. The topics already have the classes of these versions."""
    code = ErrorCode(answer.error_code)
    topics: list[Any] = answer.topics
    if code is not ErrorCode.NONE and version < ERROR_OF_ALL_FROM:
        topics = yield from _all_refused(asked.topics or (), code, version, pace)
    return OffsetFetchResponse(error_code=code, topics=topics)


def _all_refused(
    asked: Iterable[OffsetFetchRequestTopics], code: ErrorCode, version: int, pace: StepPace
) -> Steps[list[FetchedTopic]]:
    """Return the partitions that an OffsetFetch request names, each with the group's error code.
    Versions whose response has no error code for the whole request need these entries."""
    topics = []
    for topic in asked:
        partitions = []
        for index in topic.partition_indexes:
            partitions.append(_fetched_partition(index, None, version, code))
            if pace.is_due():
                yield
        topics.append(_fetched_topic(topic.name, ZERO_UUID, partitions, version))
        if pace.is_due():
            yield
    return topics


def _deleted(
    named: dict[str, dict[int, None]], codes: dict[tuple[str, int], ErrorCode]
) -> Steps[OffsetDeleteResponse]:
    pace = StepPace()
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    response = OffsetDeleteResponse()
    for name, indexes in named.items():
        partitions = []
        for index in indexes:
            partitions.append(
                OffsetDeleteResponsePartition(
                    partition_index=index, error_code=codes.get((name, index), missing)
                )
            )
            if pace.is_due():
                yield
        response.topics.append(OffsetDeleteResponseTopic(name=name, partitions=partitions))
        if pace.is_due():
            yield
    return response
