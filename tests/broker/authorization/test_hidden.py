"""Responses without the resources that a client may not describe, and options it may not use."""

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.model.errors import ErrorCode
from ottla.model.security.acls import (
    OPERATIONS,
    AclEntry,
    AclOperation,
    AclPermission,
    ResourceType,
)
from ottla.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.list_groups_request import ListGroupsRequest
from ottla.wire.messages.list_transactions_request import ListTransactionsRequest
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.jepsen.oracles.acl_cases import GROUP, TOPIC, TXN, entry, refusal_in

OpenSecured = Callable[..., Any]  # the `open_secured` fixture, in conftest.py
OP, R = AclOperation, ResourceType
NOT_ASKED = -(1 << 31)
ANN, NEW = "ann", "acl-new"

pytestmark = pytest.mark.timeout(120)


def allowed(*needs: tuple[AclOperation, ResourceType], name: str | None = None) -> list[AclEntry]:
    return [entry(ANN, *need, AclPermission.ALLOW, name=name) for need in needs]


def bits(operations: Iterable[AclOperation]) -> int:
    return sum(1 << one for one in operations)


def named(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


async def test_all_topics_are_those_that_may_be_described(open_secured: OpenSecured) -> None:
    everything = MetadataRequest(topics=None)
    async with open_secured([ANN]) as secured:
        await secured.use([])
        assert (await secured.ask(ANN, everything, 9)).topics == []
        pages = DescribeTopicPartitionsRequest()
        assert (await secured.ask(ANN, pages, 0)).topics == []
        await secured.use(allowed((OP.READ, R.TOPIC)))  # which implies Describe
        found = (await secured.ask(ANN, everything, 9)).topics
        assert [topic.name for topic in found] == [TOPIC]
        found = (await secured.ask(ANN, pages, 0)).topics
        assert [topic.name for topic in found] == [TOPIC]
        assert found[0].topic_authorized_operations == bits((OP.READ, OP.DESCRIBE))


async def test_a_forbidden_topic_looks_like_an_absent_one(
    open_secured: OpenSecured,
) -> None:
    async with open_secured([ANN]) as secured:
        await secured.use([])
        answer = await secured.ask(ANN, MetadataRequest(topics=named(TOPIC, "none")), 12)
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert {(one.name, one.error_code, one.topic_id) for one in answer.topics} == {
            (TOPIC, refused, UUID(int=0)),
            ("none", refused, UUID(int=0)),
        }
        by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=secured.topic_id)])
        (one,) = (await secured.ask(ANN, by_id, 12)).topics
        assert (one.name, one.error_code, one.topic_id) == (None, refused, secured.topic_id)
        unknown = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=UUID(int=5))])
        (one,) = (await secured.ask(ANN, unknown, 12)).topics
        assert one.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_topic_is_created_for_a_client_that_may_create_it(
    open_secured: OpenSecured,
) -> None:
    asked = MetadataRequest(topics=named(NEW))
    describe = allowed((OP.DESCRIBE, R.TOPIC), name=NEW)
    async with open_secured([ANN]) as secured:
        topics = secured.broker.metadata
        for entries in ([], allowed((OP.CREATE, R.TOPIC), name=NEW), describe):
            await secured.use(entries)
            (one,) = (await secured.ask(ANN, asked, 9)).topics
            assert one.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert NEW not in topics.image.topic_ids
        await secured.use([*describe, *allowed((OP.CREATE, R.CLUSTER))])
        (one,) = (await secured.ask(ANN, asked, 9)).topics
        assert one.error_code == 0
        assert NEW in topics.image.topic_ids


