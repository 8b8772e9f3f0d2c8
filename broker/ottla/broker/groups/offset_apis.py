"""OffsetCommit, OffsetFetch and OffsetDelete: how far groups have come.  Pure.

From version 10 on topics are named by their id, before it by their name; the coordinator keeps
both, so that what was committed for a topic is not taken for one made later by the same name.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from ottla.broker.authorization.questions import may_describe_topic
from ottla.broker.cluster.metadata_cache import MetadataCache
from ottla.broker.groups.coordinator_door import CoordinatorDoor, Gathering
from ottla.broker.groups.effects import Asker
from ottla.broker.groups.offset_store import TopicCommit
from ottla.broker.groups.offsets import PENDING, UNSTABLE, CommittedOffset
from ottla.broker.groups.small_commits import (
    SmallCommit,
    committed_small,
    is_small,
    missing_code,
)
from ottla.broker.network.dispatch import HandlerResult, Permissions, RequestContext
from ottla.broker.network.steps import (
    STEP_COST,
    VALUES_PER_STEP,
    Answer,
    StepPace,
    Steps,
    begun,
    keep_each,
)
from ottla.metadata.image import Topic
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_EPOCH
from ottla.wire.apis import OFFSETS_TOPIC_IDS_FROM
from ottla.wire.codec_types import ZERO_UUID
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
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
"""The first version of OffsetFetch that asks for several groups at once (KIP-709)."""

ERROR_OF_ALL_FROM = 2
"""The first version of OffsetFetch with an error of the whole."""

NO_OFFSET = -1

FetchedPartition: TypeAlias = OffsetFetchResponsePartition | OffsetFetchResponsePartitions
FetchedTopic: TypeAlias = OffsetFetchResponseTopic | OffsetFetchResponseTopics
"""A partition and a topic of OffsetFetch's answer, before and from SEVERAL_GROUPS_FROM on: each is
made once, in its version's class, for there may be hundreds of thousands."""

GROUP_COST = 5
"""What it costs to ask the coordinator for one group."""

OFFSETS_PER_COST = 4
"""Offsets that are collected in the time in which one is put into an answer."""

COMMITS_PER_PIECE = 500
"""Partitions that are committed together, in one turn of the loop: some ten milliseconds at most.
A request of more is committed piece by piece."""


class OffsetApis:
    """Serves OffsetCommit 2-10, OffsetFetch 1-10 and OffsetDelete 0."""

    def __init__(self, coordinator: CoordinatorDoor, metadata: MetadataCache) -> None:
        self._coordinator = coordinator
        self._metadata = metadata

    def commit(self, context: RequestContext, request: OffsetCommitRequest) -> HandlerResult:
        """Keep the offsets of the partitions that exist; answer when they are committed.

        Very many are kept piece by piece.
        """
        if is_small(request):
            return self._commit_small(context, request)
        return begun(self._commit(context, request))

    def _commit_small(
        self, context: RequestContext, request: OffsetCommitRequest
    ) -> OffsetCommitResponse | None:
        """Keep offsets of few partitions, as nearly all requests are, without steps."""
        version = context.header.api_version
        found: list[Topic | None] = []
        commits: list[TopicCommit] = []
        count = 0
        for asked in request.topics:
            topic = self._topic(asked.name, asked.topic_id, version)
            found.append(topic)
            if topic is not None:
                there = topic.partitions
                known = []
                for one in asked.partitions:
                    if one.partition_index in there:
                        known.append(one)
                commits.append(TopicCommit(topic.name, topic.id, known))
                count += len(known)
        if not count:
            return committed_small(request, found, [], version)
        commit = SmallCommit(context.slot, request, version, found, commits)
        self._coordinator.perform(request.group_id, commit.answer, commit.decide, is_write=True)
        return None

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
            known = [] if topic is None else (yield from _known(asked, topic, pace))
            at = 0
            while topic is not None and at < len(known):
                part = known[at : at + left]
                pieces[-1].append(TopicCommit(topic.name, topic.id, part))
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
                    codes += [said] * sum(len(topic.partitions) for topic in piece)
                else:
                    codes += [code for topic in said for code in topic]
            context.slot.complete_begun(begun(_committed(request, found, codes, version)))

        gathering = Gathering(len(pieces), answer)
        for at, piece in enumerate(pieces):
            self._commit_piece(request, piece, gathering.asker(at), version)
            if len(pieces) > 1:
                yield

    def _commit_piece(
        self, request: OffsetCommitRequest, piece: list[TopicCommit], asker: Asker, version: int
    ) -> None:
        self._coordinator.perform(
            request.group_id,
            asker,
            lambda shard, now: shard.commit(request, piece, asker, now, version=version),
            is_write=True,
        )

    def _topic(self, name: str, topic_id: Any, version: int) -> Topic | None:
        image = self._metadata.image
        return (
            image.topics.get(topic_id) if version >= OFFSETS_TOPIC_IDS_FROM else image.topic(name)
        )

    # ---- OffsetFetch

    def fetch(self, context: RequestContext, request: OffsetFetchRequest) -> HandlerResult:
        """Answer with what is committed of the groups asked for, each once."""
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
            context.slot.complete_begun(begun(steps))

        gathering = Gathering(len(groups), answer)
        for at, group in enumerate(groups):
            self._ask(group, version, gathering.asker(at), is_stable=request.require_stable)
            if pace.is_due(GROUP_COST + gathering.size_of(at) // OFFSETS_PER_COST):
                yield

    def _ask(
        self, group: OffsetFetchRequestGroup, version: int, asker: Asker, *, is_stable: bool
    ) -> None:
        wanted = None
        # Of very many, all that the group has is less.
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
            asker,
            lambda shard, now: shard.fetch_offsets(
                group.group_id,
                wanted,
                asker,
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
        """Put the answer together of what the coordinator found, or of its error codes."""
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
        """Return everything by topic; by id only topics that exist."""
        by_name: dict[str, list[FetchedPartition]] = {}
        for topic, index, offset in answer:
            if offset is PENDING:
                continue  # nothing is committed yet
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
        """Forget offsets of topics that nobody in the group uses; answer when that is committed.

        A partition that is named twice is answered once.
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
        # With nothing to forget the coordinator still says whether there is such a group.
        starts = range(0, max(1, len(wanted)), COMMITS_PER_PIECE)
        pieces = [wanted[at : at + COMMITS_PER_PIECE] for at in starts]

        def answer(answers: Sequence[Any]) -> None:
            codes: dict[tuple[str, int], ErrorCode] = {}
            for piece, said in zip(pieces, answers, strict=True):
                if isinstance(said, ErrorCode):
                    context.slot.complete(OffsetDeleteResponse(error_code=said))
                    return
                codes.update(zip(piece, said, strict=True))
            context.slot.complete_begun(begun(_deleted(named, codes)))

        gathering = Gathering(len(pieces), answer)
        for at, piece in enumerate(pieces):
            self._delete_piece(request.group_id, piece, gathering.asker(at))
            if len(pieces) > 1:
                yield
        return None

    def _delete_piece(self, group_id: str, piece: list[tuple[str, int]], asker: Asker) -> None:
        self._coordinator.perform(
            group_id,
            asker,
            lambda shard, now: shard.delete_offsets(group_id, piece, asker),
            is_write=True,
        )


def _committed(
    request: OffsetCommitRequest, found: list[Topic | None], codes: list[ErrorCode], version: int
) -> Steps[OffsetCommitResponse]:
    """Put the answer together: `codes` are those of the partitions that exist, in order."""
    pace = StepPace()
    left = iter(codes)
    response = OffsetCommitResponse()
    for asked, topic in zip(request.topics, found, strict=True):
        partitions = []
        for one in asked.partitions:
            code = missing_code(one.partition_index, topic, version) or next(left)
            partitions.append(
                OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
            )
            if pace.is_due():
                yield
        response.topics.append(
            OffsetCommitResponseTopic(
                name=asked.name, topic_id=asked.topic_id, partitions=partitions
            )
        )
        if pace.is_due():
            yield
    return response


def _known(
    asked: OffsetCommitRequestTopic, topic: Topic, pace: StepPace
) -> Steps[list[OffsetCommitRequestPartition]]:
    """Return the partitions that exist."""
    known: list[OffsetCommitRequestPartition] = []
    for at in range(0, len(asked.partitions), VALUES_PER_STEP):
        part = asked.partitions[at : at + VALUES_PER_STEP]
        known += [one for one in part if one.partition_index in topic.partitions]
        if pace.is_due(len(part) * STEP_COST // VALUES_PER_STEP):
            yield
    return known


def asked_once(
    groups: Iterable[OffsetFetchRequestGroup],
) -> Steps[list[OffsetFetchRequestGroup]]:
    """Return each group once, with each topic and partition once; null topics mean all of them.

    The member that asks is whoever asks for the group first.
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
            yield from keep_each(indexes, topic.partition_indexes, pace)
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
    """Return what is known of a partition; nothing committed is no error."""
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
    """Return a topic of the answer, in the class of its version."""
    made: list[Any] = partitions
    if version < SEVERAL_GROUPS_FROM:
        return OffsetFetchResponseTopic(name=name, partitions=made)
    return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=made)


def _as_group(request: OffsetFetchRequest) -> Steps[OffsetFetchRequestGroup]:
    """Return a request of an old version as one for several groups."""
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
    """Return the answer for one group as old versions have it; its topics are of their classes."""
    code = ErrorCode(answer.error_code)
    topics: list[Any] = answer.topics
    if code is not ErrorCode.NONE and version < ERROR_OF_ALL_FROM:
        topics = yield from _all_refused(asked.topics or (), code, version, pace)
    return OffsetFetchResponse(error_code=code, topics=topics)


def _all_refused(
    asked: Iterable[OffsetFetchRequestTopics], code: ErrorCode, version: int, pace: StepPace
) -> Steps[list[FetchedTopic]]:
    """Return the error of the whole in each partition, for versions that have it nowhere else."""
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
