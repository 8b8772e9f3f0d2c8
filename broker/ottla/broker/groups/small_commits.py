"""An OffsetCommit of few partitions, as nearly all are: served at once, without steps.  Pure."""

from typing import Any

from ottla.broker.groups.effects import Instant
from ottla.broker.groups.offset_store import TopicCommit
from ottla.broker.groups.shard import GroupShard
from ottla.broker.network.response_queue import ResponseSlot
from ottla.metadata.image import Topic
from ottla.model.errors import ErrorCode
from ottla.wire.apis import OFFSETS_TOPIC_IDS_FROM
from ottla.wire.messages.offset_commit_request import OffsetCommitRequest
from ottla.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

SMALL_COUNT_MAX = 50
"""Topics and partitions of a request that is served without steps: about a millisecond."""


def is_small(request: OffsetCommitRequest) -> bool:
    """Return whether a request has at most SMALL_COUNT_MAX topics and partitions."""
    topics = request.topics
    if len(topics) > SMALL_COUNT_MAX:
        return False
    count = 0
    for topic in topics:
        count += len(topic.partitions)
    return count <= SMALL_COUNT_MAX


class SmallCommit:
    """An OffsetCommit of few partitions that is under way."""

    __slots__ = ("_commits", "_found", "_request", "_slot", "_version")

    def __init__(
        self,
        slot: ResponseSlot,
        request: OffsetCommitRequest,
        version: int,
        found: list[Topic | None],
        commits: list[TopicCommit],
    ) -> None:
        self._slot = slot
        self._request = request
        self._version = version
        self._found = found
        self._commits = commits

    def decide(self, shard: GroupShard, now: Instant) -> None:
        """Keep the offsets, in the shard of the group."""
        shard.commit(self._request, self._commits, self.answer, now, version=self._version)

    def answer(self, said: Any) -> None:
        """Answer with what the shard said: a code for all, or those of each topic."""
        codes: list[ErrorCode] = []
        if isinstance(said, ErrorCode):
            for commit in self._commits:
                codes += [said] * len(commit.partitions)
        else:
            for of_topic in said:
                codes += of_topic
        self._slot.complete(committed_small(self._request, self._found, codes, self._version))


def committed_small(
    request: OffsetCommitRequest, found: list[Topic | None], codes: list[ErrorCode], version: int
) -> OffsetCommitResponse:
    """Return the answer that `_committed` makes in steps, made at once."""
    # Made without their constructors, whose named arguments cost most of it.
    at = 0
    topics: list[OffsetCommitResponseTopic] = []
    for asked, topic in zip(request.topics, found, strict=True):
        partitions: list[OffsetCommitResponsePartition] = []
        for one in asked.partitions:
            part = OffsetCommitResponsePartition.__new__(OffsetCommitResponsePartition)
            part.partition_index = index = one.partition_index
            if topic is not None and index in topic.partitions:
                part.error_code = codes[at]
                at += 1
            else:
                part.error_code = missing_code(index, topic, version)
            partitions.append(part)
        told = OffsetCommitResponseTopic.__new__(OffsetCommitResponseTopic)
        told.name, told.topic_id, told.partitions = asked.name, asked.topic_id, partitions
        topics.append(told)
    response = OffsetCommitResponse.__new__(OffsetCommitResponse)
    response.throttle_time_ms = 0
    response.topics = topics
    return response


def missing_code(index: int, topic: Topic | None, version: int) -> ErrorCode:
    """Return what is missing of a partition to which somebody commits, NONE where it is there."""
    if topic is None and version >= OFFSETS_TOPIC_IDS_FROM:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if topic is None or index not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE
