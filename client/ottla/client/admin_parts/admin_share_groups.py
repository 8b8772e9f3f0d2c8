"""Admin calls for share groups (KIP-932): members, start offsets and lags."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from ottla.client.admin_parts.admin_calls import by_topic
from ottla.client.admin_parts.admin_groups import (
    GroupCalls,
    GroupDescription,
    GroupListing,
    GroupMemberDescription,
    GroupType,
)
from ottla.client.groups.coordinator import Coordinator
from ottla.client.network.answer_checks import only
from ottla.client.network.cluster import raise_for
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError, code_of
from ottla.model.ids import TopicPartition
from ottla.wire.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.wire.messages.alter_share_group_offsets_response import AlterShareGroupOffsetsResponse
from ottla.wire.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.wire.messages.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
)
from ottla.wire.messages.describe_share_delivery_request import DescribeShareDeliveryRequest
from ottla.wire.messages.describe_share_delivery_response import (
    DescribedShareDelivery,
    DescribeShareDeliveryResponse,
)
from ottla.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from ottla.wire.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponsePartition,
)
from ottla.wire.messages.describe_share_records_request import DescribeShareRecordsRequest
from ottla.wire.messages.describe_share_records_response import (
    DescribedShareRange,
    DescribeShareRecordsResponse,
)
from ottla.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from ottla.wire.messages.share_group_describe_response import ShareGroupDescribeResponse


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """Start offset and lag of a share group in one partition."""

    start_offset: int | None
    """Lowest offset whose record may still be delivered. None if the group has not read the
    partition yet; the group will then start according to `share.auto.offset.reset`."""
    leader_epoch: int
    """Epoch of the partition leader that last read the share group's state from the share
    coordinator."""
    lag: int | None
    """Number of records, from the start offset on, that are neither acknowledged nor archived yet.
    None if the number is unknown."""
    error: RefusedError | None = None
    """Reason why the partition's end offset is unknown, or None if it is known."""


@dataclass(frozen=True, slots=True)
class ShareRecordCounts:
    """Numbers of records of a share group in one partition that wait for delivery or
    acknowledgement, by the reason for the wait.

    Delayed records, and records that wait for other records, are counted only up to the offset to
    which the leader has read ahead.
    """

    acquired_count: int
    """Number of records that members have acquired and not acknowledged yet."""
    ready_count: int
    """Number of records that the next fetch can acquire."""
    delayed_count: int
    """Number of records whose delivery time has not been reached."""
    next_due_ms: int | None
    """Time in ms since 1970 at which the first delayed record may be delivered. None if no record
    is delayed."""
    backoff_count: int
    """Number of records that wait for their back-off after a failed delivery."""
    next_backoff_ms: int | None
    """Time in ms since 1970 at which the first back-off ends. None if no record waits for its
    back-off."""
    key_count: int
    """Number of records that wait until another record with the same key is acknowledged."""
    dead_letter_count: int
    """Number of records that are to be written to the dead letter topic and have not been written
    yet."""
    is_spread: bool
    """True if acknowledged and delayed records alternate so often that the broker delivers only
    records near the start offset."""


class ShareRecordState(IntEnum):
    """Delivery state of a share group's records, with Kafka's numbers."""

    AVAILABLE = 0
    """A member can acquire the records, now or later. Later means after a delay, after a back-off,
    or after another record with the same key is acknowledged."""
    ACQUIRED = 1
    """A member has acquired the records and has not acknowledged them yet."""
    ACKNOWLEDGED = 2
    """A member has accepted the records, and the broker is storing this state."""
    ARCHIVING = 3
    """The records are waiting until the broker has written them to the dead letter topic."""
    ARCHIVED = 4
    """The records will not be delivered again, and the broker is storing this state."""


@dataclass(frozen=True, slots=True)
class ShareRecordRange:
    """A range of consecutive records of a share group in one partition that have the same delivery
    state."""

    first_offset: int
    last_offset: int
    """Last offset of the range, inclusive."""
    state: ShareRecordState
    delivery_count: int
    """Number of deliveries of each record so far."""
    member_id: str | None
    """Id of the member that has acquired the records, or None if they are not acquired."""
    lock_end_ms: int | None
    """Time in ms since 1970 at which the member's acquisition lock ends, or None if the records are
    not acquired."""
    is_being_stored: bool
    """True if the broker has not stored the delivery state of the records durably yet."""


