"""Commits of offsets of one topic, served from the bytes of their frame.  Pure.

A member commits its partitions of a topic again and again: what its requests have in common is
looked up by their first bytes, and only the offsets are read.  The answer repeats the topic in the
bytes of the request.  Every other commit is left to `OffsetApis`, which decodes it: of such a
one nothing has been done.
"""

from struct import Struct
from typing import Any, Final
from uuid import UUID

from ottla.broker.cluster.metadata_cache import MetadataCache
from ottla.broker.groups.coordinator_door import CoordinatorDoor
from ottla.broker.groups.effects import Instant
from ottla.broker.groups.shard import GroupShard
from ottla.broker.groups.small_commits import SMALL_COUNT_MAX
from ottla.broker.groups.topic_committer import CommitRow, RowsCommit, TopicCommitter
from ottla.broker.network.dispatch import RequestContext
from ottla.broker.network.response_queue import ResponseSlot
from ottla.model.errors import ErrorCode
from ottla.wire.apis import OFFSETS_TOPIC_IDS_FROM
from ottla.wire.messages.offset_commit_request import OffsetCommitRequest

FLEXIBLE_FROM: Final = 8
"""The first version whose lengths are compact."""

ONE: Final = 2
"""A compact count of one; a compact size is one more than what is counted, too."""

LONG_SIZE: Final = 0x80
"""The bit that says that a compact size goes on in the next byte."""

TOPIC_ID_BYTES: Final = 16
NO_TAGS_BEHIND: Final = b"\0\0"
"""Those of the topic and of the whole, in the request as in the answer."""

_read_row: Final = Struct(">iqiB").unpack_from
"""Partition, offset, leader's epoch and size of the metadata."""
ROW_BYTES: Final = 4 + 8 + 4 + 1
_read_generation: Final = Struct(">i").unpack_from

_answer_head: Final = Struct(">iixi").pack
"""Length, correlation id, no tags, throttle time."""
HEAD_BYTES: Final = 4 + 1 + 4
"""Size of that, without the length."""
_answer_row: Final = Struct(">ihx").pack
"""Partition, error, no tags."""
_one_row: Final = Struct(">Bihxxx").pack
"""Partitions, partition, error, tags of the partition, the topic and the whole."""

COMMITTERS_MAX: Final = 1_024
"""Of those who are remembered.  Fewer look some up again; more take up to some two KiB each."""


