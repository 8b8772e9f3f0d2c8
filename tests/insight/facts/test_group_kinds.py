"""Kinds of groups, and descriptions of groups of any kind."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.client.admin import Admin, open_admin
from ottla.client.admin_parts.admin_groups import GroupType
from ottla.client.admin_parts.admin_streams_groups import StreamsGroupCalls
from ottla.client.testing import open_test_cluster
from ottla.insight.facts.group_kinds import GroupKindName, kind_of
from ottla.insight.facts.group_view import described_of_any_kind
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.wire.messages.streams_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)


@pytest.mark.parametrize(
    ("type_", "protocol_type", "kind"),
    [
        ("classic", "consumer", GroupKindName.CLASSIC),
        ("classic", "connect", GroupKindName.CONNECT),
        ("classic", "", GroupKindName.SIMPLE),
        ("classic", "sr", GroupKindName.OTHER),
        ("consumer", "consumer", GroupKindName.CONSUMER),
        ("share", "share", GroupKindName.SHARE),
        ("streams", "streams", GroupKindName.STREAMS),
        ("", "consumer", GroupKindName.CLASSIC),
    ],
)
def test_each_kind_of_group_has_its_name(
    type_: str, protocol_type: str, kind: GroupKindName
) -> None:
    assert kind_of(GroupType(type_), protocol_type) is kind


async def test_groups_of_a_cluster_are_described_whatever_their_kind_is() -> None:
    settings = {"offsets.topic.num.partitions": "1"}
    async with (
        open_test_cluster(settings=settings) as cluster,
        open_admin(cluster.bootstrap) as admin,
    ):
        await admin.create_topic("orders", partition_count=1)
        await admin.alter_group_offsets("offsets-only", {TopicPartition("orders", 0): 0})
        await admin.alter_share_group_offsets("queue", {TopicPartition("orders", 0): 0})
        kinds = {
            one.group_id: kind_of(one.type, one.protocol_type) for one in await admin.list_groups()
        }
        assert kinds == {"offsets-only": GroupKindName.SIMPLE, "queue": GroupKindName.SHARE}
        for group, kind in kinds.items():
            found = await described_of_any_kind(admin, group)
            assert kind_of(found.type, found.protocol_type) is kind
        with pytest.raises(RefusedError) as refused:
            await described_of_any_kind(admin, "unknown")
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_refused_right_ends_the_search_for_the_kind() -> None:
    async def describe_group(_group: str) -> None:
        raise RefusedError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "denied")

    # The requests for other kinds would be refused in the same way, or hide the reason.
    admin = cast(
        Admin,
        SimpleNamespace(
            describe_group=describe_group, describe_share_group=None, describe_streams_group=None
        ),
    )
    with pytest.raises(RefusedError) as refused:
        await described_of_any_kind(admin, "g")
    assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


async def test_a_streams_member_has_the_input_partitions_of_its_active_tasks() -> None:
    row = DescribedGroup(
        group_id="words",
        group_state="Stable",
        group_epoch=3,
        assignment_epoch=3,
        topology=Topology(
            epoch=1,
            subtopologies=[
                Subtopology(
                    subtopology_id="0",
                    source_topics=["text"],
                    repartition_source_topics=[TopicInfo(name="words-repartition")],
                )
            ],
        ),
        members=[
            Member(
                member_id="m",
                member_epoch=3,
                client_id="c",
                client_host="/127.0.0.1",
                assignment=Assignment(
                    active_tasks=[TaskIds(subtopology_id="0", partitions=[0, 1])],
                    standby_tasks=[TaskIds(subtopology_id="0", partitions=[2])],
                ),
            )
        ],
    )

    async def ask(*_arguments: Any) -> StreamsGroupDescribeResponse:
        return StreamsGroupDescribeResponse(groups=[row])

    calls: Any = object.__new__(StreamsGroupCalls)
    calls._ask = ask
    found = await calls._describe_streams_group(SimpleNamespace(key="words"))
    (member,) = found.members
    assert member.assignment == {
        TopicPartition(topic, index) for topic in ("text", "words-repartition") for index in (0, 1)
    }
    assert kind_of(found.type, found.protocol_type) is GroupKindName.STREAMS
