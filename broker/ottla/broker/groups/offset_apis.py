"""OffsetCommit, OffsetFetch and OffsetDelete: how far groups have come.  Pure.

From version 10 on topics are named by their id, before it by their name; the coordinator keeps
both, so that what was committed for a topic is not taken for one made later by the same name.
"""

from collections.abc import Sequence
from typing import Any

from ottla.broker.dispatch import RequestContext
from ottla.broker.groups.coordinator_door import CoordinatorDoor, Gathering
from ottla.broker.groups.effects import Asker
from ottla.broker.groups.offsets import CommittedOffset
from ottla.broker.groups.shard import TopicCommit
from ottla.broker.metadata_cache import MetadataCache
from ottla.metadata.image import Topic
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_EPOCH
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

TOPIC_IDS_FROM = 10
"""Of OffsetCommit and of OffsetFetch (KIP-848)."""

SEVERAL_GROUPS_FROM = 8
"""The first version of OffsetFetch that asks for several groups at once (KIP-709)."""

ERROR_OF_ALL_FROM = 2
"""The first version of OffsetFetch with an error of the whole."""

NO_OFFSET = -1


class OffsetApis:
    """Serves OffsetCommit 2-10, OffsetFetch 1-10 and OffsetDelete 0."""

    def __init__(self, coordinator: CoordinatorDoor, metadata: MetadataCache) -> None:
        self._coordinator = coordinator
        self._metadata = metadata

    def commit(self, context: RequestContext, request: OffsetCommitRequest) -> None:
        """Keep the offsets of the partitions that exist; answer when they are committed."""
        version = context.api_version
        found = [self._topic(topic.name, topic.topic_id, version) for topic in request.topics]
        commits = [
            TopicCommit(topic.name, topic.id, known)
            for asked, topic in zip(request.topics, found, strict=True)
            if topic is not None and (known := _known(asked, topic))
        ]

        def answer(answer: Any) -> None:
            if isinstance(answer, ErrorCode):
                answer = [[answer] * len(topic.partitions) for topic in commits]
            codes = iter([code for topic in answer for code in topic])
            topics = [
                OffsetCommitResponseTopic(
                    name=asked.name,
                    topic_id=asked.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=one.partition_index,
                            error_code=_missing_code(one.partition_index, topic, version)
                            or next(codes),
                        )
                        for one in asked.partitions
                    ],
                )
                for asked, topic in zip(request.topics, found, strict=True)
            ]
            context.slot.complete(OffsetCommitResponse(topics=topics))

        if not commits:
            answer([])
            return
        self._coordinator.perform(
            request.group_id,
            answer,
            lambda shard, now: shard.commit(request, commits, answer, now, version=version),
            is_write=True,
        )

    def _topic(self, name: str, topic_id: Any, version: int) -> Topic | None:
        image = self._metadata.image
        return image.topics.get(topic_id) if version >= TOPIC_IDS_FROM else image.topic(name)

    # ---- OffsetFetch

    def fetch(self, context: RequestContext, request: OffsetFetchRequest) -> None:
        """Answer with what is committed of the groups asked for."""
        version = context.api_version
        groups = request.groups if version >= SEVERAL_GROUPS_FROM else [_as_group(request)]

        def answer(answers: Sequence[OffsetFetchResponseGroup]) -> None:
            if version >= SEVERAL_GROUPS_FROM:
                context.slot.complete(OffsetFetchResponse(groups=list(answers)))
            else:
                context.slot.complete(_as_single(answers[0], groups[0], version))

        gathering = Gathering(len(groups), answer)
        for at, group in enumerate(groups):
            self._fetch(group, version, gathering.asker(at))

    def _fetch(self, group: OffsetFetchRequestGroup, version: int, asker: Asker) -> None:
        def answer(answer: Any) -> None:
            if isinstance(answer, ErrorCode):
                asker(OffsetFetchResponseGroup(group_id=group.group_id, error_code=answer))
            elif group.topics is None:
                topics = self._all_topics(answer, version)
                asker(OffsetFetchResponseGroup(group_id=group.group_id, topics=topics))
            else:
                found = {(topic, index): offset for topic, index, offset in answer}
                topics = [self._fetched(topic, found, version) for topic in group.topics]
                asker(OffsetFetchResponseGroup(group_id=group.group_id, topics=topics))

        wanted = None
        if group.topics is not None:
            wanted = [
                (name, index)
                for topic in group.topics
                if (name := self._name_of(topic, version)) is not None
                for index in topic.partition_indexes
            ]
        self._coordinator.perform(
            group.group_id,
            answer,
            lambda shard, now: shard.fetch_offsets(
                group.group_id,
                wanted,
                answer,
                member_id=group.member_id,
                member_epoch=group.member_epoch,
            ),
        )

    def _name_of(self, topic: OffsetFetchRequestTopics, version: int) -> str | None:
        if version < TOPIC_IDS_FROM:
            return topic.name
        known = self._metadata.image.topics.get(topic.topic_id)
        return None if known is None else known.name

    def _fetched(
        self,
        asked: OffsetFetchRequestTopics,
        found: dict[tuple[str, int], CommittedOffset | None],
        version: int,
    ) -> OffsetFetchResponseTopics:
        name = self._name_of(asked, version)
        partitions = [
            _fetched_partition(index, None, ErrorCode.UNKNOWN_TOPIC_ID)
            if name is None
            else _fetched_partition(index, found.get((name, index)))
            for index in asked.partition_indexes
        ]
        return OffsetFetchResponseTopics(
            name=asked.name, topic_id=asked.topic_id, partitions=partitions
        )

    def _all_topics(
        self, answer: list[tuple[str, int, CommittedOffset]], version: int
    ) -> list[OffsetFetchResponseTopics]:
        """Return everything by topic; by id only topics that exist can be told."""
        by_name: dict[str, list[OffsetFetchResponsePartitions]] = {}
        for topic, index, offset in answer:
            by_name.setdefault(topic, []).append(_fetched_partition(index, offset))
        topics = []
        for name, partitions in by_name.items():
            known = self._metadata.image.topic(name)
            if known is not None and version >= TOPIC_IDS_FROM:
                topics.append(OffsetFetchResponseTopics(topic_id=known.id, partitions=partitions))
            elif version < TOPIC_IDS_FROM:
                topics.append(OffsetFetchResponseTopics(name=name, partitions=partitions))
        return topics

    # ---- OffsetDelete

    def delete(self, context: RequestContext, request: OffsetDeleteRequest) -> None:
        """Forget offsets of topics that nobody in the group uses; answer when that is committed."""
        image = self._metadata.image
        wanted = [
            (topic.name, one.partition_index)
            for topic in request.topics
            if image.topic(topic.name) is not None
            for one in topic.partitions
        ]

        def answer(answer: Any) -> None:
            if isinstance(answer, ErrorCode):
                context.slot.complete(OffsetDeleteResponse(error_code=answer))
                return
            codes = dict(zip(wanted, answer, strict=True))
            context.slot.complete(_deleted(request, codes))

        if not request.group_id:
            answer(ErrorCode.INVALID_GROUP_ID)
            return
        self._coordinator.perform(
            request.group_id,
            answer,
            lambda shard, now: shard.delete_offsets(request.group_id, wanted, answer),
            is_write=True,
        )