class FramedCommits:
    """Serves the commits of few offsets of one topic, and leaves the rest to `OffsetApis`."""

    def __init__(self, coordinator: CoordinatorDoor, metadata: MetadataCache) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._image = metadata.image
        """The metadata of which the topics are."""
        self._by_name: dict[bytes, TopicCommitter] = {}
        self._by_id: dict[bytes, TopicCommitter] = {}
        """Who commits, by the bytes in front of the offsets."""

    def serve(self, context: RequestContext, frame: memoryview) -> bool:
        """Serve a request without trace or amendment; return whether that was done."""
        version = context.header.api_version
        if version < FLEXIBLE_FROM:
            return False
        try:
            return self._serve(context, frame, version)
        except (IndexError, UnicodeDecodeError):
            return False  # nothing of the request has been done: it is read first

    def _serve(self, context: RequestContext, frame: memoryview, version: int) -> bool:
        header = context.header
        start = header.body_at
        size = len(frame)
        group_size = frame[start]
        member_at = start + group_size + 4
        member_size = frame[member_at]
        instance_at = member_at + member_size
        instance_size = frame[instance_at]
        topics_at = instance_at + (instance_size or 1)
        is_by_id = version >= OFFSETS_TOPIC_IDS_FROM
        name_size = TOPIC_ID_BYTES if is_by_id else frame[topics_at + 1]
        at = topics_at + 1 + name_size
        if (
            (group_size | member_size | instance_size | name_size) & LONG_SIZE
            or frame[topics_at] != ONE
            or not (group_size and member_size and name_size)
        ):
            return False
        count = frame[at] - 1
        at += 1
        if not 0 < count <= SMALL_COUNT_MAX or size < at + count * (ROW_BYTES + 1):
            return False
        if self._image is not self._metadata.image:
            self._image = self._metadata.image
            self._by_name.clear()
            self._by_id.clear()
        who = bytes(frame[start : at - 1])
        committer = (self._by_id if is_by_id else self._by_name).get(who)
        if committer is None:
            committer = self._look_up(who, member_at - start, topics_at - start, is_by_id)
            if committer is None:
                return False
        there = committer.topic.partitions
        rows: list[CommitRow] = []
        for _ in range(count):
            if size < at + ROW_BYTES:
                return False
            index, offset, leader_epoch, metadata_size = _read_row(frame, at)
            at += ROW_BYTES
            metadata = ""
            if metadata_size > 1:
                if metadata_size & LONG_SIZE:
                    return False
                metadata = str(frame[at : at + metadata_size - 1], "utf-8")
                at += metadata_size - 1
            if frame[at] or index not in there:
                return False
            at += 1
            rows.append((index, offset, leader_epoch, metadata))
        if bytes(frame[at:]) != NO_TAGS_BEHIND:
            return False
        commit = FramedCommit(context.slot, committer, rows, version, who[topics_at - start :])
        self._coordinator.perform(committer.group_id, commit.answer, commit.decide, is_write=True)
        return True

    def _look_up(
        self, who: bytes, member_at: int, topics_at: int, is_by_id: bool
    ) -> TopicCommitter | None:
        """Return the committer that these bytes name, and remember it; None without the topic."""
        instance_at = member_at + who[member_at]
        has_instance = who[instance_at] > 0
        place = who[topics_at + 1 :]
        request = OffsetCommitRequest(
            group_id=who[1 : member_at - 4].decode(),
            generation_id_or_member_epoch=_read_generation(who, member_at - 4)[0],
            member_id=who[member_at + 1 : instance_at].decode(),
            group_instance_id=who[instance_at + 1 : topics_at].decode() if has_instance else None,
        )
        if is_by_id:
            topic = self._image.topics.get(UUID(bytes=place))
            committers = self._by_id
        else:
            topic = self._image.topic(place[1:].decode())
            committers = self._by_name
        if topic is None:
            return None
        committer = TopicCommitter(request, topic)
        if len(committers) >= COMMITTERS_MAX:
            committers.clear()
        committers[who] = committer
        return committer


class FramedCommit(RowsCommit):
    """One of them that is under way."""

    __slots__ = ("_place", "_slot")

    def __init__(
        self,
        slot: ResponseSlot,
        committer: TopicCommitter,
        rows: list[CommitRow],
        version: int,
        place: bytes,
    ) -> None:
        super().__init__(committer, rows, version)
        self._slot = slot
        self._place = place

    def decide(self, shard: GroupShard, now: Instant) -> None:
        """Keep the offsets, in the shard of the group."""
        shard.commit_rows(self, self.answer, now)

    def answer(self, said: Any) -> None:
        """Answer with what the shard said: a code for all, or one for each."""
        rows, place = self.rows, self._place
        codes: list[ErrorCode] = [said] * len(rows) if isinstance(said, ErrorCode) else said
        if len(rows) == 1:
            rest = _one_row(ONE, rows[0][0], codes[0])
        else:
            parts = [bytes((len(rows) + 1,))]
            for row, code in zip(rows, codes, strict=True):
                parts.append(_answer_row(row[0], code))
            parts.append(NO_TAGS_BEHIND)
            rest = b"".join(parts)
        slot = self._slot
        length = HEAD_BYTES + len(place) + len(rest)
        head = _answer_head(length, slot.header.correlation_id, slot.settle_charge())
        slot.complete_frame(head + place + rest)
