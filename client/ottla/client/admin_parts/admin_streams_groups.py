"""Admin calls for groups of Kafka Streams (KIP-1071): members and their active tasks.

Ottla's brokers have no such groups. The calls are for clusters of Apache Kafka.
"""

from collections.abc import Mapping

from ottla.client.admin_parts.admin_groups import (
    GroupDescription,
    GroupMemberDescription,
    GroupType,
)
from ottla.client.admin_parts.admin_share_groups import ShareGroupCalls
from ottla.client.groups.coordinator import Coordinator
from ottla.client.network.answer_checks import only
from ottla.client.network.cluster import raise_for
from ottla.model.ids import TopicPartition
from ottla.wire.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from ottla.wire.messages.streams_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    StreamsGroupDescribeResponse,
)


class StreamsGroupCalls(ShareGroupCalls):
    """Methods of the admin client for groups of Kafka Streams (KIP-1071)."""

    async def describe_streams_group(self, group_id: str) -> GroupDescription:
        """Return the state and the members of a streams group.

        The assignment of a member contains the input partitions of its active tasks. Raises
        RefusedError(GROUP_ID_NOT_FOUND) if there is no streams group with that id, and
        RefusedError(UNSUPPORTED_VERSION) if the coordinator does not support streams groups.
        """
        async with self._coordinator(group_id) as coordinator:
            return await coordinator.until_it_answers(
                lambda: self._describe_streams_group(coordinator), self._timeout_s
            )

    async def _describe_streams_group(self, coordinator: Coordinator) -> GroupDescription:
        request = StreamsGroupDescribeRequest(group_ids=[coordinator.key])
        answer = await self._ask(coordinator, request, StreamsGroupDescribeResponse)
        row = only(answer.groups, "group")
        raise_for(row.error_code, row.error_message)
        inputs = _inputs_of(row)
        return GroupDescription(
            group_id=row.group_id,
            type=GroupType.STREAMS,
            state=row.group_state,
            assignor="",
            members=tuple(_member(one, inputs) for one in row.members),
            group_epoch=row.group_epoch,
            assignment_epoch=row.assignment_epoch,
            protocol_type="streams",
        )


def _inputs_of(row: DescribedGroup) -> dict[str, list[str]]:
    """Return the input topics of each subtopology, by its id, or an empty mapping if the topology
    is not initialized yet."""
    subtopologies = None if row.topology is None else row.topology.subtopologies
    return {
        one.subtopology_id: [
            *one.source_topics,
            *(topic.name for topic in one.repartition_source_topics),
        ]
        for one in subtopologies or ()
    }


def _member(row: Member, inputs: Mapping[str, list[str]]) -> GroupMemberDescription:
    return GroupMemberDescription(
        member_id=row.member_id,
        instance_id=row.instance_id,
        client_id=row.client_id,
        host=row.client_host,
        assignment=_partitions(row.assignment, inputs),
        target=_partitions(row.target_assignment, inputs),
        member_epoch=row.member_epoch,
        type=GroupType.CLASSIC if row.is_classic else GroupType.STREAMS,
        rack=row.rack_id,
        topics=tuple(sorted({topic for topics in inputs.values() for topic in topics})),
    )


def _partitions(
    assignment: Assignment, inputs: Mapping[str, list[str]]
) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic, index)
        for task in assignment.active_tasks
        for index in task.partitions
        for topic in inputs.get(task.subtopology_id, ())
    )