def _known(asked: OffsetCommitRequestTopic, topic: Topic) -> list[OffsetCommitRequestPartition]:
    return [one for one in asked.partitions if one.partition_index in topic.partitions]


def _missing_code(index: int, topic: Topic | None, version: int) -> ErrorCode:
    """Return what is missing of a partition to which somebody commits, NONE where it is there."""
    if topic is None and version >= TOPIC_IDS_FROM:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if topic is None or index not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _fetched_partition(
    index: int, offset: CommittedOffset | None, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    """Return what is known of a partition; nothing committed is no error."""
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=NO_OFFSET if offset is None else offset.offset,
        committed_leader_epoch=NO_EPOCH if offset is None else offset.leader_epoch,
        metadata="" if offset is None else offset.metadata,
        error_code=code,
    )


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """Return a request of an old version as one for several groups."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _as_single(
    answer: OffsetFetchResponseGroup, asked: OffsetFetchRequestGroup, version: int
) -> OffsetFetchResponse:
    """Return the answer for one group as old versions have it."""
    code = ErrorCode(answer.error_code)
    topics = answer.topics
    if code is not ErrorCode.NONE and version < ERROR_OF_ALL_FROM:
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    _fetched_partition(index, None, code) for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics or ()
        ]
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=one.partition_index,
                        committed_offset=one.committed_offset,
                        committed_leader_epoch=one.committed_leader_epoch,
                        metadata=one.metadata,
                        error_code=one.error_code,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


def _deleted(
    request: OffsetDeleteRequest, codes: dict[tuple[str, int], ErrorCode]
) -> OffsetDeleteResponse:
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=one.partition_index,
                        error_code=codes.get((topic.name, one.partition_index), missing),
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
