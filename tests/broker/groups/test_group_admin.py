"""Groups of either protocol, as three admin APIs describe them."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.groups.consumer.describe_consumers import ConsumerGroupDescribeApi
from ottla.broker.groups.group_admin_apis import GroupAdminApis
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.codec import encode
from ottla.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_describe_response import Assignment, DescribedGroup
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.describe_groups_response import DescribedGroup as DescribedClassicGroup
from ottla.wire.messages.list_groups_request import ListGroupsRequest

NO_OPERATIONS = -(1 << 31)


class CoordinatorDouble:
    """A coordinator of one shard, which has every group but "elsewhere"."""

    is_loading = False

    def __init__(self, groups: Any) -> None:
        self._groups = groups

    def shard_of(self, group_id: str) -> Any:
        if group_id == "elsewhere":
            raise RefusedError(ErrorCode.NOT_COORDINATOR)
        return self._groups.shard

    def shards(self) -> Iterator[Any]:
        yield self._groups.shard


def describe(groups: Any, *group_ids: str, is_served: bool = True, **more: Any) -> Any:
    """Ask ConsumerGroupDescribe."""
    api = ConsumerGroupDescribeApi(
        CoordinatorDouble(groups),  # type: ignore[arg-type]
        default_assignor="uniform",
        is_served=lambda: is_served,
        image=lambda: groups.topics.image,
    )
    request = ConsumerGroupDescribeRequest(group_ids=list(group_ids or ("group",)), **more)
    answer: Any = api.describe(SimpleNamespace(api_version=1, permissions=None), request)  # type: ignore[arg-type]
    return answer.groups if group_ids else answer.groups[0]


def describe_classic(groups: Any, *group_ids: str, version: int, **more: Any) -> list[Any]:
    """Ask DescribeGroups."""
    answer: Any = GroupAdminApis(CoordinatorDouble(groups)).describe(  # type: ignore[arg-type]
        SimpleNamespace(api_version=version, permissions=None),  # type: ignore[arg-type]
        DescribeGroupsRequest(groups=list(group_ids), **more),
    )
    return list(answer.groups)


def listed(groups: Any, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> set[str]:
    """Send ListGroups; return one line for each group in the response."""
    answer: Any = GroupAdminApis(CoordinatorDouble(groups)).list(  # type: ignore[arg-type]
        SimpleNamespace(api_version=5, permissions=None),  # type: ignore[arg-type]
        ListGroupsRequest(states_filter=list(states), types_filter=list(types)),
    )
    return {
        f"{one.group_id} {one.group_type} {one.group_state} {one.protocol_type}".strip()
        for one in answer.groups
    }


def partitions(assignment: Assignment) -> dict[tuple[UUID, str], list[int]]:
    return {(one.topic_id, one.topic_name): one.partitions for one in assignment.topic_partitions}


def consumer_heartbeat(groups: Any, member_id: str) -> None:
    member = groups.consumers.members[member_id]
    groups.consumer_heartbeat(member_id, member.member_epoch, owned=member.assigned)


def test_a_consumer_group_is_described_with_its_epochs_and_both_assignments_of_members(
    groups: Any,
) -> None:
    orders, payments = groups.make_topic("orders", 2), groups.make_topic("payments", 1)
    groups.enter("b", ("payments", "orders"))

    found = describe(groups)

    assert (found.error_code, found.error_message) == (ErrorCode.NONE, None)
    assert (found.group_id, found.group_state) == ("group", "Stable")
    assert (found.group_epoch, found.assignment_epoch) == (1, 1)
    assert found.assignor_name == "uniform"
    assert found.authorized_operations == NO_OPERATIONS
    (member,) = found.members
    assert (member.member_id, member.member_epoch, member.member_type) == ("b", 1, 1)
    assert member.client_id and member.client_host.startswith("/")
    assert member.subscribed_topic_names == ["orders", "payments"]
    assert member.subscribed_topic_regex == ""
    everything = {(orders, "orders"): [0, 1], (payments, "payments"): [0]}
    assert partitions(member.assignment) == partitions(member.target_assignment) == everything


def test_while_a_member_gives_up_its_target_is_not_its_assignment(groups: Any) -> None:
    topic = groups.make_topic("orders", 2)
    groups.enter("b")
    groups.enter("a")

    found = describe(groups)

    assert found.group_state == "Reconciling"
    assert (found.group_epoch, found.assignment_epoch) == (2, 2)
    new, old = found.members
    assert (new.member_id, old.member_id) == ("a", "b"), "they come in order"
    assert partitions(new.assignment) == {}
    assert len(partitions(new.target_assignment)[topic, "orders"]) == 1
    assert partitions(old.assignment) == {(topic, "orders"): [0, 1]}
    assert len(partitions(old.target_assignment)[topic, "orders"]) == 1
    for member_id in ("b", "a", "b", "a"):
        consumer_heartbeat(groups, member_id)
    assert describe(groups).group_state == "Stable"


def test_a_topic_that_is_gone_is_left_out(groups: Any) -> None:
    kept = groups.make_topic("orders", 1)
    groups.make_topic("payments", 1)
    groups.enter("a", ("orders", "payments"))
    groups.drop_topic("payments")
    assert partitions(describe(groups).members[0].assignment) == {(kept, "orders"): [0]}


def test_operations_are_described_on_request(groups: Any) -> None:
    groups.enter("a")
    assert describe(groups, include_authorized_operations=True).authorized_operations == 3400


def test_a_member_of_the_classic_protocol_is_described_as_such(groups: Any) -> None:
    topic = groups.make_topic("orders", 2)
    groups.enter("new")
    subscribed = ConsumerProtocolSubscription(topics=["orders"])
    metadata = b"\0\1" + encode(subscribed, 1)
    old = groups.join(protocols=[("range", metadata)]).answer.member_id

    types = {one.member_id: one.member_type for one in describe(groups).members}
    targets = {one.member_id: one.target_assignment for one in describe(groups).members}

    assert types == {"new": 1, old: 0}
    assert len(partitions(targets[old])[topic, "orders"]) == 1


def test_groups_that_cannot_be_described_stand_beside_those_that_can(groups: Any) -> None:
    groups.enter("a")
    groups.commit(group_id="classic")

    found = describe(groups, "group", "missing", "classic", "elsewhere", "")

    assert [(one.group_id, one.error_code, one.error_message) for one in found[:3]] == [
        ("group", ErrorCode.NONE, None),
        ("missing", ErrorCode.GROUP_ID_NOT_FOUND, "Group missing not found."),
        ("classic", ErrorCode.GROUP_ID_NOT_FOUND, "Group classic is not a consumer group."),
    ]
    assert found[3].error_code == ErrorCode.NOT_COORDINATOR
    assert found[4].error_code == ErrorCode.INVALID_GROUP_ID


def test_where_the_protocol_is_not_served_nothing_is_described(groups: Any) -> None:
    groups.enter("a")
    found = describe(groups, is_served=False)
    assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert found.members == DescribedGroup().members


@pytest.mark.parametrize("version", [5, 6])
def test_describe_groups_finds_no_consumer_group_and_says_why_since_version_6(
    groups: Any, version: int
) -> None:
    groups.enter("a")
    found, missing = describe_classic(groups, "group", "missing", version=version)
    assert found.group_state == missing.group_state == "Dead"
    if version >= 6:
        assert found.error_code == missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert found.error_message == "Group group is not a classic group."
        assert missing.error_message == "Group missing not found."
    else:
        assert found.error_code == missing.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [5, 6])
def test_operations_are_described_for_every_group_without_an_error(
    groups: Any, version: int
) -> None:
    groups.commit(group_id="classic")
    found = describe_classic(
        groups,
        "classic",
        "missing",
        "elsewhere",
        version=version,
        include_authorized_operations=True,
    )
    unknown = DescribedClassicGroup().authorized_operations
    assert [one.authorized_operations for one in found] == [
        3400,
        3400 if version < 6 else unknown,
        unknown,
    ]


def test_groups_of_both_protocols_are_listed_by_state_and_type(groups: Any) -> None:
    groups.make_topic("orders", 1)
    groups.enter("a")
    groups.commit(group_id="offsets")
    new, old = "group consumer Stable consumer", "offsets classic Empty"
    assert listed(groups) == {new, old}
    assert listed(groups, types=["Consumer"]) == {new}
    assert listed(groups, types=["classic"]) == {old}
    assert listed(groups, types=["CONSUMER", "classic"], states=["empty"]) == {old}
    assert listed(groups, states=["stable", "Reconciling"]) == {new}
    assert listed(groups, types=["share"]) == listed(groups, states=["nonsense"]) == set()
    groups.enter("b")
    assert listed(groups, states=["reconciling"]) == {"group consumer Reconciling consumer"}