class ShareGroupCalls(GroupCalls):
    """Methods of the admin client for share groups. The inherited method `delete_group` also
    deletes share groups."""

    async def list_share_groups(self, *, states: Iterable[str] = ()) -> list[GroupListing]:
        """Return the share groups of all coordinators, sorted. With `states`, only groups in one of
        these states are returned."""
        found = await self.list_groups(states=states, types=[GroupType.SHARE])
        # Brokers that cannot filter by type return the groups of all types.
        return [one for one in found if one.type is GroupType.SHARE]

    async def describe_share_group(self, group_id: str) -> GroupDescription:
        """Return the state and the members of a share group.

        Raises RefusedError(GROUP_ID_NOT_FOUND) if there is no share group with that id.
        """
        async with self._coordinator(group_id) as coordinator:
            return await coordinator.until_it_answers(
                lambda: self._describe_share_group(coordinator), self._timeout_s
            )

    async def share_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, ShareOffset]:
        """Return the start offset and the lag of a share group in each of `partitions`. None means
        all partitions that the group consumes."""
        topics = None
        if partitions is not None:
            topics = [
                DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=list(indexes))
                for topic, indexes in by_topic(partitions).items()
            ]
        group = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)
        request = DescribeShareGroupOffsetsRequest(groups=[group])
        async with self._coordinator(group_id) as coordinator:

            async def attempt() -> dict[TopicPartition, ShareOffset]:
                answer = await self._ask(coordinator, request, DescribeShareGroupOffsetsResponse)
                row = only(answer.groups, "group")
                raise_for(row.error_code, row.error_message)
                return {
                    TopicPartition(topic.topic_name, one.partition_index): _share_offset(one)
                    for topic in row.topics
                    for one in topic.partitions
                }

            return await coordinator.until_it_answers(attempt, self._timeout_s)

    async def share_group_deliveries(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ShareRecordCounts]:
        """Return the numbers of a share group's records that wait for delivery or acknowledgement,
        for each partition and by the reason for the wait.

        The result lacks partitions that no member fetches, and partitions whose leader is not a
        broker of Ottla.
        """
        leaders = {await self._cluster.leader_of(at) for at in partitions}
        found: dict[TopicPartition, ShareRecordCounts] = {}
        for leader in sorted(leaders):
            try:
                answer = await self._cluster.request(
                    DescribeShareDeliveryRequest(group_id=group_id),
                    DescribeShareDeliveryResponse,
                    node=leader,
                )
            except RefusedError as refusal:
                if refusal.code is not ErrorCode.UNSUPPORTED_VERSION:
                    raise
                continue  # The brokers are Kafka's.
            raise_for(answer.error_code, answer.error_message)
            for row in answer.partitions:
                at = TopicPartition(row.topic_name, row.partition_index)
                if at in partitions:
                    found[at] = _record_counts(row)
        return found

    async def share_group_records(
        self,
        group_id: str,
        at: TopicPartition,
        *,
        start_offset: int = 0,
        count_max: int = 1_000,
        has_waiting: bool = False,
    ) -> list[ShareRecordRange]:
        """Return up to `count_max` ranges of records of a share group in one partition, from
        `start_offset` on. The ranges contain records that members have acquired, and records that
        still have to be written to the dead letter topic.

        With `has_waiting`, the result also contains records that no member has acquired, if the
        leader has them in memory. The result is empty if no member fetches the partition. Raises
        RefusedError(UNSUPPORTED_VERSION) if the brokers are older, or are not brokers of Ottla.
        """
        found: list[ShareRecordRange] = []
        next_offset: int | None = start_offset
        while next_offset is not None and len(found) < count_max:
            request = DescribeShareRecordsRequest(
                group_id=group_id,
                topic_name=at.topic,
                partition_index=at.partition,
                start_offset=next_offset,
                range_count_max=count_max - len(found),
                has_waiting=has_waiting,
            )
            answer = await self._retry_until_timeout(partial(self._records_once, at, request))
            found += map(_record_range, answer.ranges)
            # An offset that does not grow would repeat the request without an end.
            next_offset = answer.next_offset if answer.next_offset > next_offset else None
        return found[:count_max]

    async def _records_once(
        self, at: TopicPartition, request: DescribeShareRecordsRequest
    ) -> DescribeShareRecordsResponse:
        leader = await self._cluster.leader_of(at)
        try:
            answer = await self._cluster.request(request, DescribeShareRecordsResponse, node=leader)
        except ConnectionLostError:  # Kafka's brokers end the connection.
            raise RefusedError(
                ErrorCode.UNSUPPORTED_VERSION, "the broker does not report records in flight"
            ) from None
        if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._cluster.forget_leaders()
        raise_for(answer.error_code, answer.error_message)
        return answer

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Set start offsets of a share group that has no members. The group is created if it does
        not exist.

        If the coordinator refuses partitions, the RefusedError of the first one is raised.
        """
        for refusal in (await self.try_alter_share_group_offsets(group_id, offsets)).values():
            raise refusal

    async def try_alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, RefusedError]:
        """Set start offsets of a share group that has no members.

        Returns the RefusedError of each partition that the coordinator refused. Partitions whose
        offset was set are not in the result.
        """
        request = AlterShareGroupOffsetsRequest(
            group_id=group_id,
            topics=[
                AlterShareGroupOffsetsRequestTopic(
                    topic_name=topic,
                    partitions=[
                        AlterShareGroupOffsetsRequestPartition(
                            partition_index=index,
                            start_offset=offsets[TopicPartition(topic, index)],
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(offsets).items()
            ],
        )
        async with self._coordinator(group_id) as coordinator:

            async def attempt() -> dict[TopicPartition, RefusedError]:
                answer = await self._ask(coordinator, request, AlterShareGroupOffsetsResponse)
                raise_for(answer.error_code, answer.error_message)
                return {
                    TopicPartition(topic.topic_name, one.partition_index): RefusedError(
                        code_of(one.error_code), one.error_message
                    )
                    for topic in answer.responses
                    for one in topic.partitions
                    if one.error_code != ErrorCode.NONE
                }

            return await coordinator.until_it_answers(attempt, self._timeout_s)

    async def delete_share_group_offsets(
        self, group_id: str, topics: Collection[str]
    ) -> dict[str, ErrorCode]:
        """Delete a share group's start offsets in `topics`. The group must not have members.
        Returns the error code of each topic."""
        request = DeleteShareGroupOffsetsRequest(
            group_id=group_id,
            topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics],
        )
        async with self._coordinator(group_id) as coordinator:

            async def attempt() -> dict[str, ErrorCode]:
                answer = await self._ask(coordinator, request, DeleteShareGroupOffsetsResponse)
                raise_for(answer.error_code, answer.error_message)
                return {one.topic_name: code_of(one.error_code) for one in answer.responses}

            return await coordinator.until_it_answers(attempt, self._timeout_s)

    async def _describe_share_group(self, coordinator: Coordinator) -> GroupDescription:
        request = ShareGroupDescribeRequest(group_ids=[coordinator.key])
        answer = await self._ask(coordinator, request, ShareGroupDescribeResponse)
        row = only(answer.groups, "group")
        raise_for(row.error_code, row.error_message)
        return GroupDescription(
            group_id=row.group_id,
            type=GroupType.SHARE,
            state=row.group_state,
            assignor=row.assignor_name,
            members=tuple(
                GroupMemberDescription(
                    member_id=one.member_id,
                    instance_id=None,
                    client_id=one.client_id,
                    host=one.client_host,
                    assignment=frozenset(
                        TopicPartition(topic.topic_name, index)
                        for topic in one.assignment.topic_partitions
                        for index in topic.partitions
                    ),
                    member_epoch=one.member_epoch,
                    type=GroupType.SHARE,
                    rack=one.rack_id,
                    topics=tuple(one.subscribed_topic_names),
                )
                for one in row.members
            ),
            group_epoch=row.group_epoch,
            assignment_epoch=row.assignment_epoch,
            protocol_type="share",
        )


def _record_counts(row: DescribedShareDelivery) -> ShareRecordCounts:
    return ShareRecordCounts(
        acquired_count=row.acquired_count,
        ready_count=row.ready_count,
        delayed_count=row.delayed_count,
        next_due_ms=None if row.next_due_ms < 0 else row.next_due_ms,
        backoff_count=row.backoff_count,
        next_backoff_ms=None if row.next_backoff_ms < 0 else row.next_backoff_ms,
        key_count=row.key_count,
        dead_letter_count=row.dead_letter_count,
        is_spread=row.is_spread,
    )


def _record_range(row: DescribedShareRange) -> ShareRecordRange:
    try:
        state = ShareRecordState(row.state)
    except ValueError:
        raise ProtocolError(f"DescribeShareRecords: a record has state {row.state}") from None
    return ShareRecordRange(
        first_offset=row.first_offset,
        last_offset=row.last_offset,
        state=state,
        delivery_count=row.delivery_count,
        member_id=row.member_id or None,
        lock_end_ms=None if row.lock_end_ms < 0 else row.lock_end_ms,
        is_being_stored=row.is_being_stored,
    )


def _share_offset(row: DescribeShareGroupOffsetsResponsePartition) -> ShareOffset:
    code = code_of(row.error_code)
    return ShareOffset(
        start_offset=None if row.start_offset < 0 else row.start_offset,
        leader_epoch=row.leader_epoch,
        lag=None if row.lag < 0 else row.lag,
        error=None if code is ErrorCode.NONE else RefusedError(code, row.error_message),
    )