async def test_operations_in_answers_are_those_that_are_allowed(open_secured: OpenSecured) -> None:
    asked = MetadataRequest(
        topics=named(TOPIC),
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    group = DescribeGroupsRequest(groups=[GROUP], include_authorized_operations=True)
    async with open_secured([ANN]) as secured:
        await secured.use(
            allowed(
                (OP.WRITE, R.TOPIC),
                (OP.ALTER_CONFIGS, R.TOPIC),
                (OP.ALTER, R.CLUSTER),
                (OP.READ, R.GROUP),
            )
        )
        await commit(secured)
        answer = await secured.ask(ANN, asked, 9)
        written = bits((OP.WRITE, OP.DESCRIBE, OP.ALTER_CONFIGS, OP.DESCRIBE_CONFIGS))
        assert answer.topics[0].topic_authorized_operations == written
        assert answer.cluster_authorized_operations == bits((OP.ALTER, OP.DESCRIBE))
        answer = await secured.ask(ANN, cluster, 1)
        assert answer.cluster_authorized_operations == bits((OP.ALTER, OP.DESCRIBE))
        (found,) = (await secured.ask(ANN, group, 5)).groups
        assert found.authorized_operations == bits((OP.READ, OP.DESCRIBE))
        answer = await secured.ask(ANN, MetadataRequest(topics=named(TOPIC)), 9)
        assert answer.topics[0].topic_authorized_operations == NOT_ASKED
        assert answer.cluster_authorized_operations == NOT_ASKED
        await secured.use(allowed((OP.CREATE, R.CLUSTER)))
        assert (await secured.ask(ANN, cluster, 1)).cluster_authorized_operations == 0
        everything = await secured.ask(None, cluster, 1)
        assert everything.cluster_authorized_operations == bits(OPERATIONS[R.CLUSTER])


async def commit(secured: Any) -> None:
    """Commit an offset of the group, which makes it."""
    request = OffsetCommitRequest(
        group_id=GROUP,
        topics=[
            OffsetCommitRequestTopic(
                name=TOPIC, partitions=[OffsetCommitRequestPartition(committed_metadata="")]
            )
        ],
    )
    assert not refusal_in(await secured.ask(None, request, 8))


async def test_groups_are_listed_that_may_be_described(open_secured: OpenSecured) -> None:
    async with open_secured([ANN]) as secured:
        await commit(secured)
        await secured.use([])
        assert (await secured.ask(ANN, ListGroupsRequest(), 4)).groups == []
        for need in ((OP.DESCRIBE, R.GROUP), (OP.DESCRIBE, R.CLUSTER)):
            await secured.use(allowed(need))
            found = (await secured.ask(ANN, ListGroupsRequest(), 4)).groups
            assert [one.group_id for one in found] == [GROUP]


async def test_all_offsets_of_a_group_are_those_of_topics_that_may_be_described(
    open_secured: OpenSecured,
) -> None:
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    async with open_secured([ANN]) as secured:
        await commit(secured)
        for needs, topics in (
            ([(OP.DESCRIBE, R.GROUP)], []),
            ([(OP.DESCRIBE, R.GROUP), (OP.DESCRIBE, R.TOPIC)], [TOPIC]),
        ):
            await secured.use(allowed(*needs))
            (group,) = (await secured.ask(ANN, asked, 8)).groups
            assert group.error_code == 0
            assert [one.name for one in group.topics] == topics


async def test_transactions_are_listed_that_may_be_described(open_secured: OpenSecured) -> None:
    async with open_secured([ANN]) as secured:
        begun = InitProducerIdRequest(transactional_id=TXN, transaction_timeout_ms=10_000)
        with trio.fail_after(60):
            while (await secured.ask(None, begun, 4)).error_code:
                await trio.sleep(0.05)
        for needs, ids in (([], []), ([(OP.DESCRIBE, R.TRANSACTIONAL_ID)], [TXN])):
            await secured.use(allowed(*needs))
            found = (await secured.ask(ANN, ListTransactionsRequest(), 0)).transaction_states
            assert [one.transactional_id for one in found] == ids


async def test_a_group_that_works_on_a_hidden_topic_is_not_described(
    open_secured: OpenSecured,
) -> None:
    joined = ConsumerGroupHeartbeatRequest(
        group_id="acl-consumers",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    asked = ConsumerGroupDescribeRequest(group_ids=["acl-consumers"])
    group = allowed((OP.DESCRIBE, R.GROUP), name="acl-consumers")
    async with open_secured([ANN]) as secured:
        assert not (await secured.ask(None, joined, 1)).error_code
        await secured.use(group)
        (found,) = (await secured.ask(ANN, asked, 0)).groups
        assert found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert found.members == []
        await secured.use([*group, *allowed((OP.DESCRIBE, R.TOPIC))])
        (found,) = (await secured.ask(ANN, asked, 0)).groups
        assert [one.member_id for one in found.members] == ["m"]


async def test_a_regex_subscribes_no_topic_that_a_member_may_not_see(
    open_secured: OpenSecured,
) -> None:
    group_id = "acl-consumers"

    def beat(epoch: int, **changes: Any) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id="m", member_epoch=epoch, **changes
        )

    asked = ConsumerGroupDescribeRequest(group_ids=[group_id])
    joined = {
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_regex": "acl-.*",
        "topic_partitions": [],
    }
    group = allowed((OP.READ, R.GROUP), name=group_id)

    async def assigned(secured: Any) -> set[str]:
        (found,) = (await secured.ask(None, asked, 1)).groups
        (member,) = found.members
        return {one.topic_name for one in member.target_assignment.topic_partitions}

    async with open_secured([ANN]) as secured:
        await secured.ask(None, MetadataRequest(topics=named(NEW)), 9)
        await secured.use([*group, *allowed((OP.DESCRIBE, R.TOPIC))])
        answer = await secured.ask(ANN, beat(0, **joined), 1)
        assert answer.error_code == 0
        assert await assigned(secured) == {TOPIC}
        await secured.use([*group, *allowed((OP.DESCRIBE, R.TOPIC), name="*")])
        answer = await secured.ask(ANN, beat(answer.member_epoch), 1)
        assert await assigned(secured) == {TOPIC, NEW}
        await secured.use([*group, *allowed((OP.DESCRIBE, R.TOPIC), name=NEW)])
        await secured.ask(ANN, beat(answer.member_epoch), 1)
        assert await assigned(secured) == {NEW}
